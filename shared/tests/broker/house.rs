//! A prefix of one's own on the broker that `AMQP_URL` names.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures::FutureExt as _;
use secrecy::SecretString;
use shared::broker::{Consumer, Operator, Publisher, Settings, Subscription, Topology};
use shared::domain::message::Message;
use shared::domain::task::{Priority, TaskId};
use shared::shutdown::Shutdown;
use tokio::time::timeout;
use url::Url;

use crate::proxy::Proxy;

/// The pool of every test.
pub const POOL: &str = "io_pool";

/// Longest wait for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The broker under test.
pub fn amqp_url() -> Url {
    shared::testing::needed("AMQP_URL").parse().expect("AMQP_URL is a URL")
}

/// Settings, topology and an operator's connection under a prefix of its own.
pub struct House {
    pub settings: Settings,
    pub topology: Topology,
    pub operator: Operator,
    pub shutdown: Shutdown,
}

impl House {
    /// Runs a test in a fresh house and cleans up, also after a panic.
    pub async fn run(test: impl AsyncFnOnce(&House)) {
        let prefix = format!("test-{}", TaskId::new());
        let url = SecretString::from(String::from(amqp_url()));
        let settings = Settings::new(url, &prefix, "test@here#1");
        let house = House {
            topology: Topology::new(&prefix, [POOL]),
            operator: Operator::connect(&settings).await.expect("a broker that answers"),
            settings,
            shutdown: Shutdown::new(),
        };
        let ended = AssertUnwindSafe(test(&house)).catch_unwind().await;
        house.shutdown.soft.cancel();
        house.shutdown.hard.cancel();
        within(house.shutdown.drained()).await;
        house.operator.delete_all(&house.topology).await.expect("deleted");
        house.operator.close().await;
        if let Err(panic) = ended {
            resume_unwind(panic);
        }
    }

    /// The same house, seen through a proxy.
    pub fn through(&self, proxy: &Proxy) -> Door<'_> {
        let mut url = amqp_url();
        url.set_host(Some("127.0.0.1")).expect("a host");
        url.set_port(Some(proxy.port)).expect("a port");
        let url = SecretString::from(String::from(url));
        Door { house: self, settings: Settings { url, ..self.settings.clone() } }
    }

    /// A publisher that is ready.
    pub async fn publisher(&self) -> Publisher {
        Door { house: self, settings: self.settings.clone() }.publisher().await
    }

    /// A consumer of the pool.
    pub fn consumer(&self, prefetch: u16) -> Consumer {
        self.consume(self.topology.pool_queue(POOL), prefetch)
    }

    /// A consumer of any queue.
    pub fn consume(&self, queue: String, prefetch: u16) -> Consumer {
        Door { house: self, settings: self.settings.clone() }.consume(queue, prefetch)
    }
}

/// A way into the house.
pub struct Door<'a> {
    house: &'a House,
    settings: Settings,
}

impl Door<'_> {
    pub async fn publisher(&self) -> Publisher {
        let House { topology, shutdown, .. } = self.house;
        let publisher = Publisher::start(&self.settings, topology, shutdown).expect("a good URL");
        publisher.ready(PATIENCE).await.expect("connected");
        publisher
    }

    pub fn consumer(&self, prefetch: u16) -> Consumer {
        self.consume(self.house.topology.pool_queue(POOL), prefetch)
    }

    fn consume(&self, queue: String, prefetch: u16) -> Consumer {
        let House { topology, shutdown, .. } = self.house;
        let subscription = Subscription { queue, prefetch, tag: "io_pool@here".to_owned() };
        Consumer::start(&self.settings, topology, subscription, shutdown).expect("a good URL")
    }
}

/// A message for the pool.
pub fn message() -> Message {
    let task_id = TaskId::new();
    Message {
        task_id,
        task_type: "http_call".into(),
        pool: POOL.into(),
        name: "daily_order_sync".into(),
        execution_key: task_id.to_string(),
        run: 0,
        failures: 0,
        max_retry: 3,
        schedule: None,
        scheduled_for: None,
        traceparent: None,
        previous_attempt: None,
        failure: None,
        worker: None,
        dead_letter: None,
        priority: Priority::Normal,
    }
}

/// Fails the test instead of hanging it.
#[track_caller]
pub fn within<T>(doing: impl Future<Output = T>) -> impl Future<Output = T> {
    let place = std::panic::Location::caller();
    async move {
        timeout(PATIENCE, doing)
            .await
            .unwrap_or_else(|_| panic!("{place}: not within {PATIENCE:?}"))
    }
}

/// Asks again until it is so.
pub async fn eventually(is_so: impl AsyncFn() -> bool) {
    shared::testing::within(PATIENCE, "it is so", async || is_so().await.then_some(())).await;
}

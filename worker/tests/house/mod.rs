//! A worker with its database and its corner of the broker, embedded as a Rust user would.

use std::time::Duration;

use serde_json::Value;
use shared::broker::{Operator, Publisher, Settings, Topology};
use shared::config::{self, Config};
use shared::domain::task::{NewTask, TaskId, TaskState};
use shared::relay::Relay;
use shared::shutdown::Shutdown;
use shared::store::{Store, TaskRow};
use shared::testing::{TestDatabase, eventually, needed};
use uuid::Uuid;
use worker::handler::Handlers;
use worker::run::{self, Options};

/// See the module.
pub struct House {
    pub database: TestDatabase,
    pub store: Store,
    pub relay: Relay,
    pub topology: Topology,
    pub settings: Settings,
    pub shutdown: Shutdown,
    pub serving: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl House {
    /// With the handlers of a story, and lines of configuration at its end.
    pub async fn open(handlers: Handlers, more: &str) -> Self {
        shared::http::install_crypto();
        let database = TestDatabase::create().await;
        let config = config_of(&database, more);
        let shutdown = Shutdown::new();
        let prefix = config.rabbitmq.prefix.clone();
        let url = config.amqp_url().expect("a broker").clone();
        let settings = Settings::new(url, &prefix, "test");
        let topology = Topology::new(&prefix, ["io_pool".to_owned()]);
        let publisher = Publisher::start(&settings, &topology, &shutdown).expect("a valid URL");
        let store = database.store();
        let relay = Relay::new(store.clone(), publisher);
        #[expect(
            clippy::disallowed_methods,
            reason = "the worker's own tracker cannot wait for it"
        )]
        let serving =
            tokio::spawn(run::serve(config, Options::default(), handlers, shutdown.clone()));
        Self { database, store, relay, topology, settings, shutdown, serving }
    }

    pub async fn given(&self, payload: Value, change: impl FnOnce(&mut NewTask)) -> TaskId {
        let mut task = NewTask::ad_hoc("fixture", "io_pool", payload);
        task.retry.base = Duration::from_millis(200);
        change(&mut task);
        let id = self.store.enqueue(task).await.expect("enqueued").task_id;
        self.relay.publish_now(&[id]).await.expect("published");
        id
    }

    pub async fn ended(&self, task: TaskId, state: TaskState) -> TaskRow {
        eventually(&format!("{task} is {state}"), async || {
            let row = self.store.task(task).await.expect("read").expect("a task");
            (row.summary.state == state).then_some(row)
        })
        .await
    }

    pub async fn close(self) {
        self.shutdown.soft.cancel();
        self.serving.await.expect("no panic").expect("a clean end");
        let operator = Operator::connect(&self.settings).await.expect("a broker");
        operator.delete_all(&self.topology).await.expect("deleted");
        operator.close().await;
        drop(self.database);
    }
}

fn config_of(database: &TestDatabase, more: &str) -> Config {
    let text = format!(
        "scheduler: {{heartbeat_interval: 1, heartbeat_ttl: 3}}\n\
         storage:\n  postgres: {{dsn: '{}'}}\n  rabbitmq: {{url: '{}', prefix: 'test_{}'}}\n\
         task_pools:\n  io_pool: {{max_workers: 4, task_types: [fixture]}}\n{more}\n",
        database.dsn,
        needed("AMQP_URL"),
        Uuid::new_v4().simple(),
    );
    config::load_str(&text, "test.yaml", &|_| None).expect("a valid configuration")
}

//! A house with daemons in it: the real `producer run`, and a client of the broker.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use shared::broker::{
    Consumer, Delivery, Destination, Operator, Properties, Publisher, Subscription,
};
use shared::shutdown::Shutdown;
use shared::store::{DeadFilter, DeadLetter};
use shared::testing::{PATIENCE, eventually, needed};

use crate::house::House;

pub struct Tower {
    pub house: House,
    pub publisher: Publisher,
    pub operator: Operator,
    pub shutdown: Shutdown,
}

impl Tower {
    pub async fn open() -> Self {
        let house = House::open().await.with_broker().await;
        // A leader that was killed is followed within two seconds.
        let quick = "scheduler: {heartbeat_interval: 1, heartbeat_ttl: 2}";
        house.configure(&needed("AMQP_URL"), quick);
        let shutdown = Shutdown::new();
        let publisher = Publisher::start(&house.settings, &house.topology, &shutdown);
        let operator = Operator::connect(&house.settings).await.expect("a broker that answers");
        let publisher = publisher.expect("a good URL");
        publisher.ready(PATIENCE).await.expect("a publishing connection");
        Self { house, publisher, operator, shutdown }
    }

    /// Starts `producer run`.
    pub fn producer(&self, name: &str) -> Daemon {
        let log = self.house.dir.path().join(name);
        let file = std::fs::File::create(&log).expect("a log");
        let mut command = self.house.command(&["run"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        Daemon { child: command.spawn().expect("started"), log }
    }

    /// Drops a request into the inbox.
    pub async fn ask(&self, body: &str, properties: Properties) {
        let inbox = self.house.topology.inbox();
        let sent = self.publisher.publish_raw(&inbox, "", body.as_bytes(), &properties).await;
        sent.expect("confirmed");
    }

    /// Waits until so many messages are ready in a queue.
    pub async fn has(&self, queue: &str, count: u32) {
        let late = Instant::now() + PATIENCE * 9 / 10;
        eventually(queue, async || {
            let found = self.operator.depth(queue).await.expect("looked");
            assert!(Instant::now() < late, "{queue} has {found:?}, not {count}{}", self.told());
            (found == Some(count)).then_some(())
        })
        .await;
    }

    /// What the daemons have logged, alerts apart.
    fn told(&self) -> String {
        let mut told = String::new();
        for entry in std::fs::read_dir(self.house.dir.path()).expect("a directory").flatten() {
            let name = entry.file_name().into_string().expect("UTF-8");
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                let said = std::fs::read_to_string(entry.path()).unwrap_or_default();
                let lines = said.lines().filter(|line| !line.contains("producer::alerts"));
                told = lines.fold(told + "\n== " + &name, |told, line| told + "\n" + line);
            }
        }
        told
    }

    /// Waits until so many letters are open.
    pub async fn letters(&self, count: usize) -> Vec<DeadLetter> {
        eventually(&format!("{count} open letters"), async || {
            let letters = self.house.store.dead_letters(&DeadFilter::default(), 1000).await;
            letters.ok().filter(|letters| letters.len() == count)
        })
        .await
    }

    /// Takes and acks so many messages of a queue.
    pub async fn taken(&self, queue: String, count: usize) -> Vec<Taken> {
        let prefetch = u16::try_from(count).expect("few");
        let subscription = Subscription { queue, prefetch, tag: "test".to_owned() };
        let (settings, topology) = (&self.house.settings, &self.house.topology);
        let mut consumer =
            Consumer::start(settings, topology, subscription, &self.shutdown).expect("a good URL");
        let mut all = Vec::new();
        while all.len() < count {
            let delivery = consumer.next().await.expect("a delivery");
            all.push(Taken::of(&delivery));
            delivery.ack().await;
        }
        consumer.stop_consuming().await;
        all
    }

    /// Puts the copy of an open letter among the dead, as a worker does.
    pub async fn copied(&self, letter: i64) {
        let letters = self.house.store.unpublished_letters(Duration::ZERO).await;
        let letters = letters.expect("read");
        let message = letters.iter().find(|message| message.dead_letter == Some(letter));
        let message = message.expect("not published yet");
        self.publisher.publish(Destination::Dead, message).await.expect("confirmed");
        self.house.store.mark_letters(&[letter]).await.expect("marked");
    }
}

impl Drop for Tower {
    fn drop(&mut self) {
        self.shutdown.soft.cancel();
        self.shutdown.hard.cancel();
    }
}

/// What a test looks at in a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken {
    pub body: String,
    pub key: String,
    pub letter: Option<i64>,
    pub error: Option<String>,
    pub message_id: Option<String>,
    pub traceparent: Option<String>,
}

impl Taken {
    fn of(delivery: &Delivery) -> Self {
        Self {
            body: String::from_utf8_lossy(delivery.raw()).into_owned(),
            key: delivery.routing_key().to_owned(),
            letter: delivery.dead_letter(),
            error: delivery.header("error-message").map(str::to_owned),
            message_id: delivery.message_id().map(str::to_owned),
            traceparent: delivery.traceparent().map(str::to_owned),
        }
    }
}

/// A running `producer run`; killed with this value.
pub struct Daemon {
    child: Child,
    log: std::path::PathBuf,
}

impl Daemon {
    /// SIGKILL.
    pub fn kill(mut self) {
        self.end();
    }

    /// Waits until it has said this.
    pub async fn says(&self, part: &str) {
        eventually(part, async || {
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            said.contains(part).then_some(())
        })
        .await;
    }

    /// Sends it a signal by name: `STOP`, `CONT`, `TERM`.
    pub fn signal(&self, name: &str) {
        let mut kill = std::process::Command::new("kill");
        let sent = kill.args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill").success(), "{name} was not sent");
    }

    /// `producer@host#pid` ends so.
    pub fn label(&self) -> String {
        format!("#{}", self.child.id())
    }

    fn end(&mut self) {
        // Fails only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

//! Whatever anybody sends: each message ends in a defined place, the work goes on, memory stays
//! bounded, and no log repeats what was sent.

#[path = "fleet/programs.rs"]
mod programs;
#[path = "hostile/raw.rs"]
mod raw;
#[path = "hostile/sent.rs"]
mod sent;

use std::time::{Duration, Instant};

use loadtest::database;
use loadtest::fleet::{Door, Ground, Member, Role};
use serde_json::json;
use shared::broker::{Consumer, Operator, Subscription};
use shared::config;
use shared::domain::task::{NewTask, TaskId, TaskState};
use shared::shutdown::Shutdown;
use shared::store::{DeadFilter, DeadLetter};
use shared::testing::{needed, within};
use tokio_postgres::Client;
use uuid::Uuid;

use raw::{Raw, Sent, entry, long};
use sent::{Case, End, MEGABYTE, nested, pointer, to_the_inbox, to_the_pool};

/// Time for a process to be ready, or to stop, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for everything sent to end.
const ENDED: Duration = Duration::from_secs(240);
/// Most memory of a process at any moment, in bytes: some 60 MB for itself, the ten bodies of ten
/// megabytes where all are in hand, and copies of some of them on their way to the dead letters.
const MAX_PEAK_RSS: u64 = 256 * 1024 * 1024;
/// Longest line of a log, in bytes.
const MAX_LOG_LINE: usize = 4096;
/// Copies of one message to the pool, and of one request to the inbox, whose copies cost a
/// statement each.
const COPIES: usize = 10_000;
const REQUESTS: usize = 1000;

const HOUSE: &str = "
task_pools:
  io_pool: {max_workers: 8, task_types: [probe]}
  cpu_pool: {max_workers: 2, task_types: [http_call]}
";

/// A producer, a worker, and ways to look at them.
struct House {
    ground: Ground,
    door: Door,
    client: Client,
    operator: Operator,
    producer: Member,
    worker: Member,
}

impl House {
    async fn open(name: &str) -> Self {
        programs::are_fresh();
        let lookup = |name: &str| match name {
            "DATABASE_URL" | "AMQP_URL" => Some(needed(name)),
            _ => None,
        };
        let services = config::load_str("", "environment", &lookup).expect("addresses");
        let ground = Ground::prepare(&services, name, HOUSE).await.expect("ground");
        let door = Door::open(&ground).await.expect("a door");
        let dsn = ground.config().database_url().expect("an address");
        let client = database::connect(dsn).await.expect("a database");
        let settings = ground.settings().expect("an address");
        let operator = Operator::connect(&settings).await.expect("a broker that answers");
        let mut producer = Member::start(&ground, Role::Producer).expect("started");
        let mut worker = Member::start(&ground, Role::Worker).expect("started");
        producer.ready(PATIENCE).await.expect("ready");
        worker.ready(PATIENCE).await.expect("ready");
        Self { ground, door, client, operator, producer, worker }
    }

    async fn given(&self) -> TaskId {
        let task = NewTask::ad_hoc("probe", "io_pool", json!({"echo": "canary"}));
        let id = task.id;
        self.door.accept(&[task]).await.expect("accepted");
        id
    }

    async fn completed(&self, task: TaskId) {
        within(ENDED, "the task completes", async || {
            let row = self.door.store.task(task).await.expect("asked")?;
            (row.summary.state == TaskState::Completed).then_some(())
        })
        .await;
    }

    async fn runs(&self, task: TaskId) -> i64 {
        self.count("SELECT count(*) FROM attempts WHERE task_id = $1", &[&task.0]).await
    }

    async fn count(&self, sql: &str, values: &[&(dyn tokio_postgres::types::ToSql + Sync)]) -> i64 {
        self.client.query_one(sql, values).await.expect(sql).get(0)
    }

    async fn letters(&self) -> Vec<DeadLetter> {
        self.door.store.dead_letters(&DeadFilter::default(), 1000).await.expect("letters")
    }

    /// Waits until a queue has so many messages, and nothing of it is in anybody's hands.
    async fn has(&self, queue: &str, wanted: usize) {
        within(ENDED, &format!("{queue} has {wanted}"), async || {
            let found = self.operator.depth(queue).await.expect("asked").unwrap_or(0);
            (found as usize == wanted).then_some(())
        })
        .await;
    }

    /// Stops both, and takes everything away.
    async fn leave(self) {
        let Self { ground, door, operator, producer, worker, .. } = self;
        producer.stop(PATIENCE).await.expect("stopped");
        worker.stop(PATIENCE).await.expect("stopped");
        let longest = longest_line(&ground);
        operator.close().await;
        door.close().await;
        ground.clear().await.expect("nothing left behind");
        assert!(longest.len() <= MAX_LOG_LINE, "{} bytes: {:.300}", longest.len(), longest);
    }

    fn memory(&self) {
        for member in [&self.producer, &self.worker] {
            let peak = member.usage().expect("alive").peak_rss;
            let name = member.role.program();
            eprintln!("{name}: at most {} MB", peak / 1_000_000);
            assert!(peak <= MAX_PEAK_RSS, "{name} took {peak} bytes, over {MAX_PEAK_RSS}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_sent_ends_in_a_defined_place_and_the_work_goes_on() {
    let house = House::open("hostile").await;
    let began = Instant::now();
    let tell = |what: &str| eprintln!("{:6.2} s  {what}", began.elapsed().as_secs_f64());
    let topology = house.ground.topology();
    let mut raw = Raw::connect(&needed("AMQP_URL")).await;
    let finished = house.given().await;
    house.completed(finished).await;

    let (pool, inbox) = (to_the_pool(), to_the_inbox());
    for (exchange, cases) in [(topology.tasks(), &pool), (topology.inbox(), &inbox)] {
        for case in cases {
            // A routing key need be no text either.
            let sent = raw.publish(&exchange, b"io_pool.\xff\xfe", &case.sent).await;
            sent.unwrap_or_else(|error| panic!("{error}: {:.60?}", case.sent.body));
        }
    }
    let forged = entry("dead-letter", b'l', &1_i64.to_be_bytes());
    let dead_end = Sent::body(pointer(finished));
    for sent in [dead_end.clone(), dead_end.headers(&forged)] {
        raw.publish(&topology.tasks(), b"io_pool.probe", &sent).await.expect("taken");
    }
    let elsewhere = NewTask::ad_hoc("probe", "cpu_pool", json!({}));
    let other = elsewhere.id;
    house.door.commit(&[elsewhere]).await.expect("committed");
    let astray = Sent::body(pointer(other));
    raw.publish(&topology.tasks(), b"io_pool.probe", &astray).await.expect("taken");
    tell("everything is sent");

    let ends = |wanted: fn(&End) -> bool| {
        pool.iter().chain(&inbox).filter(|case| wanted(&case.end)).count()
    };
    let (letters, orphans) =
        (ends(|end| matches!(end, End::Letter(_))), ends(|end| matches!(end, End::Orphan)));
    let tasks = ends(|end| matches!(end, End::Task));
    house.has(&topology.dead(), letters + orphans).await;
    house.has(&topology.pool_queue("io_pool"), 0).await;
    house.has(&topology.inbox(), 0).await;
    tell("everything has ended");
    house.completed(house.given().await).await;
    house.completed(other).await;
    tell("the work goes on");
    within(ENDED, "each request's task completes", async || {
        let sql = "SELECT count(*) FROM tasks WHERE state = 'completed'";
        (house.count(sql, &[]).await == i64::try_from(tasks).expect("few") + 3).then_some(())
    })
    .await;
    assert_eq!((house.runs(finished).await, house.runs(other).await), (1, 1));
    each_has_its_letter(pool.iter().chain(&inbox), house.letters().await);

    // A closed letter makes the mirror walk past all the others, the large ones too.
    let closed = house.letters().await[0].id;
    house.door.store.discard(closed, "the test").await.expect("asked");
    within(ENDED, "a walk has passed them all", async || {
        house.door.store.stale_letters().await.expect("asked").is_empty().then_some(())
    })
    .await;
    house.has(&topology.dead(), letters + orphans - 1).await;
    tell("a walk has passed them all");
    house.memory();
    // It would miss the copies that are taken now.
    house.producer.terminate().await.expect("told");
    within(PATIENCE, "the producer stops", async || {
        (!house.producer.is_ready().await).then_some(())
    })
    .await;
    let copies = copies(&house, letters + orphans - 1).await;
    assert_eq!(copies.iter().filter(|copy| copy.letter.is_none()).count(), orphans);
    for letter in house.letters().await {
        let its = copies.iter().filter(|copy| copy.letter == Some(letter.id)).collect::<Vec<_>>();
        let [copy] = its[..] else { panic!("{} copies of {letter:?}", its.len()) };
        assert_eq!(copy.reason.as_deref(), Some(letter.error_message.as_str()));
    }
    house.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_copies_of_one_message_run_its_task_once() {
    let house = House::open("copies").await;
    let topology = house.ground.topology();
    let mut raw = Raw::connect(&needed("AMQP_URL")).await;
    let task = NewTask::ad_hoc("probe", "io_pool", json!({"sleep_ms": 500}));
    let id = task.id;
    house.door.commit(&[task]).await.expect("committed");
    let began = Instant::now();

    let copy = Sent::body(pointer(id));
    for _ in 0..COPIES {
        raw.send(&topology.tasks(), b"io_pool.probe", &copy).await.expect("sent");
    }
    let request = Sent::body(r#"{"type":"probe"}"#).message_id(b"the only one");
    for _ in 0..REQUESTS {
        raw.send(&topology.inbox(), b"", &request).await.expect("sent");
    }
    raw.confirmed().await.expect("all taken");

    house.completed(id).await;
    house.has(&topology.pool_queue("io_pool"), 0).await;
    house.has(&topology.inbox(), 0).await;
    house.completed(house.given().await).await;
    eprintln!("{COPIES} + {REQUESTS} copies are gone after {:.1?}", began.elapsed());
    let asked = "SELECT count(*) FROM tasks WHERE id <> $1";
    assert_eq!((house.runs(id).await, house.count(asked, &[&id.0]).await), (1, 2));
    assert_eq!(house.letters().await.len(), 0);
    house.memory();
    house.leave().await;
}

/// The broker takes no header beyond the frame's 128 KiB and ends the sender's connection; nothing
/// of it arrives.
#[tokio::test]
async fn a_megabyte_of_headers_is_the_senders_error() {
    let names: Vec<u8> =
        (0..21_000).flat_map(|n| entry(&format!("{n:06}"), b'S', &long(&[b'v'; 40]))).collect();
    let shapes =
        [entry("a", b'S', &long(&vec![b'v'; MEGABYTE])), names, nested(b'F', MEGABYTE / 7)];
    for table in shapes {
        assert!(table.len() >= MEGABYTE - 100, "{}", table.len());
        let mut raw = Raw::connect(&needed("AMQP_URL")).await;
        let sent = Sent::body(pointer(Uuid::now_v7())).headers(&table);

        let refused = raw.publish("amq.fanout", b"", &sent).await.expect_err("refused");

        assert!(
            refused.contains("FRAME") || refused.contains("reset") || refused.contains("eof"),
            "{refused}"
        );
    }
}

fn each_has_its_letter<'a>(cases: impl Iterator<Item = &'a Case>, mut letters: Vec<DeadLetter>) {
    for case in cases {
        let End::Letter(reason) = case.end else { continue };
        let sent =
            start(&String::from_utf8_lossy(&case.sent.body[..case.sent.body.len().min(400)]));
        let is_its =
            |letter: &DeadLetter| letter.body.as_deref().map(start).as_ref() == Some(&sent);
        let found = letters
            .iter()
            .position(|letter| is_its(letter) && letter.error_message.contains(reason));
        let found = found.unwrap_or_else(|| {
            let said = letters.iter().filter(|letter| is_its(letter)).map(|its| &its.error_message);
            panic!("no letter says {reason:?} of {sent:?}, but {:?}", said.collect::<Vec<_>>())
        });
        assert_eq!(letters.swap_remove(found).error_class, "invalid");
    }
    assert!(letters.is_empty(), "{letters:?}");
}

/// As much of a body as tells it from the others.
fn start(body: &str) -> String {
    body.chars().take(90).map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect()
}

struct Copy {
    letter: Option<i64>,
    reason: Option<String>,
}

/// Takes what is in the dead queue.
async fn copies(house: &House, count: usize) -> Vec<Copy> {
    let (settings, topology) =
        (house.ground.settings().expect("an address"), house.ground.topology());
    let subscription = Subscription { queue: topology.dead(), prefetch: 5, tag: "test".to_owned() };
    let shutdown = Shutdown::new();
    let mut consumer =
        Consumer::start(&settings, &topology, subscription, &shutdown).expect("a good address");
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let delivery = consumer.next().await.expect("a copy");
        let reason = delivery.header("error-message").map(str::to_owned);
        all.push(Copy { letter: delivery.dead_letter(), reason });
        delivery.ack().await;
    }
    consumer.stop_consuming().await;
    drop(consumer);
    shutdown.soft.cancel();
    shutdown.hard.cancel();
    shutdown.drained().await;
    all
}

fn longest_line(ground: &Ground) -> String {
    let files = std::fs::read_dir(ground.directory()).expect("a directory").flatten();
    let logs = files.filter(|file| file.path().extension().is_some_and(|it| it == "log"));
    let texts = logs.map(|log| std::fs::read_to_string(log.path()).expect("text"));
    let longest =
        texts.filter_map(|text| text.lines().max_by_key(|line| line.len()).map(str::to_owned));
    longest.max_by_key(String::len).unwrap_or_default()
}

//! A house for stories with real processes: ground and door, an outside service that counts effects by
//! their keys, and at the end an audit of every promise.

use std::process::{Output, Stdio};
use std::time::Duration;

use loadtest::fleet::{Door, Ground, Launch, Member, Role};
use loadtest::stub_llm::{Stub, StubOptions};
use loadtest::{database, ledger, report};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use shared::broker::{Operator, Properties, Publisher};
use shared::config;
use shared::domain::task::{NewTask, TaskId, TaskState};
use shared::store::{DeadFilter, DeadLetter, TaskRow};
use shared::testing::{needed, within};
use tokio::process::Command;
use tokio_postgres::Client;

use crate::programs;

/// Time for a process to be ready, to die or to stop, and for a task to end.
pub const PATIENCE: Duration = Duration::from_secs(40);
/// The pool of most tasks.
pub const POOL: &str = "io_pool";

/// Most houses wait for leases to end, so that they are short.
const SHORT_LEASES: &str = "
scheduler: {heartbeat_interval: 1s, heartbeat_ttl: 3s, retry_backoff_base: 1s}
";
/// Where no lease may end, however busy the machine is.
pub const LONG_LEASES: &str = "
scheduler: {heartbeat_interval: 1s, heartbeat_ttl: 30s, retry_backoff_base: 1s}
";
/// Leave to call the outside.
const COMMON: &str = "
http: {allow_hosts: [127.0.0.1]}
";
pub const POOLS: &str = "
task_pools:
  io_pool: {max_workers: 4, task_types: [probe, http_call]}
";

/// See the module.
pub struct House {
    pub ground: Ground,
    pub door: Door,
    /// Bare, as an outsider's.
    pub client: Client,
    /// Where effects happen.
    pub outside: Stub,
}

impl House {
    /// With one pool of four slots, and more lines of configuration.
    pub async fn open(name: &str, more: &str) -> Self {
        Self::with(name, &format!("{POOLS}{more}")).await
    }

    /// With pools of its own; STUB stands for the outside's address.
    pub async fn with(name: &str, yaml: &str) -> Self {
        Self::over(name, &format!("{SHORT_LEASES}{yaml}")).await
    }

    /// With everything of its own.
    pub async fn over(name: &str, yaml: &str) -> Self {
        programs::are_fresh();
        let outside = Stub::start(StubOptions::default()).await.expect("a free port");
        let lookup = |name: &str| match name {
            "DATABASE_URL" | "AMQP_URL" => Some(needed(name)),
            _ => None,
        };
        let services = config::load_str("", "environment", &lookup).expect("addresses");
        let yaml = format!("{COMMON}{yaml}").replace("STUB", &outside.url);
        let ground = Ground::prepare(&services, name, &yaml).await.expect("ground");
        let door = Door::open(&ground).await.expect("a door");
        let dsn = ground.config().database_url().expect("a database");
        let client = database::connect(dsn).await.expect("a connection");
        Self { ground, door, client, outside }
    }

    /// A process, ready.
    pub async fn started(&self, role: Role) -> Member {
        self.launched(role, &Launch::default()).await
    }

    /// A process that dies at a failpoint, ready.
    pub async fn armed(&self, role: Role, point: &str) -> Member {
        let mut member = self.doomed(role, point);
        member.ready(PATIENCE).await.expect("ready");
        member
    }

    /// The same; it finds its death at once, perhaps before it is ready.
    pub fn doomed(&self, role: Role, point: &str) -> Member {
        let armed = format!("{point}:abort");
        let variables: &[(&str, &str)] = &[("BELFRY_FAILPOINT", &armed)];
        Member::start_with(&self.ground, role, variables).expect("started")
    }

    /// A process started in a way of its own, ready.
    pub async fn launched(&self, role: Role, how: &Launch<'_>) -> Member {
        let mut member = Member::launch(&self.ground, role, how).expect("started");
        member.ready(PATIENCE).await.expect("ready");
        member
    }

    /// Runs `producer` with these arguments, to its end.
    pub async fn command(&self, arguments: &[&str], more: &[(&str, &str)]) -> Output {
        let config = self.ground.config();
        let secret = |secret: &secrecy::SecretString| secret.expose_secret().to_owned();
        Command::new(Role::Producer.path().expect("built"))
            .args(arguments)
            .arg("--config")
            .arg(self.ground.file())
            .env("DATABASE_URL", secret(config.database_url().expect("a database")))
            .env("AMQP_URL", secret(config.amqp_url().expect("a broker")))
            .envs(more.iter().copied())
            .stdin(Stdio::null())
            .output()
            .await
            .expect("it runs")
    }

    /// The same, which must succeed; its JSON.
    pub async fn asked(&self, arguments: &[&str]) -> Value {
        let output = self.command(&[arguments, &["--json"]].concat(), &[]).await;
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", told(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// An effect outside, which counts requests by the task's idempotency key.
    pub fn effect(&self) -> NewTask {
        let url = format!("{}/effects", self.outside.url);
        of("http_call", json!({"url": url, "method": "POST"}))
    }

    /// Commits a task and publishes its message.
    pub async fn given(&self, task: NewTask) -> TaskId {
        let id = task.id;
        self.door.accept(&[task]).await.expect("accepted");
        id
    }

    pub async fn row(&self, task: TaskId) -> TaskRow {
        self.door.store.task(task).await.expect("read").expect("a task")
    }

    /// Waits until a task is in a state.
    pub async fn is(&self, task: TaskId, state: TaskState) -> TaskRow {
        within(PATIENCE, &format!("{task} is {state}"), async || {
            let row = self.row(task).await;
            (row.summary.state == state).then_some(row)
        })
        .await
    }

    /// Waits until it has been claimed so many times.
    pub async fn runs(&self, task: TaskId, run: i32) -> TaskRow {
        within(PATIENCE, &format!("{task} is in run {run}"), async || {
            let row = self.row(task).await;
            (row.summary.run >= run).then_some(row)
        })
        .await
    }

    /// Requests of one task.
    pub fn requests(&self, task: TaskId) -> u64 {
        self.outside.effects().get(&task.to_string()).copied().unwrap_or(0)
    }

    /// Letters, closed ones too, oldest first.
    pub async fn letters(&self) -> Vec<DeadLetter> {
        let all = DeadFilter { all: true, ..DeadFilter::default() };
        let mut letters = self.door.store.dead_letters(&all, 100).await.expect("read");
        letters.reverse();
        letters
    }

    /// Counts rows.
    pub async fn count(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.expect(sql).get(0)
    }

    pub async fn operator(&self) -> Operator {
        let settings = self.ground.settings().expect("a broker");
        Operator::connect(&settings).await.expect("a broker that answers")
    }

    /// Waits until so many messages are ready in a queue.
    pub async fn has(&self, queue: &str, count: u32) {
        let operator = self.operator().await;
        within(PATIENCE, &format!("{queue} has {count}"), async || {
            (operator.depth(queue).await.expect("looked") == Some(count)).then_some(())
        })
        .await;
        operator.close().await;
    }

    /// Puts any message into a queue.
    pub async fn drop_into(&self, queue: &str, body: &str, properties: &Properties) {
        let settings = self.ground.settings().expect("a broker");
        let publisher = Publisher::start(&settings, &self.ground.topology(), &self.door.shutdown);
        let publisher = publisher.expect("a URL");
        publisher.ready(PATIENCE).await.expect("connected");
        publisher.publish_raw("", queue, body.as_bytes(), properties).await.expect("confirmed");
    }

    /// Waits until no queue of work holds a ready message.
    pub async fn quiet(&self) {
        let (operator, topology) = (self.operator().await, self.ground.topology());
        let other = [topology.dead(), topology.inbox()];
        within(PATIENCE, "all queues of work are empty", async || {
            let found = operator.show(&topology).await.expect("looked");
            let work = found.iter().filter(|found| !other.contains(&found.name));
            work.filter_map(|found| found.messages).all(|ready| ready == 0).then_some(())
        })
        .await;
        operator.close().await;
    }

    /// Stops what still runs, audits everything, and takes the ground away.
    pub async fn close(self, fleet: Vec<Member>) {
        if fleet.iter().any(|member| member.role == Role::Worker) {
            let open = "SELECT count(*) FROM tasks WHERE finished_at IS NULL";
            within(PATIENCE, "all tasks have ended", async || {
                (self.count(open).await == 0).then_some(())
            })
            .await;
            self.quiet().await;
        }
        for member in fleet {
            let status = member.stop(PATIENCE).await.expect("ended");
            assert!(status.success(), "it ended with {status}");
        }
        let settled = ledger::Options { expect_settled: true, management: None };
        let audited = ledger::audit(self.ground.config(), &settled).await.expect("audited");
        assert_eq!(audited.broken(), None, "{}", report::ledger(&audited));
        self.door.close().await;
        drop(self.client);
        // A slow broker is nobody's broken promise.
        if let Err(error) = self.ground.clear().await {
            eprintln!("left behind: {error:#}");
        }
    }
}

/// A task of the house's pool whose first retry follows after a second.
pub fn of(task_type: &str, payload: Value) -> NewTask {
    let mut task = NewTask::ad_hoc(task_type, POOL, payload);
    task.retry.base = Duration::from_secs(1);
    task
}

/// A probe.
pub fn probe(payload: Value) -> NewTask {
    of("probe", payload)
}

/// How a task's attempts ended, oldest first.
pub fn outcomes(row: &TaskRow) -> Vec<&str> {
    row.attempts.iter().map(|attempt| attempt["outcome"].as_str().unwrap_or("open")).collect()
}

/// Waits for a process to be killed by its failpoint.
pub async fn died(member: Member, point: &str) {
    let status = member.ended(PATIENCE).await.unwrap_or_else(|error| {
        panic!(
            "{point} killed nobody; were the programs built with --features failpoints? {error:#}"
        )
    });
    assert_eq!(status.code(), None, "it was not killed: {status}");
}

/// A signal by its name without SIG.
pub async fn signal(member: &Member, name: &str) {
    signal_to(member.pid().expect("alive"), name).await;
}

/// The same to any process.
pub async fn signal_to(pid: u32, name: &str) {
    let (option, pid) = (format!("-{name}"), pid.to_string());
    let status = Command::new("sh").args(["-c", "kill \"$0\" \"$1\"", &option, &pid]).status();
    assert!(status.await.expect("a shell").success(), "SIG{name} was not delivered to {pid}");
}

/// What a command has said.
pub fn told(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!("{} {}{}", output.status, text(&output.stdout), text(&output.stderr))
}

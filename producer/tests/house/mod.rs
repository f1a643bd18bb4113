//! The real binary against a database of its own and a broker prefix of its own.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;
use shared::broker::{Operator, Settings, Topology};
use shared::domain::attempt::{Attempt, ClaimToken, Incarnation};
use shared::domain::outcome::{ErrorClass, Failure, Outcome};
use shared::domain::task::{NewTask, TaskId};
use shared::store::{Claim, Completion, Registration, Store};
use shared::testing::{TestDatabase, needed};
use tempfile::TempDir;

/// What a run of the binary gave.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    /// The document on stdout.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The same, with the exit code that was expected.
    #[track_caller]
    pub fn with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    #[track_caller]
    pub fn complains(self, part: &str) -> Self {
        assert!(self.err.contains(part), "{self:?} lacks {part:?}");
        self
    }
}

/// A database, a configuration file that names it, and a place on the broker.
pub struct House {
    pub database: TestDatabase,
    pub store: Store,
    pub dir: TempDir,
    pub topology: Topology,
    pub settings: Settings,
    declared: bool,
}

impl House {
    /// With a migrated database; nothing is declared on the broker yet.
    pub async fn open() -> Self {
        Self::of(TestDatabase::create().await)
    }

    /// With this database.
    pub fn of(database: TestDatabase) -> Self {
        let prefix = format!("test-{}", TaskId::new());
        let url = SecretString::from(needed("AMQP_URL"));
        let house = Self {
            store: database.store(),
            database,
            dir: tempfile::tempdir().expect("a directory"),
            topology: Topology::new(prefix.as_str(), ["io_pool", "cpu_pool"]),
            settings: Settings::new(url, prefix.as_str(), "test@here#1"),
            declared: false,
        };
        house.configure(&needed("AMQP_URL"), "");
        house
    }

    /// Declares the topology, which is deleted at the end.
    pub async fn with_broker(mut self) -> Self {
        let operator = self.operator().await;
        operator.declare(&self.topology).await.expect("declared");
        operator.close().await;
        self.declared = true;
        self
    }

    /// Writes the configuration: this broker, and more lines of YAML.
    pub fn configure(&self, amqp: &str, more: &str) {
        let text = format!(
            "storage:\n  postgres: {{dsn: '{}'}}\n  rabbitmq: {{url: '{amqp}', prefix: '{}'}}\n{POOLS}{more}\n",
            self.database.dsn, self.settings.prefix
        );
        std::fs::write(self.dir.path().join("belfry.yaml"), text).expect("written");
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    /// The binary with a clean environment, in the house's directory.
    pub fn command(&self, args: &[&str]) -> Command {
        command(self.dir.path().to_owned(), args)
    }

    /// Runs `producer` with these arguments.
    pub fn producer(&self, args: &[&str]) -> Said {
        run(self.command(args), None)
    }

    /// The same with a text on stdin.
    pub fn fed(&self, input: &str, args: &[&str]) -> Said {
        run(self.command(args), Some(input))
    }

    /// Messages ready in a queue.
    pub async fn depth(&self, queue: &str) -> u32 {
        let operator = self.operator().await;
        let depth = operator.depth(queue).await.expect("looked");
        operator.close().await;
        depth.expect("such a queue")
    }

    async fn operator(&self) -> Operator {
        Operator::connect(&self.settings).await.expect("a broker that answers")
    }

    /// A task in the database; no message.
    pub async fn given(&self, payload: Value) -> TaskId {
        let task = NewTask::ad_hoc("http_call", "io_pool", payload);
        self.store.enqueue(task).await.expect("enqueued").task_id
    }

    /// A claimed attempt of it.
    pub async fn claimed(&self, task: TaskId) -> Box<Attempt> {
        let id = Incarnation::new();
        let who = Registration {
            id,
            role: "worker",
            label: "worker@test#1".to_owned(),
            pools: BTreeMap::from([("io_pool".to_owned(), 20)]),
            ttl: Duration::from_secs(60),
        };
        self.store.register(&who).await.expect("registered");
        match self.store.claim(task, ClaimToken::new(), id).await.expect("answered") {
            Claim::Run(attempt) => attempt,
            other => panic!("not claimed: {other:?}"),
        }
    }

    /// Ends an attempt.
    pub async fn ended(&self, attempt: &Attempt, outcome: Outcome) {
        let traceparent = Some(TRACE.to_owned());
        let (task, token) = (attempt.task_id, attempt.token);
        let completion = Completion { task, token, traceparent, outcome };
        self.store.record(&completion).await.expect("recorded");
    }

    /// A task that was given up; its letter's number.
    pub async fn dead(&self, payload: Value) -> (TaskId, i64) {
        let task = self.given(payload).await;
        let attempt = self.claimed(task).await;
        let failure = Failure::new(ErrorClass::Permanent, "404: no such page");
        self.ended(&attempt, Outcome::Dead { failure }).await;
        let letters = self.store.dead_letters(&shared::store::DeadFilter::default(), 100).await;
        let letters = letters.expect("read");
        let own = letters.iter().find(|letter| letter.task_id == Some(task.0));
        (task, own.expect("a letter").id)
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if !self.declared {
            return;
        }
        let (settings, topology) = (self.settings.clone(), self.topology.clone());
        // A runtime of its own: the test's may be gone already.
        let cleaning = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                if let Ok(operator) = Operator::connect(&settings).await {
                    let _ = operator.delete_all(&topology).await;
                    operator.close().await;
                }
            });
        });
        let _ = cleaning.join();
    }
}

/// `mine` is a type of the user's own: Belfry does not judge its payloads.
pub const POOLS: &str = "\
task_pools:
  io_pool: {max_workers: 20, task_types: [http_call, agent_session, mine]}
  cpu_pool: {max_workers: 4, task_types: [data_processing]}
";

/// Somebody's span.
pub const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The binary with a clean environment.
pub fn command(dir: PathBuf, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_producer"));
    command.args(args).current_dir(dir).env_clear().env("USER", "ada");
    command
}

/// Runs it to its end.
pub fn run(mut command: Command, input: Option<&str>) -> Said {
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        // A binary that refuses its arguments reads nothing.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().expect("ended");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Said {
        code: output.status.code().expect("an exit code"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// Keys of a JSON object, sorted.
pub fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

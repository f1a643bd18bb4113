//! A store on a database of its own, with the few verbs that the stories speak in.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use shared::domain::attempt::{Attempt, ClaimToken, Incarnation};
use shared::domain::outcome::{ErrorClass, Failure, Outcome};
use shared::domain::task::{NewTask, TaskId, TaskState};
use shared::store::{Claim, Completion, Recorded, Registration, Store};
use shared::testing::TestDatabase;

/// Life of a lease.
pub const TTL: Duration = Duration::from_secs(15);

pub struct House {
    pub database: TestDatabase,
    pub store: Store,
}

impl House {
    pub async fn open() -> Self {
        let database = TestDatabase::create().await;
        let store = database.store();
        Self { database, store }
    }

    pub async fn given(&self, change: impl FnOnce(&mut NewTask)) -> TaskId {
        let mut task = NewTask::ad_hoc("probe", "io_pool", json!({"n": 1}));
        change(&mut task);
        self.store.enqueue(task).await.expect("enqueued").task_id
    }

    pub async fn worker(&self) -> Incarnation {
        let id = Incarnation::new();
        let who = Registration {
            id,
            role: "worker",
            label: "worker@test#1".to_owned(),
            pools: BTreeMap::new(),
            ttl: TTL,
        };
        self.store.register(&who).await.expect("registered");
        id
    }

    pub async fn claimed(&self, task: TaskId, by: Incarnation) -> Box<Attempt> {
        match self.store.claim(task, ClaimToken::new(), by).await.expect("answered") {
            Claim::Run(attempt) => attempt,
            other => panic!("not claimed: {other:?}"),
        }
    }

    pub async fn record(&self, attempt: &Attempt, outcome: Outcome) -> Recorded {
        let completion =
            Completion { task: attempt.task_id, token: attempt.token, traceparent: None, outcome };
        self.store.record(&completion).await.expect("recorded")
    }

    pub async fn state(&self, task: TaskId) -> TaskState {
        self.store.task(task).await.expect("read").expect("a task").summary.state
    }
}

pub fn completed() -> Outcome {
    Outcome::Completed { result: json!({"ok": true}) }
}

pub fn failure() -> Failure {
    Failure::new(ErrorClass::Retryable, "503")
}

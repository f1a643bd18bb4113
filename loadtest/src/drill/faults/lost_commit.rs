//! The lost commit: a statement is done, and whoever asked for it never hears so.
//!
//! The worst a network can do to a database's client, since only the rows know. Hit are the three
//! statements that move a task: the one that makes it, its claim, its completion.

use anyhow::ensure;
use async_trait::async_trait;
use serde_json::json;
use tokio::time::Instant;

use super::signs::{self, BITE, Side};
use crate::drill::book::{End, Entry, Kind};
use crate::drill::fault::{Bite, Fault};
use crate::drill::field::{Field, until};
use crate::drill::load;
use crate::fleet::Role;

/// Words of the statement that makes tasks.
const ENQUEUE: &str = "Creates tasks whose keys are free";
/// Words of the statement that claims them.
const CLAIM: &str = "Takes tasks for an incarnation";
/// Words of the statement that completes them.
const COMPLETE: &str = "The one committed result";

/// See the module.
pub(super) struct LostCommit;

/// What a statement leaves behind when it has committed.
struct Stage {
    what: &'static str,
    role: Role,
    statement: &'static str,
    /// Counts the row that proves it; `$1` is the key.
    proof: &'static str,
}

/// Before the others, since their task must not be claimed before its claim is watched for.
const MADE: Stage = Stage {
    what: "a task was made",
    role: Role::Producer,
    statement: ENQUEUE,
    proof: "SELECT count(*) FROM task_inputs WHERE execution_key = $1",
};
const CLAIMED: Stage = Stage {
    what: "a task was claimed",
    role: Role::Worker,
    statement: CLAIM,
    proof: "SELECT count(*) FROM attempts WHERE task_id::text = $1",
};
const COMPLETED: Stage = Stage {
    what: "a task was completed",
    role: Role::Worker,
    statement: COMPLETE,
    proof: "SELECT count(*) FROM tasks WHERE id::text = $1 AND state = 'completed'",
};

#[async_trait(?Send)]
impl Fault for LostCommit {
    fn name(&self) -> &'static str {
        "pg.lost_commit"
    }

    fn summary(&self) -> &'static str {
        "answers to an enqueue, a claim and a completion that committed are lost"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let key = format!("lost-commit-{:.3}", field.log.seconds());
        let before = MADE.answers_lost(field);
        MADE.arm(field, key.as_bytes());
        field.book.request(&key, json!({"type": "probe", "key": key, "payload": {}}));
        MADE.lost(field, &key, before + 1).await?;

        let task = load::task("probe", json!({"sleep_ms": 200}));
        let id = task.id.0;
        let before = CLAIMED.answers_lost(field);
        CLAIMED.arm(field, id.as_bytes());
        COMPLETED.arm(field, id.as_bytes());
        field.accept(vec![task], Entry { kind: Kind::Plain, end: End::Completed }).await?;
        CLAIMED.lost(field, &id.to_string(), before + 1).await?;
        COMPLETED.lost(field, &id.to_string(), before + 2).await?;
        let since = Instant::now();
        let attempts = field.count(CLAIMED.proof, &[&id.to_string()]).await?;
        ensure!(attempts == 1, "a claim whose answer was lost became {attempts} attempts");

        let stages = [MADE, CLAIMED, COMPLETED].map(|stage| stage.what).join(", ");
        Ok(Bite::new(since, format!("committed, and the answers lost: {stages}")))
    }
}

impl Stage {
    /// Loses the answer to this statement about this task, once, whoever sends it.
    fn arm(&self, field: &Field, value: &[u8]) {
        for at in field.fleet.of(self.role) {
            field.fleet.posts[at].postgres.lose_answer_to_statement(self.statement, value, 1);
        }
    }

    fn answers_lost(&self, field: &Field) -> u64 {
        let posts = field.fleet.of(self.role);
        signs::counts(field, &posts, Side::Postgres, |c| c.answers_lost).iter().sum()
    }

    /// Waits until so many answers were lost and the row shows that the statement committed.
    async fn lost(&self, field: &Field, key: &str, answers: u64) -> anyhow::Result<()> {
        until(&format!("the answer is lost: {}", self.what), BITE, async || {
            let committed = field.count(self.proof, &[&key]).await? == 1;
            Ok((committed && self.answers_lost(field) >= answers).then_some(()))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_words_of_a_statement_are_in_one_file_only() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/src/store/sql");
        let files = std::fs::read_dir(folder).expect("the statements");
        let texts: Vec<String> = files
            .map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a text"))
            .collect();

        for words in [ENQUEUE, CLAIM, COMPLETE] {
            let found = texts.iter().filter(|text| text.contains(words)).count();
            assert_eq!(found, 1, "{words:?}");
        }
    }
}

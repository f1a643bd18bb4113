//! The only room that speaks SQL. `PostgreSQL` is the truth of the house.
//!
//! One statement per transition, each in its own file under `sql/`; its WHERE repeats state and
//! token, and its row count is the answer. No transaction stays open across the network, and
//! nothing here decides policy: it is told an outcome and writes it.

mod alerts;
mod apply;
mod artifacts;
mod batch;
mod by_hand;
mod cadence;
mod claim;
mod connect;
mod dead_letters;
mod dead_mirror;
mod enqueue;
mod episodes;
mod error;
mod leadership;
mod llm;
mod migrate;
mod prune;
mod quotas;
mod record;
mod relay;
mod rows;
mod schedules;
mod server;
mod session;
mod settlement;
pub mod source;
mod steps;
mod sweeps;
mod tasks;
mod ticks;
mod transaction;
mod tx;
mod usage;
mod watched;
mod workers;

pub use alerts::Alert;
pub use apply::Apply;
pub use artifacts::{Artifact, NewArtifact};
pub use batch::MAX_BATCH;
pub use by_hand::{Asked, ByHandRow, HandRun, HandRunEnd, InstantRow, KnownKey};
pub use cadence::RecentTicks;
pub use claim::Claim;
pub use connect::{DEADLINE_GRACE, Purpose, Store, StoreOptions};
pub use dead_letters::{DeadFilter, DeadLetter, MOVED_BY_HAND, Replayed};
pub use dead_mirror::Copies;
pub use enqueue::EnqueueError;
pub use episodes::{Beginning, Ending, Episode, EpisodeKind};
pub use error::Error;
pub use leadership::{Leadership, Term};
pub use llm::{
    Admission, CallEnd, CallStart, Closing, Denial, NewCall, StepCall, StoredCall, UNTRIED_CALLS,
    UNTRIED_FOR,
};
#[cfg(feature = "testing")]
pub use migrate::migration_texts;
pub use migrate::{MigrationReport, SCHEMA_VERSION, migrate};
pub use prune::{CHUNK, INCARNATIONS, Pruned};
pub use quotas::{Change, LimitChange, QuotaRow, WAKE_STEP};
pub use record::{Completion, Recorded};
pub use relay::Unpublished;
pub use schedules::{FileInForce, Kept, PauseEdges, Paused, ScheduleRow};
pub use server::{OpenMatters, Server};
pub use settlement::{Action, Settlement};
pub use steps::{SessionSpent, StoredStep};
pub use sweeps::{GivenBack, Lost};
pub use tasks::{AttemptRow, Progress, TaskCount, TaskFilter, TaskRow, TaskSummary};
pub use ticks::{DecidedTick, TickInput, TickRow};
pub use tokio_postgres::Row;
pub use tokio_postgres::types::ToSql;
pub use tx::{Standing, Tx, TxEnd};
pub use usage::{UsageBy, UsageRow};
pub use watched::{Member, MissedTicks, NewestTick, Watched};
pub use workers::{Registration, WorkerRow};

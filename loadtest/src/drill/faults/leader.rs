//! Faults of producers: the one that leads, another one, all of them.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tokio::time::Instant;

use super::held::Held;
use super::signs::BITE;
use crate::drill::book::{End, Entry, Kind};
use crate::drill::fault::{Bite, Fault};
use crate::drill::field::{Field, until};
use crate::drill::load;
use crate::fleet::Role;

/// With heartbeats of 1 s and leases of 3 s, another one ticks within this.
const TAKEOVER: Duration = Duration::from_secs(4);

/// All of them.
pub(super) fn all() -> Vec<Box<dyn Fault>> {
    vec![Box::new(StandbyKill), Box::new(LeaderKill), Box::new(LeaderPause), Box::new(NoProducer)]
}

struct StandbyKill;

#[async_trait(?Send)]
impl Fault for StandbyKill {
    fn name(&self) -> &'static str {
        "producer.kill"
    }

    fn summary(&self) -> &'static str {
        "SIGKILL to a producer that stands by"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let (leader, _) = field.leader().await?;
        let standby = field.fleet.of(Role::Producer).into_iter().find(|&at| at != leader);
        let at = standby.unwrap_or(leader);
        let (pid, blow) = field.fleet.kill(at).await?;
        field.fleet.man(&field.ground, at, &[])?;
        Ok(Bite::new(blow, format!("process {pid} is gone")))
    }
}

struct LeaderKill;

#[async_trait(?Send)]
impl Fault for LeaderKill {
    fn name(&self) -> &'static str {
        "leader.kill"
    }

    fn summary(&self) -> &'static str {
        "SIGKILL to the producer that leads: another one ticks"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let (at, term) = field.leader().await?;
        let (pid, blow) = field.fleet.kill(at).await?;
        let took = taken_over(field, term, blow).await?;
        field.fleet.man(&field.ground, at, &[])?;
        let proof = format!("process {pid}, the leader of term {term}, is gone");
        Ok(Bite::new(blow, proof).measured("the first tick of a new term", took, TAKEOVER))
    }
}

struct LeaderPause;

#[async_trait(?Send)]
impl Fault for LeaderPause {
    fn name(&self) -> &'static str {
        "leader.pause"
    }

    fn summary(&self) -> &'static str {
        "SIGSTOP to the leader for longer than its lease, then SIGCONT: it finds that it leads no more"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let (at, term) = field.leader().await?;
        let blow = Instant::now();
        field.fleet.posts[at].member()?.signal("STOP").await?;
        field.log.tell(format!("{} is frozen", field.fleet.posts[at].name));
        let took = taken_over(field, term, blow).await;
        Held::outlast(field, blow).await;
        field.fleet.posts[at].member()?.signal("CONT").await?;
        let proof = format!("a term after {term} began while its leader was frozen");
        Ok(Bite::new(Instant::now(), proof).measured(
            "the first tick of a new term",
            took?,
            TAKEOVER,
        ))
    }
}

struct NoProducer;

#[async_trait(?Send)]
impl Fault for NoProducer {
    fn name(&self) -> &'static str {
        "producer.none"
    }

    fn summary(&self) -> &'static str {
        "all producers are gone, and a worker too: the other workers relay and rescue"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        for at in field.fleet.of(Role::Producer) {
            field.fleet.kill(at).await?;
        }
        let (at, _) = field.worker_at_work().await?;
        let held = Held::by(field, at).await?;
        let (_, blow) = field.fleet.kill(at).await?;
        // Only committed: nobody but a worker's relay can tell the broker.
        let task = load::task("probe", json!({}));
        let id = task.id.0;
        field
            .book
            .write(std::slice::from_ref(&task), Entry { kind: Kind::Plain, end: End::Completed });
        load::commit(&field.door, &[task]).await?;
        let done = "SELECT count(*) FROM tasks WHERE id = $1 AND state = 'completed'";
        until("workers relay a task", BITE, async || {
            Ok((field.count(done, &[&id]).await? == 1).then_some(()))
        })
        .await?;
        let relayed = blow.elapsed();
        let rescued = held.restarted(field, blow).await?;
        field.fleet.mend(&field.ground)?;
        let proof = format!(
            "without a producer {} tasks were rescued in {:.1} s and one was relayed in {:.1} s",
            held.len(),
            rescued.as_secs_f64(),
            relayed.as_secs_f64()
        );
        Ok(Bite::new(Instant::now(), proof))
    }
}

/// Waits for a tick that was decided in a later term; answers how long after `blow`.
async fn taken_over(field: &Field, term: i64, blow: Instant) -> anyhow::Result<Duration> {
    until("a tick of a new term", BITE, async || {
        let ticks = field.count("SELECT count(*) FROM ticks WHERE epoch > $1", &[&term]).await?;
        Ok((ticks > 0).then(|| blow.elapsed()))
    })
    .await
}

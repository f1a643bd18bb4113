//! Crashes between two steps of a task's life, at the failpoints of a build that has them.

use std::time::Duration;

use async_trait::async_trait;
use rand::seq::IndexedRandom as _;
use serde_json::json;
use tokio::time::Instant;

use crate::drill::book::{End, Entry, Kind};
use crate::drill::fault::{Bite, Fault};
use crate::drill::field::Field;
use crate::drill::load;
use crate::fleet::Role;

/// Points that a worker passes.
const WORKERS: [&str; 6] =
    ["after_claim", "after_effect", "after_record", "before_ack", "in_retry", "in_dead_letter"];
/// Points that a leading producer passes.
const PRODUCERS: [&str; 4] = ["after_enqueue_commit", "in_tick", "after_publish", "before_mark"];
/// An armed member that nothing killed after this was not armed.
const DEATH: Duration = Duration::from_secs(45);
const PLAIN: Entry = Entry { kind: Kind::Plain, end: End::Completed };

/// All of them.
pub(super) fn all() -> Vec<Box<dyn Fault>> {
    vec![Box::new(Points)]
}

struct Points;

#[async_trait(?Send)]
impl Fault for Points {
    fn name(&self) -> &'static str {
        "crash.points"
    }

    fn summary(&self) -> &'static str {
        "two workers and the leader abort between two steps, each at a point that the dice choose"
    }

    async fn unavailable(&self, _field: &Field) -> Option<String> {
        let why = "this build has no failpoints (cargo build --workspace --features failpoints)";
        (!cfg!(feature = "failpoints")).then(|| why.to_owned())
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let points: Vec<&str> = WORKERS.choose_multiple(&mut field.dice, 2).copied().collect();
        let producers = *PRODUCERS.choose(&mut field.dice).unwrap_or(&PRODUCERS[0]);
        let workers = field.fleet.of(Role::Worker);
        let mut armed = Vec::new();
        for (&at, point) in workers.iter().zip(points) {
            armed.push((at, point));
        }
        let (leader, _) = field.leader().await?;
        let standby = field.fleet.of(Role::Producer).into_iter().find(|&at| at != leader);
        armed.extend(standby.map(|at| (at, producers)));
        for &(at, point) in &armed {
            field.fleet.man(
                &field.ground,
                at,
                &[("BELFRY_FAILPOINT", &format!("{point}:abort"))],
            )?;
            field.log.tell(format!("{} will abort at {point}", field.fleet.posts[at].name));
        }
        // Whoever stands by passes few of its points; so the place of the leader stays empty until
        // the armed one has led.
        field.fleet.kill(leader).await?;
        let since = Instant::now();
        let mut proof = Vec::new();
        for (at, point) in armed {
            occasions(field).await?;
            let status = field.fleet.ended(at, DEATH).await?;
            field.fleet.man(&field.ground, at, &[])?;
            proof.push(format!("{} died at {point} ({status})", field.fleet.posts[at].name));
        }
        field.fleet.man(&field.ground, leader, &[])?;
        Ok(Bite::new(since, proof.join("; ")))
    }
}

/// Work that passes every point.
async fn occasions(field: &Field) -> anyhow::Result<()> {
    let plain = (0..3).map(|_| load::task("probe", json!({})));
    let again = (0..6).map(|_| load::task("probe", json!({"mode": "retry", "fail_times": 1})));
    field.accept(plain.chain(again).collect(), PLAIN).await?;
    let dead = (0..6).map(|_| load::task("probe", json!({"mode": "permanent"}))).collect();
    field.accept(dead, Entry { kind: Kind::Plain, end: End::Dead("permanent") }).await
}

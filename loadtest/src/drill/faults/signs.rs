//! Signs that a fault bit, as the members and their links show them.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::drill::book::{End, Entry, Kind};
use crate::drill::field::{Field, until};
use crate::drill::{kept, load};
use crate::proxy::{Counters, Link};

/// A fault that has not bitten after this has missed.
pub const BITE: Duration = Duration::from_secs(30);
/// A member that lost a service says so on its readiness page within this: two heartbeats of
/// AMQP, the ping of a producer with its own limit, and the pace of the page.
pub const RED: Duration = Duration::from_secs(15);

/// What [`RED`] limits.
pub const TURNED_RED: &str = "the readiness page turned red";

/// Which service a link leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The database.
    Postgres,
    /// The broker.
    RabbitMq,
}

/// The link of a post.
pub fn link(field: &Field, at: usize, side: Side) -> &Link {
    let post = &field.fleet.posts[at];
    match side {
        Side::Postgres => &post.postgres,
        Side::RabbitMq => &post.rabbitmq,
    }
}

/// One counter of every chosen link.
pub fn counts(
    field: &Field,
    chosen: &[usize],
    side: Side,
    which: fn(&Counters) -> u64,
) -> Vec<u64> {
    chosen.iter().map(|&at| which(&link(field, at, side).counters())).collect()
}

/// How much the counters have risen together.
pub fn rise(before: &[u64], after: &[u64]) -> u64 {
    after.iter().sum::<u64>().saturating_sub(before.iter().sum())
}

/// True when each of them has risen.
pub fn each_rose(before: &[u64], after: &[u64]) -> bool {
    before.iter().zip(after).all(|(before, after)| after > before)
}

/// All posts.
pub fn everybody(field: &Field) -> Vec<usize> {
    (0..field.fleet.posts.len()).collect()
}

/// Their names: `producer-1, worker-3`.
pub fn names(field: &Field, chosen: &[usize]) -> String {
    let names: Vec<&str> = chosen.iter().map(|&at| field.fleet.posts[at].name.as_str()).collect();
    names.join(", ")
}

/// Waits until each of the chosen has once said that it is not ready; answers how long it took.
pub async fn all_red(field: &Field, chosen: &[usize]) -> anyhow::Result<Duration> {
    red(field, chosen, 0).await
}

/// Waits until one of the chosen says that it is not ready; answers how long it took.
pub async fn one_red(field: &Field, chosen: &[usize]) -> anyhow::Result<Duration> {
    red(field, chosen, chosen.len().saturating_sub(1)).await
}

async fn red(field: &Field, chosen: &[usize], may_stay: usize) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut green = chosen.to_vec();
    until("the readiness pages are red", BITE, async || {
        let mut still = Vec::new();
        for &at in &green {
            if field.fleet.posts[at].member()?.is_ready().await {
                still.push(at);
            }
        }
        green = still;
        Ok((green.len() <= may_stay).then_some(()))
    })
    .await
    .map_err(|error| error.context(format!("still green: {}", names(field, &green))))?;
    Ok(began.elapsed())
}

/// Waits until all of the chosen are ready at the same moment; answers how long it took.
pub async fn all_green(field: &Field, chosen: &[usize]) -> anyhow::Result<Duration> {
    let began = Instant::now();
    until("all members are ready", BITE, async || {
        for &at in chosen {
            if !field.fleet.posts[at].member()?.is_ready().await {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await?;
    Ok(began.elapsed())
}

/// Waits until the members' logs have more lines with these words than before; answers how many.
pub async fn more_lines(field: &Field, words: &str, before: usize) -> anyhow::Result<usize> {
    until(&format!("a member's log says {words:?}"), BITE, async || {
        let now = kept::lines_with(field, words)?;
        Ok((now > before).then(|| now - before))
    })
    .await
}

/// Hands in so many tasks of that length that messages wait in the queue.
pub async fn backlog(field: &Field, count: usize, each: Duration) -> anyhow::Result<()> {
    let payload = json!({"sleep_ms": u64::try_from(each.as_millis())?});
    let tasks = (0..count).map(|_| load::task("probe", payload.clone())).collect();
    field.accept(tasks, Entry { kind: Kind::Plain, end: End::Completed }).await
}

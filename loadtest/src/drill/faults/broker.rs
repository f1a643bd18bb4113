//! Faults of RabbitMQ: it dies, forgets, refuses, and takes back what it gave.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use serde_json::json;
use shared::process;
use tokio::time::{Instant, sleep};

use super::signs::{self, BITE, RED, Side};
use crate::drill::fault::{Bite, Fault};
use crate::drill::field::{Field, until};
use crate::drill::house::POOL;
use crate::drill::kept;
use crate::drill::management::Management;

/// Tasks handed in at once where messages must wait in the queue: above what all slots take.
const BACKLOG: usize = 60;
/// How long each of them runs.
const BACKLOG_EACH: Duration = Duration::from_millis(1200);
/// Messages that wait before the queue is purged or looked at.
const WAITING: u32 = 10;
/// Pause between two looks at messages.
const LOOK: Duration = Duration::from_millis(200);
/// All members consume and publish again so soon after the broker is back.
const CONSUMING: &str = "all members were ready after the broker was back";
const CONSUMING_LIMIT: Duration = Duration::from_secs(10);
/// The policy of [`DeliveryLimit`].
const POLICY: &str = "belfry-drill-limit";
/// A queue that is there only to be forgotten.
const MARKER: &str = "belfry-drill-marker";
/// A broker that is killed forgets what was declared within its last second or two.
const GROWN: Duration = Duration::from_secs(3);
/// More than any disk has, in bytes: not every version knows a unit as large.
const PETABYTE: &str = "1000000000000000";
/// The broker's own limits, as they are on a fresh node.
const WATERMARK: &str = "0.4";
const DISK_FREE: &str = "50MB";
/// Milliseconds until an unacked delivery is taken back, and between the looks for such.
const ACK_TIMEOUT: u32 = 2000;
const ACK_LOOK: u32 = 500;
/// What a channel says that held a delivery too long, on every version.
const ACK_TIMED_OUT: &str = "delivery acknowledgement on channel";

/// All of them.
pub(super) fn all() -> Vec<Box<dyn Fault>> {
    let alarm = |name, summary, on, off| Box::new(Alarm { name, summary, on, off });
    vec![
        Box::new(Restart { wipe: false }),
        Box::new(AppRestart),
        Box::new(Restart { wipe: true }),
        alarm(
            "broker.memory_alarm",
            "RabbitMQ blocks publishers: its memory alarm",
            ["set_vm_memory_high_watermark", "0.0001"],
            ["set_vm_memory_high_watermark", WATERMARK],
        ),
        alarm(
            "broker.disk_alarm",
            "RabbitMQ blocks publishers: its disk alarm",
            ["set_disk_free_limit", PETABYTE],
            ["set_disk_free_limit", DISK_FREE],
        ),
        Box::new(CloseConnections),
        Box::new(DeleteQueue),
        Box::new(Purge),
        Box::new(DeliveryLimit),
        Box::new(ConsumerTimeout),
    ]
}

/// SIGKILL to RabbitMQ, which starts again with or without what it knew.
struct Restart {
    wipe: bool,
}

#[async_trait(?Send)]
impl Fault for Restart {
    fn name(&self) -> &'static str {
        if self.wipe { "broker.wipe" } else { "broker.restart" }
    }

    fn summary(&self) -> &'static str {
        if self.wipe {
            "RabbitMQ is killed and comes back empty"
        } else {
            "RabbitMQ is killed and starts again"
        }
    }

    fn loses_messages(&self) -> bool {
        self.wipe
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let api = Management::of(field)?;
        let before = api.process().await?;
        api.make_queue(MARKER).await?;
        tokio::time::sleep(GROWN).await;
        let verb = if self.wipe { "wipe-rabbitmq" } else { "restart-rabbitmq" };
        field.services.verb(verb).await?;
        let since = Instant::now();
        let back = signs::all_green(field, &signs::everybody(field)).await?;
        let now = until("RabbitMQ tells its process", BITE, async || Ok(api.process().await.ok()))
            .await?;
        ensure!(now != before, "process {before} still serves");
        let knows = api.has_queue(MARKER).await?;
        ensure!(knows != self.wipe, "its queues survived: {knows}, and should: {}", !self.wipe);
        api.delete_queue(MARKER).await?;
        let forgot = if self.wipe { ", which knows no queue" } else { "" };
        let proof = format!("process {before} is gone, {now} serves{forgot}");
        Ok(Bite::new(since, proof).measured(CONSUMING, back, CONSUMING_LIMIT))
    }
}

/// The broker's application stops and starts inside its process.
struct AppRestart;

#[async_trait(?Send)]
impl Fault for AppRestart {
    fn name(&self) -> &'static str {
        "broker.app_restart"
    }

    fn summary(&self) -> &'static str {
        "RabbitMQ stops in good order (stop_app) and starts again"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let all = signs::everybody(field);
        let stopped = field.services.ctl(&["stop_app"]).await;
        let red = match stopped {
            Ok(_) => signs::all_red(field, &all).await,
            Err(error) => Err(error),
        };
        field.services.ctl(&["start_app"]).await?;
        let since = Instant::now();
        let red = red?;
        let back = signs::all_green(field, &all).await?;
        let proof = format!("nobody was ready {:.1} s after stop_app", red.as_secs_f64());
        let bite = Bite::new(since, proof).measured(CONSUMING, back, CONSUMING_LIMIT);
        Ok(bite.measured(signs::TURNED_RED, red, RED))
    }
}

/// A resource alarm: publishers are blocked, consumers are not.
struct Alarm {
    name: &'static str,
    summary: &'static str,
    on: [&'static str; 2],
    off: [&'static str; 2],
}

#[async_trait(?Send)]
impl Fault for Alarm {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let api = Management::of(field)?;
        let on = field.services.ctl(&self.on).await;
        let bitten = match on {
            Ok(_) => rings(field, &api).await,
            Err(error) => Err(error),
        };
        field.services.ctl(&self.off).await?;
        let since = Instant::now();
        let red = bitten?;
        let proof = format!(
            "the alarm is listed, and a publisher blocked after {:.1} s",
            red.as_secs_f64()
        );
        Ok(Bite::new(since, proof))
    }
}

/// The alarm is on, and a member that publishes says that it cannot.
async fn rings(field: &Field, api: &Management) -> anyhow::Result<Duration> {
    until("the alarm is listed", BITE, async || Ok(api.has_alarm().await?.then_some(()))).await?;
    signs::one_red(field, &signs::everybody(field)).await
}

/// The broker closes the connections of all members.
struct CloseConnections;

#[async_trait(?Send)]
impl Fault for CloseConnections {
    fn name(&self) -> &'static str {
        "broker.close_connections"
    }

    fn summary(&self) -> &'static str {
        "RabbitMQ closes the connections of all members, as an operator may"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let all = signs::everybody(field);
        let opened = signs::counts(field, &all, Side::RabbitMq, |c| c.opened);
        let since = Instant::now();
        let closed = close_all(field).await?;
        until("every member dials again", BITE, async || {
            let now = signs::counts(field, &all, Side::RabbitMq, |c| c.opened);
            Ok(signs::each_rose(&opened, &now).then_some(()))
        })
        .await?;
        Ok(Bite::new(
            since,
            format!("{closed} connections were closed, and every member dialled again"),
        ))
    }
}

/// Closes all connections of members; answers how many.
async fn close_all(field: &Field) -> anyhow::Result<usize> {
    let api = Management::of(field)?;
    let host = process::host();
    let members: Vec<String> = field
        .fleet
        .posts
        .iter()
        .filter_map(|post| Some(format!("{}@{host}#{} ", post.role.program(), post.pid()?)))
        .collect();
    // It hears of new connections a moment late.
    let connections = until("the broker lists connections of every member", BITE, async || {
        let mut all = Vec::new();
        for member in &members {
            match api.connections(&[member]).await? {
                found if found.is_empty() => return Ok(None),
                found => all.extend(found),
            }
        }
        Ok(Some(all))
    })
    .await?;
    let mut closed = 0;
    for connection in &connections {
        closed += usize::from(api.close(connection).await?);
    }
    Ok(closed)
}

/// A pool's queue vanishes under its consumers.
struct DeleteQueue;

#[async_trait(?Send)]
impl Fault for DeleteQueue {
    fn name(&self) -> &'static str {
        "broker.delete_queue"
    }

    fn summary(&self) -> &'static str {
        "the pool's queue is deleted with its messages, under its consumers"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let api = Management::of(field)?;
        let queue = field.door.topology.pool_queue(POOL);
        signs::backlog(field, BACKLOG, BACKLOG_EACH).await?;
        let waiting = waiting(field, &queue).await?;
        let since = Instant::now();
        ensure!(api.delete_queue(&queue).await?, "there was no queue {queue}");
        until("somebody declares the queue again", BITE, async || {
            Ok(api.has_queue(&queue).await?.then_some(()))
        })
        .await?;
        let proof = format!("{queue} was deleted with {waiting} messages, and is declared again");
        Ok(Bite::new(since, proof))
    }
}

/// Waits until messages wait in a queue; answers how many.
async fn waiting(field: &Field, queue: &str) -> anyhow::Result<u32> {
    until("messages wait in the queue", BITE, async || {
        let ready = field.door.publisher.depth(queue).await.ok().flatten().unwrap_or(0);
        Ok((ready >= WAITING).then_some(ready))
    })
    .await
}

/// The messages of a pool's queue are thrown away.
struct Purge;

#[async_trait(?Send)]
impl Fault for Purge {
    fn name(&self) -> &'static str {
        "broker.purge"
    }

    fn summary(&self) -> &'static str {
        "the messages that wait in the pool's queue are thrown away"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let api = Management::of(field)?;
        let queue = field.door.topology.pool_queue(POOL);
        signs::backlog(field, BACKLOG, BACKLOG_EACH).await?;
        let waiting = waiting(field, &queue).await?;
        let since = Instant::now();
        api.purge(&queue).await?;
        Ok(Bite::new(since, format!("{queue} was purged with {waiting} messages waiting")))
    }
}

/// Looking at messages counts as delivering them; beyond a limit the broker gives them up.
struct DeliveryLimit;

#[async_trait(?Send)]
impl Fault for DeliveryLimit {
    fn name(&self) -> &'static str {
        "broker.delivery_limit"
    }

    fn summary(&self) -> &'static str {
        "a policy limits deliveries to 2, and somebody looks at waiting messages in the UI"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let api = Management::of(field)?;
        let queue = field.door.topology.pool_queue(POOL);
        api.set_policy(POLICY, &queue, json!({"delivery-limit": 2})).await?;
        let bitten = given_up(field, &api, &queue).await;
        api.delete_policy(POLICY).await?;
        let since = Instant::now();
        let (looks, given_up) = bitten?;
        let proof =
            format!("{given_up} messages were dead-lettered by the broker after {looks} looks");
        Ok(Bite::new(since, proof))
    }
}

/// Looks at messages until the broker has given some up; answers how many looks and messages.
async fn given_up(field: &Field, api: &Management, queue: &str) -> anyhow::Result<(usize, u32)> {
    let dead = field.door.topology.dead();
    let depth = async || field.door.publisher.depth(&dead).await.ok().flatten();
    let before = depth().await.context("the depth of the dead queue")?;
    signs::backlog(field, BACKLOG, BACKLOG_EACH).await?;
    waiting(field, queue).await?;
    let mut looks = 0;
    until("the broker gives messages up", BITE, async || {
        looks += api.look_at(queue, BACKLOG).await?;
        sleep(LOOK).await;
        let now = depth().await.unwrap_or(before);
        Ok((now > before).then(|| (looks, now - before)))
    })
    .await
}

/// The broker takes back what was not acked in time, and closes the channel.
struct ConsumerTimeout;

#[async_trait(?Send)]
impl Fault for ConsumerTimeout {
    fn name(&self) -> &'static str {
        "broker.consumer_timeout"
    }

    fn summary(&self) -> &'static str {
        "RabbitMQ takes back what is not acked within 2 s, and closes the channels"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let before = kept::lines_with(field, ACK_TIMED_OUT)?;
        let bitten = match set_ack_timeout(field, ACK_TIMEOUT, ACK_LOOK).await {
            Ok(()) => {
                signs::backlog(field, BACKLOG / 10, Duration::from_secs(5)).await?;
                signs::more_lines(field, ACK_TIMED_OUT, before).await
            }
            Err(error) => Err(error),
        };
        // The defaults of every version.
        set_ack_timeout(field, 1_800_000, 60_000).await?;
        let since = Instant::now();
        let lines = bitten?;
        Ok(Bite::new(since, format!("channels were closed over late acks, {lines} times so far")))
    }
}

/// Channels read it when they open: all connections are closed, so that all know it.
async fn set_ack_timeout(field: &Field, timeout: u32, look: u32) -> anyhow::Result<()> {
    let code = format!(
        "application:set_env(rabbit, consumer_timeout, {timeout}), \
         application:set_env(rabbit, channel_tick_interval, {look})."
    );
    field.services.ctl(&["eval", &code]).await?;
    close_all(field).await.map(drop)
}

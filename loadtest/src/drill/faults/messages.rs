//! Faults of messages: doubled, forged, malformed, huge; and requests that nobody can read.

use std::time::Duration;

use anyhow::ensure;
use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use rand::{Rng as _, RngCore as _};
use serde_json::json;
use shared::broker::{Header, Properties};
use shared::domain::task::TaskId;
use tokio::time::{Instant, sleep};

use super::held::running;
use super::signs::BITE;
use crate::drill::book::{End, Entry, Kind};
use crate::drill::fault::{Bite, Fault};
use crate::drill::field::{Field, until};
use crate::drill::house::POOL;
use crate::drill::load;

/// Copies of one message.
const COPIES: usize = 1000;
/// Messages on their way at once.
const AT_ONCE: usize = 50;
/// Forged messages.
const FORGED: usize = 50;
/// A body that no task message has.
const HUGE: usize = 10 * 1024 * 1024;
/// Texts of many headers; each is cut at its own limit.
const HEADERS: usize = 24;
/// Time for one message to be confirmed.
const CONFIRM: Duration = Duration::from_secs(30);

/// All of them.
pub(super) fn all() -> Vec<Box<dyn Fault>> {
    vec![
        Box::new(Duplicates),
        Box::new(Forged),
        Box::new(Garbage {
            name: "messages.malformed",
            summary: "messages to the workers that are none: noise, NUL, deep and wrong JSON",
            to: To::Workers,
        }),
        Box::new(Oversized),
        Box::new(Garbage {
            name: "inbox.garbage",
            summary: "requests that nobody can read: noise, NUL, deep and wrong JSON",
            to: To::Inbox,
        }),
    ]
}

struct Duplicates;

#[async_trait(?Send)]
impl Fault for Duplicates {
    fn name(&self) -> &'static str {
        "messages.duplicates"
    }

    fn summary(&self) -> &'static str {
        "a thousand copies of a running task's message"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let task = load::task("probe", json!({"sleep_ms": 2000}));
        field.accept(vec![task.clone()], Entry { kind: Kind::Plain, end: End::Completed }).await?;
        until("the task runs", BITE, async || {
            Ok((running(field, std::slice::from_ref(&task)).await? == 1).then_some(()))
        })
        .await?;
        let body = json!({"task_id": task.id, "type": "probe", "name": "probe", "execution_key": task.key()});
        let body = body.to_string().into_bytes();
        let copies = stream::iter((0..COPIES).map(|_| to_workers(field, body.clone())));
        let confirmed: Vec<anyhow::Result<()>> = copies.buffer_unordered(AT_ONCE).collect().await;
        for answer in confirmed {
            answer?;
        }
        let since = Instant::now();
        drained(field).await?;
        let runs =
            field.count("SELECT count(*) FROM attempts WHERE task_id = $1", &[&task.id.0]).await?;
        let bite = Bite::new(
            since,
            format!("{COPIES} copies were confirmed and consumed; the task ran {runs} times"),
        );
        Ok(if runs == 1 { bite } else { bite.broken(format!("the task ran {runs} times")) })
    }
}

struct Forged;

#[async_trait(?Send)]
impl Fault for Forged {
    fn name(&self) -> &'static str {
        "messages.forged"
    }

    fn summary(&self) -> &'static str {
        "messages of tasks that do not exist, with routing keys and headers that lie"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let before = dead(field).await?;
        for number in 0..FORGED {
            let id = TaskId::new();
            let body = json!({"task_id": id, "type": "http_call", "name": "forged", "execution_key": "forged"});
            let lies = Properties {
                headers: vec![
                    ("run".to_owned(), Header::Number(number as i64 - 7)),
                    ("dead-letter".to_owned(), Header::Number(number as i64 + 1_000_000)),
                ],
                ..Properties::default()
            };
            let key = format!("{POOL}.no_such_type");
            let with_lies = if number % 2 == 0 { lies } else { Properties::default() };
            send(
                field,
                &field.door.topology.tasks(),
                &key,
                body.to_string().as_bytes(),
                &with_lies,
            )
            .await?;
        }
        let since = Instant::now();
        let more = until("they lie in the dead queue", BITE, async || {
            let more = dead(field).await?.saturating_sub(before);
            Ok((more >= FORGED as u32).then_some(more))
        })
        .await?;
        Ok(Bite::new(
            since,
            format!("{FORGED} were sent, and the dead queue has {more} more messages"),
        ))
    }
}

#[derive(Clone, Copy)]
enum To {
    Workers,
    Inbox,
}

struct Garbage {
    name: &'static str,
    summary: &'static str,
    to: To,
}

#[async_trait(?Send)]
impl Fault for Garbage {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let before = unreadable(field).await?;
        let bodies = garbage(field);
        let count = bodies.len() as i64;
        field.book.refused(bodies.len() as u64);
        for body in bodies {
            match self.to {
                To::Workers => to_workers(field, body).await?,
                To::Inbox => {
                    let inbox = field.door.topology.inbox();
                    send(field, &inbox, "", &body, &Properties::default()).await?;
                }
            }
        }
        let since = Instant::now();
        let more = until("each is kept with a reason", BITE, async || {
            let more = unreadable(field).await? - before;
            Ok((more >= count).then_some(more))
        })
        .await?;
        Ok(Bite::new(since, format!("{count} were sent, and {more} more letters tell of them")))
    }
}

struct Oversized;

#[async_trait(?Send)]
impl Fault for Oversized {
    fn name(&self) -> &'static str {
        "messages.oversized"
    }

    fn summary(&self) -> &'static str {
        "a message of 10 MB, and one with 100 kB of headers"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let before = unreadable(field).await?;
        let number = field.dice.random::<u64>();
        let mut body = format!("{{\"oversized\": {number}, \"text\": \"").into_bytes();
        body.resize(HUGE, b'x');
        body.extend_from_slice(b"\"}");
        let heavy = Properties {
            headers: (0..HEADERS)
                .map(|n| (format!("h{n}"), Header::Text("y".repeat(4096))))
                .collect(),
            ..Properties::default()
        };
        field.book.refused(2);
        to_workers(field, body).await?;
        let small = format!("{{\"heavy\": {number}}}");
        let (exchange, key) = (field.door.topology.tasks(), format!("{POOL}.probe"));
        send(field, &exchange, &key, small.as_bytes(), &heavy).await?;
        let since = Instant::now();
        let more = until("both are kept with a reason", BITE, async || {
            let more = unreadable(field).await? - before;
            Ok((more >= 2).then_some(more))
        })
        .await?;
        let kept =
            "SELECT coalesce(max(length(body)), 0)::bigint FROM dead_letters WHERE task_id IS NULL";
        let longest = field.count(kept, &[]).await?;
        ensure!(longest < HUGE as i64, "the whole body of {longest} characters is kept");
        Ok(Bite::new(
            since,
            format!("{more} more letters; at most {longest} characters of a body are kept"),
        ))
    }
}

/// Bodies that are no message and no request, each another one.
fn garbage(field: &mut Field) -> Vec<Vec<u8>> {
    let number = field.dice.random::<u64>();
    let mut noise = vec![0; 512];
    field.dice.fill_bytes(&mut noise);
    let mut all = vec![
        format!("{number} is no object").into_bytes(),
        format!("{{\"task_id\": {number}}}").into_bytes(),
        format!("{{\"task_id\": \"{number}\", \"type\": 7}}").into_bytes(),
        format!("{{\"type\": \"no_such_type_{number}\", \"payload\": {{}}}}").into_bytes(),
        format!("{{\"type\": \"probe\", \"payload\": {{\"sleep_ms\": \"{number}\"}}}}")
            .into_bytes(),
        format!("[\"{number}\"]").into_bytes(),
        format!("\"{number} \0 NUL\"").into_bytes(),
        format!("{number}{}1{}", "[".repeat(5000), "]".repeat(5000)).into_bytes(),
    ];
    // Whatever the dice say, it is no JSON and like no other.
    let mut wild = format!("\u{1}{number}").into_bytes();
    wild.extend(noise);
    all.push(wild);
    all
}

async fn to_workers(field: &Field, body: Vec<u8>) -> anyhow::Result<()> {
    let (exchange, key) = (field.door.topology.tasks(), format!("{POOL}.probe"));
    send(field, &exchange, &key, &body, &Properties::default()).await
}

/// Sends until it is confirmed.
async fn send(
    field: &Field,
    exchange: &str,
    key: &str,
    body: &[u8],
    properties: &Properties,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + CONFIRM;
    loop {
        match field.door.publisher.publish_raw(exchange, key, body, properties).await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Waits until no message is ready in the pool's queue.
async fn drained(field: &Field) -> anyhow::Result<()> {
    until("the queue is consumed", BITE, async || {
        let ready = field.door.publisher.ready_count(POOL).await.ok().flatten();
        Ok((ready == Some(0)).then_some(()))
    })
    .await
}

/// Messages in the dead queue.
async fn dead(field: &Field) -> anyhow::Result<u32> {
    let queue = field.door.topology.dead();
    until("the dead queue can be counted", BITE, async || {
        Ok(field.door.publisher.depth(&queue).await.ok().flatten())
    })
    .await
}

/// Letters without a task.
async fn unreadable(field: &Field) -> anyhow::Result<i64> {
    field.count("SELECT count(DISTINCT body) FROM dead_letters WHERE task_id IS NULL", &[]).await
}

//! The load: work of every kind at a steady, bounded rate, whatever happens around it.
//!
//! A task counts as accepted when its commit was answered; a request in the inbox when its task is
//! there, and its sender repeats it until then, as a careful client does.

use std::time::Duration;

use anyhow::bail;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use shared::broker::Properties;
use shared::domain::task::{NewTask, Semantics};
use shared::shutdown::Shutdown;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::book::{Book, End, Entry, Kind};
use super::field::Field;
use super::house::{EFFECTS, POOL};
use super::rows::Rows;
use crate::fleet::Door;

/// Pause between two batches of tasks.
const BEAT: Duration = Duration::from_millis(300);
/// Tasks of one batch.
const BATCH: usize = 2;
/// Tasks that have not ended, at most: what comes in beyond it waits, so that an outage of minutes is not
/// followed by minutes of backlog.
const OUTSTANDING: i64 = 60;
const UNFINISHED: &str = "SELECT count(*) FROM tasks WHERE finished_at IS NULL";
/// Pause between two requests to the inbox.
const REQUEST_BEAT: Duration = Duration::from_millis(700);
/// A request without a task after this is sent again.
const ASK_AGAIN: Duration = Duration::from_secs(15);
/// Longest time that a commit may be refused before the drill gives up.
const PATIENCE: Duration = Duration::from_mins(1);
/// Longest wait for the broker: rows are published by the fleet's relays anyway.
const PUBLISH: Duration = Duration::from_secs(1);
/// Pause between two tries.
const AGAIN: Duration = Duration::from_millis(100);
/// Faults of services may well fail an attempt; that must not bury a task that is to complete.
const RETRIES: u32 = 12;

/// Runs until it is stopped.
pub struct Load {
    shutdown: Shutdown,
}

impl Load {
    /// Begins.
    pub fn start(field: &Field, seed: u64) -> Self {
        let (door, book) = (&field.door, &field.book);
        let shutdown = Shutdown::new();
        let source = Source {
            door: door.clone(),
            rows: field.rows.clone(),
            book: book.clone(),
            stub: field.stub.url.clone(),
            dice: StdRng::seed_from_u64(seed),
            shutdown: shutdown.clone(),
            number: 0,
        };
        shutdown.spawn(source.run());
        shutdown.spawn(requests(door.clone(), book.clone(), field.rows.clone(), shutdown.clone()));
        Self { shutdown }
    }

    /// Ends it, once everything that was begun is accepted.
    pub async fn stop(self) {
        self.shutdown.soft.cancel();
        self.shutdown.drained().await;
    }
}

/// Commits tasks, again and again until there is an answer: a repeat after a lost one creates
/// nothing twice.
///
/// # Errors
/// When the database did not answer for a minute.
pub async fn commit(door: &Door, tasks: &[NewTask]) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match door.commit(tasks).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= deadline => {
                bail!("no commit for {PATIENCE:?}: {error:#}")
            }
            Err(_) => sleep(AGAIN).await,
        }
    }
}

/// Tells the broker at once where it takes it; the fleet's relays do the rest.
pub async fn publish(door: &Door, tasks: &[NewTask]) {
    let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
    let _ = timeout(PUBLISH, door.relay.publish_now(&ids)).await;
}

/// A task of the drill: short delays, and retries enough.
pub fn task(task_type: &str, payload: Value) -> NewTask {
    let mut task = NewTask::ad_hoc(task_type, POOL, payload);
    task.timeout = Duration::from_secs(60);
    task.retry.max_retry = RETRIES;
    task.retry.base = Duration::from_secs(1);
    task.retry.max = Duration::from_secs(2);
    task
}

struct Source {
    door: Door,
    rows: Rows,
    book: Book,
    stub: String,
    dice: StdRng,
    shutdown: Shutdown,
    number: u64,
}

impl Source {
    async fn run(mut self) {
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.shutdown.soft.is_cancelled() {
            beat.tick().await;
            match self.rows.count(UNFINISHED, &[]).await {
                Ok(outstanding) if outstanding < OUTSTANDING => (),
                _ => continue,
            }
            let tasks: Vec<NewTask> = (0..BATCH).map(|_| self.next()).collect();
            if let Err(error) = commit(&self.door, &tasks).await {
                self.book.fail(format!("{error:#}"));
                return;
            }
            // The others are only committed: their messages are the work of the fleet.
            if self.dice.random_bool(0.5) {
                publish(&self.door, &tasks).await;
            }
        }
    }

    fn next(&mut self) -> NewTask {
        self.number += 1;
        let number = self.number;
        let short = self.dice.random_range(0..300);
        let long = self.dice.random_range(1500..3500);
        let plain = |payload| (task("probe", payload), Kind::Plain, End::Completed);
        let (mut task, kind, end) = match self.dice.random_range(0..20) {
            0..3 => plain(json!({"sleep_ms": short})),
            3..6 => plain(json!({"sleep_ms": long})),
            6..10 => {
                let payload = json!({"sleep_ms": short * 5, "effect": EFFECTS});
                (task("probe", payload), Kind::Effect, End::Completed)
            }
            10..12 => {
                let payload = json!({"method": "POST", "url": format!("{}/effects", self.stub)});
                (task("http_call", payload), Kind::Outside, End::Completed)
            }
            12..14 => {
                let payload = json!({"prompt": format!("what is told of order {number}?")});
                (task("model_invoke", payload), Kind::Question, End::Once)
            }
            14 => plain(json!({"mode": "retry", "fail_times": 1})),
            15 => plain(json!({"mode": "snooze", "fail_times": 1, "snooze_ms": 500})),
            16 => plain(json!({"mode": "panic", "fail_times": 1})),
            17 => (
                task("probe", json!({"mode": "permanent", "sleep_ms": short})),
                Kind::Plain,
                End::Dead("permanent"),
            ),
            _ => (task("probe", json!({"sleep_ms": short * 3})), Kind::Plain, End::Once),
        };
        if end == End::Once && kind == Kind::Plain {
            task.semantics = Semantics::AtMostOnce;
        }
        self.book.write(std::slice::from_ref(&task), Entry { kind, end });
        task
    }
}

/// Drops requests into the inbox, and repeats those whose tasks do not come.
async fn requests(door: Door, book: Book, rows: Rows, shutdown: Shutdown) {
    let mut number = 0_u64;
    while !shutdown.soft.is_cancelled() {
        sleep(REQUEST_BEAT).await;
        number += 1;
        let key = format!("request-{number}");
        let body = json!({"type": "probe", "key": key, "payload": {"sleep_ms": number % 200}});
        book.request(&key, body);
        send_requests(&door, &book, &rows).await;
    }
}

/// Sends what is to be sent, and sees which requests have their tasks.
pub async fn send_requests(door: &Door, book: &Book, rows: &Rows) {
    let open = book.open_requests();
    if let Ok(taken) = rows.all(include_str!("sql/taken.sql"), &[&open]).await {
        let keys: Vec<String> = taken.iter().map(|row| row.get("execution_key")).collect();
        book.taken(&keys);
    }
    for (key, body) in book.to_send(ASK_AGAIN) {
        let properties = Properties {
            content_type: Some("application/json".to_owned()),
            ..Properties::default()
        };
        let (exchange, body) = (door.topology.inbox(), body.to_string());
        let sending = door.publisher.publish_raw(&exchange, "", body.as_bytes(), &properties);
        if let Ok(Ok(())) = timeout(PUBLISH, sending).await {
            book.confirmed(&key);
        }
    }
}

//! Faults of workers: killed, frozen, stopped, blocked, and killed by their own work.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use serde_json::json;
use shared::domain::task::NewTask;
use tokio::time::{Instant, sleep};

use super::held::{Held, RESTART, runner, running};
use super::signs::BITE;
use crate::drill::book::{End, Entry, Kind};
use crate::drill::fault::{Bite, Fault};
use crate::drill::field::{Field, until};
use crate::drill::house::CRASH_LIMIT;
use crate::drill::load;
use crate::fleet::Role;
use crate::stub_llm;

/// Time for a worker to stop: its tasks take seconds.
const STOP: Duration = Duration::from_secs(60);
/// A handler blocks its thread longer than a lease.
const SPIN: Duration = Duration::from_secs(4);
/// Handlers that do so at once.
const SPINNERS: usize = 3;
/// Tasks that come while a worker is frozen.
const DEALT: usize = 9;
/// A question hangs longer than anybody waits in the drill.
const HANG: Duration = Duration::from_secs(8);
/// A task that kills its worker is found out within this: each death costs a lease and a start.
const FOUND_OUT: Duration = Duration::from_secs(90);
const PLAIN: Entry = Entry { kind: Kind::Plain, end: End::Completed };

/// All of them.
pub(super) fn all() -> Vec<Box<dyn Fault>> {
    vec![
        Box::new(Kill),
        Box::new(KillAll),
        Box::new(Pause),
        Box::new(TermStorm),
        Box::new(TermInCall),
        Box::new(Spin),
        Box::new(Killer),
    ]
}

struct Kill;

#[async_trait(?Send)]
impl Fault for Kill {
    fn name(&self) -> &'static str {
        "worker.kill"
    }

    fn summary(&self) -> &'static str {
        "SIGKILL to a worker at work: what it held starts elsewhere"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let (at, _) = field.worker_at_work().await?;
        let held = Held::by(field, at).await?;
        let (pid, blow) = field.fleet.kill(at).await?;
        let took = held.restarted(field, blow).await?;
        field.fleet.man(&field.ground, at, &[])?;
        let proof = format!("process {pid} is gone with {} tasks in hand", held.len());
        Ok(Bite::new(blow, proof).measured("what it held started elsewhere", took, RESTART))
    }
}

struct KillAll;

#[async_trait(?Send)]
impl Fault for KillAll {
    fn name(&self) -> &'static str {
        "worker.kill_all"
    }

    fn summary(&self) -> &'static str {
        "SIGKILL to all workers at once, and new ones in their places"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        field.worker_at_work().await?;
        let mut pids = Vec::new();
        let blow = Instant::now();
        for at in field.fleet.of(Role::Worker) {
            pids.push(field.fleet.kill(at).await?.0);
        }
        field.fleet.mend(&field.ground)?;
        Ok(Bite::new(blow, format!("processes {pids:?} are gone")))
    }
}

struct Pause;

#[async_trait(?Send)]
impl Fault for Pause {
    fn name(&self) -> &'static str {
        "worker.pause"
    }

    fn summary(&self) -> &'static str {
        "SIGSTOP to a worker at work for longer than its lease, then SIGCONT: it is late everywhere"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let (at, _) = field.worker_at_work().await?;
        let held = Held::by(field, at).await?;
        let blow = Instant::now();
        field.fleet.posts[at].member()?.signal("STOP").await?;
        field.log.tell(format!("{} is frozen", field.fleet.posts[at].name));
        let seen = frozen(field, &held, blow).await;
        // Whatever was seen: a frozen process is nobody's.
        field.fleet.posts[at].member()?.signal("CONT").await?;
        let (took, dealt) = seen?;
        let proof = format!(
            "its identity was fenced, and {} tasks went on without it, {:.1} s before it woke",
            held.len(),
            blow.elapsed().saturating_sub(took).as_secs_f64()
        );
        Ok(Bite::new(Instant::now(), proof)
            .measured("what it held started elsewhere", took, RESTART)
            .measured("what came meanwhile started", dealt, RESTART))
    }
}

/// Watches a freeze to its end; answers when what it held had gone on, and when all tasks had begun
/// that came meanwhile: the broker deals some of their messages to the frozen worker.
async fn frozen(
    field: &mut Field,
    held: &Held,
    blow: Instant,
) -> anyhow::Result<(Duration, Duration)> {
    let tasks: Vec<NewTask> = (0..DEALT).map(|_| load::task("probe", json!({}))).collect();
    let ids: Vec<_> = tasks.iter().map(|task| task.id.0).collect();
    field.accept(tasks, PLAIN).await?;
    held.fenced(field).await?;
    let took = held.restarted(field, blow).await?;
    let begun = "SELECT count(*) FROM tasks WHERE id = ANY ($1) AND run > 0";
    let dealt = until("what came meanwhile starts", STOP, async || {
        Ok((field.count(begun, &[&ids]).await? == DEALT as i64).then(|| blow.elapsed()))
    })
    .await?;
    Held::outlast(field, blow).await;
    Ok((took, dealt))
}

struct TermStorm;

#[async_trait(?Send)]
impl Fault for TermStorm {
    fn name(&self) -> &'static str {
        "worker.term_storm"
    }

    fn summary(&self) -> &'static str {
        "SIGTERM to one worker after the other, as in a rolling restart"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let mut ended = Vec::new();
        for at in field.fleet.of(Role::Worker) {
            field.fleet.posts[at].member()?.terminate().await?;
            let status = field.fleet.ended(at, STOP).await?;
            ensure!(
                status == "exit status: 0",
                "a worker that was told to stop ended with {status}"
            );
            ended.push(field.fleet.posts[at].name.clone());
            field.fleet.man(&field.ground, at, &[])?;
        }
        Ok(Bite::new(Instant::now(), format!("{} each ended with 0", ended.join(", "))))
    }
}

struct TermInCall;

#[async_trait(?Send)]
impl Fault for TermInCall {
    fn name(&self) -> &'static str {
        "worker.term_in_call"
    }

    fn summary(&self) -> &'static str {
        "two SIGTERM to a worker whose question to the model hangs: released, asked once more elsewhere"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let hang_ms = u64::try_from(HANG.as_millis())?;
        field.stub.script("drill-hang", vec![stub_llm::Fault { hang_ms, ..Default::default() }]);
        let payload = json!({"prompt": "what takes so long?", "model": "drill-hang"});
        let task = load::task("model_invoke", payload);
        let entry = Entry { kind: Kind::Question, end: End::Once };
        field.accept(vec![task.clone()], entry).await?;
        let asked = || {
            field
                .stub
                .calls()
                .iter()
                .any(|call| call.model == "drill-hang" && call.status.is_none())
        };
        until("the question is asked", BITE, async || Ok(asked().then_some(()))).await?;
        let at = runner(field, &task).await?;

        let member = field.fleet.posts[at].member()?;
        member.terminate().await?;
        // Two signals at once would be one.
        until("it drains", BITE, async || Ok((!member.is_ready().await).then_some(()))).await?;
        member.terminate().await?;
        let told = Instant::now();
        let status = field.fleet.ended(at, STOP).await?;
        ensure!(status == "exit status: 0", "it ended with {status}");
        field.fleet.man(&field.ground, at, &[])?;
        let released = "SELECT count(*) FROM attempts WHERE task_id = $1 AND outcome = 'released'";
        let count = field.count(released, &[&task.id.0]).await?;
        ensure!(count == 1, "the task was released {count} times");
        let proof = format!(
            "it ended {:.1} s after the second signal and released the task",
            told.elapsed().as_secs_f64()
        );
        Ok(Bite::new(told, proof))
    }
}

struct Spin;

#[async_trait(?Send)]
impl Fault for Spin {
    fn name(&self) -> &'static str {
        "worker.spin"
    }

    fn summary(&self) -> &'static str {
        "handlers that block their threads for longer than a lease: heartbeats go on, nobody is fenced"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let fenced = "SELECT count(*) FROM workers WHERE role = 'worker' AND fenced_at IS NOT NULL";
        let before = field.count(fenced, &[]).await?;
        let spin_ms = u64::try_from(SPIN.as_millis())?;
        let tasks: Vec<NewTask> =
            (0..SPINNERS).map(|_| load::task("probe", json!({"spin_ms": spin_ms}))).collect();
        field.accept(tasks.clone(), PLAIN).await?;
        until("a handler spins", BITE, async || {
            Ok((running(field, &tasks).await? > 0).then_some(()))
        })
        .await?;
        let ids: Vec<_> = tasks.iter().map(|task| task.id.0).collect();
        let done = "SELECT count(*) FROM tasks WHERE id = ANY ($1) AND state = 'completed'";
        until("they have spun", STOP, async || {
            Ok((field.count(done, &[&ids]).await? == SPINNERS as i64).then_some(()))
        })
        .await?;
        let longest = "SELECT max(extract(epoch FROM ended_at - started_at) * 1000)::bigint FROM attempts WHERE task_id = ANY ($1)";
        let blocked = field.count(longest, &[&ids]).await?;
        let bite = Bite::new(Instant::now(), format!("a thread was blocked for {blocked} ms"));
        let more = field.count(fenced, &[]).await? - before;
        Ok(if more == 0 {
            bite
        } else {
            bite.broken(format!("{more} workers were fenced meanwhile"))
        })
    }
}

struct Killer;

#[async_trait(?Send)]
impl Fault for Killer {
    fn name(&self) -> &'static str {
        "worker.killer"
    }

    fn summary(&self) -> &'static str {
        "a task that kills its worker: it dies of class crashed, its neighbours survive"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let task = load::task("probe", json!({"mode": "die"}));
        let id = task.id.0;
        field.accept(vec![task], Entry { kind: Kind::Plain, end: End::Dead("crashed") }).await?;
        let deadline = Instant::now() + FOUND_OUT;
        let mut deaths = 0;
        while field
            .count("SELECT count(*) FROM tasks WHERE id = $1 AND state = 'dead'", &[&id])
            .await?
            == 0
        {
            ensure!(
                Instant::now() < deadline,
                "after {FOUND_OUT:?} and {deaths} deaths it is not dead"
            );
            deaths += field.fleet.mend(&field.ground)?.len();
            sleep(Duration::from_millis(100)).await;
        }
        deaths += field.fleet.mend(&field.ground)?.len();
        let expected = usize::try_from(CRASH_LIMIT).context("a small number")?;
        ensure!(deaths >= expected, "it is dead after {deaths} deaths of workers");
        Ok(Bite::new(Instant::now(), format!("{deaths} workers died of it before it was given up")))
    }
}

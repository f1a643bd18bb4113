//! Twenty kills at seeded moments: whatever dies, everything that was accepted ends, every second
//! has its tick, and the ledger is clean.

#[path = "fleet/programs.rs"]
mod programs;

use std::time::{Duration, Instant};

use loadtest::database;
use loadtest::fleet::{Door, Ground, Member, Role};
use loadtest::ledger;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use shared::broker::Operator;
use shared::config;
use shared::domain::task::NewTask;
use shared::testing::{needed, within};
use tokio_postgres::Client;

/// Which story is told; another number is another one.
const SEED: u64 = 20_261_130;
const KILLS: u32 = 20;
/// Published between two kills.
const TASKS_PER_KILL: u32 = 5;
/// Time for a process to be ready, or to stop.
const PATIENCE: Duration = Duration::from_secs(30);
/// Leases of 3 s, a grace of 15 s for lost messages, and their sweeps, twice over.
const HEALED: Duration = Duration::from_secs(45);

/// The crash limit is out of the way: twenty kills may well hit the same task three times.
const HOUSE: &str = "
scheduler: {heartbeat_interval: 1s, heartbeat_ttl: 3s}
limits: {crash_limit: 100}
task_pools:
  io_pool: {max_workers: 8, task_types: [probe]}
tasks:
  - name: every_second
    schedule: '* * * * * *'
    task_type: probe
    payload: {sleep_ms: 20}
    overlap: allow
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_killed_everything_accepted_ends_and_no_promise_is_broken() {
    programs::are_fresh();
    let ground = Ground::prepare(&services(), "kills", HOUSE).await.expect("ground");
    let told = story(&ground).await;
    let left = ground.clear().await;
    told.expect("the story");
    left.expect("nothing left behind");
}

async fn story(ground: &Ground) -> anyhow::Result<()> {
    let began = Instant::now();
    // Shown when the test fails: the story so far.
    let tell = |what: &str| eprintln!("{:6.2} s  {what}", began.elapsed().as_secs_f64());
    let door = Door::open(ground).await?;
    let client = database::connect(ground.config().database_url()?).await?;
    let roles = [Role::Producer, Role::Producer, Role::Worker, Role::Worker];
    let mut fleet: Vec<Member> =
        roles.iter().map(|&role| Member::start(ground, role)).collect::<Result<_, _>>()?;
    for member in &mut fleet {
        member.ready(PATIENCE).await?;
    }
    tell(&format!("the fleet is ready; seed {SEED}"));

    let mut dice = StdRng::seed_from_u64(SEED);
    for kill in 0..KILLS {
        accept(&door, &mut dice).await?;
        let pause = Duration::from_millis(dice.random_range(200..900));
        tokio::time::sleep(pause).await; // time itself is under test
        let chosen = match kill % 5 {
            // Now and then it must hit a worker at work, however slow the machine is.
            4 => at_work_now(&client, &fleet).await,
            _ => dice.random_range(0..fleet.len()),
        };
        let victim = fleet.swap_remove(chosen);
        let role = victim.role;
        tell(&format!("killing {} {:?}", role.program(), victim.pid()));
        victim.kill().await?;
        fleet.push(Member::start(ground, role)?);
    }

    let mut at_work = Vec::new();
    for mut member in fleet {
        member.ready(PATIENCE).await?;
        // No more ticks, so that there is an end to wait for.
        match member.role {
            Role::Producer => drop(member.stop(PATIENCE).await?),
            Role::Worker => at_work.push(member),
        }
    }
    tell("no more ticks");
    everything_ended(ground, &client).await;
    tell("everything has ended");
    for member in at_work {
        member.stop(PATIENCE).await?;
    }

    tell("the fleet has stopped");
    let settled = ledger::Options { expect_settled: true, management: None };
    let audited = ledger::audit(ground.config(), &settled).await?;
    assert_eq!(audited.broken(), None, "seed {SEED}:\n{}", loadtest::report::ledger(&audited));
    let accepted = i64::from(KILLS * TASKS_PER_KILL);
    let completed = "SELECT count(*) FROM tasks WHERE schedule IS NULL AND state = 'completed'";
    assert_eq!(count(&client, completed).await, accepted, "each accepted task completed");
    let crashed = "SELECT count(*) FROM attempts WHERE outcome = 'lease_expired'";
    assert!(
        count(&client, crashed).await > 0,
        "no kill hit a running task: the story proves nothing"
    );
    let terms = "SELECT max(epoch) FROM leadership";
    assert!(count(&client, terms).await > 1, "no kill hit the leader: the story proves nothing");
    door.close().await;
    Ok(())
}

/// Some tasks of different length. Every other batch is only committed: its messages are the work
/// of whichever process lives.
async fn accept(door: &Door, dice: &mut StdRng) -> anyhow::Result<()> {
    let tasks: Vec<NewTask> = (0..TASKS_PER_KILL)
        .map(|_| {
            let payload = json!({"sleep_ms": dice.random_range(0..1500)});
            NewTask::ad_hoc("probe", "io_pool", payload)
        })
        .collect();
    if dice.random_bool(0.5) {
        door.accept(&tasks).await
    } else {
        door.commit(&tasks).await.map(drop)
    }
}

async fn everything_ended(ground: &Ground, client: &Client) {
    let unfinished = "SELECT count(*) FROM tasks WHERE finished_at IS NULL";
    let settings = ground.settings().expect("a broker");
    let operator = Operator::connect(&settings).await.expect("a broker that answers");
    let queue = ground.topology().pool_queue("io_pool");
    within(HEALED, &format!("everything ends (seed {SEED})"), async || {
        let waiting = operator.depth(&queue).await.expect("asked").unwrap_or(0);
        (count(client, unfinished).await == 0 && waiting == 0).then_some(())
    })
    .await;
    operator.close().await;
}

/// Which member runs a task at this moment; waits for one.
async fn at_work_now(client: &Client, fleet: &[Member]) -> usize {
    let labels = "SELECT w.label FROM tasks t JOIN workers w ON w.id = t.incarnation
        WHERE t.state = 'running' AND w.fenced_at IS NULL ORDER BY t.id DESC";
    within(PATIENCE, "a worker is at work", async || {
        let rows = client.query(labels, &[]).await.expect("labels");
        rows.iter().find_map(|row| {
            let label: String = row.get(0);
            let is_its = |member: &Member| {
                member.pid().is_some_and(|pid| label.ends_with(&format!("#{pid}")))
            };
            fleet.iter().position(is_its)
        })
    })
    .await
}

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect(sql).get(0)
}

/// What the environment names, whatever file lies about.
fn services() -> config::Config {
    let lookup = |name: &str| match name {
        "DATABASE_URL" | "AMQP_URL" => Some(needed(name)),
        _ => None,
    };
    config::load_str("", "environment", &lookup).expect("addresses")
}

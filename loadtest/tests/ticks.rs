//! Ticks under attack: producers that stop, pause and die, and a database and a broker that go away
//! when it is time. Each instant has one tick row and at most one task.

#[path = "fleet/programs.rs"]
mod programs;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use loadtest::database;
use loadtest::fleet::{Ground, Member, Role};
use loadtest::ledger;
use loadtest::proxy::{Link, Mode};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use secrecy::ExposeSecret as _;
use shared::config;
use shared::testing::{needed, within};
use tokio_postgres::Client;

/// Which story is told; another number is another one.
const SEED: u64 = 20_261_130;
/// Length of the storm; `BELFRY_STORM_SECONDS=120` tells the long story.
const STORM: Duration = Duration::from_secs(30);
/// Time for a process to be ready, or to stop.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a service is away.
const AWAY: Duration = Duration::from_secs(20);

/// Every policy that an instant can meet, every second.
const STORMY: &str = "
scheduler: {heartbeat_interval: 1s, heartbeat_ttl: 3s}
task_pools:
  io_pool: {max_workers: 8, task_types: [probe]}
tasks:
  - {name: all, schedule: '* * * * * *', task_type: probe, overlap: allow, catch_up: all}
  - {name: latest, schedule: '* * * * * *', task_type: probe, overlap: allow}
  - {name: none, schedule: '* * * * * *', task_type: probe, overlap: allow, catch_up: none}
  - {name: slow, schedule: '* * * * * *', task_type: probe, payload: {sleep_ms: 1500}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_producers_in_a_storm_give_each_second_one_tick_and_at_most_one_task() {
    programs::are_fresh();
    let ground = Ground::prepare(&services(), "storm", STORMY).await.expect("ground");
    let told = storm(&ground).await;
    let left = ground.clear().await;
    told.expect("the story");
    left.expect("nothing left behind");
}

async fn storm(ground: &Ground) -> anyhow::Result<()> {
    let began = Instant::now();
    // Shown when the test fails: the story so far.
    let tell = |what: &str| eprintln!("{:6.2} s  {what}", began.elapsed().as_secs_f64());
    let client = database::connect(ground.config().database_url()?).await?;
    let mut worker = Member::start(ground, Role::Worker)?;
    let mut producers = Vec::new();
    for _ in 0..3 {
        producers.push(Member::start(ground, Role::Producer)?);
    }
    for member in producers.iter_mut().chain([&mut worker]) {
        member.ready(PATIENCE).await?;
    }
    ticked_again(&client, "all").await;
    tell(&format!("they tick; seed {SEED}"));

    let mut dice = StdRng::seed_from_u64(SEED);
    let storm = Instant::now();
    let mut paused = 0;
    while storm.elapsed() < length() {
        let pause = Duration::from_millis(dice.random_range(300..2000));
        tokio::time::sleep(pause).await; // time itself is under test
        // The leader is hit as often as both others together.
        let victim = match leader(&client, &producers).await {
            Some(leader) if dice.random_bool(0.5) => leader,
            _ => dice.random_range(0..producers.len()),
        };
        match dice.random_range(0..3) {
            0 => {
                let member = producers.swap_remove(victim);
                tell(&format!("killing {:?}", member.pid()));
                member.kill().await?;
                producers.push(Member::start(ground, Role::Producer)?);
            }
            1 => {
                let member = producers.swap_remove(victim);
                tell(&format!("stopping {:?}", member.pid()));
                assert!(member.stop(PATIENCE).await?.success());
                producers.push(Member::start(ground, Role::Producer)?);
            }
            _ => {
                // Up to twice as long as a lease: another leads meanwhile, or it is just late.
                let nap = Duration::from_millis(dice.random_range(500..6000));
                tell(&format!("pausing {:?} for {nap:?}", producers[victim].pid()));
                producers[victim].signal("STOP").await?;
                tokio::time::sleep(nap).await; // time itself is under test
                producers[victim].signal("CONT").await?;
                paused += 1;
            }
        }
    }
    for name in ["all", "latest", "none", "slow"] {
        ticked_again(&client, name).await;
    }
    for producer in producers {
        producer.stop(PATIENCE).await?;
    }
    tell("no more ticks");
    ended(&client).await;
    assert!(worker.stop(PATIENCE).await?.success());

    for name in ["all", "latest", "none", "slow"] {
        whole(&client, name, TimeDelta::seconds(1)).await;
    }
    let told = "SELECT string_agg(format('%s %s: %s', schedule, outcome, n), ', ' ORDER BY schedule, outcome)
        FROM (SELECT schedule, outcome, sum(count) AS n FROM ticks GROUP BY 1, 2) t";
    tell(&client.query_one(told, &[]).await?.get::<_, String>(0));
    // What did not run says why, by the policy of its schedule.
    assert_eq!(outcomes(&client, "all").await, ["enqueued"]);
    assert!(outcomes(&client, "slow").await.iter().any(|outcome| outcome == "skipped_overlap"));
    for name in ["latest", "none"] {
        let outcomes = outcomes(&client, name).await;
        assert!(outcomes.iter().all(|o| o == "enqueued" || o == "missed"), "{name}: {outcomes:?}");
    }
    let settled = ledger::Options { expect_settled: true, management: None };
    let audited = ledger::audit(ground.config(), &settled).await?;
    assert_eq!(audited.broken(), None, "seed {SEED}:\n{}", loadtest::report::ledger(&audited));
    let terms = "SELECT max(epoch) FROM leadership";
    assert!(count(&client, terms).await > 2, "the lead hardly changed: the story proves nothing");
    assert!(paused > 0, "nobody was paused: the story proves nothing");
    Ok(())
}

/// Both of one type, both due at the same second, one worker.
const TWINS: &str = "
scheduler: {heartbeat_interval: 1s, heartbeat_ttl: 3s}
task_pools:
  io_pool: {max_workers: 4, task_types: [probe]}
tasks:
  - {name: one, schedule: '*/2 * * * * *', task_type: probe}
  - {name: other, schedule: '*/2 * * * * *', task_type: probe, jitter: 900ms, priority: high}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_schedules_of_one_type_that_are_due_together_both_run() {
    programs::are_fresh();
    let ground = Ground::prepare(&services(), "twins", TWINS).await.expect("ground");
    let client = database::connect(ground.config().database_url().expect("it")).await.expect("it");
    let mut members =
        [Role::Producer, Role::Worker].map(|role| Member::start(&ground, role).expect("started"));
    for member in &mut members {
        member.ready(PATIENCE).await.expect("ready");
    }

    let both = "SELECT count(*) FROM (SELECT i.scheduled_for FROM task_inputs i JOIN tasks t ON t.id = i.task_id
        WHERE t.state = 'completed' GROUP BY 1 HAVING count(DISTINCT i.name) = 2) s";
    within(PATIENCE, "both run at three instants", async || {
        (count(&client, both).await >= 3).then_some(())
    })
    .await;

    let early = "SELECT count(*) FROM attempts a JOIN task_inputs i USING (task_id)
        WHERE a.started_at < i.scheduled_for";
    assert_eq!(count(&client, early).await, 0);
    for member in members {
        assert!(member.stop(PATIENCE).await.expect("ended").success());
    }
    ground.clear().await.expect("nothing left behind");
}

/// Due while the service is away, again and again; nothing of it may be lost.
const BEATS: &str = "
scheduler: {heartbeat_interval: 1s, heartbeat_ttl: 3s}
task_pools:
  io_pool: {max_workers: 4, task_types: [probe]}
tasks:
  - {name: all, schedule: '*/5 * * * * *', task_type: probe, overlap: allow, catch_up: all}
  - {name: latest, schedule: '*/5 * * * * *', task_type: probe, overlap: allow}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_for_twenty_seconds_loses_no_tick() {
    let (client, ground) = outage("away_db", "DATABASE_URL").await;

    let missed = "SELECT coalesce(sum(count), 0)::bigint FROM ticks WHERE schedule = 'latest' AND outcome = 'missed'";
    let missed = count(&client, missed).await;
    assert!((1..=4).contains(&missed), "all but the newest of 20 s are recorded: {missed}");
    ground.clear().await.expect("nothing left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_away_for_twenty_seconds_delays_no_tick() {
    let (client, ground) = outage("away_mq", "AMQP_URL").await;

    assert_eq!(outcomes(&client, "latest").await, ["enqueued"]);
    let late = "SELECT count(*) FROM ticks WHERE decided_at > planned_at + interval '5 seconds'";
    assert_eq!(count(&client, late).await, 0, "a tick never waits for the broker");
    ground.clear().await.expect("nothing left behind");
}

/// Takes the producer's way to a service away over several instants, and back.
async fn outage(name: &str, variable: &'static str) -> (Client, Ground) {
    programs::are_fresh();
    let ground = Ground::prepare(&services(), name, BEATS).await.expect("ground");
    let url = match variable {
        "AMQP_URL" => ground.config().amqp_url().expect("it"),
        _ => ground.config().database_url().expect("it"),
    };
    let target = address(url.expose_secret()).await;
    let link = Link::start(target).await.expect("a link");
    let url = match variable {
        "AMQP_URL" => ground.amqp_url_at(link.address()),
        _ => ground.database_url_at(link.address()),
    };
    let url = url.expect("an address");
    let client = database::connect(ground.config().database_url().expect("it")).await.expect("it");
    let mut worker = Member::start(&ground, Role::Worker).expect("started");
    let through = [(variable, url.as_str())];
    let mut producer = Member::start_with(&ground, Role::Producer, &through).expect("started");
    worker.ready(PATIENCE).await.expect("ready");
    producer.ready(PATIENCE).await.expect("ready");
    ticked_again(&client, "all").await;

    link.set(Mode::Refuse);
    assert!(link.cut() > 0, "the producer comes through the link");
    tokio::time::sleep(AWAY).await; // time itself is under test
    link.set(Mode::Pass);
    producer.ready(PATIENCE).await.expect("it finds back");
    for name in ["all", "latest"] {
        ticked_again(&client, name).await;
    }
    assert!(producer.stop(PATIENCE).await.expect("ended").success());
    ended(&client).await;
    assert!(worker.stop(PATIENCE).await.expect("ended").success());

    for name in ["all", "latest"] {
        whole(&client, name, TimeDelta::seconds(5)).await;
    }
    assert_eq!(outcomes(&client, "all").await, ["enqueued"], "{name}");
    let completed = "SELECT count(*) FROM tasks WHERE state <> 'completed'";
    assert_eq!(count(&client, completed).await, 0, "{name}: each ran");
    (client, ground)
}

async fn address(url: &str) -> SocketAddr {
    let url: url::Url = url.parse().expect("a URL");
    let place = (url.host_str().expect("a host"), url.port().expect("a port"));
    tokio::net::lookup_host(place).await.expect("found").next().expect("an address")
}

/// Every instant from the first to the last is in exactly one tick row, alone or in a span.
async fn whole(client: &Client, schedule: &str, step: TimeDelta) {
    let sql = "SELECT coalesce(first_at, planned_at) AS first, planned_at AS last, count FROM ticks
        WHERE schedule = $1 ORDER BY planned_at";
    let rows = client.query(sql, &[&schedule]).await.expect("ticks");
    let mut expected: Option<DateTime<Utc>> = None;
    for row in &rows {
        let (first, last): (DateTime<Utc>, DateTime<Utc>) = (row.get("first"), row.get("last"));
        let missing = expected.filter(|expected| *expected != first);
        assert_eq!(missing, None, "{schedule}: then comes {first}");
        let instants = (last - first).num_seconds() / step.num_seconds() + 1;
        assert_eq!(row.get::<_, i64>("count"), instants, "{schedule} at {last}");
        expected = Some(last + step);
    }
    assert!(rows.len() > 3, "{schedule} hardly ticked");
    let doubled = "SELECT count(*) FROM (SELECT FROM task_inputs WHERE name = $1
        GROUP BY scheduled_for HAVING count(*) > 1) d";
    let doubled: i64 = client.query_one(doubled, &[&schedule]).await.expect("counted").get(0);
    assert_eq!(doubled, 0, "{schedule}: at most one task an instant");
}

/// Waits for a tick on time: whatever was missed before is decided then.
async fn ticked_again(client: &Client, schedule: &str) {
    let sql = "SELECT count(*) FROM ticks WHERE schedule = $1
        AND planned_at > belfry_now() - interval '5 seconds'";
    within(PATIENCE, &format!("{schedule} ticks"), async || {
        let fresh: i64 = client.query_one(sql, &[&schedule]).await.expect("ticks").get(0);
        (fresh > 0).then_some(())
    })
    .await;
}

async fn ended(client: &Client) {
    let unfinished = "SELECT count(*) FROM tasks WHERE finished_at IS NULL";
    within(2 * PATIENCE, "everything ends", async || {
        (count(client, unfinished).await == 0).then_some(())
    })
    .await;
}

async fn outcomes(client: &Client, schedule: &str) -> Vec<String> {
    let sql = "SELECT DISTINCT outcome FROM ticks WHERE schedule = $1 ORDER BY 1";
    let rows = client.query(sql, &[&schedule]).await.expect("ticks");
    rows.iter().map(|row| row.get(0)).collect()
}

/// Which of them leads.
async fn leader(client: &Client, producers: &[Member]) -> Option<usize> {
    let sql = "SELECT label FROM leadership WHERE lease_until > belfry_now()";
    let label: String = client.query_opt(sql, &[]).await.expect("leadership")?.get(0);
    producers
        .iter()
        .position(|member| member.pid().is_some_and(|pid| label.ends_with(&format!("#{pid}"))))
}

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect(sql).get(0)
}

#[expect(clippy::disallowed_methods, reason = "who runs the long story says so here")]
fn length() -> Duration {
    let seconds = std::env::var("BELFRY_STORM_SECONDS").ok();
    seconds.map_or(STORM, |seconds| Duration::from_secs(seconds.parse().expect("a number")))
}

/// What the environment names, whatever file lies about.
fn services() -> config::Config {
    let lookup = |name: &str| match name {
        "DATABASE_URL" | "AMQP_URL" => Some(needed(name)),
        _ => None,
    };
    config::load_str("", "environment", &lookup).expect("addresses")
}

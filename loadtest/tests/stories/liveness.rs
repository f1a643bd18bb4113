//! Who lives and who does not: handlers that block their threads, tasks that outlast many leases,
//! processes that are paused, hosts and processes that share a name.

use std::path::PathBuf;
use std::time::Instant;

use loadtest::fleet::{Launch, Member, Role};
use serde_json::json;
use shared::domain::task::{TaskId, TaskState};
use shared::testing::{not_run, within};

use crate::house::{House, PATIENCE, outcomes, probe, signal, signal_to};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_block_every_thread_starve_no_heartbeat_and_long_tasks_are_left_alone() {
    let house = House::open("blocked", "").await;
    let producer = house.started(Role::Producer).await;
    let worker = house.started(Role::Worker).await;
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(house.given(probe(json!({"spin_ms": 5000}))).await);
    }
    tasks.push(house.given(probe(json!({"sleep_ms": 8000}))).await);
    for task in &tasks {
        house.runs(*task, 1).await;
    }

    let lost = "SELECT count(*) FROM workers WHERE fenced_at IS NOT NULL";
    within(PATIENCE, "all complete", async || {
        assert!(worker.is_ready().await, "a handler has made its worker unready");
        let open = "SELECT count(*) FROM tasks WHERE finished_at IS NULL";
        (house.count(open).await == 0).then_some(())
    })
    .await;

    assert_eq!(house.count(lost).await, 0, "an identity was lost");
    for task in tasks {
        let row = house.is(task, TaskState::Completed).await;
        assert_eq!((outcomes(&row), row.summary.crashes), (vec!["completed"], 0));
    }
    house.close(vec![producer, worker]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_workers_task_runs_elsewhere_and_its_own_late_result_is_refused() {
    let house = House::open("paused_worker", "").await;
    let producer = house.started(Role::Producer).await;
    let paused = house.started(Role::Worker).await;
    let task = house.given(probe(json!({"sleep_ms": 2000}))).await;
    house.runs(task, 1).await;
    let other = house.started(Role::Worker).await;

    signal(&paused, "STOP").await;
    let since = Instant::now();
    house.runs(task, 2).await;
    let took = since.elapsed();
    let row = house.is(task, TaskState::Completed).await;
    signal(&paused, "CONT").await;

    within(PATIENCE, "the late result is refused", async || {
        let (_, page) = paused.page("/metrics").await.ok()?;
        page.lines().any(|line| line.starts_with("belfry_tasks_fenced_total")).then_some(())
    })
    .await;
    // Five seconds at most, on a machine that does nothing else: a figure for a drill, not for a test.
    println!("another worker began after {took:?}");
    assert_eq!(outcomes(&row), ["lease_expired", "completed"]);
    assert_eq!(row.result, house.row(task).await.result);
    // With a new identity it is as good as any.
    within(PATIENCE, "it is back", async || paused.is_ready().await.then_some(())).await;
    house.close(vec![producer, paused, other]).await;
}

const EVERY_SECOND: &str = "
tasks:
  - {name: pulse, schedule: '* * * * * *', task_type: probe, payload: {}, overlap: allow}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_leader_is_followed_and_ticks_nothing_when_it_wakes_up() {
    let house = House::open("paused_leader", EVERY_SECOND).await;
    let worker = house.started(Role::Worker).await;
    let leader = house.started(Role::Producer).await;
    let term = "SELECT coalesce(max(epoch), 0) FROM ticks";
    let ticks = "SELECT count(*) FROM ticks";
    within(PATIENCE, "it ticks", async || (house.count(ticks).await >= 2).then_some(())).await;
    let standby = house.started(Role::Producer).await;
    let epoch = house.count("SELECT epoch FROM leadership").await;

    signal(&leader, "STOP").await;
    let since = Instant::now();
    within(PATIENCE, "the standby ticks", async || (house.count(term).await > epoch).then_some(()))
        .await;
    let took = since.elapsed();
    let old = format!("SELECT count(*) FROM ticks WHERE epoch <= {epoch}");
    let before = house.count(&old).await;
    signal(&leader, "CONT").await;
    let seen = house.count(ticks).await;
    within(PATIENCE, "both are awake", async || {
        (house.count(ticks).await >= seen + 3).then_some(())
    })
    .await;

    println!("another leader ticked after {took:?}");
    assert_eq!(house.count(&old).await, before, "the late leader has ticked in its old term");
    for producer in [leader, standby] {
        assert!(producer.stop(PATIENCE).await.expect("ended").success());
    }
    let open = "SELECT count(*) FROM tasks WHERE finished_at IS NULL";
    within(PATIENCE, "all ends", async || (house.count(open).await == 0).then_some(())).await;
    // Every instant once: a question of the audit.
    house.close(vec![worker]).await;
}

/// A worker that is process 1 of its own namespace, as in a container.
async fn contained(house: &House) -> (Member, u32) {
    let how = Launch { through: &["unshare", "--pid", "--fork"], ..Launch::default() };
    let member = house.launched(Role::Worker, &how).await;
    let outer = member.pid().expect("alive");
    let children = PathBuf::from(format!("/proc/{outer}/task/{outer}/children"));
    let inner = std::fs::read_to_string(children).expect("its child");
    (member, inner.trim().parse().expect("one child"))
}

async fn can_contain() -> bool {
    let test = tokio::process::Command::new("unshare")
        .args(["--pid", "--fork", "true"])
        .output()
        .await
        .is_ok_and(|output| output.status.success());
    if !test {
        not_run("process 1 of a namespace: unshare --pid needs root");
    }
    test
}

async fn labels(house: &House) -> Vec<(String, bool)> {
    let sql =
        "SELECT label, fenced_at IS NULL FROM workers WHERE role = 'worker' ORDER BY started_at";
    let rows = house.client.query(sql, &[]).await.expect(sql);
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// In a container the host's name may be fixed, and the process is always number 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_comes_back_under_the_same_name_is_another_one() {
    if !can_contain().await {
        return;
    }
    let house = House::open("same_name", "").await;
    let (first, inner) = contained(&house).await;
    let task = house.given(probe(json!({"mode": "hang", "fail_times": 1}))).await;
    house.runs(task, 1).await;

    signal_to(inner, "KILL").await;
    drop(first);
    let (second, inner) = contained(&house).await;
    let row = house.is(task, TaskState::Completed).await;

    assert_eq!(outcomes(&row), ["lease_expired", "completed"], "not taken for its own");
    let seen = labels(&house).await;
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].0, seen[1].0);
    assert!(seen[0].0.ends_with("#1"), "{}", seen[0].0);
    assert_eq!((seen[0].1, seen[1].1), (false, true));
    stop_contained(second, inner).await;
    house.close(Vec::new()).await;
}

/// Two of one name at once: what one of them loses or leaves is not the other's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_of_the_same_name_do_not_take_each_other_for_themselves() {
    if !can_contain().await {
        return;
    }
    let house = House::open("twins", "").await;
    let (first, inner_first) = contained(&house).await;
    let ours = house.given(probe(json!({"sleep_ms": 6000}))).await;
    house.runs(ours, 1).await;
    let (second, inner_second) = contained(&house).await;
    let seen = labels(&house).await;
    assert_eq!(seen[0].0, seen[1].0);

    stop_contained(second, inner_second).await;
    let row = house.is(ours, TaskState::Completed).await;

    assert_eq!((outcomes(&row), row.summary.crashes), (vec!["completed"], 0));
    stop_contained(first, inner_first).await;
    house.close(Vec::new()).await;
}

async fn stop_contained(member: Member, inner: u32) {
    signal_to(inner, "TERM").await;
    let status = member.ended(PATIENCE).await.expect("ended");
    assert!(status.success(), "it ended with {status}");
}

/// Process 1 has no defaults for signals: what it does not handle it does not hear.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_process_1_a_worker_drains_and_at_the_second_signal_gives_back() {
    if !can_contain().await {
        return;
    }
    let house = House::open("process_1", "").await;
    let (worker, inner) = contained(&house).await;
    let ending = house.given(probe(json!({"sleep_ms": 2500}))).await;
    let hanging = house.given(probe(json!({"mode": "hang", "fail_times": 1}))).await;
    for task in [ending, hanging] {
        house.runs(task, 1).await;
    }

    signal_to(inner, "TERM").await;
    within(PATIENCE, "it drains", async || (!worker.is_ready().await).then_some(())).await;
    let late: TaskId = house.given(probe(json!({}))).await;
    let row = house.is(ending, TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["completed"]);
    let since = Instant::now();
    signal_to(inner, "TERM").await;
    let status = worker.ended(PATIENCE).await.expect("ended");

    assert!(status.success(), "it ended with {status}");
    println!("the second signal took {:?}", since.elapsed());
    let row = house.is(hanging, TaskState::Queued).await;
    assert_eq!(outcomes(&row), ["released"]);
    assert_eq!((row.summary.failures, row.summary.crashes), (0, 0));
    assert_eq!(house.row(late).await.summary.run, 0, "taken while draining");
    let other = house.started(Role::Worker).await;
    for task in [hanging, late] {
        house.is(task, TaskState::Completed).await;
    }
    house.close(vec![other]).await;
}

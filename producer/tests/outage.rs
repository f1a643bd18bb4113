//! Real producers that were away, that follow each other, and clocks that jump: what the rows say
//! afterwards.
#![expect(dead_code, reason = "the house serves several stories")]

mod house;
mod tower;

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use shared::store::TickRow;
use shared::testing::{eventually, needed};

use tower::Tower;

/// Another candidate leads within two seconds (see [`Tower::open`]).
const QUICK: &str = "scheduler: {heartbeat_interval: 1, heartbeat_ttl: 2}";

fn entry(name: &str, schedule: &str, more: &str) -> String {
    format!(
        "  - {{name: {name}, schedule: '{schedule}', task_type: mine, overlap: allow, {more}}}\n"
    )
}

async fn open(entries: &str) -> Tower {
    let tower = Tower::open().await;
    configure(&tower, entries);
    tower
}

fn configure(tower: &Tower, entries: &str) {
    let more = format!("{QUICK}\ntasks:\n{entries}");
    tower.house.configure(&needed("AMQP_URL"), &more);
}

/// All ticks of a schedule, oldest first.
async fn ticks(tower: &Tower, name: &str) -> Vec<TickRow> {
    let mut ticks = tower.house.store.ticks(Some(name), 100_000).await.expect("read");
    ticks.reverse();
    ticks
}

/// Waits for ticks that satisfy something.
async fn when(
    tower: &Tower,
    name: &str,
    what: &str,
    is_so: impl Fn(&[TickRow]) -> bool,
) -> Vec<TickRow> {
    eventually(what, async || Some(ticks(tower, name).await).filter(|ticks| is_so(ticks))).await
}

/// What became of each instant, spans taken apart: instants in steps of `step`, oldest first.
fn each(ticks: &[TickRow], step: TimeDelta) -> Vec<(DateTime<Utc>, &str)> {
    let mut all = Vec::new();
    for tick in ticks {
        let mut at = tick.first_at.unwrap_or(tick.planned_at);
        let from = all.len();
        while at <= tick.planned_at {
            all.push((at, tick.outcome.as_str()));
            at += step;
        }
        assert_eq!((all.len() - from) as i64, tick.count, "{tick:?}");
    }
    all
}

/// Every instant once, none left out.
#[track_caller]
fn assert_whole(instants: &[(DateTime<Utc>, &str)], step: TimeDelta) {
    for pair in instants.windows(2) {
        assert_eq!(pair[1].0 - pair[0].0, step, "between {} and {}", pair[0].0, pair[1].0);
    }
}

const TEN: TimeDelta = TimeDelta::seconds(10);
const MINUTE: TimeDelta = TimeDelta::minutes(1);

/// A schedule of every ten seconds whose producer is away for 65: each policy gives what it says.
#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_each_policy_gives_exactly_what_it_says() {
    let policies = ["latest", "all", "none"];
    let entries: String = policies
        .iter()
        .map(|policy| entry(policy, "*/10 * * * * *", &format!("catch_up: {policy}")))
        .collect();
    let tower = open(&entries).await;
    let first = tower.producer("first.log");
    for policy in policies {
        when(&tower, policy, "it ticks", |ticks| !ticks.is_empty()).await;
    }
    first.kill();
    let before = ticks(&tower, "all").await.len();
    tower.house.database.move_clock(65).await;

    let _second = tower.producer("second.log");
    let mut seen = Vec::new();
    for policy in policies {
        // One that is just due ends the wait: what was missed was decided with it or before.
        let ticks = when(&tower, policy, "it ticks again", |ticks| {
            let on_time = |t: &TickRow| t.decided_at - t.planned_at < TimeDelta::seconds(5);
            ticks.len() > before + 5
                && ticks.last().is_some_and(|t| on_time(t) && t.outcome == "enqueued")
        })
        .await;
        seen.push(ticks);
    }

    for (policy, ticks) in policies.iter().zip(&seen) {
        let instants = each(ticks, TEN);
        assert_whole(&instants, TEN);
        let late = |t: &&TickRow| t.decided_at - t.planned_at > TimeDelta::seconds(5);
        let away: Vec<&TickRow> = ticks.iter().filter(late).collect();
        assert!((5..=8).contains(&away.len()), "{policy}: {away:?}");
        let ran = away.iter().filter(|tick| tick.outcome == "enqueued").count();
        let missed = away.iter().filter(|tick| tick.outcome == "missed").count();
        assert_eq!(ran + missed, away.len(), "{policy}: {away:?}");
        match *policy {
            "all" => assert_eq!(missed, 0, "{away:?}"),
            "none" => assert_eq!(ran, 0, "{away:?}"),
            // The newest one ran, unless one that was just due ran in its place.
            _ => {
                assert!(ran <= 1, "{away:?}");
                let newest = away.last().expect("some were missed");
                let next = ticks.iter().find(|tick| tick.planned_at > newest.planned_at);
                let together = next.is_some_and(|next| {
                    next.decided_at - newest.decided_at < TimeDelta::seconds(1)
                });
                assert!(newest.outcome == "enqueued" || together, "{away:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minutely_schedule_that_was_down_for_three_hours_fires_afterwards() {
    let tower = open(&entry("minutely", "* * * * *", "")).await;
    let first = tower.producer("first.log");
    // In force, and not ticked yet or just once.
    first.says("in force").await;
    first.kill();
    tower.house.database.move_clock(3 * 3600).await;

    let second = tower.producer("second.log");
    let after = when(&tower, "minutely", "it has caught up", |ticks| !ticks.is_empty()).await;
    // The next minute, at once.
    let next = after.last().expect("a tick").planned_at + MINUTE;
    second.kill();
    tower.house.database.move_clock(3 * 3600 + 61).await;
    let _third = tower.producer("third.log");
    let ticks = when(&tower, "minutely", "the next minute fires", |ticks| {
        ticks.iter().any(|tick| tick.planned_at >= next && tick.outcome == "enqueued")
    })
    .await;

    let instants = each(&ticks, MINUTE);
    assert_whole(&instants, MINUTE);
    assert!((180..=184).contains(&instants.len()), "{}", instants.len());
    let ran = |from: usize, to: usize| {
        instants[from..to].iter().filter(|(_, outcome)| *outcome == "enqueued").count()
    };
    let caught_up = after.iter().map(|tick| tick.count).sum::<i64>() as usize;
    assert!((1..=2).contains(&ran(0, caught_up)), "the newest of the outage, and one that was due");
    assert!(ran(caught_up, instants.len()) >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_from_the_mark_and_no_second_is_left_out() {
    let tower = open(&entry("beat", "* * * * * *", "catch_up: all")).await;
    let leader = tower.producer("leader.log");
    when(&tower, "beat", "it ticks", |ticks| ticks.len() > 1).await;
    let _standby = tower.producer("standby.log");

    leader.kill();
    let killed = ticks(&tower, "beat").await.len();
    let ticks = when(&tower, "beat", "the standby ticks", |ticks| ticks.len() > killed + 5).await;

    let second = TimeDelta::seconds(1);
    assert_whole(&each(&ticks, second), second);
    assert!(ticks.iter().all(|tick| tick.outcome == "enqueued"), "an outage below the window");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_ahead_leaves_no_instant_out() {
    let tower = open(&entry("beat", "*/10 * * * * *", "")).await;
    let _leader = tower.producer("leader.log");
    when(&tower, "beat", "it ticks", |ticks| !ticks.is_empty()).await;

    tower.house.database.move_clock(3600).await;
    let jumped = ticks(&tower, "beat").await.last().expect("a tick").planned_at;
    let ticks = when(&tower, "beat", "it goes on", |ticks| {
        ticks.last().is_some_and(|t| {
            t.planned_at - jumped > TimeDelta::minutes(59) && t.outcome == "enqueued"
        })
    })
    .await;

    let instants = each(&ticks, TEN);
    assert_whole(&instants, TEN);
    assert!(instants.len() >= 360, "{}", instants.len());
    assert!(ticks.iter().any(|tick| tick.count > 100), "beyond a hundred one row counts the rest");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_back_repeats_nothing_and_ticks_again_when_it_has_come_up() {
    let tower = open(&entry("beat", "* * * * * *", "")).await;
    tower.house.database.move_clock(6).await;
    let _leader = tower.producer("leader.log");
    when(&tower, "beat", "it ticks", |ticks| ticks.len() > 1).await;

    tower.house.database.move_clock(0).await;
    let before = ticks(&tower, "beat").await;
    let ticks =
        when(&tower, "beat", "it ticks again", |ticks| ticks.len() > before.len() + 3).await;

    let second = TimeDelta::seconds(1);
    assert_whole(&each(&ticks, second), second);
    let newest = before.last().expect("a tick");
    let next = ticks.iter().find(|tick| tick.planned_at > newest.planned_at).expect("one more");
    // By the clock that was set back, it was decided when its time had come.
    assert!(next.decided_at >= next.planned_at, "{next:?}");
}

/// A file is edited, an entry renamed and put back while a leader ticks it every second.
#[tokio::test(flavor = "multi_thread")]
async fn edits_and_renames_while_it_ticks_lose_and_double_nothing() {
    let text = |name: &str, from: &str, n: usize| {
        let from = if from.is_empty() { String::new() } else { format!(", renamed_from: {from}") };
        entry(name, "* * * * * *", &format!("catch_up: all, payload: {{n: {n}}}{from}"))
    };
    let tower = open(&text("a", "", 0)).await;
    let _leader = tower.producer("leader.log");
    when(&tower, "a", "it ticks", |ticks| !ticks.is_empty()).await;

    let steps = [("a", ""), ("b", "a"), ("b", "a"), ("a", "b"), ("c", "a"), ("c", "")];
    for (n, (name, from)) in (1..).zip(steps) {
        configure(&tower, &text(name, from, n));
        let args = ["schedules", "apply", "--json"];
        let applied = tower.house.producer(&args).with(0).json();
        let changes = ["added", "renamed", "changed"].map(|kind| applied[kind].as_array());
        let changes: usize = changes.into_iter().flatten().map(Vec::len).sum();
        assert_eq!(changes, 1, "step {n}: {applied}");
        // Somewhere within a second, each time elsewhere.
        tokio::time::sleep(Duration::from_millis(370)).await; // time itself is under test
    }
    when(&tower, "c", "the last one ticks", |ticks| ticks.len() > 2).await;

    let mut all = Vec::new();
    for name in ["a", "b", "c"] {
        all.extend(ticks(&tower, name).await);
    }
    all.sort_by_key(|tick| tick.planned_at);
    let second = TimeDelta::seconds(1);
    assert_whole(&each(&all, second), second);
    assert!(all.iter().all(|tick| tick.outcome == "enqueued"), "{all:?}");
    let doubles = "SELECT count(*) FROM (SELECT scheduled_for FROM task_inputs
        GROUP BY scheduled_for HAVING count(*) > 1) d";
    let client = tower.house.database.client().await;
    let doubled: i64 = client.query_one(doubles, &[]).await.expect("counted").get(0);
    assert_eq!(doubled, 0);
}

/// Two producers with different files: the one that was read last counts, whoever leads.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_with_an_older_file_never_brings_it_back() {
    let tower = open(&entry("old", "* * * * * *", "")).await;
    let leader = tower.producer("leader.log");
    when(&tower, "old", "the file ticks", |ticks| !ticks.is_empty()).await;
    let standby = tower.producer("standby.log");
    eventually("two producers", async || {
        let workers = tower.house.store.workers(false).await.expect("read");
        (workers.iter().filter(|worker| worker.role == "producer").count() == 2).then_some(())
    })
    .await;
    configure(&tower, &entry("new", "* * * * * *", ""));
    tower.house.producer(&["schedules", "apply"]).with(0);
    when(&tower, "new", "the leader ticks what is in force", |ticks| ticks.len() > 1).await;

    leader.kill();
    standby.says("schedules of a file that was read later are in force").await;
    let led = ticks(&tower, "new").await.len();
    when(&tower, "new", "it goes on", |ticks| ticks.len() > led + 2).await;

    let rows = tower.house.store.schedules(None).await.expect("read");
    assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_schedule_is_shown_as_ended_and_makes_no_tick() {
    let entries = entry("over", "* * * * * *", "end_at: '2020-01-01T00:00:00Z'")
        + &entry("beat", "* * * * * *", "jitter: 500ms, deadline: 10s, priority: high");
    let tower = open(&entries).await;
    let _leader = tower.producer("leader.log");
    when(&tower, "beat", "the other ticks", |ticks| ticks.len() > 1).await;

    let list = tower.house.producer(&["schedules", "list"]).with(0);
    let over = tower.house.producer(&["schedules", "show", "over", "--json"]).with(0).json();
    let beat = tower.house.producer(&["schedules", "show", "beat", "--json"]).with(0).json();

    assert!(list.out.lines().any(|line| line.starts_with("over") && line.contains(" ended ")));
    assert_eq!((&over["ended"], &over["next"]), (&true.into(), &serde_json::Value::Null));
    assert_eq!(over["entry"]["end_at"], "2020-01-01T00:00:00Z");
    let said = ["jitter", "deadline", "priority"].map(|key| beat["entry"][key].as_str());
    assert_eq!(said, [Some("500ms"), Some("10s"), Some("high")]);
    assert!(ticks(&tower, "over").await.is_empty());
}

/// A file that is missing, empty or another one's removes nothing; one that says `[]` removes all.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_force_ticks_on_under_a_file_that_says_no_tasks() {
    let tower = open(&entry("beat", "* * * * * *", "")).await;
    tower.house.producer(&["schedules", "apply"]).with(0);
    configure(&tower, "");
    let apply = tower.house.producer(&["schedules", "apply"]).with(2);
    apply.complains("belfry.yaml does not say `tasks`").complains("`tasks: []`");

    let silent = tower.producer("silent.log");
    silent
        .says("belfry.yaml does not say `tasks`, so what is in force stays and ticks (1 schedule)")
        .await;
    when(&tower, "beat", "it ticks on", |ticks| ticks.len() > 2).await;
    silent.kill();
    tower.house.configure(&needed("AMQP_URL"), &format!("{QUICK}\ntasks: []"));
    let explicit = tower.producer("explicit.log");
    explicit.says("removed 1 schedule, which the file has no more: beat").await;

    assert!(tower.house.store.schedules(None).await.expect("read").is_empty());
}

/// An outage makes no trouble of what is at rest, though its instants are too many for rows of their own.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_paused_in_an_outage_was_paused_and_not_missed() {
    let second = TimeDelta::seconds(1);
    let by_file = entry("by_file", "* * * * * *", "paused: true");
    let tower = open(&(by_file + &entry("by_hand", "* * * * * *", "catch_up: none"))).await;
    let first = tower.producer("first.log");
    let at_rest = |ticks: &[TickRow]| ticks.last().is_some_and(|t| t.outcome == "paused");
    when(&tower, "by_hand", "it ticks", |ticks| !ticks.is_empty()).await;
    tower.house.store.pause_schedule("by_hand", Some("ann")).await.expect("paused");
    when(&tower, "by_hand", "it is at rest", at_rest).await;
    first.kill();
    tower.house.database.move_clock(300).await;

    let _second = tower.producer("second.log");

    for name in ["by_file", "by_hand"] {
        let all = when(&tower, name, "a span", |ticks| ticks.iter().any(|t| t.count > 1)).await;
        let instants = each(&all, second);
        assert_whole(&instants, second);
        let rest = instants.iter().skip_while(|(_, outcome)| *outcome != "paused");
        assert!(rest.clone().count() > 200 && rest.clone().all(|(_, o)| *o == "paused"), "{all:?}");
    }
    let missed = tower.house.store.missed_ticks(Duration::from_hours(1), 10).await;
    assert_eq!(missed.expect("read").len(), 0);
}

/// Each of several pauses in an outage counts, and what lies between them was missed.
#[tokio::test(flavor = "multi_thread")]
async fn the_leader_tells_the_pauses_of_an_outage_from_the_rest_of_it() {
    let second = TimeDelta::seconds(1);
    let tower = open(&entry("beat", "* * * * * *", "catch_up: none")).await;
    let first = tower.producer("first.log");
    when(&tower, "beat", "it ticks", |ticks| !ticks.is_empty()).await;
    first.kill();
    for (from, to) in [(200, 300), (500, 600)] {
        tower.house.database.move_clock(from).await;
        tower.house.store.pause_schedule("beat", Some("ann")).await.expect("paused");
        tower.house.database.move_clock(to).await;
        tower.house.store.pause_schedule("beat", None).await.expect("resumed");
    }
    tower.house.database.move_clock(800).await;

    let _second = tower.producer("second.log");

    let ticked = |t: &[TickRow]| t.len() > 100 && t.last().is_some_and(|t| t.outcome == "enqueued");
    let all = when(&tower, "beat", "it ticks again", ticked).await;
    let instants = each(&all, second);
    assert_whole(&instants, second);
    let paused = instants.iter().filter(|(_, outcome)| *outcome == "paused").count();
    assert!((195..=205).contains(&paused), "{all:?}");
}

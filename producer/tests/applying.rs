//! Applying a file: whatever it changes, no instant is lost and none is doubled.
// long because: each kind of change is one story of the same house

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use producer::applying::{self, Look, Report};
use serde_json::json;
use shared::domain::attempt::Incarnation;
use shared::domain::cron::Cron;
use shared::domain::schedule::{CatchUp, Overlap, Schedule};
use shared::domain::task::{Priority, TaskId, TaskState};
use shared::store::{Store, Term, TickInput, TickRow};
use shared::testing::TestDatabase;
use uuid::Uuid;

struct House {
    database: TestDatabase,
    store: Store,
}

impl House {
    async fn open() -> Self {
        let database = TestDatabase::create().await;
        Self { store: database.store(), database }
    }

    async fn look(&self, file: &[Schedule]) -> Look {
        Look::at(&self.store, file).await.expect("looked")
    }

    async fn apply(&self, file: &[Schedule]) -> Report {
        let look = self.look(file).await;
        let said = (look.file.now, "ada@here");
        let report = applying::apply(&self.store, file, &look, said).await.expect("answered");
        report.expect("nobody else applies").0
    }

    async fn mark(&self, name: &str) -> DateTime<Utc> {
        self.store.in_force().await.expect("read")[name].mark
    }

    /// All ticks of a schedule, oldest first.
    async fn ticks(&self, name: &str) -> Vec<TickRow> {
        let mut ticks = self.store.ticks(Some(name), 1000).await.expect("read");
        ticks.reverse();
        ticks
    }

    async fn states(&self) -> Vec<TaskState> {
        let tasks = self.store.tasks(&shared::store::TaskFilter::default(), 100).await;
        tasks.expect("read").into_iter().map(|task| task.state).collect()
    }

    /// The one value of a query, as text.
    async fn value(&self, sql: &str) -> String {
        let text = format!("SELECT (({sql})::text)");
        self.database.client().await.query_one(&text, &[]).await.expect(sql).get(0)
    }
}

fn entry(name: &str, cron: &str) -> Schedule {
    let cron = Cron::parse(cron).expect("a cron line");
    Schedule::new(name, cron, "probe", "io_pool")
}

fn outcomes(ticks: &[TickRow]) -> Vec<&str> {
    ticks.iter().map(|tick| tick.outcome.as_str()).collect()
}

const MINUTELY: &str = "* * * * *";

#[tokio::test]
async fn what_was_due_under_an_edited_entry_is_ticked_under_it_and_nothing_before_the_edit_again() {
    let house = House::open().await;
    let old = Schedule { payload: json!({"v": 1}).into(), ..entry("beat", MINUTELY) };
    house.apply(std::slice::from_ref(&old)).await;
    let begun = house.mark("beat").await;
    house.database.move_clock(180).await;

    let new = Schedule { payload: json!({"v": 2}).into(), ..entry("beat", "*/2 * * * *") };
    let report = house.apply(std::slice::from_ref(&new)).await;

    let ticks = house.ticks("beat").await;
    assert_eq!(outcomes(&ticks)[..2], ["missed", "missed"]);
    assert_eq!(ticks.last().map(|tick| tick.outcome.as_str()), Some("enqueued"));
    assert_eq!(report.ticked, ticks.len());
    let payload = house.value("SELECT payload->>'v' FROM task_inputs").await;
    assert_eq!(payload, "1", "the newest missed one ran as the old entry says");
    let mark = house.mark("beat").await;
    assert!(mark > begun + TimeDelta::seconds(179), "{mark}");
    assert!(ticks.iter().all(|tick| tick.planned_at <= mark));
    assert!(new.plan(mark, mark).ticks.is_empty());
    let changed = &report.changed[0];
    let fields: Vec<&str> = changed.fields.iter().map(|change| change.field).collect();
    assert_eq!((changed.name.as_str(), fields), ("beat", vec!["schedule", "payload"]));
}

#[tokio::test]
async fn an_unchanged_entry_keeps_its_mark_and_a_second_apply_changes_nothing() {
    let house = House::open().await;
    let file = [entry("beat", MINUTELY), entry("nightly", "0 18 * * *")];
    let first = house.apply(&file).await;
    let mark = house.mark("beat").await;
    house.database.move_clock(180).await;

    let rehearsed = applying::rehearse(&house.store, &file).await.expect("looked");
    let second = house.apply(&file).await;

    assert_eq!((first.added.len(), first.revision), (2, 1));
    assert!(rehearsed.is_empty() && second.is_empty());
    assert_eq!((second.unchanged, second.ticked, second.revision), (2, 0, 1));
    assert_eq!(house.mark("beat").await, mark, "what is due since then is still due");
    assert!(house.ticks("beat").await.is_empty());
}

#[tokio::test]
async fn a_removed_entry_stops_and_does_not_catch_up_when_it_comes_back() {
    let house = House::open().await;
    let beat = Schedule { catch_up: CatchUp::All, ..entry("beat", MINUTELY) };
    let beat = std::slice::from_ref(&beat);
    house.apply(beat).await;
    house.database.move_clock(120).await;

    let gone = house.apply(&[]).await;
    let before = house.ticks("beat").await;
    house.database.move_clock(3600).await;
    let back = house.apply(beat).await;

    assert_eq!((gone.removed.as_slice(), gone.ticked), (["beat".to_owned()].as_slice(), 2));
    assert_eq!(outcomes(&before), ["enqueued", "skipped_overlap"]);
    assert_eq!((back.added.len(), back.ticked), (1, 0));
    assert_eq!(house.ticks("beat").await.len(), 2);
    let kept = house.value("SELECT count(*) FROM schedules WHERE removed_at IS NULL").await;
    assert_eq!(kept, "1");
    let since = house.mark("beat").await - before[1].planned_at;
    assert!(since > TimeDelta::seconds(3000), "it begins when it came back");
}

#[tokio::test]
async fn a_renamed_entry_keeps_its_pause_its_place_in_the_overlap_and_its_keys() {
    let house = House::open().await;
    let daily = "{{ scheduled_date }}";
    let was = Schedule {
        execution_key_template: daily.to_owned(),
        catch_up_window: Duration::from_hours(5),
        ..entry("was", "0 */4 * * *")
    };
    house.apply(std::slice::from_ref(&was)).await;
    house.database.move_clock(5 * 3600).await;
    house.store.pause_schedule("was", Some("ada@here")).await.expect("asked");
    house.store.pause_schedule("was", None).await.expect("asked");

    // What was due is ticked under the old name; then somebody pauses the new one.
    let is = Schedule {
        name: "is".to_owned(),
        renamed_from: Some("was".to_owned()),
        overlap: Overlap::Queue,
        ..was.clone()
    };
    let report = house.apply(std::slice::from_ref(&is)).await;

    assert_eq!(report.renamed[0].to, "is");
    assert_eq!(report.renamed[0].fields[0].field, "overlap");
    assert_eq!((report.added.len(), report.removed.len()), (0, 0));
    let first = house.ticks("was").await;
    assert_eq!(first.last().map(|tick| tick.outcome.as_str()), Some("enqueued"));
    let task = first.last().and_then(|tick| tick.task_id).expect("a task");
    let moved = house.value("SELECT schedule FROM tasks WHERE finished_at IS NULL").await;
    assert_eq!(moved, "is", "an unfinished task still counts for overlap");

    let term = lead(&house.store).await;
    let at = first.last().expect("a tick").planned_at;
    let again = tick(&is, at + TimeDelta::minutes(1), &at.date_naive().to_string());
    let fresh = tick(&is, at + TimeDelta::minutes(2), "another day");
    let decided = house.store.tick(&term, report.revision, &[again]).await.expect("answered");
    let decided = decided.expect("our term");
    assert_eq!(decided[0].task_id, Some(TaskId(task)), "the day has run, under whatever name");
    let decided = house.store.tick(&term, report.revision, &[fresh]).await.expect("answered");
    assert!(decided.expect("our term")[0].task_id.is_some_and(|id| id.0 != task));
    let mut states = house.states().await;
    states.sort_by_key(|state| state.as_str());
    assert_eq!(states, [TaskState::Queued, TaskState::Waiting]);
}

#[tokio::test]
async fn a_pause_by_hand_outlives_a_rename_and_a_second_rename() {
    let house = House::open().await;
    house.apply(&[entry("a", "0 18 * * *")]).await;
    house.store.pause_schedule("a", Some("ada@here")).await.expect("asked");
    let renamed = |name: &str, from: &str| Schedule {
        renamed_from: Some(from.to_owned()),
        ..entry(name, "0 18 * * *")
    };

    house.apply(&[renamed("b", "a")]).await;
    // The line may stay in the file: the name is taken, and nothing happens.
    let again = house.apply(&[renamed("b", "a")]).await;
    house.apply(&[renamed("c", "b")]).await;

    assert!(again.is_empty());
    let rows = house.store.schedules(None).await.expect("read");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].paused_by.as_deref(), Some("ada@here"));
    assert_eq!(house.value("SELECT formerly FROM schedules WHERE name = 'c'").await, "{b,a}");
}

/// The instants of two pauses were paused and those between them missed, though too many for rows of
/// their own.
#[tokio::test]
async fn a_span_of_an_outage_is_told_apart_where_pauses_begin_and_end() {
    let house = House::open().await;
    let secondly = Schedule { catch_up: CatchUp::None, ..entry("beat", "* * * * * *") };
    house.apply(std::slice::from_ref(&secondly)).await;
    // Hardly anything is due in the moment between the last two.
    for (from, to) in [(50, 150), (200, 300), (300, 360)] {
        house.database.move_clock(from).await;
        house.store.pause_schedule("beat", Some("ada@here")).await.expect("paused");
        house.database.move_clock(to).await;
        house.store.pause_schedule("beat", None).await.expect("resumed");
    }
    house.database.move_clock(560).await;
    let edges = house.store.pause_edges(&["beat"]).await.expect("read")["beat"].clone();

    let edited = Schedule { timeout: Duration::from_secs(7), ..secondly };
    house.apply(&[edited]).await;

    let ticks = house.ticks("beat").await;
    let spans: Vec<_> = ticks.iter().filter(|tick| tick.first_at.is_some()).collect();
    assert!(spans.len() >= 6 && edges.len() == 6, "{spans:?} {edges:?}");
    for span in &spans {
        let first = span.first_at.expect("a span");
        let before = |at: DateTime<Utc>| edges.iter().filter(|edge| **edge <= at).count();
        assert_eq!(before(first), before(span.planned_at), "none reaches over an edge");
        let expected = if before(first) % 2 == 1 { "paused" } else { "missed" };
        assert_eq!(span.outcome, expected, "{span:?} {edges:?}");
    }
    let mut last = None;
    for tick in &ticks {
        let first = tick.first_at.unwrap_or(tick.planned_at);
        let next = last.map_or(first, |last: DateTime<Utc>| last + TimeDelta::seconds(1));
        assert_eq!(first, next, "each instant once: {ticks:?}");
        last = Some(tick.planned_at);
    }
}

/// Who goes on is told by what happened, not by who once had the name.
#[tokio::test]
async fn the_heir_of_a_renamed_schedule_is_the_one_that_goes_on_for_it() {
    let house = House::open().await;
    let renamed = |name: &str, from: &str| Schedule {
        renamed_from: Some(from.to_owned()),
        ..entry(name, "0 18 * * *")
    };
    let heir = async |name: &str| {
        let row = house.store.schedules_ever(Some(name)).await.expect("read").pop().expect("a row");
        (row.renamed_to, row.heir_removed_at.is_some())
    };
    let to = |name: &str, gone| (Some(name.to_owned()), gone);
    house.apply(&[entry("a", "0 18 * * *")]).await;
    house.apply(&[renamed("b", "a")]).await;
    house.apply(&[renamed("c", "b")]).await;
    assert_eq!((heir("a").await, heir("b").await), (to("c", false), to("c", false)));
    assert_eq!(heir("c").await, (None, false));

    house.apply(&[]).await;
    assert_eq!((heir("a").await, heir("c").await), (to("c", true), (None, false)));

    house.apply(&[entry("a", "0 18 * * *")]).await;
    assert_eq!(heir("a").await, (None, false), "it is back");
    house.apply(&[]).await;
    assert_eq!(heir("a").await, (None, false), "this time it was removed");
    house.apply(&[entry("c", "0 18 * * *")]).await;
    house.apply(&[renamed("b", "c")]).await;
    assert_eq!((heir("c").await, heir("b").await), (to("b", false), (None, false)));
}

#[tokio::test]
async fn of_two_that_apply_at_once_the_second_looks_again() {
    let house = House::open().await;
    let (one, other) = ([entry("one", MINUTELY)], [entry("other", MINUTELY)]);
    let looked = house.look(&other).await;
    house.apply(&one).await;

    let said = (looked.file.now, "bob@there");
    let late = applying::apply(&house.store, &other, &looked, said).await.expect("answered");
    let again = house.apply(&other).await;

    assert!(late.is_none(), "what it had compared was no longer in force");
    assert_eq!(
        (again.added.as_slice(), again.removed.as_slice()),
        (["other".to_owned()].as_slice(), ["one".to_owned()].as_slice())
    );
    assert_eq!(again.alike.len(), 1, "both say the same: perhaps a rename");
}

/// Whoever applies does not read again what is in force by it.
#[tokio::test]
async fn an_apply_answers_what_a_look_behind_it_sees() {
    let house = House::open().await;
    let back = entry("back", MINUTELY);
    let first = ["stays", "moves", "was", "goes"].map(|name| entry(name, MINUTELY));
    house.apply(&[first.as_slice(), std::slice::from_ref(&back)].concat()).await;
    house.apply(&first).await;
    // The removed one had decided more than the clock will say when it is there again.
    let client = house.database.client().await;
    let ahead = "UPDATE schedules SET mark = mark + interval '1 hour' WHERE name = 'back'";
    client.batch_execute(ahead).await.expect("set");
    let renamed_from = Some("was".to_owned());
    let file = [
        entry("stays", MINUTELY),
        entry("moves", "0 18 * * *"),
        Schedule { renamed_from, ..entry("is", MINUTELY) },
        entry("comes", MINUTELY),
        back,
    ];

    let look = house.look(&file).await;
    let said = (look.file.now, "ada@here");
    let applied = applying::apply(&house.store, &file, &look, said).await.expect("answered");
    let (report, mut answered) = applied.expect("nobody else applies");
    let mut seen = house.look(&file).await.in_force(&file);

    assert_eq!((answered.revision, report.revision), (seen.revision, seen.revision));
    answered.of_file.sort_unstable();
    seen.of_file.sort_unstable();
    assert_eq!(answered.of_file, seen.of_file);
    assert_eq!((answered.of_file.len(), answered.others.len(), seen.others.len()), (5, 0, 0));
}

/// The leader had read its entries before the apply, and its statement comes after it.
#[tokio::test]
async fn a_leader_that_does_not_know_the_new_entries_yet_decides_nothing() {
    let house = House::open().await;
    let before = house.apply(&[entry("beat", MINUTELY)]).await.revision;
    let term = lead(&house.store).await;
    let beat = entry("beat", MINUTELY);
    let due = tick(&beat, house.mark("beat").await, "k");
    let after = house.apply(&[entry("beat", "0 18 * * *")]).await.revision;

    let one = std::slice::from_ref(&due);
    let refused = house.store.tick(&term, before, one).await.expect("answered");
    let accepted = house.store.tick(&term, after, one).await.expect("answered");

    assert!(refused.is_none());
    assert_eq!(accepted.map(|decided| decided.len()), Some(1));
}

#[tokio::test]
async fn a_tick_statement_in_flight_is_waited_for() {
    let house = House::open().await;
    house.apply(&[entry("beat", MINUTELY)]).await;
    let holder = house.database.client().await;
    holder
        .batch_execute("BEGIN; SELECT revision FROM schedule_file FOR SHARE")
        .await
        .expect("held");

    let file = [entry("beat", "0 18 * * *")];
    let look = house.look(&file).await;
    let said = (look.file.now, "ada@here");
    let mut applying = std::pin::pin!(applying::apply(&house.store, &file, &look, said));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut applying).await;
    holder.batch_execute("COMMIT").await.expect("let go");
    let (applied, _) = applying.await.expect("answered").expect("nobody else applies");

    assert!(early.is_err(), "it waits");
    assert_eq!(applied.changed.len(), 1);
}

/// An older binary wrote the row: it has no digest, and an upgrade is no edit.
#[tokio::test]
async fn an_upgrade_shows_no_change() {
    let house = House::open().await;
    house.apply(&[entry("beat", MINUTELY)]).await;
    let client = house.database.client().await;
    client.batch_execute("UPDATE schedules SET digest = NULL").await.expect("as before");

    let report = applying::rehearse(&house.store, &[entry("beat", MINUTELY)]).await.expect("read");

    assert!(report.is_empty());
    assert_eq!(report.unchanged, 1);
}

async fn lead(store: &Store) -> Term {
    let (token, by) = (Uuid::new_v4(), Incarnation::new());
    let ttl = Duration::from_secs(15);
    let term = store.lead(token, by, "producer@test#1", ttl).await.expect("answered");
    term.expect("the lead is free")
}

fn tick(schedule: &Schedule, planned_at: DateTime<Utc>, key: &str) -> TickInput {
    TickInput {
        schedule: schedule.name.clone(),
        planned_at,
        run: true,
        first_at: None,
        count: 1,
        task_id: TaskId::new(),
        execution_key: key.to_owned(),
        task_type: schedule.task_type.clone(),
        pool: schedule.pool.clone(),
        payload: json!({}),
        timeout: schedule.timeout,
        retry: schedule.retry,
        semantics: schedule.semantics,
        overlap: schedule.overlap,
        traceparent: None,
        paused: false,
        delay: Duration::ZERO,
        deadline: None,
        priority: Priority::Normal,
    }
}

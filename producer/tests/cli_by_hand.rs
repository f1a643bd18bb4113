//! Runs by hand from the command line: triggers, backfills, and how often a schedule really runs.
#![expect(dead_code, reason = "the house serves several stories")]

mod house;

use std::path::PathBuf;

use serde_json::{Value, json};
use shared::testing::put_in_force;

use house::House;

/// Nobody listens there.
const NOBODY: &str = "amqp://belfry:belfry@127.0.0.1:1/%2f";

const SCHEDULES: &str = "
tasks:
- name: nightly
  schedule: '0 18 * * *'
  task_type: http_call
  payload: {url: 'https://x.example/{{ scheduled_date }}'}
- {name: resting, schedule: '@hourly', task_type: http_call, payload: {url: 'https://x.example/'}, paused: true}
- name: hourly
  schedule: '0 * * * *'
  task_type: http_call
  payload: {url: 'https://x.example/{{ scheduled_at }}'}
  execution_key_template: sync_{{ scheduled_at }}
";

async fn applied(house: &House) {
    let path: PathBuf = house.dir.path().join("belfry.yaml");
    let config = shared::config::load(Some(&path)).expect("right");
    put_in_force(&house.store, &config.schedules).await;
}

async fn sql(house: &House, sql: &str) {
    house.database.client().await.batch_execute(sql).await.expect(sql);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_is_one_task_with_a_key_of_its_own_and_a_name_beside_it() {
    let house = House::open().await.with_broker().await;
    house.configure(&shared::testing::needed("AMQP_URL"), SCHEDULES);
    house
        .producer(&["schedules", "trigger", "nightly"])
        .with(3)
        .complains("nightly is in belfry.yaml and not applied yet");
    applied(&house).await;

    let made = house.producer(&["schedules", "trigger", "nightly", "--json"]).with(0).json();

    let id = made["task_id"].as_str().expect("an id");
    assert_eq!(made["execution_key"], format!("hand:{id}"));
    assert_eq!((&made["state"], &made["deduplicated"]), (&json!("queued"), &json!(false)));
    assert_eq!(house.depth(&house.topology.pool_queue("io_pool")).await, 1, "told at once");
    let shown = house.producer(&["schedules", "show", "nightly", "--json"]).with(0).json();
    let by_hand = &shown["by_hand"][0];
    assert!(by_hand["asked_by"].as_str().is_some_and(|by| by.starts_with("ada@")), "{by_hand}");
    assert_eq!((&by_hand["kind"], &by_hand["state"]), (&json!("trigger"), &json!("queued")));
    assert_eq!(by_hand["scheduled_for"], made["scheduled_for"]);
    assert_eq!(shown["ticks"], json!([]), "no tick is written");

    house.configure(&shared::testing::needed("AMQP_URL"), &SCHEDULES.replace("0 18", "0 17"));
    let refused = house.producer(&["schedules", "trigger", "nightly"]).with(3);
    let refused = refused.complains("says of nightly what is not in force");
    refused.complains(&format!("task {id} is unfinished (overlap: skip)"));
    let forced = house.producer(&["schedules", "trigger", "nightly", "--force"]).with(0);
    assert!(forced.out.contains("is queued"), "{forced:?}");
    let shown = house.producer(&["schedules", "show", "nightly"]).with(0).out;
    assert!(shown.contains(", forced by ada@"), "{shown}");
    house
        .producer(&["schedules", "trigger", "nightli"])
        .with(3)
        .complains("did you mean `nightly`?");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instant_is_triggered_once_and_rendered_for_itself() {
    let house = House::open().await;
    house.configure(NOBODY, SCHEDULES);
    applied(&house).await;
    let at = ["schedules", "trigger", "nightly", "--at", "2025-11-30T18:00:00Z", "--json"];

    let first = house.producer(&at).with(0).complains("not published now").json();
    let again = house.producer(&at).with(0).json();

    assert_eq!(first["execution_key"], "hand:nightly@2025-11-30T18:00:00+00:00");
    assert_eq!((&again["task_id"], &again["deduplicated"]), (&first["task_id"], &json!(true)));
    let id = first["task_id"].as_str().expect("an id");
    let task = house.producer(&["tasks", "show", id, "--json"]).with(0).json();
    assert_eq!(task["payload"]["url"], "https://x.example/2025-11-30");
    assert_eq!(task["schedule"], "nightly");
    let resting = house.producer(&["schedules", "trigger", "resting", "--wait=100ms", "--json"]);
    let resting = resting.with(5).complains("is still queued").json();
    assert_eq!((&resting["state"], &resting["result"]), (&json!("queued"), &Value::Null));
}

/// Ticks as the leader would have left them: one ran, two were missed in one span, one was skipped,
/// and two are not on record.
const TICKS: &str = "
UPDATE schedules SET mark = '2025-11-30T05:00:00Z', applied_at = '2025-11-01T00:00:00Z' WHERE name = 'hourly';
INSERT INTO ticks (schedule, planned_at, outcome, task_id, decided_at, epoch, first_at, count) VALUES
('hourly', '2025-11-30T00:00:00Z', 'enqueued', gen_random_uuid(), belfry_now(), 1, NULL, 1),
('hourly', '2025-11-30T02:00:00Z', 'missed', NULL, belfry_now(), 1, '2025-11-30T01:00:00Z', 2),
('hourly', '2025-11-30T03:00:00Z', 'skipped_overlap', NULL, belfry_now(), 1, NULL, 1)";

#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_runs_what_did_not_run_one_after_another_and_once() {
    let house = House::open().await;
    house.configure(NOBODY, SCHEDULES);
    applied(&house).await;
    sql(&house, TICKS).await;
    let range = ["--from", "2025-11-30T00:00", "--to", "2025-11-30T06:00:00Z"];
    let backfill = |more: &[&str]| {
        house.producer(&[&["schedules", "backfill", "hourly"], &range[..], more].concat())
    };
    let dry =
        backfill(&["--dry-run", "--json"]).with(0).complains("decided up to 2025-11-30T05:00:00Z");
    let few = backfill(&["--limit", "3"]).with(2);
    let done = backfill(&["--json"]).with(0).complains("5 instants run one after another");
    let again = backfill(&[]).with(0);

    let (dry, done) = (dry.json(), done.json());
    assert_eq!((&dry["run"], &dry["ticked"], &dry["known"]), (&json!(5), &json!(1), &json!(0)));
    let ticks: Vec<&Value> = instants(&dry).iter().map(|item| &item["tick"]).collect();
    let expected = ["enqueued", "missed", "missed", "skipped_overlap"].map(Value::from);
    assert_eq!(ticks[..4], expected.iter().collect::<Vec<_>>());
    assert_eq!(ticks[4..], [&Value::Null, &Value::Null]);
    few.complains("6 instants are planned up to 2025-11-30T05:00:00Z, more than --limit 3");
    assert_eq!((&done["run"], &done["ticked"]), (&json!(5), &json!(1)));
    let states: Vec<&Value> = instants(&done)[1..].iter().map(|item| &item["state"]).collect();
    assert_eq!(states, ["queued", "waiting", "waiting", "waiting", "waiting"]);
    assert_eq!(instants(&done)[1]["execution_key"], "sync_2025-11-30T01:00:00+00:00");
    assert!(again.err.contains("0 run now, 1 ticked already, 5 known by their keys"), "{again:?}");
    let asked = house.store.runs_by_hand("hourly", 10).await.expect("read");
    assert_eq!(asked.len(), 5);
    assert!(asked.iter().all(|run| run.kind == "backfill" && run.asked_by.starts_with("ada@")));
}

fn instants(document: &Value) -> &[Value] {
    document["instants"].as_array().expect("a list")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_tells_how_often_a_schedule_really_runs() {
    let house = House::open().await;
    house.configure(NOBODY, SCHEDULES);
    applied(&house).await;
    // Every second hour was skipped, and the last task is dead.
    let (dead, _) = house.dead(json!({})).await;
    sql(
        &house,
        &format!(
            "UPDATE schedules SET applied_at = '2025-11-01T00:00:00Z' WHERE name = 'hourly';
             INSERT INTO ticks (schedule, planned_at, outcome, task_id, decided_at, epoch)
             SELECT 'hourly', '2025-11-30T00:00:00Z'::timestamptz + n * interval '1 hour',
                    CASE WHEN n % 2 = 0 THEN 'enqueued' ELSE 'skipped_overlap' END,
                    CASE WHEN n % 2 = 0 THEN '{dead}'::uuid END, belfry_now(), 1
             FROM generate_series(1, 10) n"
        ),
    )
    .await;

    let list = house.producer(&["schedules", "list", "--json"]).with(0).json();
    let table = house.producer(&["schedules", "list"]).with(0).out;

    let hourly = list.as_array().and_then(|all| all.iter().find(|s| s["name"] == "hourly"));
    let cadence = &hourly.expect("listed")["cadence"];
    assert_eq!(cadence["effective"], "every 2h, planned every 1h (last 10: 5 skipped_overlap)");
    assert_eq!(cadence["planned"], json!({"shortest": 3600, "longest": 3600}));
    assert_eq!(cadence["measured"], json!({"shortest": 7200, "longest": 7200}));
    assert_eq!(cadence["ticks"], json!({"enqueued": 5, "skipped_overlap": 5}));
    assert_eq!(cadence["last_run"]["state"], "dead");
    assert_eq!(cadence["last_run"]["error"]["message"], "404: no such page");
    assert!(table.contains("enqueued, task dead (permanent)"), "{table}");
}

/// The producer died, and its schedules' instants pass: nothing may look as if it went on.
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_decides_is_told_and_has_not_ended() {
    let house = House::open().await;
    let end = shared::domain::clock::now() + chrono::TimeDelta::minutes(4);
    let over = format!(
        "- {{name: over, schedule: '* * * * *', task_type: mine, end_at: '{}'}}\n",
        end.format("%FT%TZ")
    );
    house.configure(NOBODY, &format!("{SCHEDULES}{over}"));
    applied(&house).await;
    house.database.move_clock(25 * 60).await;

    let list = house.producer(&["schedules", "list"]).with(0).complains("no producer leads");
    let shown = house.producer(&["schedules", "show", "over", "--json"]).with(0);

    let line = list.out.lines().find(|line| line.starts_with("over")).expect("a line");
    assert!(
        line.contains("behind: 4 instants undecided since") || line.contains("behind: 5 "),
        "{line}"
    );
    assert!(!line.contains("ended") && !line.contains("never again"), "{line}");
    let shown = shown.complains("no producer leads").json();
    assert_eq!(
        (&shown["ended"], &shown["next"], &shown["leader"]),
        (&json!(false), &json!(null), &json!(null))
    );
    assert!(
        shown["undecided"].as_u64() > Some(3) && shown["undecided_since"].is_string(),
        "{shown}"
    );
    sql(&house, "UPDATE schedules SET mark = belfry_now() WHERE name = 'over'").await;
    let shown = house.producer(&["schedules", "show", "over", "--json"]).with(0).json();
    assert_eq!((&shown["ended"], &shown["undecided"]), (&json!(true), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_that_wanted_something_else_than_its_keys_task_is_told() {
    let house = House::open().await;
    house.configure(NOBODY, SCHEDULES);
    applied(&house).await;
    let tick = "INSERT INTO ticks (schedule, planned_at, outcome, task_id, decided_at, epoch, other_payload)
        VALUES ('hourly', date_trunc('hour', now()), 'deduplicated', gen_random_uuid(), now(), 1, true)";
    sql(&house, tick).await;

    let list = house.producer(&["schedules", "list"]).with(0).out;
    let shown = house.producer(&["schedules", "show", "hourly"]).with(0).out;
    let json = house.producer(&["schedules", "show", "hourly", "--json"]).with(0).json();

    let told = "deduplicated, its key holds another payload";
    assert!(list.contains(told) && shown.matches(told).count() == 2, "{list}\n{shown}");
    assert_eq!(
        (&json["last_other_payload"], &json["ticks"][0]["other_payload"]),
        (&json!(true), &json!(true))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_removed_or_renamed_can_still_be_looked_at() {
    let house = House::open().await;
    house.configure(NOBODY, SCHEDULES);
    house.producer(&["schedules", "apply"]).with(0);
    let tick = "INSERT INTO ticks (schedule, planned_at, outcome, decided_at, epoch)
        VALUES ('nightly', now() - interval '1 day', 'missed', now(), 1)";
    sql(&house, tick).await;
    let hourly = SCHEDULES.find("- name: hourly").expect("there");
    let renamed =
        SCHEDULES[hourly..].replace("name: hourly", "name: each_hour\n  renamed_from: hourly");
    house.configure(NOBODY, &format!("tasks:\n{renamed}"));
    house.producer(&["schedules", "apply"]).with(0);

    let show = |name: &str| house.producer(&["schedules", "show", name]).with(0).out;
    let (removed, former) = (show("nightly"), show("hourly"));
    let json = house.producer(&["schedules", "show", "nightly", "--json"]).with(0).json();
    let listed = |args: &[&str]| house.producer(args).with(0).json().as_array().map(Vec::len);

    assert!(removed.contains("removed since 20") && removed.contains("  missed"), "{removed}");
    assert!(former.contains("renamed to each_hour since 20"), "{former}");
    assert!(json["removed_at"].is_string() && json["next"].is_null(), "{json}");
    assert_eq!((&json["applied"], &json["upcoming"]), (&json!(false), &json!([])));
    assert_eq!(listed(&["schedules", "list", "--json"]), Some(1));
    assert_eq!(listed(&["schedules", "list", "--all", "--json"]), Some(4));
    house.producer(&["schedules", "show", "never"]).with(3).complains("there is no schedule");
}

/// What `show` has must not be denied: the answer says what became of it and what to do.
#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_what_was_removed_or_renamed_is_told_so() {
    let house = House::open().await;
    house.configure(NOBODY, SCHEDULES);
    house.producer(&["schedules", "apply"]).with(0);
    let entry = |name: &str, from: &str| {
        format!(
            "- {{name: {name}, renamed_from: {from}, schedule: '@hourly', task_type: http_call, payload: {{url: 'https://x.example/'}}}}\n"
        )
    };
    let renamed = entry("each_hour", "hourly") + &entry("idle", "resting");
    house.configure(NOBODY, &format!("tasks:\n{renamed}"));
    house.producer(&["schedules", "apply"]).with(0);
    house.configure(NOBODY, &format!("tasks:\n{}", entry("every_hour", "each_hour")));
    house.producer(&["schedules", "apply"]).with(0);

    for command in ["next", "pause", "resume", "trigger", "backfill"] {
        let range = ["--from", "2026-11-20T00:00", "--to", "2026-11-30T00:00"];
        let range = if command == "backfill" { &range[..] } else { &[] };
        let asked =
            |name| house.producer(&[&["schedules", command, name][..], range].concat()).with(3);
        let said = asked("nightly").err;
        let what = "with an entry in belfry.yaml has it again";
        assert!(
            said.contains("nightly was removed at 20") && said.contains(what),
            "{command}: {said}"
        );
        asked("hourly").complains("hourly was renamed to every_hour at 20");
        let said = asked("resting").err;
        assert!(said.contains("resting was renamed to idle at 20"), "{command}: {said}");
        assert!(said.contains(", which was removed at 20"), "{command}: {said}");
        asked("never")
            .complains("there is no schedule \"never\" in belfry.yaml or in the database");
    }
    let shown = house.producer(&["schedules", "show", "resting"]).with(0).out;
    assert!(shown.contains(", which is removed since 20"), "{shown}");
    house.configure(NOBODY, "tasks: []\n");
    let here = house.producer(&["schedules", "trigger", "every_hour"]).with(3);
    here.complains("every_hour is in force and not in belfry.yaml");

    // A file from before that still has them.
    house.configure(NOBODY, SCHEDULES);
    for command in ["pause", "resume", "trigger"] {
        let asked = |name| house.producer(&["schedules", command, name]).with(3);
        asked("nightly").complains("nightly was removed at 20");
        asked("hourly").complains("hourly was renamed to every_hour at 20");
    }
    for command in ["next", "show"] {
        let noted = house.producer(&["schedules", command, "hourly"]).with(0).err;
        assert!(noted.contains("note: hourly was renamed to every_hour at 20"), "{noted}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_with_one_instant_ahead_runs_once_more() {
    let house = House::open().await;
    let at = house.store.now().await.expect("the clock") + chrono::TimeDelta::days(1);
    let once = format!(
        "tasks:\n- {{name: once, schedule: '{} {} {} {} *', end_at: '{}', task_type: http_call, payload: {{url: 'https://x.example/'}}}}\n",
        at.format("%-M"),
        at.format("%-H"),
        at.format("%-d"),
        at.format("%-m"),
        (at + chrono::TimeDelta::days(2)).to_rfc3339(),
    );
    house.configure(NOBODY, &once);
    house.producer(&["schedules", "apply"]).with(0);

    let shown = house.producer(&["schedules", "show", "once", "--json"]).with(0).json();

    assert_eq!(shown["cadence"]["effective"], "once more");
    assert_eq!(shown["upcoming"].as_array().map(Vec::len), Some(1));
}

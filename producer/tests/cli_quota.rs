//! `producer quota` and `producer usage` as an operator meets them.
#![expect(dead_code, reason = "the house serves several stories")]

mod house;

use std::time::Duration;

use house::{House, keys};
use serde_json::{Value, json};
use shared::domain::outcome::{ErrorClass, Failure, Outcome};
use shared::domain::task::TaskState;
use shared::store::{Admission, CallEnd, CallStart, Closing, NewCall};
use uuid::Uuid;

const MODELS: &str = "
model:
  default_model: m
  prices: {m: {input: 1, output: 2}}
tasks:
- {name: nightly, schedule: '@daily', task_type: http_call, payload: {url: 'https://x.example/'}}
";

async fn open() -> House {
    let house = House::open().await;
    house.configure("amqp://127.0.0.1:1", MODELS);
    house
}

/// A call that was let in.
async fn called(house: &House, at: CallStart<'_>, call_no: u32, end: &CallEnd) {
    let call = NewCall {
        id: Uuid::new_v4(),
        call_no,
        request_hash: b"q".to_vec(),
        endpoint: "h:1".to_owned(),
        model: "m".to_owned(),
        traceparent: None,
        est_tokens: 100,
        est_cost_micro: Some(150),
    };
    let admitted = house.store.call_admit(at, &call).await.expect("asked");
    assert!(matches!(admitted, Admission::Granted), "{admitted:?}");
    house.store.call_ended(call.id, end).await.expect("ended");
}

fn answered(input: i64, output: i64) -> CallEnd {
    CallEnd {
        response: Some(json!({})),
        input_tokens: Some(input),
        output_tokens: Some(output),
        cost_micro: Some(input + 2 * output),
        ..CallEnd::default()
    }
}

#[tokio::test]
async fn limits_are_set_by_hand_and_listed() {
    let house = open().await;
    house.producer(&["quota", "list"]).with(0).complains("no limit is set");

    let set = ["quota", "set", "m", "requests_per_minute=60", "burst=5", "daily_cost=2.5"];
    house.producer(&set).with(0);
    let budget = ["quota", "set", "nightly", "--schedule", "daily_tokens=1000", "over_budget=dead"];
    house.producer(&budget).with(0);

    let listed = house.producer(&["quota", "list", "--json"]).with(0).json();
    let (model, schedule) = (&listed[0], &listed[1]);
    assert_eq!((&model["name"], &model["requests_per_minute"]), (&json!("m"), &json!(60)));
    assert_eq!((&model["burst"], &model["daily_cost"]), (&json!(5), &json!(2.5)));
    assert_eq!(
        (&schedule["scope"], &schedule["over_budget"]),
        (&json!("schedule"), &json!("dead"))
    );
    assert!(model["set_by"].as_str().expect("somebody").starts_with("ada@"));
    let table = house.producer(&["quota", "list"]).with(0).out;
    assert!(table.contains("60 (burst 5)") && table.contains("0.0000 of 2.5000"), "{table}");

    house.producer(&["quota", "set", "m", "requests_per_minute=none"]).with(0);
    let listed = house.producer(&["quota", "list", "--json"]).with(0).json();
    assert_eq!(
        (&listed[0]["requests_per_minute"], &listed[0]["burst"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(listed[0]["daily_cost"], 2.5, "what was not named stays");
}

#[tokio::test]
async fn budgets_of_the_file_are_in_force_once_it_is_applied() {
    let house = open().await;
    let applied = |budget: &str, expected: &[&str]| {
        let tasks = MODELS.replace("task_type:", &format!("{budget}task_type:"));
        house.configure("amqp://127.0.0.1:1", &tasks);
        let rehearsed = ["schedules", "apply", "--dry-run", "--json"];
        let rehearsed = house.producer(&rehearsed).with(0).json();
        let report = house.producer(&["schedules", "apply", "--json"]).with(0).json();
        assert_eq!(report["budgets"], json!(expected), "{report}");
        assert_eq!(rehearsed["budgets"], report["budgets"], "the rehearsal says the same");
        let rows = house.producer(&["quota", "list", "--json"]).with(0).json();
        rows.as_array()
            .expect("rows")
            .iter()
            .map(|row| row["daily_tokens"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(applied("budget: {daily_tokens: 530}, ", &["nightly"]), [530]);
    assert_eq!(applied("budget: {daily_tokens: 5000}, ", &["nightly"]), [5000]);
    assert_eq!(applied("budget: {daily_tokens: 5000}, ", &[]), [5000]);
    let lifted = applied("", &["nightly"]);
    assert!(lifted.iter().all(Value::is_null), "{lifted:?}");
}

#[tokio::test]
async fn a_schedule_is_shown_with_its_budget_as_the_file_spells_it() {
    let house = open().await;
    let shown = |args: &[&str]| house.producer(&[&["schedules", "show", "nightly"], args].concat());
    let shown = |args: &[&str]| shown(args).with(0);
    let budget = || shown(&["--json"]).json()["entry"]["budget"].clone();
    let none = budget();
    let said = "budget: {daily_cost: 2.5, over_budget: {downgrade: m}}, task_type:";
    house.configure("amqp://127.0.0.1:1", &MODELS.replace("task_type:", said));
    let expected = json!({"daily_tokens": null, "daily_cost": 2.5, "over_budget": "downgrade: m"});

    let of_file = budget();
    house.producer(&["schedules", "apply"]).with(0);
    house.configure("amqp://127.0.0.1:1", MODELS);
    let in_force = budget();
    let told = shown(&[]).out;

    assert_eq!((none, of_file, in_force), (Value::Null, expected.clone(), expected));
    assert!(
        told.contains("daily_cost: 2.5\n") && told.contains("over_budget: downgrade: m"),
        "{told}"
    );
}

#[tokio::test]
async fn a_slip_sets_nothing() {
    let house = open().await;
    for (args, code, said) in [
        (vec!["quota", "set", "n", "in_flight=1"], 3, "no model n was ever asked"),
        (
            vec!["quota", "set", "nightlu", "--schedule", "daily_tokens=1"],
            3,
            "did you mean `nightly`?",
        ),
        (vec!["quota", "set", "m", "rpm=1"], 2, "did you mean `requests_per_minute`?"),
        (vec!["quota", "set", "m", "burst=1"], 2, "burst means nothing without"),
        (vec!["quota", "set", "nightly", "--schedule", "in_flight=1"], 2, "a budget alone"),
        (vec!["quota", "set", "m"], 2, "KEY=VALUE"),
        (vec!["quota", "open", "m"], 3, "m is not closed"),
        (vec!["quota", "open", "x"], 3, "no model x"),
        (vec!["usage", "--from", "2026-12-02", "--to", "2026-12-01"], 2, "is after --to"),
        (vec!["usage", "--from", "yesterday"], 2, "--from"),
    ] {
        house.producer(&args).with(code).complains(said);
    }
    let listed = house.producer(&["quota", "list", "--json"]).with(0).json();
    assert_eq!(listed, json!([]));
    house.configure("amqp://127.0.0.1:1", "model: {default_model: m}");
    house.producer(&["quota", "set", "m", "daily_cost=1"]).with(2).complains("has no price");
}

/// What `config check` refuses in the file is refused by hand, in the same words.
#[tokio::test]
async fn what_the_file_may_not_say_is_not_set_by_hand() {
    let house = open().await;
    let limits = "
model:
  prices: {m: {input: 1, output: 2}, n: {input: 1, output: 2}}
  limits:
    m: {daily_tokens: 9}
    n: {daily_tokens: 9, over_budget: {downgrade: m}}
tasks:
- {name: nightly, schedule: '@daily', task_type: http_call, payload: {url: 'https://x.example/'}}
";
    house.configure("amqp://127.0.0.1:1", limits);
    let set = |words: &[&'static str]| [&["quota", "set"], words].concat();
    for (words, code, said) in [
        (
            &["m", "daily_tokens=5", "over_budget=downgrade: m"][..],
            2,
            "over_budget: leads back to where it began: m → m",
        ),
        (
            &["m", "daily_tokens=5", "over_budget=downgrade: n"],
            2,
            "over_budget: leads back to where it began: m → n → m",
        ),
        (
            &["m", "daily_tokens=5", "over_budget=downgrade: nn"],
            3,
            "no model nn was ever asked or stands in belfry.yaml; did you mean `n`?",
        ),
        (
            &["nightly", "--schedule", "daily_tokens=5", "over_budget=downgrade: nn"],
            3,
            "no model nn was ever asked",
        ),
        (
            &["m", "over_budget=dead"],
            2,
            "over_budget: means nothing without `daily_tokens` or `daily_cost`",
        ),
        (&["m", "in_flight=10000001"], 2, "expected a whole number from 1 to 10000000"),
    ] {
        house.producer(&set(words)).with(code).complains(said);
    }
    assert_eq!(house.producer(&["quota", "list", "--json"]).with(0).json(), json!([]));

    // What an earlier hand said counts too, in both directions.
    house.producer(&set(&["n", "daily_tokens=5", "over_budget=park"])).with(0);
    house.producer(&set(&["m", "daily_tokens=5", "over_budget=downgrade: n"])).with(0);
    house.producer(&set(&["m", "over_budget=dead"])).with(0);
    house.producer(&set(&["m", "over_budget=downgrade: n"])).with(0);
    let back = house.producer(&set(&["n", "over_budget=downgrade: m"])).with(2);
    back.complains("n → m → n");
    house.configure("amqp://127.0.0.1:1", &limits.replace("prices:", "endpoints: {} # "));
    let free = house.producer(&set(&["nightly", "--schedule", "daily_cost=1"])).with(2);
    free.complains("names no price");
}

/// A row for each name that a payload ever had would hide the few that mean something.
#[tokio::test]
async fn models_of_which_nothing_is_limited_or_used_are_listed_when_asked_for() {
    let house = open().await;
    let attempt = house.claimed(house.given(json!({"url": "https://x.example/"})).await).await;
    let at = CallStart { task: attempt.task_id, token: attempt.token, step: "s" };
    called(&house, at, 1, &answered(10, 5)).await;
    house.producer(&["quota", "set", "m", "in_flight=1"]).with(0);
    let client = house.database.client().await;
    let others = "INSERT INTO llm_quotas (scope, name) SELECT 'model', 'rand-' || n FROM generate_series(1, 50) n";
    client.execute(others, &[]).await.expect("asked once");

    let listed = house.producer(&["quota", "list", "--json"]).with(0).json();
    let all = house.producer(&["quota", "list", "--all", "--json"]).with(0).json();

    let count = |rows: &Value| rows.as_array().expect("rows").len();
    assert_eq!((count(&listed), &listed[0]["name"], count(&all)), (1, &json!("m"), 51));
}

/// The account has no credit; somebody pays, opens the model, and what waited goes on.
#[tokio::test]
async fn an_opened_model_calls_its_tasks_back() {
    let house = open().await;
    let attempt = house.claimed(house.given(json!({"url": "https://x.example/"})).await).await;
    let at = CallStart { task: attempt.task_id, token: attempt.token, step: "s" };
    let failure = Some(Failure::new(ErrorClass::Permanent, "no credit"));
    let end = CallEnd { failure, closes: Some(Closing::UntilOpened), ..CallEnd::default() };
    called(&house, at, 1, &end).await;
    let waits = house.claimed(house.given(json!({"url": "https://y.example/"})).await).await;
    let call = NewCall {
        id: Uuid::new_v4(),
        call_no: 1,
        request_hash: b"q".to_vec(),
        endpoint: "h:1".to_owned(),
        model: "m".to_owned(),
        traceparent: None,
        est_tokens: 1,
        est_cost_micro: None,
    };
    let asked = CallStart { task: waits.task_id, token: waits.token, step: "s" };
    let denied = house.store.call_admit(asked, &call).await.expect("asked");
    assert!(matches!(denied, Admission::Denied(_)), "{denied:?}");
    let failure = Failure::new(ErrorClass::Throttled, "closed");
    house.ended(&waits, Outcome::Snooze { delay: Duration::from_secs(7200), failure }).await;

    let listed = house.producer(&["quota", "list", "--json"]).with(0).json();
    assert_eq!(
        (&listed[0]["state"], &listed[0]["waiting"]),
        (&json!("closed until opened"), &json!(1))
    );
    assert!(
        house.producer(&["alerts", "list"]).with(0).out.contains("is closed until somebody opens")
    );
    let opened = house.producer(&["quota", "open", "m", "--json"]).with(0).json();

    assert_eq!((&opened["called_back"], &opened["quota"]["state"]), (&json!(1), &json!("open")));
    let row = house.store.task(waits.task_id).await.expect("read").expect("a task");
    assert_eq!(row.summary.state, TaskState::Queued);
    assert!(row.summary.due_at <= shared::domain::clock::now() + Duration::from_secs(60));
}

/// Each step and each call of a model is on its task's page, with its time and cost.
#[tokio::test]
async fn a_task_shows_its_steps_and_calls_with_time_and_cost() {
    let house = open().await;
    let task = house.given(json!({"url": "https://x.example/"})).await;
    let attempt = house.claimed(task).await;
    let at = CallStart { task, token: attempt.token, step: "summarise" };
    called(&house, at, 1, &answered(10, 5)).await;
    called(&house, at, 2, &CallEnd { unknown: true, ..CallEnd::default() }).await;
    let took = Duration::from_millis(1500);
    for name in ["load", "summarise"] {
        let kept =
            house.store.keep_step(task, attempt.token, name, b"i", &json!("done"), took).await;
        assert!(kept.expect("asked"), "{name}");
    }

    let page = house.producer(&["tasks", "show", &task.to_string()]).with(0).out;
    let document = house.producer(&["tasks", "show", &task.to_string(), "--json"]).with(0).json();

    for line in [
        "step load: kept in attempt 1  1.500 s\n",
        "step summarise: kept in attempt 1  1.500 s  $0.000020\n",
        "model call 1 of summarise: m done  ",
        "  10 + 5 tokens  $0.000020\n",
        "model call 2 of summarise: m unknown  ",
    ] {
        assert!(page.contains(line), "no {line:?} in {page}");
    }
    let steps = &document["steps"];
    assert_eq!((&steps[0]["cost_micro"], &steps[1]["cost_micro"]), (&Value::Null, &json!(20)));
    assert_eq!(
        (&steps[1]["took_ms"], &document["llm_calls"][1]["state"]),
        (&json!(1500), &json!("unknown"))
    );
}

#[tokio::test]
async fn usage_is_summed_by_model_schedule_type_and_day() {
    let house = open().await;
    let attempt = house.claimed(house.given(json!({"url": "https://x.example/"})).await).await;
    let at = CallStart { task: attempt.task_id, token: attempt.token, step: "s" };
    called(&house, at, 1, &answered(10, 5)).await;
    called(&house, at, 2, &answered(3, 4)).await;
    called(&house, at, 3, &CallEnd { unknown: true, ..CallEnd::default() }).await;

    for (by, key) in [("model", "m"), ("schedule", ""), ("type", "http_call")] {
        let said = house.producer(&["usage", "--by", by, "--json"]).with(0).json();
        assert_eq!(keys(&said), ["by", "from", "rows", "to", "total"]);
        let row = &said["rows"][0];
        assert_eq!(row["key"], key, "{by}");
        for (what, count) in [
            ("calls", 3),
            ("answered", 2),
            ("unknown", 1),
            ("input_tokens", 13),
            ("output_tokens", 9),
            ("unknown_tokens", 100),
        ] {
            assert_eq!(row[what], count, "{by} {what}");
            assert_eq!(said["total"][what], count, "{by} {what}");
        }
        assert_eq!((&row["cost"], &row["unknown_cost"]), (&json!(31e-6), &json!(150e-6)), "{by}");
    }
    let days = house.producer(&["usage", "--by", "day"]).with(0).out;
    assert!(days.contains("total") && days.contains("UNKNOWN"), "{days}");
    let none = house.producer(&["usage", "--to", "2001-01-01"]).with(0);
    none.complains("no model was asked");
}

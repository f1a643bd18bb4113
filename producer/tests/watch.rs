//! The watch of real producers: who vanished, what is behind, what was missed, and that it ends.
#![expect(dead_code, reason = "house and tower serve several stories")]

mod house;
mod tower;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use shared::domain::attempt::Incarnation;
use shared::store::{Alert, Registration};
use shared::testing::{needed, put_in_force, within};
use uuid::Uuid;

use house::House;
use tower::Tower;

/// A process is lost ten seconds after its lease, a schedule is behind when ten seconds of looking
/// have moved nothing; and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

const QUICK: &str = "scheduler: {heartbeat_interval: 1, heartbeat_ttl: 2}";
const MINUTELY: &str = "
tasks:
- {name: minutely, schedule: '* * * * *', task_type: http_call, payload: {url: 'https://x.example/'}}
";

/// Waits for an alert of this kind and stage.
async fn alert(house: &House, kind: &str, stage: &str) -> Alert {
    within(PATIENCE, &format!("the alert {kind} {stage}"), async || {
        let alerts = house.store.alerts(100).await.ok()?;
        alerts.into_iter().find(|alert| alert.kind == kind && alert.stage == stage)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_sees_a_leader_that_hangs_and_tells_when_all_is_well() {
    let tower = Tower::open().await;
    let house = &tower.house;
    house.configure(&needed("AMQP_URL"), &format!("{QUICK}{MINUTELY}"));
    let path: PathBuf = house.dir.path().join("belfry.yaml");
    let config = shared::config::load(Some(&path)).expect("right");
    put_in_force(&house.store, &config.schedules).await;
    let (token, hour) = (Uuid::new_v4(), Duration::from_hours(1));
    let hanging = house.store.lead(token, Incarnation::new(), "producer@hanging#1", hour);
    hanging.await.expect("answered").expect("the lead is free");
    let _standby = tower.producer("standby.log");

    house.database.move_clock(300).await;
    let behind = alert(house, "behind", "begun").await;
    house.store.step_down(token).await.expect("stepped down");
    let well = alert(house, "behind", "over").await;
    let missed = alert(house, "missed", "begun").await;
    let again = alert(house, "missed", "over").await;

    assert_eq!(behind.subjects, ["minutely"]);
    assert!(behind.text.contains("Schedule minutely is behind: its instant of "), "{behind:?}");
    assert!(well.text.contains("is up to date again"), "{well:?}");
    // The mend is a command that runs as it stands.
    let mend = missed.text.split('`').nth(1).expect("a command").split(' ').skip(1);
    let mended = house.producer(&mend.chain(["--dry-run", "--json"]).collect::<Vec<_>>());
    assert!(mended.with(0).json()["run"].as_u64() >= Some(1), "{missed:?}");
    assert!(again.text.contains("Schedule minutely ticks again: "), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_that_can_never_tick_again_is_told_until_it_is_mended() {
    let tower = Tower::open().await;
    let house = &tower.house;
    house.configure(&needed("AMQP_URL"), &format!("{QUICK}{MINUTELY}"));
    let path: PathBuf = house.dir.path().join("belfry.yaml");
    let config = shared::config::load(Some(&path)).expect("right");
    put_in_force(&house.store, &config.schedules).await;
    let set = async |cron: &str| {
        let sql = format!("UPDATE schedules SET cron = '{cron}'");
        house.database.client().await.batch_execute(&sql).await.expect("set");
    };
    let (token, hour) = (Uuid::new_v4(), Duration::from_hours(1));
    let other = house.store.lead(token, Incarnation::new(), "producer@other#1", hour).await;
    other.expect("answered").expect("the lead is free");
    let _standby = tower.producer("standby.log");

    set("0 0 31 2 *").await;
    let begun = alert(house, "no_next_tick", "begun").await;
    set("0 0 1 1 *").await;
    let over = alert(house, "no_next_tick", "over").await;

    assert!(
        begun.text.contains("Schedule minutely will never tick again: cron field"),
        "{begun:?}"
    );
    assert!(over.text.contains("ticks again; its next instant is"), "{over:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_producer_is_missed_and_its_successor_noticed() {
    let tower = Tower::open().await;
    let house = &tower.house;
    let _stays = tower.producer("stays.log");
    let killed = tower.producer("killed.log");
    let registered = || async {
        let all = house.store.workers(false).await.ok()?;
        (all.len() == 2).then_some(())
    };
    within(PATIENCE, "two producers", registered).await;

    killed.kill();
    let lost = alert(house, "lost_producer", "begun").await;
    let _next = tower.producer("next.log");
    let replaced = alert(house, "lost_producer", "over").await;

    assert!(lost.text.starts_with("The producer producer@"), "{lost:?}");
    assert!(lost.text.contains("vanished without goodbye"), "{lost:?}");
    assert_eq!(replaced.subjects, lost.subjects);
    assert!(replaced.text.contains(" is replaced by producer@"), "{replaced:?}");
    assert_eq!(house.store.alerts(100).await.expect("read").len(), 2, "each is told once");
}

/// Containers with a fixed host name call themselves the same: the one that lives does not hide the one
/// that is gone, and one that was restarted in its place ends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_vanished_beside_a_living_namesake_is_missed() {
    let tower = Tower::open().await;
    let house = &tower.house;
    let worker = async |ttl: Duration| {
        let who = Registration {
            id: Incarnation::new(),
            role: "worker",
            label: "worker@fixed#1".to_owned(),
            pools: BTreeMap::new(),
            ttl,
        };
        house.store.register(&who).await.expect("registered");
    };
    let hour = Duration::from_hours(1);
    for ttl in [hour, Duration::from_secs(1)] {
        worker(ttl).await;
    }
    let _watches = tower.producer("watches.log");

    let lost = alert(house, "lost_worker", "begun").await;
    worker(hour).await;
    let back = alert(house, "lost_worker", "over").await;

    assert_eq!(lost.subjects, ["worker@fixed#1"]);
    assert_eq!(back.text, "The worker worker@fixed#1 is back");
    let alerts = house.store.alerts(100).await.expect("read");
    assert_eq!(alerts.len(), 2, "the other is missed by nobody: {alerts:?}");
}

/// One that was cut off for longer than its lease registers anew; its first identity said no goodbye, and
/// is nobody's loss, neither while it lives nor when it has stopped in good order.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_frozen_and_stops_in_good_order_later_is_not_missed() {
    let tower = Tower::open().await;
    let house = &tower.house;
    let _stays = tower.producer("stays.log");
    let frozen = tower.producer("frozen.log");
    let killed = tower.producer("killed.log");
    let living = async |count: usize| {
        within(PATIENCE, &format!("{count} living producers"), async || {
            let all = house.store.workers(false).await.ok()?;
            (all.len() == count).then_some(())
        })
        .await;
    };
    living(3).await;

    frozen.signal("STOP");
    living(2).await;
    frozen.signal("CONT");
    living(3).await;
    frozen.signal("TERM");
    living(2).await;
    let label = killed.label();
    killed.kill();
    alert(house, "lost_producer", "begun").await;

    let alerts = house.store.alerts(100).await.expect("read");
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!(alerts[0].subjects.len(), 1, "{alerts:?}");
    assert!(alerts[0].subjects[0].ends_with(&label), "{alerts:?}");
}

/// A webhook that keeps what it was told, and answers as it is told.
async fn webhook(answer: StatusCode) -> (String, Arc<Mutex<Vec<Value>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let kept = told.clone();
    let take = move |State(kept): State<Arc<Mutex<Vec<Value>>>>, Json(body): Json<Value>| async move {
        kept.lock().expect("one writer").push(body);
        answer
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let app = Router::new().route("/hook", post(take)).with_state(kept);
    #[expect(clippy::disallowed_methods, reason = "ends with the test's runtime")]
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, told)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_is_tried_and_the_answer_told() {
    let house = House::open().await;
    let amqp = needed("AMQP_URL");
    house.configure(&amqp, "");
    house.producer(&["alerts", "test"]).with(2).complains("names no alerts.webhook");
    let (deaf, _) = webhook(StatusCode::IM_A_TEAPOT).await;
    house.configure(&amqp, &format!("alerts: {{webhook: '{deaf}'}}"));
    house.producer(&["alerts", "test"]).with(1).complains("the webhook answered 418");
    let (url, told) = webhook(StatusCode::OK).await;
    house.configure(&amqp, &format!("alerts: {{webhook: '{url}'}}"));

    let accepted = house.producer(&["alerts", "test", "--json"]).with(0).json();

    let told = told.lock().expect("one writer").clone();
    assert_eq!(told.len(), 1);
    assert_eq!((&told[0]["kind"], &told[0]["alert_id"]), (&json!("test"), &accepted["alert_id"]));
    assert!(told[0]["text"].as_str().is_some_and(|text| text.starts_with("A test by ada@")));
    let listed = house.producer(&["alerts", "list", "--json"]).with(0).json();
    assert!(listed[0]["sent_at"].is_string() && listed[1]["sent_at"].is_null(), "{listed}");
    assert_eq!(
        house.store.due_alerts(10).await.expect("read").len(),
        0,
        "no daemon repeats a test"
    );
}

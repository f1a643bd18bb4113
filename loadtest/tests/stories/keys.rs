//! A key is used once, whatever door it comes through; a letter is replayed once, whoever comes first.

use loadtest::fleet::Role;
use serde_json::json;
use shared::broker::Properties;
use shared::domain::task::TaskState;
use shared::testing::within;

use crate::house::{House, PATIENCE, outcomes, probe, told};

const REFUSED: &str = "key_reused_with_other_payload";

const CONSTANT_KEY: &str = "
tasks:
  - {name: careless, schedule: '* * * * * *', task_type: probe, overlap: allow,
     payload: {echo: '{{ scheduled_at }}'}, execution_key_template: always-the-same}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_with_another_payload_is_refused_at_every_door() {
    let house = House::open("key_reuse", CONSTANT_KEY).await;
    let fleet = vec![house.started(Role::Producer).await, house.started(Role::Worker).await];
    let publish = |payload| ["publish", "probe", "--payload", payload, "--key", "order-1"];

    house.asked(&publish("{\"echo\": 1}")).await;
    let again = house.asked(&publish("{\"echo\":1}")).await;
    let other = house.command(&publish("{\"echo\": 2}"), &[]).await;
    let batch = house.ground.directory().join("batch.jsonl");
    let lines = [
        json!({"type": "probe", "payload": {"echo": 3}, "key": "order-1"}),
        json!({"type": "probe", "payload": {"echo": 4}, "key": "order-2"}),
    ];
    std::fs::write(&batch, lines.map(|line| line.to_string()).join("\n")).expect("written");
    let batch = batch.to_str().expect("UTF-8");
    let batched = house.command(&["publish", "--batch", batch, "--json"], &[]).await;
    let request = json!({"type": "probe", "payload": {"echo": 5}, "key": "order-1"}).to_string();
    house.drop_into(&house.ground.topology().inbox(), &request, &Properties::default()).await;

    assert_eq!(again["deduplicated"], true, "another spelling of the same payload");
    assert_eq!(other.status.code(), Some(3), "{}", told(&other));
    assert!(told(&other).contains(REFUSED), "{}", told(&other));
    assert_eq!(batched.status.code(), Some(3), "{}", told(&batched));
    assert!(told(&batched).contains("\"enqueued\": 1"), "{}", told(&batched));
    let letter = within(PATIENCE, "the request is refused", async || house.letters().await.pop());
    let letter = letter.await;
    assert!(letter.error_message.contains(REFUSED), "{}", letter.error_message);
    // A tick has nobody to tell but its row and the log.
    let found = "SELECT count(*) FROM ticks WHERE outcome = 'deduplicated'";
    within(PATIENCE, "ticks find the key", async || (house.count(found).await >= 2).then_some(()))
        .await;
    assert!(fleet[0].tail().contains(REFUSED), "{}", fleet[0].tail());
    let first = "SELECT count(*) FROM ticks WHERE outcome = 'enqueued'";
    assert_eq!(house.count(first).await, 1);
    assert_eq!(house.count("SELECT count(*) FROM tasks").await, 3, "order-1, order-2, the tick's");
    house.close(fleet).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_who_replay_a_letter_at_once_one_is_told_that_it_is_closed() {
    let house = House::open("replay_twice", "").await;
    let worker = house.started(Role::Worker).await;
    let task = house.given(probe(json!({"mode": "permanent", "fail_times": 1}))).await;
    house.is(task, TaskState::Dead).await;
    let letter = house.letters().await[0].id.to_string();
    let replay = ["dead", "replay", letter.as_str()];

    let (one, two) = tokio::join!(house.command(&replay, &[]), house.command(&replay, &[]));

    let mut codes = [one.status.code(), two.status.code()];
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(3)], "{} and {}", told(&one), told(&two));
    let row = house.is(task, TaskState::Completed).await;
    assert_eq!(outcomes(&row), ["dead", "completed"]);
    house.close(vec![worker]).await;
}

//! Dead letters against a real PostgreSQL: who looks after them, how often they are alerted, and
//! which copies the dead queue should hold.
#![cfg(feature = "testing")]
#![expect(dead_code, reason = "the house serves several stories")]

mod house;

use std::time::Duration;

use futures::future::join_all;
use house::{House, failure};
use shared::domain::outcome::Outcome;
use shared::domain::task::{TaskId, TaskState};
use shared::store::{Alert, DeadFilter, DeadLetter, Store};

const HALF_HOUR: Duration = Duration::from_mins(30);

/// A task that was given up; its letter's number.
async fn dead(house: &House) -> (TaskId, i64) {
    let (task, by) = (house.given(|_| ()).await, house.worker().await);
    let attempt = house.claimed(task, by).await;
    let _settlement = house.record(&attempt, Outcome::Dead { failure: failure() }).await;
    let letters = house.store.dead_letters(&DeadFilter::default(), 100).await.expect("read");
    let letter = letters.iter().find(|letter| letter.task_id == Some(task.0));
    (task, letter.expect("a letter").id)
}

async fn letter(store: &Store, id: i64) -> DeadLetter {
    let filter = DeadFilter { all: true, id: Some(id), ..DeadFilter::default() };
    store.dead_letters(&filter, 1).await.expect("read").remove(0)
}

/// Posts what is due, as a sender would.
async fn posted(store: &Store) -> Vec<Alert> {
    let alerts = store.due_alerts(100).await.expect("read");
    for alert in &alerts {
        store.alert_sent(alert.id).await.expect("marked");
    }
    alerts
}

#[tokio::test]
async fn a_letter_is_claimed_by_one_person_at_a_time() {
    let house = House::open().await;
    let (_, id) = dead(&house).await;
    let store = &house.store;

    let racers = ["ann", "bob", "cleo"].map(|name| store.claim_letter(id, name));
    let won = join_all(racers).await.into_iter().filter(|won| *won.as_ref().expect("answered"));
    assert_eq!(won.count(), 1);

    let first = letter(store, id).await;
    let owner = first.claimed_by.expect("claimed");
    assert!(store.claim_letter(id, &owner).await.expect("answered"), "saying it twice is fine");
    assert_eq!(letter(store, id).await.claimed_at, first.claimed_at);
    assert!(!store.claim_letter(id, "dora").await.expect("answered"));
    assert!(store.unclaim_letter(id).await.expect("answered"));
    assert!(store.claim_letter(id, "dora").await.expect("answered"));
    store.discard(id, "dora").await.expect("discarded");
    assert!(!store.claim_letter(id, "dora").await.expect("answered"), "it is closed");
    assert!(!store.unclaim_letter(id).await.expect("answered"));
    assert_eq!(letter(store, id).await.claimed_by.as_deref(), Some("dora"), "for the record");
}

#[tokio::test]
async fn an_alert_is_repeated_each_period_until_somebody_claims_or_closes_the_letter() {
    let house = House::open().await;
    let store = &house.store;
    let (_, claimed) = dead(&house).await;
    let (_, open) = dead(&house).await;
    let (_, closed) = dead(&house).await;
    let repeat = || store.repeat_alerts(HALF_HOUR, 100);
    assert_eq!(repeat().await.expect("answered"), 0, "the first ones are not even posted");
    house.database.move_clock(3600).await;
    assert_eq!(repeat().await.expect("answered"), 0, "a waiting alert is followed by none");
    assert_eq!(posted(store).await.len(), 3);
    store.claim_letter(claimed, "ann").await.expect("claimed");
    store.discard(closed, "ann").await.expect("discarded");

    house.database.move_clock(3600 + 1799).await;
    assert_eq!(repeat().await.expect("answered"), 0, "too soon");
    house.database.move_clock(3600 + 1801).await;
    let racers = join_all((0..6).map(|_| repeat())).await;
    let made: usize = racers.into_iter().map(|made| made.expect("answered")).sum();
    assert_eq!(made, 1, "one a letter and period, whoever looks");

    let alerts = posted(store).await;
    assert_eq!((alerts[0].dead_letter_id, alerts[0].seq, alerts.len()), (Some(open), 2, 1));
    assert!(alerts[0].text.contains("nobody has claimed it (alert 2)"), "{}", alerts[0].text);
    store.unclaim_letter(claimed).await.expect("given up");
    house.database.move_clock(3600 + 2 * 1801 + 10).await;
    assert_eq!(repeat().await.expect("answered"), 2, "the unclaimed one is alerted again");
}

#[tokio::test]
async fn only_the_tasks_own_open_letter_replays_it_when_moved() {
    let house = House::open().await;
    let ((task, own), (_, other)) = (dead(&house).await, dead(&house).await);
    let moved = async |letter| house.store.replay_moved(letter, task).await.expect("answered");

    assert!(!moved(other).await);
    assert!(!moved(999).await);
    assert!(moved(own).await);
    assert!(!moved(own).await, "once");

    assert_eq!(house.state(task).await, TaskState::Queued);
    let by = letter(&house.store, own).await.resolved_by;
    assert_eq!(by.as_deref(), Some("moved by hand in RabbitMQ"));
}

#[tokio::test]
async fn a_resolved_letter_is_stale_until_a_walk_that_began_after_its_copy() {
    let house = House::open().await;
    let store = &house.store;
    let (_, early) = dead(&house).await;
    let (_, late) = dead(&house).await;
    let (_, open) = dead(&house).await;
    store.mark_letters(&[early, open]).await.expect("marked");
    store.discard(early, "ann").await.expect("discarded");
    store.discard(late, "ann").await.expect("discarded");
    assert_eq!(store.stale_letters().await.expect("read"), [early], "late has no copy yet");

    house.database.move_clock(10).await;
    // Confirmed when it was resolved already.
    store.mark_letters(&[late]).await.expect("marked");
    let stale = store.stale_letters().await.expect("read");
    assert_eq!(stale, [early, late]);
    house.database.move_clock(15).await;
    store.letters_removed(&stale, Duration::from_secs(8)).await.expect("marked");

    assert_eq!(store.stale_letters().await.expect("read"), [late], "the walk may have missed it");
    let resolved = store.resolved_letters(&[early, late, open, 999]).await.expect("read");
    assert_eq!(resolved.len(), 2);
    assert!(resolved.contains(&early) && resolved.contains(&late));
}

#[tokio::test]
async fn the_copy_that_a_walk_has_not_seen_is_asked_for_again() {
    let house = House::open().await;
    let store = &house.store;
    let (_, there) = dead(&house).await;
    let (_, lost) = dead(&house).await;
    let (_, closed) = dead(&house).await;
    store.mark_letters(&[there, lost, closed]).await.expect("marked");
    store.discard(closed, "ann").await.expect("discarded");
    store.keep_unreadable("no JSON", b"hello").await.expect("kept");
    let expected = store.copies_expected().await.expect("read");
    assert_eq!((expected.tasks, expected.letters), (2, 3));

    house.database.move_clock(60).await;
    let asked = store.copies_lost(&[there], Duration::from_secs(5)).await.expect("answered");

    assert_eq!(asked, 1);
    let letters = store.unpublished_letters(Duration::from_secs(3)).await.expect("read");
    assert_eq!(letters.iter().filter_map(|m| m.dead_letter).collect::<Vec<_>>(), [lost]);
}

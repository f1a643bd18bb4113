//! `belfry.dead` mirrors the table: what leaves it, what stays as it was, and what comes back.
#![expect(dead_code, reason = "house and tower serve several stories")]

mod house;
mod tower;

use std::collections::BTreeSet;

use serde_json::json;
use shared::broker::{Header, Properties};
use shared::testing::eventually;

use tower::Tower;

/// So many open letters, each with its copy.
async fn given(tower: &Tower, count: usize) -> Vec<i64> {
    let mut letters = Vec::with_capacity(count);
    for n in 0..count {
        let (_, letter) = tower.house.dead(json!({"n": n})).await;
        tower.copied(letter).await;
        letters.push(letter);
    }
    letters
}

/// Waits until every resolved letter is marked as gone.
async fn walked(tower: &Tower) {
    eventually("no letter is stale", async || {
        tower.house.store.stale_letters().await.expect("read").is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolved_letters_copy_leaves_and_the_others_stay_as_they_were() {
    let tower = Tower::open().await;
    let dead = tower.house.topology.dead();
    let letters = given(&tower, 5).await;
    let foreign = Properties {
        message_id: Some("theirs".to_owned()),
        headers: vec![("shelf".to_owned(), Header::Text("3".to_owned()))],
        ..Properties::default()
    };
    let sent = tower.publisher.publish_raw(&dead, "any.key", b"not ours", &foreign).await;
    sent.expect("confirmed");
    let _producer = tower.producer("producer.log");
    tower.ask("nonsense", Properties::default()).await;
    tower.has(&dead, 7).await;
    let unreadable = tower.letters(6).await[0].id;

    tower.house.producer(&["dead", "replay", &letters[1].to_string()]).with(0);
    tower.house.producer(&["dead", "discard", &letters[3].to_string()]).with(0);
    tower.house.producer(&["dead", "discard", &unreadable.to_string()]).with(0);

    tower.has(&dead, 4).await;
    walked(&tower).await;
    let copies = tower.taken(dead, 4).await;
    let kept: BTreeSet<_> = copies.iter().filter_map(|copy| copy.letter).collect();
    assert_eq!(kept, BTreeSet::from([letters[0], letters[2], letters[4]]));
    for copy in &copies {
        if copy.letter.is_none() {
            assert_eq!((copy.body.as_str(), copy.key.as_str()), ("not ours", "any.key"));
            assert_eq!(copy.message_id.as_deref(), Some("theirs"));
            continue;
        }
        let body: serde_json::Value = serde_json::from_str(&copy.body).expect("JSON");
        assert_eq!(body["task_id"].as_str(), copy.message_id.as_deref());
        assert_eq!(copy.key, "io_pool.http_call");
        assert_eq!(copy.error.as_deref(), Some("404: no such page"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_copies_of_a_letter_a_walk_leaves_one() {
    let tower = Tower::open().await;
    let dead = tower.house.topology.dead();
    let letters = given(&tower, 2).await;
    let again = Properties {
        headers: vec![("dead-letter".to_owned(), Header::Number(letters[0]))],
        ..Properties::default()
    };
    let sent = tower.publisher.publish_raw(&dead, "io_pool.http_call", b"{}", &again).await;
    sent.expect("confirmed");
    tower.house.store.discard(letters[1], "ann").await.expect("discarded");

    let _producer = tower.producer("producer.log");

    tower.has(&dead, 1).await;
    let copy = tower.taken(dead, 1).await.remove(0);
    assert_eq!(copy.letter, Some(letters[0]));
    assert!(copy.message_id.is_some(), "the first one stayed");
}

/// The producer is killed while it has copies in hand, some of them published anew and not acked.
#[tokio::test(flavor = "multi_thread")]
async fn a_walk_that_is_killed_loses_no_copy_and_the_next_one_ends_it() {
    let tower = Tower::open().await;
    let dead = tower.house.topology.dead();
    let letters = given(&tower, 300).await;
    tower.has(&dead, 300).await;
    for letter in letters.iter().step_by(3) {
        tower.house.store.discard(*letter, "ann").await.expect("discarded");
    }

    for round in 0..3 {
        let producer = tower.producer(&format!("killed-{round}.log"));
        eventually("it has copies in hand", async || {
            (tower.operator.depth(&dead).await.expect("looked") != Some(300)).then_some(())
        })
        .await;
        producer.kill();
    }
    let _producer = tower.producer("last.log");
    walked(&tower).await;

    tower.has(&dead, 200).await;
    let kept: BTreeSet<_> =
        tower.taken(dead, 200).await.iter().filter_map(|copy| copy.letter).collect();
    let open = tower.letters(200).await;
    assert_eq!(kept, open.iter().map(|letter| letter.id).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_lost_with_their_queue_are_written_again() {
    let tower = Tower::open().await;
    let dead = tower.house.topology.dead();
    let letters = given(&tower, 3).await;
    let _producer = tower.producer("producer.log");
    tower.has(&dead, 3).await;

    tower.operator.delete_queue(&dead).await.expect("deleted");

    tower.has(&dead, 3).await;
    let kept: BTreeSet<_> =
        tower.taken(dead, 3).await.iter().filter_map(|copy| copy.letter).collect();
    assert_eq!(kept, letters.into_iter().collect());
}

//! Who looks after a dead letter, and how often the others are told of it.
#![expect(dead_code, reason = "house and tower serve several stories")]

mod house;
mod tower;

use serde_json::json;
use shared::testing::{eventually, needed};

use house::House;
use tower::Tower;

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_claimed_by_name_and_another_is_refused() {
    let house = House::open().await;
    let (_, letter) = house.dead(json!({})).await;
    let id = letter.to_string();

    let claimed = house.producer(&["dead", "claim", &id, "--by", "bob", "--json"]).with(0).json();

    assert_eq!(claimed["claimed_by"], "bob");
    house.producer(&["dead", "claim", &id, "--by", "bob"]).with(0);
    let refused = house.producer(&["dead", "claim", &id]).with(3);
    refused.complains(&format!("dead letter {id} is claimed by bob since"));
    assert!(house.producer(&["dead", "list"]).with(0).out.contains("bob"));
    house.producer(&["dead", "unclaim", &id]).with(0);
    let own = house.producer(&["dead", "claim", &id, "--json"]).with(0).json();
    assert!(own["claimed_by"].as_str().expect("a name").starts_with("ada@"), "{own}");
    house.producer(&["dead", "claim", &id, "--by", " "]).with(2);
    house.producer(&["dead", "discard", &id]).with(0);
    house.producer(&["dead", "claim", &id]).with(3).complains("was already discarded");
    house.producer(&["dead", "unclaim", &id]).with(3).complains("was already discarded");
    house.producer(&["dead", "claim", "999"]).with(3).complains("there is no dead letter 999");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_letter_is_alerted_again_until_it_is_claimed() {
    let tower = Tower::open().await;
    tower.house.configure(&needed("AMQP_URL"), "alerts: {repeat: 1}");
    let (_, claimed) = tower.house.dead(json!({"n": 1})).await;
    let (_, open) = tower.house.dead(json!({"n": 2})).await;
    tower.house.producer(&["dead", "claim", &claimed.to_string()]).with(0);
    let _producers = [tower.producer("one.log"), tower.producer("two.log")];

    let alerts = eventually("the open one is alerted three times", async || {
        let alerts = tower.house.store.alerts(100).await.expect("read");
        alerts.iter().any(|a| a.dead_letter_id == Some(open) && a.seq == 3).then_some(alerts)
    })
    .await;

    let mut of_open: Vec<_> =
        alerts.iter().filter(|alert| alert.dead_letter_id == Some(open)).collect();
    of_open.reverse();
    for pair in of_open.windows(2) {
        let accepted = pair[0].sent_at.expect("before the next one");
        assert!((pair[1].created_at - accepted).num_milliseconds() >= 1000, "{pair:?}");
    }
    let of_claimed = alerts.iter().filter(|alert| alert.dead_letter_id == Some(claimed)).count();
    assert_eq!(of_claimed, 1, "{alerts:?}");
}

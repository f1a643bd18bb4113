//! Episodes: however many producers see a trouble, it is told once, and its end once.
#![cfg(feature = "testing")]
#![expect(dead_code, reason = "the house serves several stories")]

mod house;

use std::collections::HashMap;
use std::time::Duration;

use futures::future::join_all;
use house::House;
use shared::store::{Alert, Beginning, Ending, EpisodeKind};

const LATELY: Duration = Duration::from_hours(1);

fn trouble(kind: EpisodeKind, name: &str) -> Beginning {
    Beginning {
        kind,
        subject: name.to_owned(),
        name: name.to_owned(),
        detail: format!("{name} is in trouble"),
        until: None,
    }
}

async fn alerts(house: &House) -> Vec<Alert> {
    let mut alerts = house.store.alerts(100).await.expect("read");
    alerts.reverse();
    alerts
}

fn told(alerts: &[Alert]) -> Vec<String> {
    alerts.iter().map(|a| format!("{} {} {}", a.kind, a.stage, a.subjects.join(" "))).collect()
}

#[tokio::test]
async fn eight_producers_tell_of_one_trouble_once_and_of_its_end_once() {
    let house = House::open().await;
    let both = [trouble(EpisodeKind::Behind, "a"), trouble(EpisodeKind::Behind, "b")];

    for begun in join_all((0..8).map(|_| house.store.begin_episodes(&both))).await {
        begun.expect("begun");
    }
    let open = house.store.episodes(LATELY).await.expect("read");
    let endings: Vec<Ending> = open
        .iter()
        .map(|episode| Ending {
            id: episode.id,
            detail: Some(format!("{} is well", episode.name)),
            by: None,
        })
        .collect();
    for ended in join_all((0..8).map(|_| house.store.end_episodes(&endings))).await {
        ended.expect("ended");
    }

    assert_eq!(open.len(), 2);
    let alerts = alerts(&house).await;
    assert_eq!(told(&alerts), ["behind begun a b", "behind over a b"]);
    assert_eq!(alerts[0].text, "a is in trouble\nb is in trouble");
    assert_eq!(alerts[1].text, "a is well\nb is well");
    assert!(house.store.episodes(LATELY).await.expect("read").is_empty());
    house.store.begin_episodes(&both[..1]).await.expect("begun");
    assert_eq!(self::told(&self::alerts(&house).await)[2], "behind begun a", "a second episode");
}

#[tokio::test]
async fn what_was_told_before_begins_nothing() {
    let house = House::open().await;
    let seen = house.store.now().await.expect("the clock");
    let lost = Beginning { until: Some(seen), ..trouble(EpisodeKind::LostWorker, "worker@a#1") };
    house.store.begin_episodes(std::slice::from_ref(&lost)).await.expect("begun");
    let id = house.store.episodes(LATELY).await.expect("read")[0].id;
    let by = Some("newcomer".to_owned());
    house.store.end_episodes(&[Ending { id, detail: None, by }]).await.expect("ended");

    house.store.begin_episodes(&[lost]).await.expect("begun");

    assert_eq!(told(&alerts(&house).await), ["lost_worker begun worker@a#1"]);
    let lately = house.store.episodes(LATELY).await.expect("read");
    assert_eq!((lately[0].open, lately[0].ended_by.as_deref()), (false, Some("newcomer")));
}

/// Each incarnation by itself: a label may be that of many.
#[tokio::test]
async fn an_incarnation_is_gone_by_its_own_lease_and_goodbye_alone() {
    let house = House::open().await;
    let (gone_after, view) = (Duration::from_secs(10), Duration::from_hours(2));
    let members = async || {
        let members = house.store.members(gone_after, LATELY, view).await.expect("read");
        members.into_iter().map(|m| (m.id, (m.stopped, m.gone, m.seen_at)))
    };
    let known = async || members().await.collect::<HashMap<_, _>>();
    let vanishes = house.worker().await.0;
    let stops = house.worker().await;
    let begun = known().await;
    house.store.retire(stops).await.expect("retired");
    house.database.move_clock(60).await;
    let lives = house.worker().await.0;

    let seen = known().await;
    house.database.move_clock(3660).await;
    let later = known().await;
    house.database.move_clock(7260).await;
    let last: Vec<_> = members().await.map(|(id, _)| id).collect();

    assert_eq!(begun.len(), 2);
    assert_eq!((seen[&vanishes].0, seen[&vanishes].1), (false, true));
    assert_eq!((seen[&stops.0].0, seen[&stops.0].1), (true, false));
    assert!(seen[&stops.0].2 > begun[&stops.0].2, "its goodbye is the last that was seen of it");
    assert_eq!((seen[&lives].0, seen[&lives].1), (false, false));
    assert_eq!((later[&vanishes].1, later[&lives].1), (false, true), "an hour ago is no news");
    assert_eq!(last, [lives]);
}

#[tokio::test]
async fn a_trouble_that_lasts_is_told_again_but_not_on_a_deaf_webhook_s_heap() {
    let house = House::open().await;
    let repeat = Duration::from_mins(30);
    let all = [trouble(EpisodeKind::Behind, "a"), trouble(EpisodeKind::Missed, "b")];
    house.store.begin_episodes(&all).await.expect("begun");
    let again = async || {
        house.store.repeat_episodes(repeat).await.expect("repeated");
        told(&alerts(&house).await).len()
    };

    let early = again().await;
    house.database.move_clock(1801).await;
    let unsent = again().await;
    for alert in alerts(&house).await {
        house.store.alert_sent(alert.id).await.expect("sent");
    }
    let late = again().await;
    let at_once = again().await;

    assert_eq!((early, unsent, late, at_once), (2, 2, 3, 3));
    let last = alerts(&house).await.pop().expect("an alert");
    assert_eq!((last.kind.as_str(), last.stage.as_str()), ("behind", "again"));
    assert_eq!(last.text, "Still: a is in trouble");
}

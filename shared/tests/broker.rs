//! The broker room against a real RabbitMQ: each test has a prefix of its own, deleted at the end.

#[path = "broker/house.rs"]
mod house;
#[path = "broker/proxy.rs"]
mod proxy;

use std::time::{Duration, Instant};

use futures::future::join_all;
use secrecy::SecretString;
use shared::broker::{
    Consumers, Delivery, Destination, Error, Header, Operator, Properties, Settings, Settled,
    State, Subscription, Topology,
};
use shared::domain::delay::{LADDER, rung_for};
use shared::domain::message::BodyError;
use shared::domain::outcome::{ErrorClass, Failure};

use crate::house::{House, POOL, amqp_url, eventually, message, within};
use crate::proxy::Proxy;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_arrives_with_everything_that_a_person_reads() {
    House::run(async |house| {
        let mut sent = message();
        sent.run = 2;
        sent.failures = 1;
        sent.schedule = Some("nightly".into());
        sent.scheduled_for = "2026-11-30T18:00:00Z".parse().ok();
        sent.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
        sent.previous_attempt = Some("00-0af7651916cd43dd8448eb211c80319c-1-01".into());
        sent.failure = Some(Failure::new(ErrorClass::Timeout, "took\n  too long"));
        sent.worker = Some("worker@a#1".into());
        let publisher = house.publisher().await;
        let mut consumer = house.consumer(1);

        publisher.publish(Destination::Tasks, &sent).await.expect("confirmed");
        let got = within(consumer.next()).await.expect("delivered");

        assert_eq!(got.body(), Ok(&sent.body()));
        assert_eq!(got.exchange(), house.topology.tasks());
        assert_eq!(got.routing_key(), "io_pool.http_call");
        assert_eq!(got.message_id(), Some(sent.task_id.to_string().as_str()));
        assert_eq!(got.message_type(), Some("http_call"));
        assert_eq!(got.content_type(), Some("application/json"));
        assert_eq!(got.app_id(), Some("test"));
        assert!(got.timestamp().is_some_and(|seconds| seconds > 1_700_000_000));
        assert_eq!(got.run(), Some(2));
        assert_eq!(got.header_number("failures"), Some(1));
        assert_eq!(got.header_number("max-retry"), Some(3));
        assert_eq!(got.header("schedule"), Some("nightly"));
        assert_eq!(got.header("scheduled-for"), Some("2026-11-30T18:00:00Z"));
        assert_eq!(got.header("error-class"), Some("timeout"));
        assert_eq!(got.header("error-message"), Some("took too long"));
        assert_eq!(got.header("worker"), Some("worker@a#1"));
        assert_eq!(got.traceparent(), sent.traceparent.as_deref());
        assert_eq!(got.header("previous-attempt"), sent.previous_attempt.as_deref());
        assert_eq!(got.dead_letter(), None);
        assert!(!got.redelivered());
        assert_eq!(got.ack().await, Settled::Sent);
        assert_eq!(publisher.ready_count(POOL).await, Ok(Some(0)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_unroutable_ones_of_a_pipelined_batch_fail() {
    House::run(async |house| {
        let publisher = house.publisher().await;
        let mut batch: Vec<_> = (0..300).map(|_| (Destination::Tasks, message())).collect();
        for (_, stray) in batch.iter_mut().step_by(30) {
            stray.pool = "no_such_pool".into();
        }

        let answers = publisher.publish_many(&batch).await;

        for ((_, message), answer) in batch.iter().zip(&answers) {
            match message.pool.as_str() {
                POOL => assert_eq!(answer, &Ok(())),
                _ => assert!(matches!(answer, Err(Error::Unroutable { .. })), "{answer:?}"),
            }
        }
        assert_eq!(publisher.ready_count(POOL).await, Ok(Some(290)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_queue_is_declared_again_when_a_message_finds_none() {
    House::run(async |house| {
        let publisher = house.publisher().await;
        house.operator.delete_queue(&house.topology.pool_queue(POOL)).await.expect("deleted");

        let first = publisher.publish(Destination::Tasks, &message()).await;
        let again = publisher.publish(Destination::Tasks, &message()).await;

        assert!(matches!(first, Err(Error::Unroutable { .. })), "{first:?}");
        assert_eq!(again, Ok(()));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_exchange_costs_a_channel_and_no_more() {
    House::run(async |house| {
        let publisher = house.publisher().await;
        let plain = Properties::default();

        let stray = publisher.publish_raw("no-such-exchange", "k", b"x", &plain).await;
        let error = stray.expect_err("no such exchange").to_string();
        let after = publisher.publish(Destination::Tasks, &message()).await;

        assert!(error.contains("no-such-exchange"), "{error}");
        assert_eq!(after, Ok(()));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_message_is_never_early_and_keeps_its_routing_key() {
    House::run(async |house| {
        let publisher = house.publisher().await;
        let mut consumer = house.consumer(1);
        let rung = rung_for(Duration::from_millis(1)).expect("the first rung");
        let sent = message();

        let begun = Instant::now();
        publisher.publish(Destination::Retry(rung), &sent).await.expect("confirmed");
        let got = within(consumer.next()).await.expect("delivered");
        let waited = begun.elapsed();

        assert!(waited >= rung.ttl, "early: {waited:?}");
        assert!(waited < rung.ttl + Duration::from_secs(3), "late: {waited:?}");
        assert_eq!(got.body(), Ok(&sent.body()));
        assert_eq!(got.routing_key(), "io_pool.http_call");
        assert_eq!(got.exchange(), house.topology.tasks());
        got.ack().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_rejected_or_unreadable_lands_among_the_dead_letters() {
    House::run(async |house| {
        let publisher = house.publisher().await;
        let mut consumer = house.consumer(1);
        let mut dead = house.consume(house.topology.dead(), 5);
        let sent = message();

        publisher.publish(Destination::Tasks, &sent).await.expect("confirmed");
        within(consumer.next()).await.expect("delivered").reject().await;
        let rejected = within(dead.next()).await.expect("dead-lettered");
        publisher.publish_unreadable(b"\xff", "no\nJSON", "io_pool.x").await.expect("confirmed");
        let unreadable = within(dead.next()).await.expect("published");
        let mut letter = message();
        letter.dead_letter = Some(42);
        publisher.publish(Destination::Dead, &letter).await.expect("confirmed");
        let letter = within(dead.next()).await.expect("published");

        assert_eq!(rejected.body(), Ok(&sent.body()));
        assert_eq!(rejected.header("x-first-death-reason"), Some("rejected"));
        assert_eq!(rejected.routing_key(), "io_pool.http_call");
        assert_eq!(unreadable.raw(), b"\xff");
        assert_eq!(unreadable.header("error-message"), Some("no JSON"));
        assert_eq!(letter.dead_letter(), Some(42));
        for delivery in [rejected, unreadable, letter] {
            assert_eq!(delivery.ack().await, Settled::Sent);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_bodies_are_errors_of_the_delivery_and_consuming_goes_on() {
    House::run(async |house| {
        let publisher = house.publisher().await;
        let mut consumer = house.consumer(10);
        let huge = vec![b' '; 10 * 1024 * 1024];
        let bodies: [&[u8]; 4] = [b"", b"{\"task_id\":7}", b"\0\xff\xfe", &huge];

        for body in bodies {
            let exchange = house.topology.tasks();
            let raw = Properties {
                headers: vec![("traceparent".into(), Header::Number(7))],
                ..Properties::default()
            };
            publisher.publish_raw(&exchange, "io_pool.x", body, &raw).await.expect("confirmed");
        }
        publisher.publish(Destination::Tasks, &message()).await.expect("confirmed");

        for body in bodies {
            let delivery = within(consumer.next()).await.expect("delivered");
            assert_eq!(delivery.raw().len(), body.len());
            assert_eq!(delivery.traceparent(), None);
            match delivery.body() {
                Err(BodyError::TooLarge(bytes)) => assert_eq!(*bytes, huge.len()),
                other => assert!(matches!(other, Err(BodyError::Unreadable(_))), "{other:?}"),
            }
            assert_eq!(delivery.reject().await, Settled::Sent);
        }
        let good = within(consumer.next()).await.expect("delivered");
        assert!(good.body().is_ok());
        good.ack().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_acks_issued_together_all_arrive() {
    House::run(async |house| {
        let publisher = house.publisher().await;
        let batch: Vec<_> = (0..1000).map(|_| (Destination::Tasks, message())).collect();
        assert!(publisher.publish_many(&batch).await.iter().all(Result::is_ok));
        let mut consumer = house.consumer(1000);
        let mut held = Vec::new();
        while held.len() < 1000 {
            held.push(within(consumer.next()).await.expect("delivered"));
        }

        let settled = join_all(held.into_iter().map(Delivery::ack)).await;

        assert!(settled.iter().all(|settled| *settled == Settled::Sent));
        consumer.stop_consuming().await;
        house.shutdown.soft.cancel();
        drop((publisher, consumer));
        within(house.shutdown.drained()).await;
        let queue = house.topology.pool_queue(POOL);
        assert_eq!(house.operator.depth(&queue).await, Ok(Some(0)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_gives_back_what_nobody_has_seen_and_keeps_what_is_held() {
    House::run(async |house| {
        let publisher = house.publisher().await;
        let batch: Vec<_> = (0..5).map(|_| (Destination::Tasks, message())).collect();
        publisher.publish_many(&batch).await;
        let mut first = house.consumer(5);
        let held = within(first.next()).await.expect("delivered");

        first.stop_consuming().await;
        let mut second = house.consumer(5);
        for _ in 0..4 {
            within(second.next()).await.expect("given back").ack().await;
        }

        assert!(within(first.next()).await.is_none());
        assert_eq!(held.ack().await, Settled::Sent);
        eventually(async || publisher.ready_count(POOL).await == Ok(Some(0))).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_consumer_takes_nothing_until_it_resumes() {
    House::run(async |house| {
        let publisher = house.publisher().await;
        let mut consumer = house.consumer(5);
        within(consumer.is_connected().wait_for(|on| *on)).await.expect("consuming");

        consumer.pause().await;
        within(consumer.is_connected().wait_for(|on| !*on)).await.expect("paused");
        publisher.publish(Destination::Tasks, &message()).await.expect("confirmed");
        let waiting = publisher.ready_count(POOL).await;
        consumer.resume();

        assert_eq!(waiting, Ok(Some(1)));
        within(consumer.next()).await.expect("delivered").ack().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_soft_token_held_deliveries_are_settled_before_the_connection_closes() {
    House::run(async |house| {
        let publisher = house.publisher().await;
        let batch: Vec<_> = (0..3).map(|_| (Destination::Tasks, message())).collect();
        publisher.publish_many(&batch).await;
        let mut consumer = house.consumer(3);
        let held = within(consumer.next()).await.expect("delivered");

        house.shutdown.soft.cancel();
        assert!(within(consumer.next()).await.is_none());
        publisher.publish(Destination::Tasks, &message()).await.expect("still publishing");
        assert_eq!(held.ack().await, Settled::Sent);
        drop((publisher, consumer));
        within(house.shutdown.drained()).await;

        let queue = house.topology.pool_queue(POOL);
        assert_eq!(house.operator.depth(&queue).await, Ok(Some(3)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_loses_acks_and_nothing_else() {
    House::run(async |house| {
        let proxy = Proxy::start(&house.shutdown).await;
        let through = house.through(&proxy);
        let publisher = through.publisher().await;
        let mut consumer = through.consumer(2);
        publisher.publish(Destination::Tasks, &message()).await.expect("confirmed");
        let held = within(consumer.next()).await.expect("delivered");

        proxy.cut();
        within(consumer.is_connected().wait_for(|on| !*on)).await.expect("noticed");
        let settled = held.ack().await;
        let again = within(consumer.next()).await.expect("delivered again");

        assert_eq!(settled, Settled::Lost);
        assert!(again.redelivered());
        assert_eq!(again.ack().await, Settled::Sent);
        eventually(async || publisher.publish(Destination::Tasks, &message()).await.is_ok()).await;
        within(consumer.next()).await.expect("delivered").ack().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_without_a_connection_fails_within_a_second_and_says_why() {
    House::run(async |house| {
        let proxy = Proxy::start(&house.shutdown).await;
        let publisher = house.through(&proxy).publisher().await;

        proxy.close();
        let gone = |state: &State| matches!(state, State::Connecting { last_error: Some(_) });
        within(publisher.state().wait_for(gone)).await.expect("noticed");
        let begun = Instant::now();
        let batch: Vec<_> = (0..2000).map(|_| (Destination::Tasks, message())).collect();
        let answers = publisher.publish_many(&batch).await;

        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        for answer in answers {
            let closed = matches!(answer, Err(Error::Closed(_) | Error::Unreachable { .. }));
            assert!(closed, "{answer:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_deleted_under_its_consumer_is_declared_and_consumed_again() {
    House::run(async |house| {
        let publisher = house.publisher().await;
        let mut consumer = house.consumer(1);
        let connected = consumer.is_connected();
        within(connected.clone().wait_for(|on| *on)).await.expect("consuming");

        house.operator.delete_queue(&house.topology.pool_queue(POOL)).await.expect("deleted");
        within(connected.clone().wait_for(|on| !*on)).await.expect("noticed");
        eventually(async || publisher.publish(Destination::Tasks, &message()).await.is_ok()).await;

        within(consumer.next()).await.expect("delivered").ack().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topology_shows_what_is_missing_and_what_differs() {
    House::run(async |house| {
        let (operator, topology) = (&house.operator, &house.topology);
        let before = operator.diff(topology).await.expect("looked at");
        operator.declare(topology).await.expect("declared");
        operator.declare(topology).await.expect("declared twice changes nothing");
        let after = operator.diff(topology).await.expect("looked at");
        let shown = operator.show(topology).await.expect("looked at");

        assert_eq!(before.missing.len(), 2 * (3 + LADDER.len()));
        assert!(after.is_empty(), "{after:?}");
        assert!(shown.iter().all(|found| found.exists));
        assert_eq!(
            shown.iter().filter(|found| found.messages == Some(0)).count(),
            3 + LADDER.len()
        );

        // A pool named `dead` has the very queue that a topology one level down takes for its
        // dead letters, with other arguments.
        let outer = Topology::new(&house.settings.prefix, ["dead"]);
        let inner = Topology::new(topology.tasks(), Vec::<String>::new());
        operator.declare(&outer).await.expect("declared");
        let error = operator.declare(&inner).await.expect_err("differs");
        let diff = operator.diff(&inner).await.expect("looked at");
        operator.delete_all(&inner).await.expect("deleted");
        operator.delete_all(&outer).await.expect("deleted");

        assert!(matches!(&error, Error::TopologyConflict { name, .. } if *name == inner.dead()));
        assert!(error.to_string().contains("inequivalent arg"), "{error}");
        assert_eq!(diff.conflicting[0].0, inner.dead());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_pools_share_one_connection() {
    House::run(async |house| {
        let subscription = |queue: String| Subscription { queue, prefetch: 1, tag: "t".into() };
        let queues = [house.topology.pool_queue(POOL), house.topology.inbox()];
        let subscriptions = queues.map(subscription).into();
        let mut consumers =
            Consumers::start(&house.settings, &house.topology, subscriptions, &house.shutdown)
                .expect("a good URL");
        let publisher = house.publisher().await;

        publisher.publish(Destination::Tasks, &message()).await.expect("confirmed");
        let inbox = house.topology.inbox();
        let plain = Properties::default();
        publisher.publish_raw(&inbox, "", b"please", &plain).await.expect("confirmed");

        let asked = within(consumers[1].next()).await.expect("delivered");
        assert_eq!(asked.raw(), b"please");
        asked.ack().await;
        within(consumers[0].next()).await.expect("delivered").ack().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_cannot_be_is_an_error_that_says_what_to_do() {
    let url = amqp_url();
    let port = url.port().expect("a port");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port of our own");
    let silent_port = silent.local_addr().expect("bound").port();
    let closed_port = {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port of our own");
        taken.local_addr().expect("bound").port()
    };
    let cases = [
        (format!("amqp://belfry:s3cret@127.0.0.1:{port}/%2f"), vec!["refused", "password"]),
        (with_path(&url, "no-such-vhost"), vec!["no such vhost", "\"no-such-vhost\""]),
        (format!("amqp://u:s3cret@127.0.0.1:{closed_port}"), vec!["cannot be reached", "refused"]),
        (format!("amqp://u:s3cret@127.0.0.1:{silent_port}"), vec!["cannot be reached", "within"]),
        (format!("amqps://u:s3cret@127.0.0.1:{silent_port}"), vec!["cannot be reached"]),
        (format!("amqps://u:s3cret@127.0.0.1:{port}"), vec!["cannot be reached", "TLS"]),
        ("amqp://u:s3cret@no-such-host.invalid".to_owned(), vec!["the name is unknown"]),
        ("http://u:s3cret@127.0.0.1".to_owned(), vec!["cannot be used", "\"http\""]),
        ("s3cret".to_owned(), vec!["cannot be used", "amqp://user:password"]),
    ];

    let tries = cases.map(async |(url, expected)| {
        let begun = Instant::now();
        let settings = Settings::new(SecretString::from(url.clone()), "test", "test@here#1");
        let error = Operator::connect(&settings).await.expect_err(&url).to_string();
        assert!(begun.elapsed() < Duration::from_secs(10), "{error}: {:?}", begun.elapsed());
        for part in expected {
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
        assert!(!error.contains("s3cret"), "{error}");
    });
    join_all(tries).await;
}

fn with_path(url: &url::Url, path: &str) -> String {
    let mut url = url.clone();
    url.set_path(path);
    url.into()
}

/// Not in the ordinary run: it measures, and the machine must be quiet.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: cargo test --release -p shared --test broker -- --ignored --nocapture"]
async fn ten_thousand_messages_a_second_are_confirmed() {
    House::run(async |house| {
        let publisher = house.publisher().await;
        let batch: Vec<_> = (0..20_000).map(|_| (Destination::Tasks, message())).collect();

        let begun = Instant::now();
        let answers = publisher.publish_many(&batch).await;
        let rate = 20_000.0 / begun.elapsed().as_secs_f64();

        println!("{rate:.0} messages a second");
        assert!(answers.iter().all(Result::is_ok));
        assert!(rate > 10_000.0, "{rate:.0} messages a second");
    })
    .await;
}

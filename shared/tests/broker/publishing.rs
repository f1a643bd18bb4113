//! Confirmed, or an error that says why not.

use std::time::{Duration, Instant};

use shared::broker::{Destination, Error, PULSE_EVERY, Properties, SILENT_AFTER, Settled, State};
use shared::domain::delay::rung_for;
use shared::domain::outcome::{ErrorClass, Failure};

use crate::house::{House, POOL, message, within};
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

/// Its sockets stay open and nothing comes: AMQP's heartbeat would see it after half a minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_broker_shows_within_seconds_and_is_used_again_when_it_thaws() {
    House::run(async |house| {
        let proxy = Proxy::start(&house.shutdown).await;
        let publisher = house.through(&proxy).publisher().await;
        let readiness = publisher.readiness();
        assert!(readiness.now().0);

        proxy.freeze(true);
        let begun = Instant::now();
        let silent = |state: &State| *state == State::Silent;
        within(publisher.state().wait_for(silent)).await.expect("noticed");
        let noticed = begun.elapsed();
        let (ready, how) = readiness.now();
        proxy.freeze(false);
        within(publisher.state().wait_for(State::is_ready)).await.expect("it answers");

        assert!(!ready && how.contains("does not answer"), "{how}");
        assert!(noticed < SILENT_AFTER + PULSE_EVERY * 4, "{noticed:?}");
        assert_eq!(publisher.publish(Destination::Tasks, &message()).await, Ok(()));
    })
    .await;
}

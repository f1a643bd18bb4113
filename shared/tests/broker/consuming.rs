//! Deliveries are settled once, and come back when they were not.

use futures::future::join_all;
use shared::broker::{Consumers, Delivery, Destination, Header, Properties, Settled, Subscription};
use shared::domain::message::BodyError;

use crate::house::{House, POOL, eventually, message, within};
use crate::proxy::Proxy;

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
        publisher
            .publish_unreadable(b"\xff", "no\nJSON", "io_pool.x", Some(3))
            .await
            .expect("confirmed");
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
        // The count follows the confirm after a moment.
        eventually(async || publisher.ready_count(POOL).await == Ok(Some(1))).await;
        consumer.resume();

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

//! Connecting, and what must exist on the broker.

use std::time::{Duration, Instant};

use futures::future::join_all;
use secrecy::SecretString;
use shared::broker::{Error, Operator, Settings, Topology};
use shared::domain::delay::LADDER;

use crate::house::{House, amqp_url};

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

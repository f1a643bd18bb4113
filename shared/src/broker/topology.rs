//! The names on the broker: every exchange, queue, binding and argument, as one value.
//!
//! Arguments of a queue can never be changed, so they are the least that carries the promises;
//! other limits belong in policies. It never talks to a broker: [`super::Operator`] and the
//! connections do.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::domain::delay::{LADDER, Rung};

/// Deliveries after which the broker gives a message up (`x-delivery-limit`).
///
/// The default of 20 would kill messages by looking at them in the UI, each look counts, and
/// charge the innocent neighbours of a crash. Crashes are counted in Postgres.
pub const DELIVERY_LIMIT: i32 = 1000;

/// How an exchange routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeKind {
    /// By pattern of the routing key.
    Topic,
    /// To everything bound, so that the original routing key survives the hop.
    Fanout,
}

impl ExchangeKind {
    /// The name in AMQP.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Fanout => "fanout",
        }
    }
}

/// An exchange; all are durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Full name.
    pub name: String,
    /// How it routes.
    pub kind: ExchangeKind,
}

/// A queue's argument.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(untagged)]
pub enum Argument {
    /// A text.
    Text(String),
    /// A number.
    Number(i32),
}

impl From<&str> for Argument {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A queue with its one binding; all are durable quorum queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Full name.
    pub name: String,
    /// The exchange it is bound to.
    pub exchange: String,
    /// The binding's routing key.
    pub key: String,
    /// `x-…` arguments.
    pub arguments: BTreeMap<&'static str, Argument>,
}

/// Everything that must be there, derived from the prefix and the pools' names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    prefix: String,
    pools: Vec<String>,
}

impl Topology {
    /// For a prefix (`belfry`) and the pools in use.
    pub fn new<P: Into<String>>(
        prefix: impl Into<String>,
        pools: impl IntoIterator<Item = P>,
    ) -> Self {
        Self { prefix: prefix.into(), pools: pools.into_iter().map(Into::into).collect() }
    }

    /// The pools it has queues for.
    pub fn pools(&self) -> &[String] {
        &self.pools
    }

    /// The exchange of all work, new and retried. Topic, key `<pool>.<task_type>`.
    pub fn tasks(&self) -> String {
        format!("{}.tasks", self.prefix)
    }

    /// The queue of a pool.
    pub fn pool_queue(&self, pool: &str) -> String {
        format!("{}.tasks.{pool}", self.prefix)
    }

    /// Exchange and queue of a rung of the delay ladder.
    pub fn retry(&self, rung: Rung) -> String {
        format!("{}.retry.{}", self.prefix, rung.label)
    }

    /// Exchange and queue of dead letters.
    pub fn dead(&self) -> String {
        format!("{}.dead", self.prefix)
    }

    /// Exchange and queue of requests from any AMQP client.
    pub fn inbox(&self) -> String {
        format!("{}.inbox", self.prefix)
    }

    /// Every exchange. A queue dead-letters only to what is declared before it.
    pub fn exchanges(&self) -> Vec<Exchange> {
        let fixed = [
            (self.dead(), ExchangeKind::Topic),
            (self.tasks(), ExchangeKind::Topic),
            (self.inbox(), ExchangeKind::Fanout),
        ];
        let rungs = LADDER.iter().map(|&rung| (self.retry(rung), ExchangeKind::Fanout));
        fixed.into_iter().chain(rungs).map(|(name, kind)| Exchange { name, kind }).collect()
    }

    /// Every queue, in the order of declaration: dead letters first, because at-least-once
    /// dead-lettering holds messages back while its target is missing.
    pub fn queues(&self) -> Vec<Queue> {
        let dead = Queue {
            name: self.dead(),
            exchange: self.dead(),
            key: "#".to_owned(),
            arguments: quorum(),
        };
        let inbox = Queue {
            name: self.inbox(),
            exchange: self.inbox(),
            key: String::new(),
            arguments: dead_lettering_to(&self.dead()),
        };
        let pools = self.pools.iter().map(|pool| Queue {
            name: self.pool_queue(pool),
            exchange: self.tasks(),
            key: format!("{pool}.#"),
            arguments: dead_lettering_to(&self.dead()),
        });
        let rungs = LADDER.iter().map(|&rung| Queue {
            name: self.retry(rung),
            exchange: self.retry(rung),
            key: String::new(),
            arguments: expiring(dead_lettering_to(&self.tasks()), rung),
        });
        [dead].into_iter().chain(pools).chain(rungs).chain([inbox]).collect()
    }

    /// The same as a definitions file, for `load_definitions` or the UI's import.
    pub fn export(&self, vhost: &str) -> Value {
        let exchanges = self.exchanges().into_iter().map(|exchange| {
            json!({
                "name": exchange.name, "vhost": vhost, "type": exchange.kind.as_str(),
                "durable": true, "auto_delete": false, "internal": false, "arguments": {},
            })
        });
        let queues = self.queues().into_iter().map(|queue| {
            json!({
                "name": queue.name, "vhost": vhost, "durable": true, "auto_delete": false,
                "arguments": queue.arguments,
            })
        });
        let bindings = self.queues().into_iter().map(|queue| {
            json!({
                "source": queue.exchange, "vhost": vhost, "destination": queue.name,
                "destination_type": "queue", "routing_key": queue.key, "arguments": {},
            })
        });
        json!({
            "exchanges": exchanges.collect::<Vec<_>>(),
            "queues": queues.collect::<Vec<_>>(),
            "bindings": bindings.collect::<Vec<_>>(),
        })
    }
}

fn quorum() -> BTreeMap<&'static str, Argument> {
    BTreeMap::from([
        ("x-queue-type", "quorum".into()),
        ("x-delivery-limit", Argument::Number(DELIVERY_LIMIT)),
    ])
}

/// Without `reject-publish`, at-least-once silently becomes at-most-once.
fn dead_lettering_to(exchange: &str) -> BTreeMap<&'static str, Argument> {
    let mut arguments = quorum();
    arguments.extend([
        ("x-dead-letter-exchange", exchange.into()),
        ("x-dead-letter-strategy", "at-least-once".into()),
        ("x-overflow", "reject-publish".into()),
    ]);
    arguments
}

fn expiring(
    mut arguments: BTreeMap<&'static str, Argument>,
    rung: Rung,
) -> BTreeMap<&'static str, Argument> {
    let millis = i32::try_from(rung.ttl.as_millis()).unwrap_or(i32::MAX);
    arguments.insert("x-message-ttl", Argument::Number(millis));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology() -> Topology {
        Topology::new("belfry", ["io_pool", "cpu_pool"])
    }

    #[track_caller]
    fn check(queue: &str, expected: &str) {
        let queues = topology().queues();
        let queue = queues.iter().find(|found| found.name == queue).expect("such a queue");
        let arguments = serde_json::to_string(&queue.arguments).expect("JSON");
        let seen = format!("{} {:?} {arguments}", queue.exchange, queue.key);
        assert_eq!(seen, expected);
    }

    #[test]
    fn every_queue_has_its_binding_and_the_least_arguments() {
        check(
            "belfry.dead",
            r##"belfry.dead "#" {"x-delivery-limit":1000,"x-queue-type":"quorum"}"##,
        );
        check(
            "belfry.tasks.io_pool",
            r#"belfry.tasks "io_pool.#" {"x-dead-letter-exchange":"belfry.dead","x-dead-letter-strategy":"at-least-once","x-delivery-limit":1000,"x-overflow":"reject-publish","x-queue-type":"quorum"}"#,
        );
        check(
            "belfry.retry.32m",
            r#"belfry.retry.32m "" {"x-dead-letter-exchange":"belfry.tasks","x-dead-letter-strategy":"at-least-once","x-delivery-limit":1000,"x-message-ttl":1920000,"x-overflow":"reject-publish","x-queue-type":"quorum"}"#,
        );
        check(
            "belfry.inbox",
            r#"belfry.inbox "" {"x-dead-letter-exchange":"belfry.dead","x-dead-letter-strategy":"at-least-once","x-delivery-limit":1000,"x-overflow":"reject-publish","x-queue-type":"quorum"}"#,
        );
    }

    #[test]
    fn dead_letters_have_a_home_before_anything_can_die() {
        assert_eq!(topology().exchanges()[0].name, "belfry.dead");
        assert_eq!(topology().queues()[0].name, "belfry.dead");
    }

    #[test]
    fn the_export_is_whole() {
        let export = topology().export("jobs");
        let count = |part: &str| export[part].as_array().map(Vec::len);
        assert_eq!(count("exchanges"), Some(3 + LADDER.len()));
        assert_eq!(count("queues"), Some(4 + LADDER.len()));
        assert_eq!(count("bindings"), Some(4 + LADDER.len()));
        assert_eq!(export["bindings"][1]["routing_key"], "io_pool.#");
        assert_eq!(export["queues"][0]["vhost"], "jobs");
    }
}

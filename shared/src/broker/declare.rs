//! The topology on a broker: looked at, declared, compared, deleted.
//!
//! Each look or declaration has a channel of its own, because the broker answers a missing or
//! differing thing by closing the channel. It never changes or deletes what exists on its own
//! accord: a queue's arguments are a matter for a person.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use lapin::options::{
    ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions,
    QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Result as Answer};
use serde::Serialize;

use super::connection::{Link, Settings};
use super::error::{Error, is_conflict, is_missing, text};
use super::topology::{Argument, Exchange, ExchangeKind, Queue, Topology};

/// Longest wait for the answer to one declaration, look or deletion.
pub const DECLARE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// Looks at once; each takes a channel, and a topology has some fifty things.
const AT_ONCE: usize = 8;

/// AMQP's short string, of which all names are made.
pub(super) const SHORT_STRING: usize = 255;

/// An exchange or a queue as found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// `exchange` or `queue`.
    pub kind: &'static str,
    /// Whether it is there.
    pub exists: bool,
    /// Messages ready to be delivered, of a queue that exists.
    pub messages: Option<u32>,
    /// Consumers, of a queue that exists.
    pub consumers: Option<u32>,
}

/// How the broker differs from the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Exchanges and queues that do not exist.
    pub missing: Vec<String>,
    /// Name and the broker's words about the difference.
    pub conflicting: Vec<(String, String)>,
    /// Name and why it could not be compared.
    pub unchecked: Vec<(String, String)>,
}

impl Diff {
    /// True when everything is as it should be, as far as the broker tells.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.conflicting.is_empty() && self.unchecked.is_empty()
    }
}

/// A connection for looking at the topology and setting it up, and for walking a queue: `producer
/// topology`, `doctor`, the mirror of dead letters, tests.
#[derive(Debug)]
pub struct Operator(Link);

impl Operator {
    /// Connects.
    pub async fn connect(settings: &Settings) -> Result<Self, Error> {
        Ok(Self(Link::open(settings, "topology").await?))
    }

    /// Declares everything; what exists with other properties ends it with
    /// [`Error::TopologyConflict`].
    pub async fn declare(&self, topology: &Topology) -> Result<(), Error> {
        for thing in things(topology) {
            declare(&self.0, &thing).await?;
        }
        bind_all(&self.0, topology).await
    }

    /// What exists, and how much waits in it. Nothing is changed.
    pub async fn show(&self, topology: &Topology) -> Result<Vec<Found>, Error> {
        look_at_all(&self.0, topology).await
    }

    /// What is missing or differs. AMQP compares only by declaring again, which changes nothing;
    /// bindings cannot be looked at and are not compared.
    pub async fn diff(&self, topology: &Topology) -> Result<Diff, Error> {
        let mut diff = Diff::default();
        let found = look_at_all(&self.0, topology).await?;
        for (thing, found) in things(topology).iter().zip(found) {
            if !found.exists {
                diff.missing.push(found.name);
                continue;
            }
            match declare(&self.0, thing).await {
                Ok(()) => (),
                Err(Error::TopologyConflict { name, difference }) => {
                    diff.conflicting.push((name, difference));
                }
                Err(Error::Refused { cause, .. }) => diff.unchecked.push((found.name, cause)),
                Err(other) => return Err(other),
            }
        }
        Ok(diff)
    }

    /// Messages ready in a queue; `None` when it does not exist.
    pub async fn depth(&self, queue: &str) -> Result<Option<u32>, Error> {
        depth(&self.0, queue).await
    }

    /// Deletes every queue and exchange of the topology, with what is in them. For tests, whose
    /// prefix is their own, and for taking an installation down.
    pub async fn delete_all(&self, topology: &Topology) -> Result<(), Error> {
        for queue in topology.queues() {
            delete_queue(&self.0, &queue.name).await?;
        }
        for exchange in topology.exchanges() {
            let name = short("the exchange's name", &exchange.name)?;
            let channel = self.0.channel().await?;
            let deleting = channel.exchange_delete(name, ExchangeDeleteOptions::default());
            done(&self.0, "deleting an exchange", deleting).await?;
        }
        Ok(())
    }

    /// Deletes one queue, with what is in it.
    pub async fn delete_queue(&self, queue: &str) -> Result<(), Error> {
        delete_queue(&self.0, queue).await
    }

    pub(super) fn link(&self) -> &Link {
        &self.0
    }

    /// Says goodbye.
    pub async fn close(self) {
        self.0.close().await;
    }
}

/// Looks at the topology on a fresh connection and declares what is missing.
///
/// [`Error::TopologyMissing`] when this user may not: the caller waits and tries again.
pub(super) async fn ensure(link: &Link, topology: &Topology) -> Result<(), Error> {
    let found = look_at_all(link, topology).await?;
    let pairs = things(topology).into_iter().zip(found);
    let missing: Vec<Thing> =
        pairs.filter(|(_, found)| !found.exists).map(|(thing, _)| thing).collect();
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().map(|thing| thing.name().to_owned()).collect();
        tracing::info!(missing = names.len(), first = names[0], "declaring the missing topology");
        for thing in &missing {
            declare(link, thing).await.map_err(|error| match error {
                Error::Refused { address, cause } => {
                    Error::TopologyMissing { address, missing: names.clone(), cause }
                }
                other => other,
            })?;
        }
    }
    match bind_all(link, topology).await {
        // A user who may only publish and consume cannot bind; `mandatory` tells if one is gone.
        Err(Error::Refused { cause, .. }) => {
            tracing::debug!(%cause, "bindings are left as they are");
            Ok(())
        }
        other => other,
    }
}

/// Messages ready in a queue; `None` when it does not exist.
pub(super) async fn depth(link: &Link, queue: &str) -> Result<Option<u32>, Error> {
    let channel = link.channel().await?;
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let name = short("the queue's name", queue)?;
    let looking = channel.queue_declare(name, passive, FieldTable::default());
    match link.within(DECLARE_TIMEOUT, "looking at a queue", looking).await? {
        Ok(found) => Ok(Some(found.message_count())),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(Error::of_channel(&error, link.address())),
    }
}

enum Thing {
    Exchange(Exchange),
    Queue(Queue),
}

impl Thing {
    fn name(&self) -> &str {
        match self {
            Self::Exchange(exchange) => &exchange.name,
            Self::Queue(queue) => &queue.name,
        }
    }
}

/// In the order of declaration.
fn things(topology: &Topology) -> Vec<Thing> {
    let exchanges = topology.exchanges().into_iter().map(Thing::Exchange);
    exchanges.chain(topology.queues().into_iter().map(Thing::Queue)).collect()
}

async fn look_at_all(link: &Link, topology: &Topology) -> Result<Vec<Found>, Error> {
    let looks = things(topology).into_iter().map(|thing| look(link, thing));
    stream::iter(looks).buffered(AT_ONCE).try_collect().await
}

async fn look(link: &Link, thing: Thing) -> Result<Found, Error> {
    let name = short("a name of the topology", thing.name())?;
    let channel = link.channel().await?;
    let answer = link
        .within(DECLARE_TIMEOUT, "looking at the topology", async {
            match &thing {
                Thing::Exchange(exchange) => {
                    let passive = ExchangeDeclareOptions { passive: true, ..durable_exchange() };
                    declare_exchange(&channel, exchange, name, passive).await.map(|()| None)
                }
                Thing::Queue(_) => {
                    let passive =
                        QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
                    channel.queue_declare(name, passive, FieldTable::default()).await.map(Some)
                }
            }
        })
        .await?;
    let (exists, queue) = match answer {
        Ok(queue) => (true, queue),
        Err(error) if is_missing(&error) => (false, None),
        Err(error) => return Err(Error::of_channel(&error, link.address())),
    };
    Ok(Found {
        name: thing.name().to_owned(),
        kind: if matches!(thing, Thing::Exchange(_)) { "exchange" } else { "queue" },
        exists,
        messages: queue.as_ref().map(lapin::Queue::message_count),
        consumers: queue.as_ref().map(lapin::Queue::consumer_count),
    })
}

async fn declare(link: &Link, thing: &Thing) -> Result<(), Error> {
    let name = short("a name of the topology", thing.name())?;
    let channel = link.channel().await?;
    let answer = link
        .within(DECLARE_TIMEOUT, "declaring the topology", async {
            match thing {
                Thing::Exchange(exchange) => {
                    declare_exchange(&channel, exchange, name, durable_exchange()).await
                }
                Thing::Queue(queue) => {
                    let arguments = arguments(queue);
                    let options = QueueDeclareOptions::durable();
                    channel.queue_declare(name, options, arguments).await.map(|_| ())
                }
            }
        })
        .await?;
    answer.map_err(|error| {
        if is_conflict(&error) {
            let difference = text(&error);
            return Error::TopologyConflict { name: thing.name().to_owned(), difference };
        }
        Error::of_channel(&error, link.address())
    })
}

async fn bind_all(link: &Link, topology: &Topology) -> Result<(), Error> {
    let channel = link.channel().await?;
    for queue in topology.queues() {
        let binding = channel.queue_bind(
            short("the queue's name", &queue.name)?,
            short("the exchange's name", &queue.exchange)?,
            short("the binding's key", &queue.key)?,
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        done(link, "binding a queue", binding).await?;
    }
    Ok(())
}

async fn delete_queue(link: &Link, queue: &str) -> Result<(), Error> {
    let channel = link.channel().await?;
    let name = short("the queue's name", queue)?;
    let deleting = channel.queue_delete(name, QueueDeleteOptions::default());
    done(link, "deleting a queue", deleting).await.map(|_| ())
}

async fn done<T>(
    link: &Link,
    what: &str,
    answer: impl Future<Output = Answer<T>>,
) -> Result<T, Error> {
    link.within(DECLARE_TIMEOUT, what, answer)
        .await?
        .map_err(|error| Error::of_channel(&error, link.address()))
}

async fn declare_exchange(
    channel: &Channel,
    exchange: &Exchange,
    name: ShortString,
    options: ExchangeDeclareOptions,
) -> Answer<()> {
    let kind = match exchange.kind {
        ExchangeKind::Topic => lapin::ExchangeKind::Topic,
        ExchangeKind::Fanout => lapin::ExchangeKind::Fanout,
    };
    channel.exchange_declare(name, kind, options, FieldTable::default()).await
}

fn durable_exchange() -> ExchangeDeclareOptions {
    ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() }
}

fn arguments(queue: &Queue) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, argument) in &queue.arguments {
        let value = match argument {
            Argument::Text(text) => AMQPValue::LongString(text.as_str().into()),
            Argument::Number(number) => AMQPValue::LongInt(*number),
        };
        table.insert((*name).into(), value);
    }
    table
}

/// A text as AMQP's short string. lapin panics where one is too long.
pub(super) fn short(what: &str, text: &str) -> Result<ShortString, Error> {
    ShortString::try_new(text).map_err(|_| Error::TooLong {
        what: what.to_owned(),
        bytes: text.len(),
        most: SHORT_STRING,
    })
}

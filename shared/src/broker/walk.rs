//! One pass over a queue of dead letters that leaves it with what should be there.
//!
//! A message that stays is published anew at the end and then acked; one that goes is acked. Never
//! requeued: that counts towards the delivery limit and puts it in front of us again. A crash
//! between the confirm and the ack leaves a second copy, never none.

use futures::future::join_all;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicGetOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Confirmation};

use super::connection::Link;
use super::declare::{DECLARE_TIMEOUT, Operator, depth, short};
use super::error::{Error, is_missing};
use super::headers::{self, Death};
use super::publish::{CONFIRM_TIMEOUT, Content, confirming, publish};

/// Messages in hand at once. Each get is a consumer of its own to a quorum queue and each ack a
/// command; beyond 32 commands in flight (`quorum_commands_soft_limit`) the broker's channel stashes
/// them, and forgets them when it closes: measured on 3.10.8, 67 of 100 came back.
pub const IN_HAND: usize = 25;

/// Bytes in hand at which no more is taken: those that stay are held a second time while they are
/// published.
pub const BYTES_IN_HAND: usize = 16 * 1024 * 1024;
/// A message in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    /// Header `dead-letter`.
    pub letter: Option<i64>,
    /// Why the broker itself has moved it here, if it has.
    pub death: Option<Death>,
    /// The body.
    pub body: Vec<u8>,
}

/// What becomes of a message in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays as it is.
    Stays,
    /// It stays, as the copy of this letter.
    Becomes(i64),
    /// It leaves the queue.
    Goes,
}

/// A walk from the front of a queue to what was its end when the walk began. Dropped half-way, what
/// it holds returns to the queue.
#[derive(Debug)]
pub struct Walk<'a> {
    link: &'a Link,
    getting: Channel,
    publishing: Channel,
    queue: ShortString,
    exchange: ShortString,
    left: u32,
    met: Vec<Delivery>,
}

impl Operator {
    /// Begins a walk over a queue; what stays is published to `exchange`, which must lead back.
    pub async fn walk(&self, queue: &str, exchange: &str) -> Result<Walk<'_>, Error> {
        let link = self.link();
        Ok(Walk {
            left: depth(link, queue).await?.unwrap_or(0),
            getting: link.channel().await?,
            publishing: confirming(link).await?,
            queue: short("the queue's name", queue)?,
            exchange: short("the exchange's name", exchange)?,
            met: Vec::new(),
            link,
        })
    }
}

impl Walk<'_> {
    /// Takes the next messages in hand, to be [passed](Self::pass). None at the end.
    pub async fn next(&mut self) -> Result<Vec<Met>, Error> {
        let mut bytes = 0;
        while self.met.len() < IN_HAND && bytes < BYTES_IN_HAND && self.left > 0 {
            let getting = self.getting.basic_get(self.queue.clone(), BasicGetOptions::default());
            let answer = self.link.within(DECLARE_TIMEOUT, "getting a message", getting).await?;
            let Some(message) = answer.map_err(|error| self.error(&error))? else {
                // Somebody else has taken the rest.
                self.left = 0;
                break;
            };
            self.left -= 1;
            bytes += message.delivery.data.len();
            self.met.push(message.delivery);
        }
        let seen = |met: &Delivery| Met {
            letter: headers::number(&met.properties, "dead-letter"),
            death: headers::last_death(&met.properties),
            body: met.data.clone(),
        };
        Ok(self.met.iter().map(seen).collect())
    }

    /// Lets what is in hand stay in the queue or go, each as said.
    pub async fn pass(&mut self, fates: &[Fate]) -> Result<(), Error> {
        let met = std::mem::take(&mut self.met);
        self.publish(met.iter().zip(fates)).await?;
        let Some(last) = met.last() else { return Ok(()) };
        let acking = last.acker.ack(BasicAckOptions { multiple: true });
        let acked = self.link.within(DECLARE_TIMEOUT, "acking copies", acking).await?;
        acked.map(drop).map_err(|error| self.error(&error))
    }

    async fn publish<'m>(
        &self,
        met: impl Iterator<Item = (&'m Delivery, &'m Fate)>,
    ) -> Result<(), Error> {
        let publishing = met.filter_map(|(met, fate)| {
            let properties = match fate {
                Fate::Goes => return None,
                Fate::Stays => headers::of_kept(&met.properties),
                Fate::Becomes(letter) => headers::of_letter(&met.properties, *letter),
            };
            let content = Content {
                exchange: self.exchange.clone(),
                routing_key: met.routing_key.clone(),
                body: met.data.clone(),
                properties,
            };
            Some(publish(self.publishing.clone(), Box::new(content)))
        });
        let confirms = join_all(publishing);
        let confirms = self.link.within(CONFIRM_TIMEOUT, "confirming copies", confirms).await?;
        for confirm in confirms {
            match confirm.map_err(|error| self.error(&error))? {
                Confirmation::Ack(None) => {}
                // Perhaps another's; no queue took it, and so none of them.
                Confirmation::Ack(Some(returned)) => {
                    return Err(Error::Unroutable {
                        exchange: self.exchange.to_string(),
                        routing_key: returned.delivery.routing_key.to_string(),
                    });
                }
                Confirmation::Nack(_) | Confirmation::NotRequested => {
                    return Err(Error::Nacked { exchange: self.exchange.to_string() });
                }
            }
        }
        Ok(())
    }

    /// Waits until the broker has read every ack: an answer on their channel comes after them.
    pub async fn finish(self) -> Result<(), Error> {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let asking = self.getting.queue_declare(self.queue.clone(), passive, FieldTable::default());
        match self.link.within(DECLARE_TIMEOUT, "ending a walk", asking).await? {
            Ok(_) => Ok(()),
            // Somebody has deleted it, and with it what was to be acked.
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(self.error(&error)),
        }
    }

    fn error(&self, error: &lapin::Error) -> Error {
        Error::of_channel(error, self.link.address())
    }
}

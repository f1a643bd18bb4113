//! What can go wrong with the broker, in the variants that a caller branches on.
//!
//! Messages name host, port and vhost and say what to do. They never hold credentials: they are
//! built from the parsed address, not from the URL.

use std::fmt;
use std::time::Duration;

use lapin::ErrorKind;
use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};

/// Where the broker is, without the user and the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Host name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Virtual host.
    pub vhost: String,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RabbitMQ at {}:{} (vhost {:?})", self.host, self.port, self.vhost)
    }
}

/// A failure of this room. Cloneable, so that one lost connection answers many publishes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configured URL is none.
    #[error(
        "the RabbitMQ URL cannot be used: {0}; it is amqp://user:password@host:5672/vhost or \
         amqps://… (storage.rabbitmq.url, else AMQP_URL)"
    )]
    BadUrl(String),
    /// Nobody answers at the address, or not with AMQP.
    #[error(
        "RabbitMQ at {host}:{port} cannot be reached: {cause}; check that it runs and that host \
         and port are right"
    )]
    Unreachable {
        /// Host of the URL.
        host: String,
        /// Port of the URL.
        port: u16,
        /// What the system or the broker said.
        cause: String,
    },
    /// The broker knows us not, or does not let us.
    #[error("{address} refused: {cause}; check user, password and the user's permissions")]
    Refused {
        /// Which broker.
        address: Address,
        /// The broker's text.
        cause: String,
    },
    /// The vhost of the URL does not exist, or is closed to this user.
    #[error(
        "{address} has no such vhost, or not for this user; create it or correct the path of the \
         URL (`/` is written %2f)"
    )]
    NoVhost {
        /// Which broker.
        address: Address,
    },
    /// No answer in time.
    #[error("{address} did not answer within {after:?}: {what}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// Which broker.
        address: Address,
        /// For how long.
        after: Duration,
    },
    /// No queue takes the message: its exchange has no binding for the routing key.
    #[error(
        "no queue takes {routing_key:?} from exchange {exchange:?}; declare the topology, with \
         every pool that is in use"
    )]
    Unroutable {
        /// Where it was published.
        exchange: String,
        /// With which key.
        routing_key: String,
    },
    /// The broker did not take the message: the queue is full or could not write.
    #[error(
        "RabbitMQ did not accept the message for exchange {exchange:?}; the queue is full or failing"
    )]
    Nacked {
        /// Where it was published.
        exchange: String,
    },
    /// The connection or channel went while we used it; whether the broker acted is unknown.
    #[error("the connection to RabbitMQ closed: {0}")]
    Closed(String),
    /// Exchanges or queues are missing and could not be declared.
    #[error(
        "{address} lacks {}, and they could not be declared: {cause}; run `producer topology \
         declare` as a user who may configure",
        list(missing)
    )]
    TopologyMissing {
        /// Which broker.
        address: Address,
        /// Their names.
        missing: Vec<String>,
        /// The broker's text.
        cause: String,
    },
    /// Something of that name exists with other properties.
    #[error(
        "{name:?} exists with other properties: {difference}; a queue's arguments never change, \
         so empty and delete it, then run `producer topology declare`"
    )]
    TopologyConflict {
        /// Exchange or queue.
        name: String,
        /// The broker's text.
        difference: String,
    },
    /// The message or name breaks a limit of AMQP; sending it again cannot help.
    #[error("{what} has {bytes} bytes; AMQP carries at most {most}")]
    TooLong {
        /// What is too long.
        what: String,
        /// Its length.
        bytes: usize,
        /// The limit.
        most: usize,
    },
}

fn list(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = names.iter().take(SHOWN).map(|name| format!("{name:?}"));
    let text = shown.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// The broker's own words, when it is the broker that spoke.
pub(super) fn protocol_error(error: &lapin::Error) -> Option<&AMQPError> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some(error),
        _ => None,
    }
}

fn has(error: &lapin::Error, wanted: &AMQPErrorKind) -> bool {
    protocol_error(error).is_some_and(|error| error.kind() == wanted)
}

/// 404: the exchange or queue is not there.
pub(super) fn is_missing(error: &lapin::Error) -> bool {
    has(error, &AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND))
}

/// 406: it is there with other properties.
pub(super) fn is_conflict(error: &lapin::Error) -> bool {
    has(error, &AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED))
}

/// 403: the user may not.
pub(super) fn is_refused(error: &lapin::Error) -> bool {
    has(error, &AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED))
}

/// The broker's text, or lapin's.
pub(super) fn text(error: &lapin::Error) -> String {
    protocol_error(error).map_or_else(|| error.to_string(), |error| error.get_message().to_string())
}

impl Error {
    /// A word of a small set, for spans and metrics (`error.type`).
    pub fn kind(&self) -> &'static str {
        match self {
            Self::BadUrl(_) => "amqp:bad_url",
            Self::Unreachable { .. } => "amqp:unreachable",
            Self::Refused { .. } => "amqp:refused",
            Self::NoVhost { .. } => "amqp:no_vhost",
            Self::Timeout { .. } => "confirm_timeout",
            Self::Unroutable { .. } => "amqp:returned",
            Self::Nacked { .. } => "amqp:nack",
            Self::Closed(_) => "connection_closed",
            Self::TopologyMissing { .. } => "amqp:topology_missing",
            Self::TopologyConflict { .. } => "amqp:topology_conflict",
            Self::TooLong { .. } => "amqp:too_long",
        }
    }

    /// An error of the handshake.
    pub(super) fn of_connect(error: &lapin::Error, address: &Address) -> Self {
        let vhost_is_closed = has(error, &AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED))
            // RabbitMQ answers the same code when a limit of the vhost or of the user is reached.
            && !text(error).contains("limit");
        if vhost_is_closed {
            return Self::NoVhost { address: address.clone() };
        }
        if protocol_error(error).is_some() {
            return Self::Refused { address: address.clone(), cause: text(error) };
        }
        let cause = match error.kind() {
            ErrorKind::IOError(io) => io.to_string(),
            _ => error.to_string(),
        };
        Self::unreachable(address, cause)
    }

    pub(super) fn unreachable(address: &Address, cause: impl Into<String>) -> Self {
        Self::Unreachable { host: address.host.clone(), port: address.port, cause: cause.into() }
    }

    /// An error of anything that is done on a channel.
    pub(super) fn of_channel(error: &lapin::Error, address: &Address) -> Self {
        if is_refused(error) {
            return Self::Refused { address: address.clone(), cause: text(error) };
        }
        Self::Closed(text(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        Address { host: "mq.example".into(), port: 5671, vhost: "jobs".into() }
    }

    fn said(kind: impl Into<AMQPErrorKind>, text: &str) -> lapin::Error {
        ErrorKind::ProtocolError(AMQPError::new(kind.into(), text.into())).into()
    }

    #[track_caller]
    fn check(error: &lapin::Error, expected: &[&str]) {
        let message = Error::of_connect(error, &address()).to_string();
        for part in expected {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
    }

    #[test]
    fn a_failed_handshake_says_what_to_correct() {
        let refused = said(AMQPSoftError::ACCESSREFUSED, "ACCESS_REFUSED - Login was refused");
        check(&refused, &["mq.example:5671", "\"jobs\"", "Login was refused", "password"]);
        let no_vhost = said(AMQPHardError::NOTALLOWED, "NOT_ALLOWED - vhost jobs not found");
        check(&no_vhost, &["\"jobs\"", "no such vhost", "%2f"]);
        let full = said(AMQPHardError::NOTALLOWED, "NOT_ALLOWED - connection limit (5) is reached");
        check(&full, &["refused", "connection limit (5)"]);
        let closed = std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into();
        check(&closed, &["mq.example:5671 cannot be reached", "connection refused"]);
    }

    #[test]
    fn many_missing_names_are_counted() {
        let names = ["a", "b", "c", "d", "e"].map(str::to_owned);
        assert_eq!(list(&names[..2]), r#""a", "b""#);
        assert_eq!(list(&names), r#""a", "b", "c" and 2 more"#);
    }
}

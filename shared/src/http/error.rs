//! What can go wrong with a call, by what the caller may do next.
//!
//! The question behind every variant is whether the other side may have acted: only then is a
//! repeated call a second effect. Messages name host and port, never a path, query or header value.

use std::error::Error as StdError;
use std::net::IpAddr;

use url::Url;

use crate::domain::outcome::{ErrorClass, Failure, TaskError};

/// As much of a path is shown.
const SHOWN_PATH: usize = 200;

/// A target that the network guard refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "ssrf_blocked: the network guard refuses {target} ({why}); if payloads may call it, add it to \
     http.allow_hosts"
)]
pub struct Blocked {
    /// Host or host:port as asked for.
    pub target: String,
    /// Why.
    pub why: String,
}

impl Blocked {
    /// Refused because of an address.
    pub(super) fn address(target: impl Into<String>, address: IpAddr) -> Self {
        let target = target.into();
        let why = format!("{address} is not a public address");
        Self { target, why }
    }
}

/// A name without an address.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct Unresolved {
    pub why: String,
}

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client itself could not be built.
    #[error("cannot set up HTTP: {0}; are CA certificates installed?")]
    Setup(String),
    /// The URL cannot be called.
    #[error("{0}")]
    Url(String),
    /// A header may not be sent.
    #[error("header {name:?} {why}")]
    Header {
        /// Its name.
        name: String,
        /// Why; the value is never shown.
        why: &'static str,
    },
    /// The network guard refuses the target.
    #[error(transparent)]
    Blocked(#[from] Blocked),
    /// The name has no address.
    #[error("cannot resolve {target}: {why}; check the host name and DNS")]
    Resolve {
        /// host:port.
        target: String,
        /// What the resolver said.
        why: String,
    },
    /// No connection: refused, unreachable, or no TLS.
    #[error("cannot connect to {target}: {why}")]
    Connect {
        /// host:port.
        target: String,
        /// What the system or TLS said.
        why: String,
    },
    /// Too late.
    #[error("{target} did not answer in time")]
    Timeout {
        /// host:port.
        target: String,
        /// The request may have arrived.
        sent: bool,
    },
    /// The connection ended before the answer did.
    #[error("the connection to {target} was lost: {why}")]
    Lost {
        /// host:port.
        target: String,
        /// What was seen.
        why: String,
    },
    /// A redirect that is not followed.
    #[error("{target} cannot be followed: {why}")]
    Redirect {
        /// host:port.
        target: String,
        /// Why.
        why: String,
    },
    /// The answer is longer than allowed, after decompression.
    #[error("the answer of {target} is longer than {limit} bytes")]
    TooLarge {
        /// host:port.
        target: String,
        /// The limit.
        limit: usize,
    },
    /// The answer cannot be read.
    #[error("the answer of {target} cannot be read: {why}")]
    Malformed {
        /// host:port.
        target: String,
        /// What was wrong.
        why: String,
    },
}

impl Error {
    /// True when the other side may have received the request. False is certain.
    pub fn sent(&self) -> bool {
        match self {
            Self::Setup(_)
            | Self::Url(_)
            | Self::Header { .. }
            | Self::Blocked(_)
            | Self::Resolve { .. }
            | Self::Connect { .. } => false,
            Self::Timeout { sent, .. } => *sent,
            Self::Lost { .. }
            | Self::Redirect { .. }
            | Self::TooLarge { .. }
            | Self::Malformed { .. } => true,
        }
    }

    /// True when the request may have had its effect and no answer says so.
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::Timeout { sent, .. } => *sent,
            Self::Lost { .. } | Self::Malformed { .. } => true,
            _ => false,
        }
    }

    /// The class, for a call that may be repeated. Where it may not, ask [`Self::outcome_unknown`]
    /// first.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Setup(_) | Self::Blocked(_) | Self::Redirect { .. } | Self::TooLarge { .. } => {
                ErrorClass::Permanent
            }
            Self::Url(_) | Self::Header { .. } => ErrorClass::Invalid,
            Self::Timeout { .. } => ErrorClass::Timeout,
            Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Lost { .. }
            | Self::Malformed { .. } => ErrorClass::Retryable,
        }
    }

    /// `error.type` of spans and metrics.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Setup(_) => "http_setup",
            Self::Url(_) => "invalid_url",
            Self::Header { .. } => "invalid_header",
            Self::Blocked(_) => "ssrf_blocked",
            Self::Resolve { .. } => "dns_error",
            Self::Connect { .. } => "connection_error",
            Self::Timeout { .. } => "timeout",
            Self::Lost { .. } => "connection_lost",
            Self::Redirect { .. } => "redirect",
            Self::TooLarge { .. } => "response_too_large",
            Self::Malformed { .. } => "malformed_response",
        }
    }

    /// Names the proxy that stood between, where nothing came of the connection.
    pub(super) fn through(self, proxy: &str) -> Self {
        match self {
            Self::Connect { target, why } => {
                Self::Connect { target, why: format!("through the proxy {proxy}: {why}") }
            }
            Self::Timeout { target, sent: false } => {
                let why = format!("through the proxy {proxy}: it did not answer in time");
                Self::Connect { target, why }
            }
            other => other,
        }
    }

    pub(super) fn setup(error: &reqwest::Error) -> Self {
        Self::Setup(root(error))
    }

    /// Reads a client's error; `fallback` names the target where the error does not.
    pub(super) fn of(error: reqwest::Error, fallback: &str) -> Self {
        let target = error.url().map_or_else(|| fallback.to_owned(), authority);
        // The client's own text repeats the URL, query and all.
        let error = error.without_url();
        if let Some(blocked) = cause::<Blocked>(&error) {
            return Self::Blocked(blocked.clone());
        }
        if let Some(unresolved) = cause::<Unresolved>(&error) {
            return Self::Resolve { target, why: unresolved.why.clone() };
        }
        let why = with_guess(root(&error));
        if error.is_builder() {
            Self::Url(format!("the request cannot be built: {why}"))
        } else if error.is_redirect() {
            Self::Redirect { target, why }
        } else if error.is_timeout() {
            Self::Timeout { target, sent: !error.is_connect() }
        } else if error.is_connect() {
            Self::Connect { target, why }
        } else if error.is_decode() {
            Self::Malformed { target, why }
        } else {
            Self::Lost { target, why }
        }
    }
}

impl From<reqwest::Error> for Error {
    fn from(error: reqwest::Error) -> Self {
        Self::of(error, "the host")
    }
}

/// For calls that may be repeated; a handler whose call may not asks [`Error::outcome_unknown`]
/// before it writes `?`.
impl From<Error> for TaskError {
    fn from(error: Error) -> Self {
        let failure = Failure::new(error.class(), &error);
        match error.class() {
            ErrorClass::Permanent | ErrorClass::Invalid => Self::Permanent(failure),
            _ => Self::Retry { failure, after: None },
        }
    }
}

/// `host:port` of a URL.
pub(super) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Scheme, host and port of a URL: what may be shown of a redirect's target.
pub(super) fn location(url: &Url) -> String {
    format!("{}://{}", url.scheme(), authority(url))
}

/// The same with its path: the operator's own kind of address. User and query may be secrets.
pub(super) fn place(url: &Url) -> String {
    let path: String = url.path().chars().take(SHOWN_PATH).collect();
    format!("{}{path}", location(url))
}

/// The innermost message: what the system or the other side really said.
fn root(error: &reqwest::Error) -> String {
    let mut last: &dyn StdError = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// What TLS and HTTP say when one meets the other, with what that means.
fn with_guess(why: String) -> String {
    if why.contains("corrupt message of type") {
        return format!("{why}; the port speaks plain HTTP? try http://");
    }
    if why.contains("invalid HTTP version") {
        return format!("{why}; the port speaks TLS? try https://");
    }
    why
}

/// The first cause of a type.
fn cause<E: StdError + 'static>(error: &reqwest::Error) -> Option<&E> {
    let mut next = error.source();
    while let Some(source) = next {
        if let Some(found) = source.downcast_ref() {
            return Some(found);
        }
        next = source.source();
    }
    None
}

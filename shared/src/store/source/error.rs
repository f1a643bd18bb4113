//! What can go wrong with a query of a named source, and what becomes of its task.

use std::time::Duration;

use deadpool_postgres::PoolError;

use super::super::error::chain;
use crate::domain::outcome::{ErrorClass, Failure, TaskError};

/// A failed query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// No such source.
    #[error("there is no source {name:?}; {}", known_sources(.known))]
    Unknown {
        /// As asked.
        name: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// Its connection string names a variable that is not set.
    #[error(
        "the source {name} has no dsn: the variable that it names in belfry.yaml is not set for this worker"
    )]
    Unset {
        /// The source.
        name: String,
    },
    /// Its connection string cannot be used.
    #[error("the dsn of the source {name} is wrong: {why}")]
    Dsn {
        /// The source.
        name: String,
        /// Why; no part of the string is shown.
        why: String,
    },
    /// Nobody answers, or the connection was lost.
    #[error("cannot reach the source: {0}")]
    Unreachable(String),
    /// A superuser on a server too old to put its powers down.
    #[error(
        "the source connects as a superuser, and its server (before PostgreSQL 14) has no pg_read_all_data; give it a role that may only read"
    )]
    Superuser,
    /// The server says no.
    #[error("{message} ({code}){}{hint}", at(*.position))]
    Statement {
        /// SQLSTATE.
        code: String,
        /// The server's words.
        message: String,
        /// Character of the payload's statement, from 1.
        position: Option<u32>,
        /// `; hint`, or empty.
        hint: String,
    },
    /// Too many or too few values.
    #[error("the statement has {wanted} parameters, and params has {given} values")]
    Params {
        /// In the statement.
        wanted: usize,
        /// In the payload.
        given: usize,
    },
    /// A command on a source for reading.
    #[error("the statement returns no rows; a source of mode: read answers queries only")]
    NoRows,
    /// Two columns by one name: a row is an object, which holds one of them.
    #[error(
        "the query has more than one column {column:?}, and a row keeps one by each name; name them with AS, such as count(x) AS x_count"
    )]
    Doubled {
        /// The name.
        column: String,
    },
    /// Over the row cap.
    #[error(
        "the query returns more than {limit} rows; add a LIMIT, aggregate, or raise max_rows of the source"
    )]
    TooManyRows {
        /// The cap.
        limit: usize,
    },
    /// Over the byte cap.
    #[error("the rows are larger than {limit} bytes of JSON; select less")]
    TooLarge {
        /// The cap.
        limit: usize,
    },
    /// No answer within the statement timeout.
    #[error("no answer from the source within {} s", .after.as_secs())]
    Timeout {
        /// The limit.
        after: Duration,
    },
    /// A value that no JSON of this house can hold.
    #[error("the column {column} cannot be read: {why}")]
    Unreadable {
        /// Its name.
        column: String,
        /// Why.
        why: String,
    },
}

impl SourceError {
    /// `error.type` of span and metric: the SQLSTATE where there is one.
    pub fn error_type(&self) -> String {
        let word = match self {
            Self::Statement { code, .. } => return code.clone(),
            Self::Unknown { .. } | Self::Unset { .. } | Self::Dsn { .. } | Self::Superuser => {
                "configuration"
            }
            Self::Unreachable(_) => "connection_error",
            Self::Params { .. } | Self::NoRows | Self::Doubled { .. } => "invalid_statement",
            Self::TooManyRows { .. } | Self::TooLarge { .. } => "too_large",
            Self::Timeout { .. } => "timeout",
            Self::Unreadable { .. } => "unreadable",
        };
        word.to_owned()
    }

    /// The class of the failure.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable(_) => ErrorClass::Retryable,
            Self::Timeout { .. } => ErrorClass::Timeout,
            // 57014: the statement timeout, or an administrator.
            Self::Statement { code, .. } if code == "57014" => ErrorClass::Timeout,
            Self::Statement { code, .. } if is_passing(code) => ErrorClass::Retryable,
            _ => ErrorClass::Permanent,
        }
    }

    pub(super) fn from_pool(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::from_postgres(error),
            PoolError::Timeout(_) => Self::Unreachable("no connection in time".to_owned()),
            other => Self::Unreachable(other.to_string()),
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is written as `map_err(from_postgres)`")]
    pub(super) fn from_postgres(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else { return Self::Unreachable(chain(&error)) };
        let position = match db.position() {
            Some(tokio_postgres::error::ErrorPosition::Original(at)) => Some(*at),
            _ => None,
        };
        let hint = match (db.code().code(), db.hint()) {
            ("25006", _) => "; the source is mode: read".to_owned(),
            (_, Some(hint)) => format!("; {hint}"),
            _ => String::new(),
        };
        let (code, message) = (db.code().code().to_owned(), db.message().to_owned());
        Self::Statement { code, message, position, hint }
    }

    /// Tells a position without the characters that we put before the payload's own.
    pub(super) fn moved(mut self, offset: u32) -> Self {
        if let Self::Statement { position: Some(at), .. } = &mut self {
            *at = at.saturating_sub(offset).max(1);
        }
        self
    }
}

impl From<SourceError> for TaskError {
    fn from(error: SourceError) -> Self {
        let failure = Failure::new(error.class(), &error);
        match failure.class {
            ErrorClass::Permanent => Self::Permanent(failure),
            _ => Self::Retry { failure, after: None },
        }
    }
}

/// SQLSTATEs of a moment: connections, resources, conflicts, shutdowns.
fn is_passing(code: &str) -> bool {
    let classes = ["08", "40", "53", "57P", "58"];
    classes.iter().any(|class| code.starts_with(class)) || code == "55P03"
}

fn at(position: Option<u32>) -> String {
    position.map(|at| format!(" at character {at}")).unwrap_or_default()
}

fn known_sources(known: &[String]) -> String {
    match known {
        [] => "add it under sources: in belfry.yaml".to_owned(),
        known => format!("sources: of belfry.yaml has {}", known.join(", ")),
    }
}

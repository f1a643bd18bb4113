//! What can go wrong between the house and its database.
//!
//! A store error is never a task's failure: whoever meets one holds what it has and repeats.

use std::sync::Arc;

use tokio_postgres::error::SqlState;

use crate::domain::outcome::TaskError;

/// A failed conversation with `PostgreSQL`. Cheap to clone: a batch shares one.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The connection string cannot be used.
    #[error(
        "the PostgreSQL connection string is wrong: {0}; expected postgres://user:password@host:port/database"
    )]
    Dsn(String),
    /// Nobody answers, or the connection was lost.
    #[error("cannot reach PostgreSQL at {at}: {cause}; is it running, and is the address right?")]
    Unreachable {
        /// Host, port and database.
        at: String,
        /// What the network said.
        cause: String,
    },
    /// The server answered and said no.
    #[error("PostgreSQL at {at} refused the connection: {cause}")]
    Refused {
        /// Host, port and database.
        at: String,
        /// What the server said.
        cause: String,
    },
    /// No answer in time; the statement may or may not have been executed.
    #[error("no answer from PostgreSQL at {at} within {seconds} s")]
    Timeout {
        /// Host, port and database.
        at: String,
        /// The limit.
        seconds: u64,
    },
    /// It answers and takes no writes.
    #[error(
        "PostgreSQL at {at} takes no writes: it is read-only, or a standby; end that, or name the primary"
    )]
    ReadOnly {
        /// Host, port and database.
        at: String,
    },
    /// Another installation uses the same database.
    #[error(
        "this database belongs to another installation: {label} was seen in the last five minutes and uses the broker's {theirs}, this configuration names {ours}; give each installation a database of its own, or stop the other"
    )]
    Occupied {
        /// A process of the other one.
        label: String,
        /// Its prefix and vhost.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// The schema is not the one this binary was built for.
    #[error("the database has schema version {found}, this binary needs {wanted}; {advice}")]
    Schema {
        /// Version found, 0 for an empty database.
        found: u32,
        /// Version needed.
        wanted: u32,
        /// What to do.
        advice: &'static str,
    },
    /// A migration failed.
    #[error("a migration failed: {0}")]
    Migration(String),
    /// A statement failed.
    #[error("PostgreSQL: {0}")]
    Database(Arc<DatabaseError>),
    /// A row that this binary does not understand, for example written by a newer one.
    #[error("unexpected row: {0}")]
    Row(String),
}

/// What the server said, with its SQLSTATE.
#[derive(Debug, thiserror::Error)]
#[error("{message} ({code})")]
pub struct DatabaseError {
    /// SQLSTATE, or `connection`.
    pub code: String,
    /// The server's words.
    pub message: String,
    #[source]
    source: tokio_postgres::Error,
}

impl Error {
    /// SQLSTATE of a failed statement.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Database(error) => Some(&error.code),
            _ => None,
        }
    }

    /// True when the values were refused: asking again with the same ones cannot help.
    pub fn is_data(&self) -> bool {
        self.code().is_some_and(|code| code.starts_with("22") || code.starts_with("23"))
    }

    /// True when another session held what was needed for too long: nothing was done.
    pub fn is_locked(&self) -> bool {
        self.code() == Some(SqlState::LOCK_NOT_AVAILABLE.code())
    }

    /// True when the service is away rather than the request wrong: exit code 4 of a command.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Refused { .. } | Self::Timeout { .. } => true,
            Self::Database(error) => {
                error.code == "connection"
                    || error.code.starts_with("08")
                    || error.code.starts_with("57P")
                    || error.code == "53300"
            }
            Self::Dsn(_)
            | Self::ReadOnly { .. }
            | Self::Occupied { .. }
            | Self::Schema { .. }
            | Self::Migration(_)
            | Self::Row(_) => false,
        }
    }

    /// True when one of the house's own statements could not be done now, whatever the reason: not the
    /// values (22, 23), not the statement (42), no row that this binary does not understand.
    pub fn is_outage(&self) -> bool {
        let wrong = ["22", "23", "42"];
        self.is_away()
            || self.code().is_some_and(|code| !wrong.iter().any(|class| code.starts_with(class)))
    }

    /// True when nobody's work can be written now: away, read-only (a standby), out of disk, memory or
    /// connections. It passes when somebody mends it, and how long that takes is nobody's failure.
    pub fn is_away(&self) -> bool {
        self.is_unreachable()
            || matches!(self, Self::ReadOnly { .. })
            || self.code().is_some_and(|code| code.starts_with("53"))
    }

    /// True when the same transaction may well succeed if it is begun anew: the database was away, a
    /// deadlock, a lock that took too long, a plan made before a migration.
    pub fn is_passing(&self) -> bool {
        let passing = ["0A000", "25P03", "40001", "40P01", "55P03"];
        self.is_away() || self.code().is_some_and(|code| passing.contains(&code))
    }

    pub(super) fn row(message: impl std::fmt::Display) -> Self {
        Self::Row(message.to_string())
    }

    pub(super) fn from_postgres(error: tokio_postgres::Error, at: &str) -> Self {
        if let Some(db) = error.as_db_error() {
            let code = db.code();
            if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
                return Self::ReadOnly { at: at.to_owned() };
            }
            let refused = [
                SqlState::INVALID_PASSWORD,
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                SqlState::INVALID_CATALOG_NAME,
                SqlState::TOO_MANY_CONNECTIONS,
                SqlState::CANNOT_CONNECT_NOW,
            ];
            if refused.contains(code) {
                return Self::Refused { at: at.to_owned(), cause: db.message().to_owned() };
            }
            let advice = match *code {
                SqlState::LOCK_NOT_AVAILABLE => {
                    "; another session holds what is needed: see pg_stat_activity, then try again"
                }
                _ => "",
            };
            return Self::Database(Arc::new(DatabaseError {
                code: code.code().to_owned(),
                message: format!("{}{advice}", db.message()),
                source: error,
            }));
        }
        let cause = chain(&error);
        if error.is_closed() || std::error::Error::source(&error).is_some() {
            return Self::Unreachable { at: at.to_owned(), cause };
        }
        Self::Database(Arc::new(DatabaseError {
            code: "connection".to_owned(),
            message: cause,
            source: error,
        }))
    }
}

/// A handler's own statement: what the same statement will meet again is final.
impl From<Error> for TaskError {
    fn from(error: Error) -> Self {
        match error.code() {
            // Data that does not fit (22), and a statement that is wrong or not allowed (42).
            Some(code) if code.starts_with("22") || code.starts_with("42") => {
                Self::permanent(error)
            }
            _ => Self::retry(error),
        }
    }
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

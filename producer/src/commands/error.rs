//! What a command fails with, and which exit code says so.
//!
//! Classification lives in the `From` impls, once per source, so that commands only write `?`.

use std::fmt::Write as _;
use std::process::ExitCode;

use shared::broker;
use shared::config::{Missing, Problems};
use shared::domain::execution_key::KeyError;
use shared::domain::task::PayloadError;
use shared::store::{self, EnqueueError};

use super::output;

/// What a command answers; its data is on stdout by then.
pub type Answer = Result<(), CommandError>;

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line or its input is wrong: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The configuration is wrong: exit code 2.
    #[error("the configuration cannot be used\n{0}")]
    Configuration(Problems),
    /// What was named does not exist: exit code 3.
    #[error("{0}")]
    NotFound(String),
    /// What was named is not in the state for this: exit code 3.
    #[error("{0}")]
    Conflict(String),
    /// A service is away: exit code 4.
    #[error("{0}")]
    Unreachable(String),
    /// The awaited task did not complete: exit code 5.
    #[error("{0}")]
    NotCompleted(String),
    /// Anything else: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// The command has said everything itself; only the exit code remains.
    #[error("exit code {0}")]
    Told(u8),
}

impl CommandError {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) | Self::Configuration(_) => 2,
            Self::NotFound(_) | Self::Conflict(_) => 3,
            Self::Unreachable(_) => 4,
            Self::NotCompleted(_) => 5,
            Self::Told(code) => *code,
        }
    }
}

/// Says on stderr what went wrong, and turns the answer into the exit code.
pub fn report(answer: Answer) -> ExitCode {
    let Err(error) = answer else { return ExitCode::SUCCESS };
    if !matches!(error, CommandError::Told(_)) {
        output::talk(&format!("error: {error}"));
    }
    ExitCode::from(error.exit_code())
}

impl From<Problems> for CommandError {
    fn from(problems: Problems) -> Self {
        Self::Configuration(problems)
    }
}

impl From<Missing> for CommandError {
    fn from(missing: Missing) -> Self {
        Self::Usage(missing.to_string())
    }
}

impl From<PayloadError> for CommandError {
    fn from(error: PayloadError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<KeyError> for CommandError {
    fn from(error: KeyError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<store::Error> for CommandError {
    fn from(error: store::Error) -> Self {
        let said = error.to_string();
        match error {
            store::Error::Dsn(_) => Self::Usage(said),
            _ if error.is_unreachable() => Self::Unreachable(said),
            _ => Self::Failed(said),
        }
    }
}

impl From<EnqueueError> for CommandError {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::KeyReused { .. } => Self::Conflict(error.to_string()),
            EnqueueError::Payload(error) => error.into(),
            EnqueueError::Store(error) => error.into(),
        }
    }
}

impl From<broker::Error> for CommandError {
    fn from(error: broker::Error) -> Self {
        let said = error.to_string();
        match error {
            broker::Error::BadUrl(_) => Self::Usage(said),
            broker::Error::Unreachable { .. }
            | broker::Error::Refused { .. }
            | broker::Error::NoVhost { .. }
            | broker::Error::Timeout { .. }
            | broker::Error::Closed(_) => Self::Unreachable(said),
            _ => Self::Failed(said),
        }
    }
}

/// Many answers of one command as one: the worst exit code, each message on its own line.
pub fn all(errors: Vec<CommandError>) -> Answer {
    let mut errors = errors.into_iter();
    let Some(first) = errors.next() else { return Ok(()) };
    let mut said = first.to_string();
    let mut worst = first;
    for error in errors {
        // Writing to a String cannot fail.
        let _ = write!(said, "\nerror: {error}");
        if error.exit_code() > worst.exit_code() {
            worst = error;
        }
    }
    Err(match worst.exit_code() {
        2 => CommandError::Usage(said),
        3 => CommandError::Conflict(said),
        4 => CommandError::Unreachable(said),
        5 => CommandError::NotCompleted(said),
        _ => CommandError::Failed(said),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: impl Into<CommandError>, code: u8) {
        assert_eq!(error.into().exit_code(), code);
    }

    #[test]
    fn every_source_has_its_exit_code() {
        let at = || "db:5432/x".to_owned();
        check(store::Error::Dsn("no host".into()), 2);
        check(store::Error::Unreachable { at: at(), cause: "refused".into() }, 4);
        check(store::Error::Timeout { at: at(), seconds: 8 }, 4);
        check(store::Error::Schema { found: 0, wanted: 5, advice: "run `producer migrate`" }, 1);
        check(broker::Error::BadUrl("no host".into()), 2);
        check(broker::Error::Closed("lost".into()), 4);
        check(broker::Error::Nacked { exchange: "belfry.tasks".into() }, 1);
        check(PayloadError::Nul, 2);
        check(KeyError::Empty, 2);
    }

    #[test]
    fn many_errors_are_one_with_the_worst_code() {
        let errors = vec![
            CommandError::Failed("a".into()),
            CommandError::Unreachable("b".into()),
            CommandError::NotFound("c".into()),
        ];
        let error = all(errors).expect_err("some");
        assert_eq!(error.exit_code(), 4);
        assert_eq!(error.to_string(), "a\nerror: b\nerror: c");
        assert!(all(Vec::new()).is_ok());
    }
}

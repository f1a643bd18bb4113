//! Why a text is no cron line: the field, what is wrong there, and how to mend it.

use std::fmt;

use super::field::Field;

/// Kind of a mistake, for callers that branch on it; the message is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nothing but white space.
    Empty,
    /// Over [`super::MAX_CRON_BYTES`].
    TooLong,
    /// Outside printable ASCII, a line break, or a character that no field knows.
    BadCharacter,
    /// Neither five nor six fields.
    WrongFieldCount,
    /// An `@` word that is not one of the macros.
    UnknownMacro,
    /// `TZ=` or `CRON_TZ=` in the line; the zone has a key of its own.
    ZoneInside,
    /// `L`, `W`, `#`, `?` or `C`.
    QuartzExtension,
    /// Jenkins's `H`.
    JenkinsHash,
    /// A name that the field does not have.
    BadName,
    /// No number, name, `*` or `a-b`.
    BadRange,
    /// A range that ends before it begins.
    ReversedRange,
    /// A step that is no number, is zero, exceeds the field, or follows a single value.
    BadStep,
    /// An empty place in a list.
    BadList,
    /// A number that the field does not have.
    OutOfRange,
    /// Well formed, but no calendar has such a day.
    NeverFires,
}

impl Reason {
    /// Its name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::TooLong => "too_long",
            Self::BadCharacter => "bad_character",
            Self::WrongFieldCount => "wrong_field_count",
            Self::UnknownMacro => "unknown_macro",
            Self::ZoneInside => "zone_inside",
            Self::QuartzExtension => "quartz_extension",
            Self::JenkinsHash => "jenkins_hash",
            Self::BadName => "bad_name",
            Self::BadRange => "bad_range",
            Self::ReversedRange => "reversed_range",
            Self::BadStep => "bad_step",
            Self::BadList => "bad_list",
            Self::OutOfRange => "out_of_range",
            Self::NeverFires => "never_fires",
        }
    }
}

/// A rejected cron line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct CronError {
    /// What kind of mistake it is.
    pub reason: Reason,
    /// The field it was found in; `None` when it concerns the whole line.
    pub field: Option<Field>,
    /// What is wrong.
    pub problem: String,
    /// How to mend it; may be empty.
    pub hint: String,
}

impl CronError {
    pub(super) fn line(
        reason: Reason,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { reason, field: None, problem: problem.into(), hint: hint.into() }
    }

    pub(super) fn field(
        (field, reason): (Field, Reason),
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { reason, field: Some(field), problem: problem.into(), hint: hint.into() }
    }
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field {
            Some(field) => write!(f, "cron field {field}: {}", self.problem)?,
            None => write!(f, "cron expression: {}", self.problem)?,
        }
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}

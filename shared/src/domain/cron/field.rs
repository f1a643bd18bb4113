//! The six fields of a cron line: their bounds, names and sets of values.

use std::fmt;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// One of the six fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// 0-59, only in six-field lines.
    Second,
    /// 0-59.
    Minute,
    /// 0-23.
    Hour,
    /// 1-31.
    DayOfMonth,
    /// 1-12 or jan-dec.
    Month,
    /// 0-7 or sun-sat; 0 and 7 are Sunday.
    DayOfWeek,
}

impl Field {
    /// All fields in the order of a six-field line.
    pub const ALL: [Self; 6] =
        [Self::Second, Self::Minute, Self::Hour, Self::DayOfMonth, Self::Month, Self::DayOfWeek];

    /// Smallest value.
    pub fn min(self) -> u32 {
        match self {
            Self::DayOfMonth | Self::Month => 1,
            Self::Second | Self::Minute | Self::Hour | Self::DayOfWeek => 0,
        }
    }

    /// Largest value.
    pub fn max(self) -> u32 {
        match self {
            Self::Second | Self::Minute => 59,
            Self::Hour => 23,
            Self::DayOfMonth => 31,
            Self::Month => 12,
            Self::DayOfWeek => 7,
        }
    }

    /// Three-letter names and the value of the first.
    pub(super) fn names(self) -> (&'static [&'static str], u32) {
        match self {
            Self::Month => (&MONTHS, 1),
            Self::DayOfWeek => (&DAYS, 0),
            Self::Second | Self::Minute | Self::Hour | Self::DayOfMonth => (&[], 0),
        }
    }

    /// The value of a name in any case.
    pub(super) fn value_of(self, name: &str) -> Option<u32> {
        let (names, first) = self.names();
        let at = names.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Some(at as u32 + first)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
        })
    }
}

/// Values that a field takes, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Values(u64);

impl Values {
    pub(super) fn insert(&mut self, value: u32) {
        self.0 |= 1 << value;
    }

    pub(super) fn contains(self, value: u32) -> bool {
        self.0 & (1 << value) != 0
    }

    /// In ascending order.
    pub(super) fn iter(self) -> impl Iterator<Item = u32> {
        (0..64).filter(move |value| self.contains(*value))
    }

    pub(super) fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// How many values are smaller than a number up to 63.
    pub(super) fn below(self, value: u64) -> u64 {
        u64::from((self.0 & ((1 << value) - 1)).count_ones())
    }

    /// Sunday has two numbers; inside it has one, 0.
    pub(super) fn with_one_sunday(mut self) -> Self {
        if self.contains(7) {
            self.0 &= !(1 << 7);
            self.insert(0);
        }
        self
    }
}

//! Cron lines: the grammar, and what instants they mean in a zone.
//!
//! The grammar, the rules for days and the rules for changing clocks are ours; crate `cron` only
//! searches wall-clock fields, because it numbers Sunday as 1, joins both day fields with AND and
//! goes wrong at both clock changes. Nothing here reads a clock.

mod count;
mod error;
mod explain;
mod field;
mod parse;
mod period;
mod shift;
mod wall;
mod zone;
mod zone_name;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

pub use error::{CronError, Reason};
pub use field::Field;
pub use shift::{Effect, Shift, Shifted, shifts};
pub use zone_name::{UnknownZone, parse_zone};

use parse::Line;
use wall::Wall;

/// Longest cron line, in bytes: checked before any parser sees it.
pub const MAX_CRON_BYTES: usize = 256;

/// A parsed cron line that fires at least once. Cheap to clone; two are equal when their texts are.
#[derive(Clone)]
pub struct Cron {
    text: Arc<str>,
    line: Arc<Line>,
}

impl Cron {
    /// Parses five fields, six with leading seconds, or a macro such as `@daily`.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let line = parse::parse(text)?;
        if !line.surely_fires() {
            Wall::new(&line)?;
        }
        let text = text.trim_matches([' ', '\t']);
        Ok(Self { text: text.into(), line: Arc::new(line) })
    }

    /// The line as written, without surrounding blanks.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// True for six fields: the line can fire more than once a minute.
    pub fn has_seconds(&self) -> bool {
        self.line.has_seconds
    }

    /// The first instant after `after`, never equal to it; `None` when none is left before 2101.
    pub fn next_after(&self, after: DateTime<Utc>, tz: Tz) -> Option<DateTime<Utc>> {
        zone::next_after(&*Wall::of(&self.line)?, self.line.pace, after, tz)
    }

    /// The shortest time between two instants, changes of the clocks apart.
    pub fn shortest_period(&self) -> Duration {
        self.line.shortest_period()
    }

    /// How many instants lie in `(after, until]`, without visiting them.
    pub fn count(&self, after: DateTime<Utc>, until: DateTime<Utc>, tz: Tz) -> u64 {
        count::count(&self.line, after, until, tz)
    }

    /// The newest instants in `(after, until]`, at most `wanted`, oldest first.
    pub fn newest(
        &self,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
        wanted: usize,
        tz: Tz,
    ) -> Vec<DateTime<Utc>> {
        let start = count::start_of_newest(&self.line, (after, until), wanted as u64, tz);
        std::iter::successors(self.next_after(start.max(after), tz), |at| self.next_after(*at, tz))
            .take_while(|at| *at <= until)
            .take(wanted)
            .collect()
    }

    /// What a change of the clocks of its zone does to the line; `None` when it does nothing.
    pub fn shifted(&self, shift: &Shift) -> Option<Shifted> {
        shift::shifted(&*Wall::of(&self.line)?, self.line.pace, shift)
    }

    /// Says in words when the line fires in a zone, and what it does when clocks change there.
    pub fn explain(&self, tz: Tz) -> String {
        explain::explain(&self.line, tz)
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cron").field(&self.text).finish()
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Cron {}

impl Hash for Cron {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

//! A cron line in words.

use chrono_tz::Tz;

use super::parse::Line;

/// Says when a line fires.
pub(super) fn explain(line: &Line, tz: Tz) -> String {
    format!("{:?} {tz}", line.pace)
}

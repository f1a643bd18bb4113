//! The search for matching wall-clock times, done by crate `cron` on times without a zone.
//!
//! Wall time is handed over as if it were UTC, where no clock ever changes; the crate's own
//! treatment of zones skips days, doubles ticks and returns instants of the past.

use std::cell::RefCell;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;

use chrono::{NaiveDate, NaiveDateTime, TimeDelta};

use super::error::{CronError, Reason};
use super::field::Field;
use super::parse::Line;

/// First and last year that the crate knows.
pub(super) const YEARS: std::ops::RangeInclusive<i32> = 1970..=2100;

thread_local! {
    /// The line that was asked last on this thread, and its search: who walks along a line asks again.
    static LAST: RefCell<Option<(Arc<Line>, Rc<Wall>)>> = const { RefCell::new(None) };
}

/// Finds wall-clock times of a line. Ten times the size of the line, so none is kept for each schedule.
#[derive(Debug)]
pub(super) struct Wall {
    /// One rule, or two whose union is meant: the crate joins its day fields with AND only.
    rules: Vec<cron::Schedule>,
}

impl Wall {
    /// Builds the rules of a line and refuses one that never fires.
    pub(super) fn new(line: &Line) -> Result<Self, CronError> {
        let texts = if line.either_day {
            vec![
                rule(line, |field| field == Field::DayOfWeek),
                rule(line, |field| field == Field::DayOfMonth),
            ]
        } else {
            vec![rule(line, |_| false)]
        };
        let rules: Result<Vec<_>, _> =
            texts.iter().map(|text| cron::Schedule::from_str(text)).collect();
        let rules = rules.map_err(|error| {
            CronError::line(Reason::BadCharacter, format!("the search refuses it: {error}"), "")
        })?;
        let wall = Self { rules };
        if wall.next(floor()).is_none() {
            return Err(CronError::field(
                (Field::DayOfMonth, Reason::NeverFires),
                "never fires: no such day exists in these months",
                "February ends with 29, April, June, September and November with 30",
            ));
        }
        Ok(wall)
    }

    /// The search of a line that was judged before.
    pub(super) fn of(line: &Arc<Line>) -> Option<Rc<Self>> {
        LAST.with_borrow_mut(|last| {
            if let Some((known, wall)) = last
                && Arc::ptr_eq(known, line)
            {
                return Some(wall.clone());
            }
            let wall = Rc::new(Self::new(line).ok()?);
            *last = Some((line.clone(), wall.clone()));
            Some(wall)
        })
    }

    /// The first matching wall time after `after`, in whole seconds.
    pub(super) fn next(&self, after: NaiveDateTime) -> Option<NaiveDateTime> {
        let after = after.max(floor()).and_utc();
        let next = self.rules.iter().filter_map(|rule| rule.after(&after).next()).min();
        next.map(|next| next.naive_utc())
    }
}

/// A second before the first time that the crate knows.
fn floor() -> NaiveDateTime {
    let first = NaiveDate::from_yo_opt(*YEARS.start(), 1).unwrap_or_default();
    first.and_time(chrono::NaiveTime::MIN) - TimeDelta::seconds(1)
}

/// The crate's seven fields, as plain lists; `free` fields are left open.
fn rule(line: &Line, free: impl Fn(Field) -> bool) -> String {
    let mut text = String::new();
    for field in Field::ALL {
        if free(field) || line.is_any(field) {
            text.push_str("* ");
            continue;
        }
        // The crate follows Quartz: Sunday is 1.
        let shift = u32::from(field == Field::DayOfWeek);
        let list: Vec<_> = line.values(field).iter().map(|v| (v + shift).to_string()).collect();
        text.push_str(&list.join(","));
        text.push(' ');
    }
    text.push('*');
    text
}

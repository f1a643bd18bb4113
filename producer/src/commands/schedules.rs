//! `producer schedules`: what the file says, what the database has applied, and what comes next.

mod absent;
mod apply;
mod backfill;
mod cadence;
mod hand;
mod import;
mod line;
mod list;
mod next;
mod pause;
mod plan;
mod show;
mod trigger;

use clap::{Args, Subcommand};

pub use backfill::{DEFAULT_LIMIT, MOST};
pub use line::{Line, NOBODY_LEADS, lines};
pub use list::behind;

use super::connect::{self, Context, bounded};
use super::error::Answer;

/// Looks at schedules, pauses them, and runs them by hand.
#[derive(Debug, Subcommand)]
pub enum Schedules {
    /// Lists schedules with their next and last ticks
    List(list::List),
    /// Shows a schedule with its last ticks
    Show(Named),
    /// Lists the next instants of a schedule; needs no service
    Next(next::Next),
    /// Puts the file's schedules in force now, and says what that changes
    Apply(apply::Apply),
    /// Runs a schedule once, now, beside its ticks; a paused one too
    Trigger(trigger::Trigger),
    /// Runs the planned instants of a range that have not run, one after another
    Backfill(backfill::Backfill),
    /// Rehearses the file's schedules over a range; needs no service
    Plan(plan::Plan),
    /// Prints schedules of cron or Kubernetes as a `tasks:` section; needs no service
    Import(import::Import),
    /// Pauses a schedule: its ticks are recorded as paused and make no tasks
    Pause(Named),
    /// Resumes a schedule that was paused by hand
    Resume(Named),
}

/// A schedule.
#[derive(Debug, Args)]
pub struct Named {
    /// The schedule's name
    name: String,
}

/// Runs it.
pub async fn run(command: Schedules, context: &Context) -> Answer {
    match command {
        Schedules::List(args) => bounded("schedules list", list::list(&args, context)).await,
        Schedules::Show(Named { name }) => {
            bounded("schedules show", show::show(&name, context)).await
        }
        Schedules::Next(args) => bounded("schedules next", next::next(&args, context)).await,
        Schedules::Apply(args) => apply::run(&args, context).await,
        Schedules::Trigger(args) => trigger::trigger(args, context).await,
        Schedules::Backfill(args) => backfill::backfill(args, context).await,
        Schedules::Plan(args) => plan::plan(&args, context),
        Schedules::Import(args) => import::import(&args, context),
        Schedules::Pause(Named { name }) => {
            pause::pause(&name, Some(&connect::actor()), context).await
        }
        Schedules::Resume(Named { name }) => pause::pause(&name, None, context).await,
    }
}

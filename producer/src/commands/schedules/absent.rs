//! Why a command does not find its schedule: there never was one, or it was removed, or renamed.
//!
//! What `show` has is never said not to be there: the answer says what became of it and what to do.

use shared::config::{Config, suggestion};
use shared::domain::schedule::Schedule;
use shared::store::{ScheduleRow, Store};

use crate::commands::connect::Context;
use crate::commands::error::CommandError;
use crate::commands::output::time;

/// Of a name that is not in the file, with what the database has ever had under it.
pub(super) fn absent(name: &str, config: &Config, row: Option<&ScheduleRow>) -> CommandError {
    let Some(row) = row else {
        return CommandError::NotFound(format!(
            "there is no schedule {name:?} in {} or in the database{}",
            config.name,
            near(name, config)
        ));
    };
    let Some(removed_at) = row.removed_at.map(time) else { return only_in_force(row, config) };
    let again = format!(
        "`producer schedules apply` with an entry in {} has it again; `producer schedules show {name}` has its \
         last ticks",
        config.name
    );
    CommandError::NotFound(match (&row.renamed_to, row.heir_removed_at.map(time)) {
        (Some(heir), None) => format!(
            "{name} was renamed to {heir} at {removed_at}; use that name (`producer schedules show {name}` has \
             its ticks until then)"
        ),
        (Some(heir), Some(gone)) => format!(
            "{name} was renamed to {heir} at {removed_at}, which was removed at {gone}; {again}"
        ),
        (None, _) => format!("{name} was removed at {removed_at}; {again}"),
    })
}

/// Of an entry that the file has and that is not in force: nobody has applied it, or a file that was
/// applied since has removed or renamed it. `advice` is for the former.
pub(super) fn unapplied(
    name: &str,
    config: &Config,
    row: Option<&ScheduleRow>,
    advice: &str,
) -> String {
    let file = &config.name;
    let Some((row, removed_at)) = row.and_then(|row| Some((row, row.removed_at.map(time)?))) else {
        return format!("{name} is in {file} and not applied yet; {advice}");
    };
    let again = format!("`producer schedules apply` with {file}, which still has it, has it again");
    match (&row.renamed_to, row.heir_removed_at) {
        (Some(heir), None) => format!(
            "{name} was renamed to {heir} at {removed_at}; use that name and the file that has it, or {again}"
        ),
        _ => format!("{name} was removed at {removed_at}; {again}"),
    }
}

/// As [`absent`], when only the file was asked so far.
pub(super) async fn absent_from_file(
    name: &str,
    config: &Config,
    context: &Context,
) -> CommandError {
    match known(name, context).await {
        Ok(row) => absent(name, config, row.as_ref()),
        Err(error) => away(name, config, &error),
    }
}

/// Of a name that is not in the file, when the database did not answer.
pub(super) fn away(name: &str, config: &Config, error: &CommandError) -> CommandError {
    CommandError::NotFound(format!(
        "there is no schedule {name:?} in {}{}; whether the database has one cannot be said: {error}",
        config.name,
        near(name, config)
    ))
}

/// What the database has, or once had, under a name.
pub(super) async fn ever(name: &str, store: &Store) -> Result<Option<ScheduleRow>, CommandError> {
    Ok(store.schedules_ever(Some(name)).await?.pop())
}

async fn known(name: &str, context: &Context) -> Result<Option<ScheduleRow>, CommandError> {
    let (_, store) = context.store().await?;
    ever(name, &store).await
}

/// In force, and of no use to who asks.
fn only_in_force(row: &ScheduleRow, config: &Config) -> CommandError {
    let name = &row.name;
    CommandError::Conflict(match Schedule::from_spec(name, &row.spec) {
        Ok(_) => format!(
            "{name} is in force and not in {}, and a run by hand is what the file says; name the file that has \
             it (--config)",
            config.name
        ),
        Err(what) => format!("{name} is in force, but this binary cannot read its entry: {what}"),
    })
}

fn near(name: &str, config: &Config) -> String {
    suggestion(name, config.schedules.iter().map(|entry| entry.name.as_str()))
}

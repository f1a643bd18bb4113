//! `producer schedules apply`: puts the file's schedules in force now, and says what that changes.

use clap::Args;
use serde_json::{Value, json};
use shared::config::{self, Config};
use shared::domain::quota::Scope;
use shared::domain::schedule::FieldChange;
use shared::store::Store;

use crate::applying::{self, Look, Report};
use crate::commands::connect::{self, Context, actor};
use crate::commands::error::{Answer, CommandError};
use crate::commands::output::{self, counted, short};
use crate::commands::request;

/// Looks again when another applied meanwhile, this often.
const TRIES: usize = 5;
/// Names of one kind that are listed; `--json` has all.
const LISTED: usize = 50;
/// Characters of a value that are shown.
const SHOWN: usize = 100;

/// How it is applied.
#[derive(Debug, Args)]
pub struct Apply {
    /// Only says what would change
    #[arg(long)]
    dry_run: bool,
}

/// Runs it.
pub async fn run(args: &Apply, context: &Context) -> Answer {
    let config = config::load_checked(context.config.as_deref(), &request::check_for)?;
    // As `run` does: an entry with a variable that has no value must not get into force. First, since
    // tasks that are such a variable are not said either.
    config.require_complete("tasks")?;
    if let Some(silence) = config.silence() {
        return Err(CommandError::Usage(format!(
            "{silence}, so there is nothing to apply, and the schedules in force stay; write `tasks: []` to remove them all"
        )));
    }
    let store = connect::store(&config)?;
    store.check_schema().await?;
    let report = if args.dry_run {
        let budgets = store.differing_quotas(&config.quotas(), Scope::Schedule).await?;
        Report { budgets, ..applying::rehearse(&store, &config.schedules).await? }
    } else {
        apply(&store, &config).await?
    };
    if context.json {
        let mut document = json!(report);
        document["dry_run"] = args.dry_run.into();
        return output::json(&document);
    }
    output::text(&told(&report, args.dry_run))
}

async fn apply(store: &Store, config: &Config) -> Result<Report, CommandError> {
    let actor = actor();
    for _ in 0..TRIES {
        let look = Look::at(store, &config.schedules).await?;
        // Whoever applies by hand means it: from here on, this is the file that was read last.
        let read_at = look.file.read_at.map_or(look.file.now, |read_at| read_at.max(look.file.now));
        let said = (read_at, actor.as_str());
        if let Some((report, _)) = applying::apply(store, &config.schedules, &look, said).await? {
            let changed = store.apply_quotas(&config.quotas(), &[Scope::Schedule]).await?;
            let of_schedules = changed.into_iter().filter(|(scope, _)| *scope == Scope::Schedule);
            return Ok(Report { budgets: of_schedules.map(|(_, name)| name).collect(), ..report });
        }
    }
    Err(CommandError::Conflict("others apply at the same time, again and again; try later".into()))
}

/// The difference as a person reads it, and its sum.
fn told(report: &Report, dry_run: bool) -> String {
    let mut lines = Vec::new();
    list(&mut lines, &report.added, |name| format!("+ {name}"));
    list(&mut lines, &report.removed, |name| format!("- {name}"));
    list(&mut lines, &report.renamed, |renamed| {
        with_fields(format!("> {} -> {}", renamed.from, renamed.to), &renamed.fields)
    });
    list(&mut lines, &report.changed, |changed| {
        with_fields(format!("~ {}", changed.name), &changed.fields)
    });
    list(&mut lines, &report.alike, |alike| {
        format!(
            "? {1} says what {0} said; if it is the same, `renamed_from: {0}` keeps its pause and its execution keys",
            alike.from, alike.to
        )
    });
    list(&mut lines, &report.budgets, |name| format!("$ {name} has another budget"));
    let counts = [
        ("added", report.added.len()),
        ("removed", report.removed.len()),
        ("renamed", report.renamed.len()),
        ("changed", report.changed.len()),
        ("unchanged", report.unchanged),
    ];
    let counts: Vec<String> = counts.map(|(what, n)| format!("{n} {what}")).to_vec();
    let sum = counts.join(", ");
    lines.push(match (dry_run, report.is_empty()) {
        (_, true) => format!("nothing to do: {sum}"),
        (true, false) => format!("would be applied: {sum}"),
        (false, false) => {
            format!("applied as revision {}: {sum}{}", report.revision, ticked(report.ticked))
        }
    });
    lines.join("\n")
}

fn ticked(ticks: usize) -> String {
    if ticks == 0 {
        return String::new();
    }
    format!("; {} of old entries decided first", counted(ticks, "due tick"))
}

fn list<T>(lines: &mut Vec<String>, items: &[T], line: impl Fn(&T) -> String) {
    lines.extend(items.iter().take(LISTED).map(line));
    if items.len() > LISTED {
        lines.push(format!("  … and {} more", items.len() - LISTED));
    }
}

fn with_fields(head: String, fields: &[FieldChange]) -> String {
    let shown = |value: &Value| match value {
        Value::String(text) => short(text, SHOWN),
        Value::Null => "none".to_owned(),
        other => short(&other.to_string(), SHOWN),
    };
    let told = fields.iter().map(|change| {
        format!("    {}: {} -> {}", change.field, shown(&change.old), shown(&change.new))
    });
    std::iter::once(head).chain(told).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::applying::{Changed, Renamed};

    fn report() -> Report {
        let field = |field, old: &str, new: Value| FieldChange { field, old: old.into(), new };
        Report {
            revision: 7,
            added: vec!["new".to_owned()],
            renamed: vec![Renamed { from: "a".into(), to: "b".into(), fields: vec![] }],
            changed: vec![Changed {
                name: "nightly".to_owned(),
                fields: vec![
                    field("schedule", "0 18 * * *", "0 19 * * *".into()),
                    field("deadline", "60s", Value::Null),
                ],
            }],
            removed: vec!["old".to_owned()],
            alike: vec![Renamed { from: "old".into(), to: "new".into(), fields: vec![] }],
            unchanged: 3,
            ticked: 1,
            budgets: vec!["nightly".to_owned()],
        }
    }

    #[test]
    fn a_difference_is_told_line_by_line_and_summed_up() {
        let expected = "\
+ new
- old
> a -> b
~ nightly
    schedule: 0 18 * * * -> 0 19 * * *
    deadline: 60s -> none
? new says what old said; if it is the same, `renamed_from: old` keeps its pause and its execution keys
$ nightly has another budget
applied as revision 7: 1 added, 1 removed, 1 renamed, 1 changed, 3 unchanged; 1 due tick of old entries decided first";
        assert_eq!(told(&report(), false), expected);
        let rehearsed = told(&report(), true);
        assert!(
            rehearsed.ends_with(
                "\nwould be applied: 1 added, 1 removed, 1 renamed, 1 changed, 3 unchanged"
            ),
            "{rehearsed}"
        );
    }

    #[test]
    fn a_file_that_is_in_force_changes_nothing_and_a_large_one_is_cut() {
        let none = Report { unchanged: 2, ..Report::default() };
        assert_eq!(
            told(&none, false),
            "nothing to do: 0 added, 0 removed, 0 renamed, 0 changed, 2 unchanged"
        );
        let many = Report { added: vec!["x".to_owned(); 60], ..Report::default() };
        assert!(told(&many, true).contains("\n  … and 10 more\n"));
    }
}

//! `producer schedules import`: schedules of cron or Kubernetes as a `tasks:` section.
//!
//! What it prints loads: each entry is loaded before it is printed, and one that would not load, or
//! would not run the same, is left out with the reason. What an entry cannot carry over is said on
//! stderr, and as a comment where it stands. It asks no service.

mod command;
mod crontab;
mod curl;
mod kubernetes;
mod printed;

use std::collections::{HashMap, HashSet};
use std::io::Read;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use shared::config::MAX_FILE_BYTES;
use shared::domain::cron::parse_zone;

use crate::commands::connect::Context;
use crate::commands::error::{Answer, CommandError};
use crate::commands::output;

/// A file of another scheduler.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crontab -l | producer schedules import --from crontab --timezone Europe/Berlin - > tasks.yaml
  producer schedules import --from crontab /etc/crontab
  kubectl get cronjobs -o yaml | producer schedules import --from k8s-cronjob -")]
pub struct Import {
    /// What the file is
    #[arg(long, value_enum)]
    from: Source,
    /// The file, or - for stdin
    file: String,
    /// The crontab has a column for the user. Default: found out by path and header
    #[arg(long)]
    system: bool,
    /// Zone of a crontab's host, where the file does not say CRON_TZ
    #[arg(long, value_name = "Z")]
    timezone: Option<String>,
}

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Source {
    /// A crontab of a user or of the system
    Crontab,
    /// CronJobs of Kubernetes: one, several documents, or a list
    K8sCronjob,
}

/// What a file came to.
#[derive(Debug, Default)]
struct Found {
    /// In the order of the file.
    items: Vec<Item>,
    /// What holds for all entries, as comments at the top.
    remarks: Vec<String>,
    /// What belongs to no entry and is not carried over: line, what.
    lost: Vec<(usize, String)>,
}

/// One schedule of the file.
#[derive(Debug)]
struct Item {
    /// Where it stands, from 1.
    line: usize,
    /// How it reads there, or what it is called.
    source: String,
    /// The entry, or why it is left out.
    entry: Result<Entry, String>,
}

/// An entry of `tasks:`.
#[derive(Debug, Default)]
struct Entry {
    name: String,
    /// Keys after `name`, in order.
    keys: Vec<(&'static str, Value)>,
    /// What of it is not carried over, and what else somebody should know.
    said: Vec<String>,
}

impl Entry {
    fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.keys.push((key, value.into()));
    }

    /// Something is not carried over.
    fn lose(&mut self, what: impl AsRef<str>) {
        self.said.push(format!("not carried over: {}", what.as_ref()));
    }

    /// Something is carried over and means something else here.
    fn note(&mut self, what: impl AsRef<str>) {
        self.said.push(format!("note: {}", what.as_ref()));
    }

    /// It would not run the same: somebody has to look at it first.
    fn doubt(&mut self, what: impl AsRef<str>) {
        self.said.push(format!("paused, for it would not run the same: {}", what.as_ref()));
        self.pause();
    }

    fn pause(&mut self) {
        if !self.keys.iter().any(|(key, _)| *key == "paused") {
            self.set("paused", true);
        }
    }

    fn value(&self) -> Value {
        let name = std::iter::once(("name".to_owned(), Value::from(self.name.as_str())));
        let keys = self.keys.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        Value::Object(name.chain(keys).collect::<Map<_, _>>())
    }
}

/// A number of the other file, or the most that is taken here: such a limit is as good as none, and no
/// reason to leave an entry out.
fn at_most(most: u64, what: &str, number: u64, entry: &mut Entry) -> u64 {
    if number > most {
        entry.note(format!("{what} {number} is more than is taken here; it became {most}"));
    }
    number.min(most)
}

pub(super) fn import(args: &Import, context: &Context) -> Answer {
    let text = read(&args.file)?;
    let name = if args.file == "-" { "stdin" } else { args.file.as_str() };
    if let Some(zone) = &args.timezone {
        parse_zone(zone).map_err(|error| CommandError::Usage(format!("--timezone: {error}")))?;
    }
    let mut found = match args.from {
        Source::Crontab => {
            let system = args.system || crontab::is_system(&args.file, &text);
            crontab::read(&text, system, args.timezone.as_deref())
        }
        Source::K8sCronjob => kubernetes::read(&text, name)?,
    };
    rename(&mut found.items);
    for item in &mut found.items {
        if let Ok(entry) = &item.entry
            && let Err(why) = printed::check(entry)
        {
            item.entry = Err(why);
        }
    }
    say(&found, name);
    if context.json {
        return output::json(&document(&found));
    }
    output::bytes(printed::document(&found, name).as_bytes())
}

fn read(file: &str) -> Result<String, CommandError> {
    let cannot = |error: std::io::Error| {
        let name = if file == "-" { "stdin" } else { file };
        CommandError::Usage(format!("{name} cannot be read: {error}"))
    };
    let source: Box<dyn Read> = if file == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(file).map_err(cannot)?)
    };
    let mut text = String::new();
    source.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(cannot(std::io::Error::other(format!(
            "it is larger than {} MiB",
            MAX_FILE_BYTES >> 20
        ))));
    }
    // What Windows writes in front of a text would be a part of its first line.
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Names are unique: the second `backup` is `backup_2`.
fn rename(items: &mut [Item]) {
    let mut taken = HashSet::new();
    // Where the search for a free name goes on: thousands of lines may run one program.
    let mut last: HashMap<String, usize> = HashMap::new();
    for entry in items.iter_mut().filter_map(|item| item.entry.as_mut().ok()) {
        if taken.insert(entry.name.clone()) {
            continue;
        }
        let base = entry.name.clone();
        let number = last.entry(base.clone()).or_insert(1);
        while !taken.insert(entry.name.clone()) {
            *number += 1;
            entry.name = format!("{base}_{number}");
        }
    }
}

/// Line by line: what is left out, and what of the others is not carried over.
fn say(found: &Found, name: &str) {
    let mut lines: Vec<(usize, String)> = found
        .lost
        .iter()
        .map(|(line, what)| (*line, format!("not carried over: {what}")))
        .collect();
    for item in &found.items {
        match &item.entry {
            Ok(entry) => lines.extend(
                entry.said.iter().map(|what| (item.line, format!("{}: {what}", entry.name))),
            ),
            Err(why) => lines.push((item.line, format!("left out: {}: {why}", item.source))),
        }
    }
    lines.sort_by_key(|(line, _)| *line);
    for (line, what) in lines {
        output::talk(&format!("{name}:{line}: {what}"));
    }
    let left_out = found.items.iter().filter(|item| item.entry.is_err()).count();
    output::talk(&format!(
        "{}, {left_out} left out",
        output::counted(found.items.len() - left_out, "schedule")
    ));
}

/// `{"tasks","left_out":[{"line","source","why"}],"said":[{"line","name","what"}]}`.
fn document(found: &Found) -> Value {
    let entries = || found.items.iter().filter_map(|item| Some((item, item.entry.as_ref().ok()?)));
    let tasks: Vec<Value> = entries().map(|(_, entry)| entry.value()).collect();
    let left_out: Vec<Value> = found
        .items
        .iter()
        .filter_map(|item| {
            let why = item.entry.as_ref().err()?;
            Some(json!({ "line": item.line, "source": item.source, "why": why }))
        })
        .collect();
    let general =
        found.lost.iter().map(|(line, what)| json!({ "line": line, "name": null, "what": what }));
    let own = entries().flat_map(|(item, entry)| {
        entry.said.iter().map(|what| json!({ "line": item.line, "name": entry.name, "what": what }))
    });
    let said: Vec<Value> = general.chain(own).collect();
    json!({ "tasks": tasks, "left_out": left_out, "said": said })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn renamed(names: impl Iterator<Item = &'static str>) -> Vec<String> {
        let item = |name: &str| {
            let entry = Entry { name: name.to_owned(), ..Entry::default() };
            Item { line: 1, source: String::new(), entry: Ok(entry) }
        };
        let mut items: Vec<_> = names.map(item).collect();
        rename(&mut items);
        items.into_iter().map(|item| item.entry.expect("an entry").name).collect()
    }

    #[test]
    fn a_name_that_is_taken_gets_the_next_free_number() {
        let names = ["a", "a_2", "a", "b", "a", "a_2", "a_2"];
        let expected = ["a", "a_2", "a_3", "b", "a_4", "a_2_2", "a_2_3"];
        assert_eq!(renamed(names.into_iter()), expected);
    }

    /// Each looked through all before it: half a minute of work for such a file.
    #[test]
    fn twenty_thousand_lines_of_one_program_are_named_at_once() {
        let begun = Instant::now();

        let names = renamed(std::iter::repeat_n("echo", 20_000));

        assert_eq!(names[19_999], "echo_20000");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}

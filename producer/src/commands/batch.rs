//! `producer publish --batch`: one task a line, checked as a whole first, resumable by key.
//!
//! A row without a key gets `<sha256 of the file>:<line>`, so that running the same file again
//! finds what was enqueued before instead of doubling it. The relay publishes; nothing here talks
//! to the broker.

use std::io::Read;

use futures::{StreamExt as _, stream};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use sha2::{Digest, Sha256};
use shared::config::Config;
use shared::domain::execution_key::hex;
use shared::domain::task::NewTask;
use shared::store::{EnqueueError, Store};

use super::connect::Context;
use super::error::{Answer, CommandError};
use super::output::{self, counted};
use super::row::Row;

/// Largest file: it is read once and kept, so that its hash and its rows are of the same bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024 * 1024;
/// Rows of one statement.
const CHUNK: usize = 500;
/// Statements at once: the next is written while the database works on the last.
const AT_ONCE: usize = 2;

/// What became of the rows. JSON: one object with these keys.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Summary {
    enqueued: usize,
    deduplicated: usize,
    failed: usize,
}

/// Checks all lines, then enqueues them.
pub async fn run(file: &str, skip_invalid: bool, context: &Context) -> Answer {
    let config = context.config()?;
    let rows = Rows::read(file)?;
    let (valid, bad) = rows.check(&config);
    for (line, what) in &bad {
        output::talk(&format!("{}:{line}: {what}", rows.name));
    }
    if !bad.is_empty() && !skip_invalid {
        return Err(CommandError::Usage(format!(
            "{} of {} cannot be enqueued, and nothing was; mend them or add --skip-invalid",
            counted(bad.len(), "line"),
            rows.name
        )));
    }
    let (_, store) = context.store().await?;
    let mut summary = Summary { failed: bad.len(), ..Summary::default() };
    let enqueued = enqueue(&rows, valid, &config, &store, &mut summary).await;
    tell(&summary, context.json)?;
    enqueued
}

async fn enqueue(
    rows: &Rows,
    valid: usize,
    config: &Config,
    store: &Store,
    summary: &mut Summary,
) -> Answer {
    let bar = progress(valid);
    let good =
        rows.lines().filter_map(|(line, text)| Some((line, rows.task(line, text, config).ok()?)));
    let chunks = Chunks(good).map(|chunk| async move {
        let (lines, tasks): (Vec<usize>, Vec<NewTask>) = chunk.into_iter().unzip();
        (lines, store.enqueue_all(&tasks).await)
    });
    let mut answers = stream::iter(chunks).buffered(AT_ONCE);
    let mut reused = 0;
    while let Some((lines, answers)) = answers.next().await {
        let answers = answers.map_err(|error| interrupted(rows, &lines, &error.into()))?;
        bar.inc(lines.len() as u64);
        for (line, answer) in lines.into_iter().zip(answers) {
            match answer {
                Ok(task) if task.deduplicated => summary.deduplicated += 1,
                Ok(_) => summary.enqueued += 1,
                Err(EnqueueError::Store(error)) => {
                    return Err(interrupted(rows, &[line], &error.into()));
                }
                Err(error) => {
                    bar.suspend(|| output::talk(&format!("{}:{line}: {error}", rows.name)));
                    reused += 1;
                }
            }
        }
    }
    bar.finish_and_clear();
    summary.failed += reused;
    if reused == 0 {
        return Ok(());
    }
    Err(CommandError::Conflict(format!("{} not enqueued", counted(reused, "row"))))
}

/// The same error, with where it happened and how to go on.
fn interrupted(rows: &Rows, lines: &[usize], error: &CommandError) -> CommandError {
    let said = format!(
        "{error}\nthe batch stopped near line {} of {}; run the same command again to go on, what \
         was enqueued is recognised by its keys",
        lines.first().unwrap_or(&0),
        rows.name
    );
    match error {
        CommandError::Unreachable(_) => CommandError::Unreachable(said),
        _ => CommandError::Failed(said),
    }
}

fn tell(summary: &Summary, json: bool) -> Answer {
    if json {
        return output::json(summary);
    }
    let Summary { enqueued, deduplicated, failed } = summary;
    output::text(&format!("{enqueued} enqueued, {deduplicated} deduplicated, {failed} failed"))
}

/// Drawn on stderr, and only on a terminal.
fn progress(rows: usize) -> ProgressBar {
    let bar = ProgressBar::new(rows as u64);
    match ProgressStyle::with_template("{wide_bar} {pos}/{len} rows, {per_sec}, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// The file, its name in messages and its hash.
struct Rows {
    name: String,
    bytes: Vec<u8>,
    hash: String,
}

impl Rows {
    fn read(file: &str) -> Result<Self, CommandError> {
        let name = if file == "-" { "stdin" } else { file };
        let cannot = |error| CommandError::Usage(format!("{name} cannot be read: {error}"));
        let mut bytes = Vec::new();
        let source: Box<dyn Read> = if file == "-" {
            Box::new(std::io::stdin().lock())
        } else {
            Box::new(std::fs::File::open(file).map_err(cannot)?)
        };
        source.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(CommandError::Usage(format!("{name} is larger than 1 GiB; split it")));
        }
        Ok(Self::of(name, bytes))
    }

    fn of(name: &str, bytes: Vec<u8>) -> Self {
        let hash = hex(&Sha256::digest(&bytes));
        Self { name: name.to_owned(), bytes, hash }
    }

    /// Lines that are not blank, with their numbers from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let lines = self.bytes.split(|byte| *byte == b'\n').enumerate();
        lines.map(|(n, line)| (n + 1, line.trim_ascii())).filter(|(_, line)| !line.is_empty())
    }

    /// How many lines are good, and what is wrong with the others.
    fn check(&self, config: &Config) -> (usize, Vec<(usize, String)>) {
        let mut bad = Vec::new();
        let mut good = 0;
        for (line, text) in self.lines() {
            match self.task(line, text, config) {
                Ok(_) => good += 1,
                Err(what) => bad.push((line, what)),
            }
        }
        (good, bad)
    }

    fn task(&self, line: usize, text: &[u8], config: &Config) -> Result<NewTask, String> {
        let key = || Some(format!("{}:{line}", self.hash));
        Row::read(text)?.request(key)?.task(config)
    }
}

/// Items in groups of [`CHUNK`].
struct Chunks<I>(I);

impl<I: Iterator> Iterator for Chunks<I> {
    type Item = Vec<I::Item>;

    fn next(&mut self) -> Option<Self::Item> {
        let chunk: Vec<_> = self.0.by_ref().take(CHUNK).collect();
        (!chunk.is_empty()).then_some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOLS: &str = "task_pools: {own_pool: {task_types: [mine]}}";

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let config = shared::config::load_str(POOLS, "b.yaml", &|_| None).expect("right");
        let (good, bad) = Rows::of("b.jsonl", text.into()).check(&config);
        let seen = bad
            .iter()
            .fold(format!("{good} good"), |seen, (line, what)| format!("{seen}; {line}: {what}"));
        assert!(seen.starts_with(expected), "{seen}");
    }

    #[test]
    fn every_bad_line_is_named_and_blank_ones_do_not_count() {
        check("", "0 good");
        check("{\"type\":\"mine\"}\n\n  \n{\"type\":\"mine\",\"delay\":\"10m\"}\r\n", "2 good");
        check("{\n{\"type\":\"mine\"}", "1 good; 1: EOF while parsing an object at column 1");
        check("{\"kind\":\"a\"}", "0 good; 1: unknown field `kind`, expected one of `type`");
        check("{\"type\":\"nope\"}\n[]", "0 good; 1: no pool takes the task type \"nope\"");
        check("{\"type\":\"mine\",\"delay\":\"soon\"}", "0 good; 1: delay: expected seconds");
        check("{\"type\":\"mine\",\"timeout\":1.5}", "1 good");
        check(
            "{\"type\":\"mine\",\"max_retry\":-1}",
            "0 good; 1: max_retry: invalid value: integer `-1`",
        );
        check("{\"type\":\"mine\",\"key\":\"\"}", "0 good; 1: an execution key must not be empty");
        check("{\"type\":\"mine\",\"payload\":1e999}", "0 good; 1: payload: number out of range");
        check(
            "{\"type\":\"mine\",\"payload\":{\"id\":12345678901234567890123}}",
            "0 good; 1: 12345678901234567890123 has more digits",
        );
        check("\u{fffd}", "0 good; 1: one JSON object is wanted");
    }

    #[test]
    fn a_row_without_a_key_is_known_by_file_and_line() {
        let config = shared::config::load_str(POOLS, "b.yaml", &|_| None).expect("right");
        let rows = Rows::of("x", b"\n{\"type\":\"mine\"}".to_vec());
        let (line, text) = rows.lines().next().expect("one");
        let key = rows.task(line, text, &config).expect("good").key();
        assert_eq!(key, format!("{}:2", rows.hash));
        assert_eq!(rows.hash.len(), 64);
    }
}

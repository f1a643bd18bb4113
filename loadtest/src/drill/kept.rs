//! What is kept of a seed: the members' logs, and the rows where something is broken.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use chrono::{DateTime, Utc};

use super::field::Field;

/// Tables whose rows tell the story.
const TABLES: [&str; 14] = [
    "tasks",
    "task_inputs",
    "task_results",
    "execution_keys",
    "attempts",
    "workers",
    "leadership",
    "schedules",
    "ticks",
    "dead_letters",
    "alerts",
    "steps",
    "llm_calls",
    "drill_effects",
];
/// What a worker's log says when its result came too late.
pub const FENCED: &str = "fenced: another attempt has the task";

/// Keeps the ground's directory, with the rows and the story beside the logs; answers where.
pub async fn keep(field: &mut Field) -> anyhow::Result<PathBuf> {
    let directory = field.ground.keep();
    for table in TABLES {
        let sql = format!("SELECT to_json(t)::text FROM {table} t");
        let mut file = std::fs::File::create(directory.join(format!("{table}.jsonl")))?;
        for row in field.rows.all(&sql, &[]).await? {
            writeln!(file, "{}", row.get::<_, &str>(0)).context("keeping rows")?;
        }
    }
    let mut story = String::new();
    for line in field.log.lines() {
        let _ = writeln!(story, "{:7.1} s  {}", line.at_seconds, line.text);
    }
    std::fs::write(directory.join("story.txt"), story).context("keeping the story")?;
    Ok(directory)
}

/// By how many seconds the clock of a member's log is off, at its last line.
pub fn log_skew(field: &Field, at: usize) -> anyhow::Result<f64> {
    let path = field.ground.directory().join(field.fleet.posts[at].member()?.log_name());
    let written = std::fs::metadata(&path).and_then(|file| file.modified()).context("a log")?;
    let text = std::fs::read_to_string(&path).context("a log")?;
    let told = text
        .lines()
        .rev()
        .find_map(|line| DateTime::parse_from_rfc3339(line.split_whitespace().next()?).ok());
    let told = told.with_context(|| format!("no line of {} tells the time", path.display()))?;
    let written = DateTime::<Utc>::from(written);
    Ok((told.to_utc() - written).as_seconds_f64())
}

/// How many lines of all members' logs have these words.
pub fn lines_with(field: &Field, words: &str) -> anyhow::Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(field.ground.directory()).context("the logs")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
            count += text.lines().filter(|line| line.contains(words)).count();
        }
    }
    Ok(count)
}

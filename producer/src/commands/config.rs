//! `producer config check`: reads the configuration and says what is wrong, all at once.
//!
//! It is offline: it opens no connection, so an unreachable database is no problem of the file.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};
use shared::config::{self, Config, PayloadCheck, Problems};

/// Exit code of a wrong configuration.
const EXIT_CONFIGURATION: u8 = 2;

/// Checks the file that `path` names, else `BELFRY_CONFIG`, else `./belfry.yaml`.
///
/// The answer goes to `out`, problems go to `err` (with `json` all of it is one document on `out`).
/// Returns the exit code: 0 ok, 2 there are problems.
pub fn check(
    path: Option<&Path>,
    json: bool,
    payload: PayloadCheck<'_>,
    (out, err): (&mut dyn Write, &mut dyn Write),
) -> io::Result<u8> {
    let loaded = config::load_checked(path, payload);
    match (&loaded, json) {
        (Ok(config), false) => say(config, out)?,
        (Ok(config), true) => writeln!(out, "{:#}", right(config))?,
        (Err(problems), false) => {
            writeln!(err, "{problems}")?;
            let count = problems.iter().count();
            writeln!(err, "{count} problem{}", if count == 1 { "" } else { "s" })?;
        }
        (Err(problems), true) => writeln!(out, "{:#}", wrong(problems))?,
    }
    Ok(if loaded.is_ok() { 0 } else { EXIT_CONFIGURATION })
}

fn say(config: &Config, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{}: ok ({} schedules, {} pools, {} reports)",
        config.name,
        config.schedules.len(),
        config.pools.len(),
        config.reports.len()
    )?;
    for note in notes(config) {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

fn right(config: &Config) -> Value {
    let names = |names: Vec<&str>| Value::from(names);
    json!({
        "ok": true,
        "file": config.name,
        "schedules": names(config.schedules.iter().map(|schedule| schedule.name.as_str()).collect()),
        "pools": names(config.pools.iter().map(|pool| pool.name.as_str()).collect()),
        "reports": names(config.reports.keys().map(String::as_str).collect()),
        "notes": notes(config),
        "problems": [],
    })
}

fn wrong(problems: &Problems) -> Value {
    json!({ "ok": false, "problems": problems })
}

/// The loader's notes, and what `run` will ask for.
fn notes(config: &Config) -> Vec<String> {
    let missing = [config.database_url().err(), config.amqp_url().err()];
    let missing = missing.into_iter().flatten().map(|missing| missing.to_string());
    let silence = config.silence().map(|who| format!("{who}: the schedules in force stay"));
    config.notes.iter().cloned().chain(missing).chain(silence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exit code, stdout and stderr of a check of the text.
    fn checked(text: &str, json: bool) -> (u8, String, String) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("belfry.yaml");
        std::fs::write(&path, text).expect("written");
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = check(Some(&path), json, &|_, _| Ok(()), (&mut out, &mut err)).expect("told");
        let plain = |bytes: Vec<u8>| {
            String::from_utf8(bytes).expect("text").replace(&path.display().to_string(), "b.yaml")
        };
        (code, plain(out), plain(err))
    }

    const RIGHT: &str = "\
storage:
  redis: {url: 'redis://x'}
  postgres: {dsn: 'postgres://u:p@db/x'}
  rabbitmq: {url: 'amqp://u:p@mq'}
tasks: []
";

    #[test]
    fn a_right_file_is_ok_and_its_notes_follow() {
        let (code, out, err) = checked(RIGHT, false);

        assert_eq!((code, err.as_str()), (0, ""));
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], "b.yaml: ok (0 schedules, 2 pools, 0 reports)");
        assert!(lines[1].starts_with("note: b.yaml:2: storage.redis: does nothing here"), "{out}");
        assert_eq!(lines.len(), 2, "{out}");
    }

    #[test]
    fn a_file_that_says_no_tasks_is_noted() {
        for silent in ["", "tasks:\n", "limits: {}\n"] {
            let (code, out, _) = checked(silent, false);
            let noted = "note: b.yaml does not say `tasks`: the schedules in force stay\n";
            assert!(code == 0 && out.ends_with(noted), "{out}");
        }
    }

    #[test]
    fn problems_go_to_stderr_and_exit_with_2() {
        let (code, out, err) = checked("a: 1\ntasks: 3\n", false);

        assert_eq!((code, out.as_str()), (2, ""));
        let lines: Vec<&str> = err.lines().collect();
        assert!(lines[0].starts_with("b.yaml:1: a: unknown key"), "{err}");
        assert_eq!(lines[1], "b.yaml:2: tasks: expected a list, found a single value");
        assert_eq!(lines[2], "2 problems");
    }

    #[test]
    fn json_is_one_document_in_both_cases() {
        let (code, out, err) = checked("tasks: 3\n", true);
        let document: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!((code, err.as_str(), &document["ok"]), (2, "", &Value::Bool(false)));
        let problem = json!({
            "line": 1,
            "path": "tasks",
            "what": "expected a list, found a single value",
            "file": "b.yaml",
        });
        assert_eq!(document["problems"], json!([problem]));

        let (code, out, _) = checked(RIGHT, true);
        let document: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!((code, &document["ok"]), (0, &Value::Bool(true)));
        assert_eq!(document["pools"], json!(["io_pool", "cpu_pool"]));
        assert_eq!(document["notes"].as_array().map(Vec::len), Some(1));
    }
}

//! Entries as YAML that a person goes on writing, and the proof that it loads.

use std::fmt::Write as _;

use chrono::DateTime;
use serde_json::Value;
use shared::config::{Loader, Problem};
use shared::domain::template::{TickContext, render_payload};

use super::{Entry, Found};
use crate::commands::request::{check_for, one_line};

/// The whole section.
pub(super) fn document(found: &Found, name: &str) -> String {
    let mut text = String::new();
    comment("", &format!("Schedules of {name}, by `producer schedules import`."), &mut text);
    for remark in &found.remarks {
        comment("", remark, &mut text);
    }
    for (line, what) in &found.lost {
        comment("", &format!("Not carried over (line {line}): {what}"), &mut text);
    }
    let none = found.items.iter().all(|item| item.entry.is_err());
    text.push_str(if none { "tasks: []\n" } else { "tasks:\n" });
    for item in &found.items {
        let source = format!("Line {}: {}", item.line, item.source);
        match &item.entry {
            Ok(entry) => {
                text.push('\n');
                comment("  ", &source, &mut text);
                for what in &entry.said {
                    comment("  ", what, &mut text);
                }
                text.push_str(&printed(entry));
            }
            Err(why) => {
                text.push('\n');
                comment("  ", &source, &mut text);
                comment("  ", &format!("left out: {why}"), &mut text);
            }
        }
    }
    text
}

fn comment(indent: &str, what: &str, text: &mut String) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{indent}# {}", one_line(what));
}

/// One entry as an item of `tasks:`.
fn printed(entry: &Entry) -> String {
    let mut text = format!("  - name: {}\n", scalar(&Value::from(entry.name.as_str())));
    for (key, value) in &entry.keys {
        match (*key, value) {
            ("payload", Value::Object(fields)) => {
                text.push_str("    payload:\n");
                for (field, value) in fields {
                    let field = scalar(&Value::from(field.as_str()));
                    let _ = writeln!(text, "      {field}: {}", scalar(&escaped(value)));
                }
            }
            (key, value) => {
                let _ = writeln!(text, "    {key}: {}", scalar(value));
            }
        }
    }
    text
}

/// JSON is YAML, and needs no quotes only where nobody could misread it.
fn scalar(value: &Value) -> String {
    match value.as_str() {
        Some(text) if is_plain(text) => text.to_owned(),
        _ => value.to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || "_-/".contains(c);
    let said = ["true", "false", "null", "yes", "no", "on", "off"];
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(word)
        && !said.contains(&text.to_ascii_lowercase().as_str())
}

/// Texts as the file must say them, so that neither `${…}` nor `{{ … }}` in them is taken for ours.
fn escaped(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(escape(text)),
        Value::Array(items) => items.iter().map(escaped).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), escaped(value)));
            Value::Object(fields.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn escape(text: &str) -> String {
    let mut text = text.to_owned();
    if text.contains("{{") {
        // All three openings count once a text is a template; a sign stands in for its brace meanwhile.
        for opening in ["{{", "{%", "{#"] {
            let stand_in = opening.replace('{', "\u{1}");
            text = text.replace(opening, &format!("\u{2} '{stand_in}' \u{3}"));
        }
        text = text.replace('\u{1}', "{").replace('\u{2}', "{{").replace('\u{3}', "}}");
    }
    if text.contains("${") || text.contains("$$") {
        text = text.replace('$', "$$");
    }
    text
}

/// A problem of the only entry, with its key.
fn told(problem: &Problem) -> String {
    match problem.path.strip_prefix("tasks[0].") {
        Some(key) => format!("{key}: {}", problem.what),
        None => problem.what.clone(),
    }
}

/// Loads the entry as it would be printed, and compares what a tick of it would run.
pub(super) fn check(entry: &Entry) -> Result<(), String> {
    let text = format!("tasks:\n{}", printed(entry));
    // No variable may take part: the text is another program's.
    let loader = Loader { variables: &|_| None, payload: &check_for };
    let config = loader.text(&text, "imported").map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(told).collect();
        problems.join("; ")
    })?;
    let schedule = config.schedules.first().ok_or("it cannot be written as an entry")?;
    let tick = TickContext {
        schedule: &schedule.name,
        at: DateTime::UNIX_EPOCH,
        timezone: schedule.timezone,
        previous: None,
    };
    let rendered =
        render_payload(&schedule.payload.value(), &tick).map_err(|error| error.to_string())?;
    let wanted = entry.keys.iter().find(|(key, _)| *key == "payload").map(|(_, value)| value);
    if wanted.is_some_and(|wanted| *wanted != rendered) {
        return Err("its text cannot be written without being taken for a template".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn round_trip(argument: &str) -> Result<(), String> {
        let mut entry = Entry { name: "a".to_owned(), ..Entry::default() };
        entry.set("schedule", "@daily");
        entry.set("task_type", "command");
        entry.set("payload", json!({ "argv": ["/bin/echo", argument] }));
        check(&entry)
    }

    #[test]
    fn what_looks_like_ours_stays_what_it_was() {
        for argument in [
            "{{.Names}}",
            "{{ scheduled_date }} {% raw %} {# x #}",
            "${HOME} $$ $1 $",
            "a {{ b }} ${C:-d}",
            "no: yes # \"'\\ \t ü 😀",
            "",
            "- x",
        ] {
            assert_eq!(round_trip(argument), Ok(()), "{argument}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_said() {
        let why = round_trip("secret:token").expect_err("a secret that nobody has");
        assert!(why.contains("`secrets` has no"), "{why}");
    }
}

//! Stdout for data, stderr for talk: tables for people, one JSON document for programs.
//!
//! A reader that went away (`| head`) is no error. What comes from a payload or a database is
//! printed with its control characters made visible, so that it cannot drive a terminal.

use std::io::{self, ErrorKind, Write};

use chrono::{DateTime, SecondsFormat, Utc};
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::Value;

use super::error::{Answer, CommandError};

/// Writes data to stdout as it is.
pub fn bytes(data: &[u8]) -> Answer {
    let mut out = io::stdout().lock();
    match out.write_all(data).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CommandError::Failed(format!("stdout cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a text and a line break to stdout.
pub fn text(text: &str) -> Answer {
    bytes(format!("{}\n", clean(text)).as_bytes())
}

/// Writes one JSON document to stdout.
pub fn json(value: &impl Serialize) -> Answer {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| CommandError::Failed(format!("not JSON: {error}")))?;
    bytes(format!("{text}\n").as_bytes())
}

/// Says something on stderr.
pub fn talk(text: &str) {
    // Where stderr is gone there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{}", clean(text));
}

/// Says something that has its line breaks already on stderr.
pub fn talk_bytes(text: &[u8]) {
    // As above.
    let _ = io::stderr().lock().write_all(text);
}

/// Writes a table to stdout, one line a row.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> Answer {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    // Never wrapped: an id that is broken over lines cannot be copied.
    table.set_content_arrangement(ContentArrangement::Disabled);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let one_line = |cell: String| clean(&cell).replace(['\n', '\t'], " ");
    for row in rows {
        table.add_row(row.into_iter().map(one_line).collect::<Vec<_>>());
    }
    let lines: Vec<String> =
        table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    text(&lines.join("\n"))
}

/// `label: value` lines, aligned; those without a value are left out.
pub fn fields(pairs: &[(&str, Option<String>)]) -> String {
    let width = pairs.iter().map(|(label, _)| label.len()).max().unwrap_or(0) + 1;
    let shown = pairs.iter().filter_map(|(label, value)| {
        let value = value.as_deref()?.replace('\n', &format!("\n{:width$} ", ""));
        Some(format!("{:width$} {value}", format!("{label}:")))
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// An instant, to the second, in UTC.
pub fn time(instant: DateTime<Utc>) -> String {
    instant.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// An instant, or `-`.
pub fn time_or_dash(instant: Option<DateTime<Utc>>) -> String {
    instant.map_or_else(|| "-".to_owned(), time)
}

/// A text, or `-`.
pub fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}

/// The beginning of a text, on one line.
pub fn short(text: &str, most: usize) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.chars().count() <= most {
        return words;
    }
    words.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// JSON as a person reads it: short values on one line.
pub fn pretty(value: &Value) -> String {
    let compact = value.to_string();
    if compact.len() <= 100 { compact } else { format!("{value:#}") }
}

/// A count with its word.
pub fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// A word in the quotes of a shell.
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Control characters made visible, line breaks and tabs apart.
fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_cannot_drive_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\r\nc\td"), "a\\u{1b}[2Jb\\u{d}\nc\td");
    }

    #[test]
    fn long_texts_are_cut_by_characters() {
        assert_eq!(short("one\n  two", 20), "one two");
        assert_eq!(short("ééééé", 4), "ééé…");
    }

    #[test]
    fn fields_without_a_value_are_left_out() {
        let shown = fields(&[("a", Some("1".into())), ("long", Some("2\n3".into())), ("b", None)]);
        assert_eq!(shown, "a:    1\nlong: 2\n      3");
    }
}

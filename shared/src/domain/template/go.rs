//! The Go spelling of variables, `{{ .ScheduledDate }}`, that files of older schedulers use.
//!
//! Only the variables are translated; Go's functions and control words are not.

use std::borrow::Cow;

use super::TemplateError;

const FIELDS: [(&str, &str); 4] = [
    ("Schedule", "schedule"),
    ("ScheduledDate", "scheduled_date"),
    ("ScheduledAt", "scheduled_at"),
    ("PreviousAt", "previous_at"),
];

/// Writes `.ScheduledDate` inside `{{ … }}` as `scheduled_date`.
pub(super) fn rewrite(template: &str) -> Result<Cow<'_, str>, TemplateError> {
    if !template.contains("{{") || !template.contains('.') {
        return Ok(Cow::Borrowed(template));
    }
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((outside, opened)) = rest.split_once("{{") {
        if let Some(raw) = raw_block(outside) {
            // What is raw stays so: it may be a template of someone else.
            let end = rest[raw..].find("endraw").map_or(rest.len(), |end| raw + end);
            text.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let (inside, after) = opened.split_once("}}").unwrap_or((opened, ""));
        text.push_str(outside);
        text.push_str("{{");
        rewrite_expression(inside, &mut text)?;
        text.push_str(&opened[inside.len()..opened.len() - after.len()]);
        rest = after;
    }
    text.push_str(rest);
    Ok(Cow::Owned(text))
}

/// Where the first `{% raw %}` of a text ends.
fn raw_block(text: &str) -> Option<usize> {
    let ends = text.match_indices("{%").filter_map(|(at, _)| {
        let inside = &text[at + 2..at + text[at..].find("%}")?];
        let word = inside.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        (word == "raw").then_some(at + 2 + inside.len())
    });
    ends.min()
}

fn rewrite_expression(expression: &str, text: &mut String) -> Result<(), TemplateError> {
    let mut quote = None;
    let mut before = ' ';
    let mut rest = expression;
    while let Some(c) = rest.chars().next() {
        // A dot after a blank or an operator begins a field of Go's; after a name it is ours.
        let begins =
            quote.is_none() && c == '.' && (before.is_whitespace() || "(-,|".contains(before));
        let name = rest[c.len_utf8()..]
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .next()
            .filter(|name| begins && name.starts_with(|c: char| c.is_ascii_alphabetic()));
        if let Some(name) = name {
            text.push_str(variable(name)?);
            rest = &rest[1 + name.len()..];
            before = 'x';
            continue;
        }
        quote = match quote {
            None if c == '"' || c == '\'' => Some(c),
            Some(open) if open == c && before != '\\' => None,
            unchanged => unchanged,
        };
        text.push(c);
        before = c;
        rest = &rest[c.len_utf8()..];
    }
    Ok(())
}

fn variable(field: &str) -> Result<&'static str, TemplateError> {
    FIELDS.iter().find(|(go, _)| *go == field).map(|(_, ours)| *ours).ok_or_else(|| {
        TemplateError::UnknownVariable {
            name: format!(".{field}"),
            hint: format!("known are {}", FIELDS.map(|(go, _)| format!(".{go}")).join(", ")),
        }
    })
}

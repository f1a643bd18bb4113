//! A session's conversation as people read it, from its kept steps. It asks nobody anything.

use shared::domain::payloads::{AgentSession, Payload as _};
use shared::llm::session::Transcript;
use shared::store::TaskRow;

/// Most characters of one message of a transcript; `--json` has all of them.
pub const MAX_SHOWN_CHARS: usize = 2000;

/// A session's conversation so far; nothing for other types.
pub fn lines(task: &TaskRow) -> Vec<String> {
    if task.summary.task_type != AgentSession::TYPE {
        return Vec::new();
    }
    let steps = task.steps.as_array().map(Vec::as_slice).unwrap_or_default();
    let steps = steps
        .iter()
        .filter_map(|step| Some((step["name"].as_str()?.to_owned(), step["result"].clone())));
    let told = Transcript::of(steps);
    let mut lines = vec![format!(
        "transcript (of a message the first {MAX_SHOWN_CHARS} characters; --json has all)"
    )];
    for field in ["system", "goal"] {
        if let Some(text) = task.payload[field].as_str() {
            lines.push(said(field, text));
        }
    }
    for told in &told.turns {
        if !told.turn.text.is_empty() {
            lines.push(said("model", &told.turn.text));
        }
        for (call, answer) in told.turn.tool_calls.iter().zip(&told.answers) {
            lines.push(said("asks", &format!("{} {}", call.name, call.arguments)));
            match answer {
                Some(answer) => lines.push(said("tool", &answer.content)),
                None => lines.push(said("tool", "(not yet)")),
            }
        }
        if let Some(flaw) = &told.turn.flaw {
            lines.push(said("flaw", &flaw.message));
        }
    }
    lines
}

/// A message, its further lines below its first.
fn said(who: &str, text: &str) -> String {
    let shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    let more = match text.chars().count().saturating_sub(MAX_SHOWN_CHARS) {
        0 => String::new(),
        more => format!("… ({more} more)"),
    };
    let shown = shown + &more;
    format!("  {who:<7} {}", shown.replace('\n', "\n          "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_and_its_lines_stand_below_each_other() {
        assert_eq!(said("tool", "a\nb"), "  tool    a\n          b");
        let long = said("model", &"é".repeat(MAX_SHOWN_CHARS + 5));
        assert!(long.ends_with("é… (5 more)"), "{long}");
    }
}

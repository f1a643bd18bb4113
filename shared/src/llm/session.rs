//! A session as its kept steps tell it: what has been said, and what comes next.
//!
//! Pure: the same steps lead to the same question, on whichever worker. It reads no clock, asks no
//! model and runs no tool.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::message::Message;
use super::usage::TokenUsage;
use crate::domain::outcome::ErrorClass;
use crate::domain::tools::ToolCall;

/// What a model is told of a final answer that is not what was asked for.
const AGAIN: &str = "Answer once more, with nothing but what was asked for.";

/// A turn of the model, as its step keeps it. JSON: its fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// What it said; empty when it only asks for tools.
    #[serde(default)]
    pub text: String,
    /// Tools that it asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// stop, tool_calls, … — open to new words.
    #[serde(default)]
    pub finish_reason: Option<String>,
    /// Model that answered.
    #[serde(default)]
    pub model: String,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flaw: Option<Flaw>,
    /// Tokens of all calls that it took.
    #[serde(default)]
    pub usage: TokenUsage,
    /// Millionths of a US dollar of them; `None` where none has a price.
    #[serde(default)]
    pub cost_micro: Option<i64>,
}

/// What is wrong with a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flaw {
    /// Its class.
    pub class: ErrorClass,
    /// In words.
    pub message: String,
}

/// What a tool answered, as its step keeps it. JSON: its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolAnswer {
    /// Name of the tool, as the model calls it.
    pub tool: String,
    /// What the model is told.
    pub content: String,
    /// Why it failed, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorClass>,
}

/// A session so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// Turns with the answers of their tools, oldest first.
    pub turns: Vec<Told>,
}

/// A turn and what its tools answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// The turn.
    pub turn: Turn,
    /// By the order of its tool calls; `None` where the tool has not run.
    pub answers: Vec<Option<ToolAnswer>>,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next<'a> {
    /// The model speaks; the turn's number, from 1.
    Turn(usize),
    /// A tool runs.
    Tool {
        /// Number of the turn that asks for it.
        turn: usize,
        /// Number of the call in it, from 1.
        call_no: usize,
        /// The call.
        call: &'a ToolCall,
    },
    /// Nothing: this is the final answer.
    Done(&'a Turn),
}

/// Name of a turn's step.
pub fn turn_step(turn: usize) -> String {
    format!("turn-{turn:03}")
}

/// Name of a tool call's step.
pub fn tool_step(turn: usize, call_no: usize) -> String {
    format!("tool-{turn:03}-{call_no}")
}

impl Transcript {
    /// From kept steps, in any order. What cannot be read counts as not kept, and what came after a
    /// turn that is not kept is left out.
    pub fn of(steps: impl IntoIterator<Item = (String, Value)>) -> Self {
        let mut steps: BTreeMap<String, Value> = steps.into_iter().collect();
        let mut turns = Vec::new();
        while let Some(turn) = take::<Turn>(&mut steps, &turn_step(turns.len() + 1)) {
            let step = |at| tool_step(turns.len() + 1, at + 1);
            let answers = (0..turn.tool_calls.len()).map(|at| take(&mut steps, &step(at)));
            let answers = answers.collect();
            turns.push(Told { turn, answers });
        }
        Self { turns }
    }

    /// What comes next. `repairs`: a final answer that is not what was asked for is shown to the
    /// model, once in a session.
    pub fn next(&self, repairs: bool) -> Next<'_> {
        let Some(last) = self.turns.last() else { return Next::Turn(1) };
        let turn = self.turns.len();
        if let Some(at) = last.answers.iter().position(Option::is_none) {
            return Next::Tool { turn, call_no: at + 1, call: &last.turn.tool_calls[at] };
        }
        let is_first = self.turns.iter().filter(|told| told.turn.is_to_repair()).count() == 1;
        if !last.answers.is_empty() || (repairs && last.turn.is_to_repair() && is_first) {
            return Next::Turn(turn + 1);
        }
        Next::Done(&last.turn)
    }

    /// The conversation after its beginning, as the next turn's question repeats it.
    pub fn messages(&self) -> Vec<Message> {
        let mut messages = Vec::new();
        for told in &self.turns {
            let calls = &told.turn.tool_calls;
            messages.push(Message {
                tool_calls: calls.clone(),
                ..Message::new("assistant", told.turn.text.clone())
            });
            for (call, answer) in calls.iter().zip(&told.answers) {
                let content = answer.as_ref().map(|answer| answer.content.clone());
                messages.push(Message::tool(call, content.unwrap_or_default()));
            }
            if let Some(flaw) = told.turn.flaw.as_ref().filter(|_| told.turn.is_to_repair()) {
                messages.push(Message::user(format!("{}. {AGAIN}", flaw.message)));
            }
        }
        messages
    }

    /// Keeps a turn.
    pub fn said(&mut self, turn: Turn) {
        let answers = vec![None; turn.tool_calls.len()];
        self.turns.push(Told { turn, answers });
    }

    /// Keeps what a tool of the last turn answered.
    pub fn answered(&mut self, call_no: usize, answer: ToolAnswer) {
        let place = self.turns.last_mut().and_then(|told| told.answers.get_mut(call_no - 1));
        if let Some(place) = place {
            *place = Some(answer);
        }
    }

    /// Tool calls that were answered.
    pub fn tool_calls(&self) -> usize {
        self.turns.iter().flat_map(|told| &told.answers).flatten().count()
    }

    /// Tokens and cost of all turns; no cost where none has a price.
    pub fn spent(&self) -> (TokenUsage, Option<i64>) {
        let (mut usage, mut cost) = (TokenUsage::default(), None);
        for Told { turn, .. } in &self.turns {
            usage += turn.usage;
            if let Some(micro) = turn.cost_micro {
                cost = Some(cost.unwrap_or(0_i64).saturating_add(micro));
            }
        }
        (usage, cost)
    }
}

impl Turn {
    /// True for a final answer that is not what was asked for.
    fn is_to_repair(&self) -> bool {
        let invalid = |flaw: &Flaw| flaw.class == ErrorClass::AnswerInvalid;
        self.tool_calls.is_empty() && self.flaw.as_ref().is_some_and(invalid)
    }
}

fn take<T: serde::de::DeserializeOwned>(
    steps: &mut BTreeMap<String, Value>,
    name: &str,
) -> Option<T> {
    serde_json::from_value(steps.remove(name)?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.to_owned(), name: "f".to_owned(), arguments: "{}".to_owned() }
    }

    fn asks(ids: &[&str]) -> Turn {
        Turn { tool_calls: ids.iter().map(|id| call(id)).collect(), ..Turn::default() }
    }

    fn says(text: &str) -> Turn {
        Turn { text: text.to_owned(), ..Turn::default() }
    }

    fn invalid(text: &str) -> Turn {
        let flaw = Flaw { class: ErrorClass::AnswerInvalid, message: "no JSON".to_owned() };
        Turn { flaw: Some(flaw), ..says(text) }
    }

    fn answer(content: &str) -> ToolAnswer {
        ToolAnswer { tool: "f".to_owned(), content: content.to_owned(), error: None }
    }

    /// A session from its steps, as a worker finds them.
    fn session(turns: &[Turn], answers: &[(usize, usize)]) -> Transcript {
        let turns = turns.iter().enumerate().map(|(at, turn)| (turn_step(at + 1), json!(turn)));
        let answers = answers.iter().map(|&(turn, no)| {
            (tool_step(turn, no), json!(answer(&format!("answer {turn}-{no}"))))
        });
        Transcript::of(answers.chain(turns))
    }

    #[test]
    fn a_session_goes_on_after_its_last_step_whichever_that_is() {
        assert_eq!(session(&[], &[]).next(true), Next::Turn(1));
        let two = [asks(&["a", "b"])];
        let tool = |turn, call_no, id: &str| (turn, call_no, call(id));
        let next = |session: &Transcript| match session.next(true) {
            Next::Tool { turn, call_no, call } => Some((turn, call_no, call.clone())),
            _ => None,
        };
        assert_eq!(next(&session(&two, &[])), Some(tool(1, 1, "a")));
        assert_eq!(next(&session(&two, &[(1, 1)])), Some(tool(1, 2, "b")));
        assert_eq!(next(&session(&two, &[(1, 2)])), Some(tool(1, 1, "a")));
        assert_eq!(session(&two, &[(1, 1), (1, 2)]).next(true), Next::Turn(2));
        let done = [asks(&["a"]), says("42")];
        assert_eq!(session(&done, &[(1, 1)]).next(true), Next::Done(&says("42")));
    }

    #[test]
    fn the_conversation_is_what_the_steps_say_in_the_order_of_the_calls() {
        let session = session(&[asks(&["a", "b"]), says("42")], &[(1, 2), (1, 1)]);
        let told: Vec<_> = session
            .messages()
            .into_iter()
            .map(|it| (it.role, it.content, it.tool_call_id))
            .collect();
        let of = |role: &str, content: &str, id: Option<&str>| {
            (role.to_owned(), content.to_owned(), id.map(str::to_owned))
        };
        assert_eq!(
            told,
            [
                of("assistant", "", None),
                of("tool", "answer 1-1", Some("a")),
                of("tool", "answer 1-2", Some("b")),
                of("assistant", "42", None),
            ]
        );
    }

    #[test]
    fn what_is_told_step_by_step_is_what_a_successor_reads() {
        let mut told = Transcript::default();
        told.said(asks(&["a"]));
        told.answered(1, answer("answer 1-1"));
        told.said(says("42"));
        assert_eq!(told, session(&[asks(&["a"]), says("42")], &[(1, 1)]));
        assert_eq!((told.turns.len(), told.tool_calls()), (2, 1));
    }

    #[test]
    fn a_wrong_final_answer_is_shown_to_the_model_once() {
        let wrong = session(&[invalid("x")], &[]);
        assert_eq!(wrong.next(true), Next::Turn(2));
        assert_eq!(wrong.next(false), Next::Done(&invalid("x")));
        let said = wrong.messages().pop().expect("a message");
        assert_eq!((said.role.as_str(), said.content.contains("no JSON")), ("user", true));
        let twice = session(&[invalid("x"), invalid("y")], &[]);
        assert_eq!(twice.next(true), Next::Done(&invalid("y")));
    }

    #[test]
    fn what_cannot_be_read_is_not_kept_and_neither_is_what_follows() {
        let steps = |first: Value| {
            vec![
                (turn_step(1), first),
                (turn_step(2), json!(says("42"))),
                ("x".to_owned(), json!(1)),
            ]
        };
        assert_eq!(Transcript::of(steps(json!(7))).next(true), Next::Turn(1));
        assert_eq!(Transcript::of(steps(json!(asks(&["a"])))).turns.len(), 2);
    }
}

//! `agent_session`: a goal, the tools for it, and limits.

mod tool;

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::model_invoke::{MAX_WORD, judge_format, judge_options};
use super::{Payload, duration, given};
use crate::domain::answer::{
    AnswerPolicy, MAX_FALLBACKS, OnEmpty, OnInvalid, OnRefused, OnTruncated,
};
use crate::domain::tools::MAX_TOOLS;

pub use tool::{NEVER_TOOLS, SessionTool};

/// Steps that a session may take unless its payload says otherwise: each turn of the model and each
/// call of a tool is one.
pub const DEFAULT_STEPS: u32 = 20;
/// Most steps that a payload may allow: each step's question repeats the whole conversation.
pub const MAX_STEPS: u32 = 200;
/// Longest answer of a turn unless the payload says otherwise, in tokens.
const DEFAULT_MAX_TOKENS: u32 = 4096;

/// A goal that a model works towards with tools.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSession {
    /// What is wanted.
    pub goal: String,
    /// Instruction before it.
    #[serde(default)]
    pub system: Option<String>,
    /// Model; without it the configured default.
    #[serde(default)]
    pub model: Option<String>,
    /// What the model may use.
    #[serde(default)]
    pub tools: Vec<SessionTool>,
    /// Where it ends at the latest.
    #[serde(default)]
    pub limits: SessionLimits,
    /// Longest answer of a turn in tokens.
    #[serde(default = "default_max_tokens")]
    pub max_tokens: u32,
    /// Randomness, 0 to 2.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// The same answer to the same question, where the provider can.
    #[serde(default)]
    pub seed: Option<i64>,
    /// How long the model thinks.
    #[serde(default)]
    pub reasoning_effort: Option<String>,
    /// What the final answer is held to.
    #[serde(default, deserialize_with = "given")]
    pub response_format: Option<Value>,
    /// Take each turn piece by piece.
    #[serde(default)]
    pub stream: bool,
    /// What to do with a cut answer.
    #[serde(default = "larger")]
    pub on_truncated: OnTruncated,
    /// What to do with a final answer that is not what was asked for.
    #[serde(default = "repair")]
    pub on_invalid: OnInvalid,
    /// What to do with an empty answer.
    #[serde(default)]
    pub on_empty: OnEmpty,
    /// What to do with a refusal.
    #[serde(default)]
    pub on_refused: OnRefused,
    /// Models that stand in; without it those of `model.fallback`.
    #[serde(default)]
    pub fallback: Option<Vec<String>>,
}

/// Where a session ends at the latest. A replay by hand allows as much once more.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionLimits {
    /// Steps: turns of the model and calls of tools.
    #[serde(default = "default_steps")]
    pub steps: u32,
    /// Input and output tokens of all its model calls.
    #[serde(default)]
    pub tokens: Option<u64>,
    /// US dollars of all its model calls.
    #[serde(default)]
    pub cost: Option<f64>,
    /// Time since its first attempt began, waits included.
    #[serde(default, deserialize_with = "duration")]
    pub wall_time: Option<Duration>,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { steps: DEFAULT_STEPS, tokens: None, cost: None, wall_time: None }
    }
}

fn default_steps() -> u32 {
    DEFAULT_STEPS
}

fn default_max_tokens() -> u32 {
    DEFAULT_MAX_TOKENS
}

fn larger() -> OnTruncated {
    OnTruncated::Larger
}

fn repair() -> OnInvalid {
    OnInvalid::Repair
}

impl AgentSession {
    /// What each turn's question does with an answer that is no good. What a tool or a format makes
    /// of it is the session's own matter, one step later.
    pub fn policy(&self) -> AnswerPolicy {
        AnswerPolicy {
            on_truncated: Some(self.on_truncated),
            on_invalid: OnInvalid::Accept,
            on_empty: self.on_empty,
            on_refused: self.on_refused,
            fallback: self.fallback.clone(),
        }
    }
}

impl SessionLimits {
    fn judge(&self) -> Result<(), String> {
        if !(1..=MAX_STEPS).contains(&self.steps) {
            return Err(format!("limits.steps is {}, not 1 to {MAX_STEPS}", self.steps));
        }
        if self.tokens == Some(0) {
            return Err("limits.tokens is 0; leave it out for no limit".to_owned());
        }
        if self.cost.is_some_and(|cost| !(cost.is_finite() && cost > 0.0)) {
            return Err("limits.cost is an amount of US dollars above 0".to_owned());
        }
        if self.wall_time.is_some_and(|time| time.is_zero()) {
            return Err("limits.wall_time is 0; leave it out for no limit".to_owned());
        }
        Ok(())
    }
}

impl Payload for AgentSession {
    const TYPE: &'static str = "agent_session";

    fn schema() -> Value {
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "agent_session",
            "description": "A model works towards a goal with tools, which are other task types. Each turn and each tool call is kept: a session that is interrupted goes on from its last step, on any worker, and pays nothing again.",
            "type": "object",
            "required": ["goal"],
            "additionalProperties": false,
            "properties": {
                "goal": {"type": "string", "minLength": 1, "description": "what is wanted, for the model"},
                "system": {"type": "string", "description": "instruction before the goal"},
                "model": {"type": "string", "description": "model; without it model.default_model (MODEL_NAME)"},
                "tools": {
                    "type": "array", "maxItems": MAX_TOOLS,
                    "description": "task types that the model may use, of those that handlers.agent_session.tools of the configuration allows: a name, or an object that fixes and narrows",
                    "items": {"oneOf": [{"type": "string"}, SessionTool::schema()]},
                },
                "limits": {
                    "type": "object", "additionalProperties": false,
                    "description": "where the session ends at the latest; a replay of its dead letter goes on and allows as much once more",
                    "properties": {
                        "steps": {"type": "integer", "minimum": 1, "maximum": MAX_STEPS, "default": DEFAULT_STEPS, "description": "turns of the model and calls of tools"},
                        "tokens": {"type": "integer", "minimum": 1, "description": "input and output tokens of all its model calls; no turn begins beyond"},
                        "cost": {"type": "number", "exclusiveMinimum": 0, "description": "US dollars of all its model calls by model.prices; no turn begins beyond"},
                        "wall_time": {"type": ["string", "number"], "description": "such as 1h: time since its first attempt began, waits included"},
                    },
                },
                "max_tokens": {"type": "integer", "minimum": 1, "default": DEFAULT_MAX_TOKENS, "description": "longest answer of a turn in tokens"},
                "temperature": {"type": "number", "minimum": 0, "maximum": 2, "description": "randomness"},
                "seed": {"type": "integer", "description": "asks for the same answer to the same question, where the provider can"},
                "reasoning_effort": {"type": "string", "minLength": 1, "maxLength": MAX_WORD, "description": "how long the model thinks: low, medium, high, or another word of the provider"},
                "response_format": {"type": "object", "description": "what the final answer is held to: {\"type\": \"json_object\"}, or {\"type\": \"json_schema\", \"json_schema\": {\"name\", \"schema\"}}"},
                "stream": {"type": "boolean", "default": false, "description": "take each turn piece by piece; the time to the first is measured"},
                "on_truncated": {"enum": ["accept", "fail", "larger"], "default": "larger", "description": "a turn cut at max_tokens: take the part, give up, or ask once more with four times the tokens"},
                "on_invalid": {"enum": ["fail", "repair", "accept"], "default": "repair", "description": "a final answer that response_format does not allow: give up, show the model once what is wrong, or take it as it is; a wrong tool call is told to the model in any case"},
                "on_empty": {"enum": ["again", "fallback", "fail"], "default": "again", "description": "not a word: ask once more in the next attempt, ask the next model of fallback at once, or give up"},
                "on_refused": {"enum": ["fallback", "fail"], "default": "fallback", "description": "the model or a filter would not answer: ask the next model of fallback, if there is one, or give up"},
                "fallback": {"type": "array", "maxItems": MAX_FALLBACKS, "items": {"type": "string", "minLength": 1}, "description": "models that stand in; without it those of model.fallback"},
            },
            "examples": [
                {
                    "goal": "Which three customers ordered most in {{ scheduled_date }}? Post one sentence on it to the team.",
                    "tools": [
                        {
                            "name": "query_orders",
                            "task_type": "db_query",
                            "description": "one read-only query on orders(id, customer, day, total)",
                            "payload": {"source": "reporting"},
                        },
                        {
                            "name": "post_message",
                            "task_type": "http_call",
                            "description": "posts a message to the team",
                            "payload": {
                                "url": "https://chat.example/hooks/team",
                                "method": "POST",
                                "headers": {"Authorization": "Bearer secret:chat_token"},
                            },
                            "parameters": {
                                "type": "object",
                                "required": ["body"],
                                "properties": {"body": {
                                    "type": "object", "required": ["text"],
                                    "properties": {"text": {"type": "string", "maxLength": 500}},
                                }},
                            },
                        },
                    ],
                    "limits": {"steps": 12, "tokens": 50000, "wall_time": "15m"},
                },
                {"goal": "Is https://status.example up? Answer yes or no.", "tools": ["http_call"]},
            ],
        })
    }

    fn judge(&self) -> Result<(), String> {
        if self.goal.trim().is_empty() {
            return Err("goal is empty; say what is wanted".to_owned());
        }
        judge_options(self.max_tokens, self.temperature, self.reasoning_effort.as_deref())?;
        judge_format(self.response_format.as_ref())?;
        SessionTool::judge_all(&self.tools)?;
        self.limits.judge()?;
        if self.on_invalid == OnInvalid::Fallback {
            return Err(
                "on_invalid is fallback; a session knows repair, fail and accept".to_owned()
            );
        }
        self.policy().judge()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(payload: &Value, expected: &str) {
        let seen = AgentSession::read(payload).map_or_else(|error| error, |_| "ok".to_owned());
        assert!(seen.contains(expected), "{payload}: {seen}");
    }

    #[test]
    fn a_session_has_a_goal_and_limits_with_an_end() {
        let with = |limits: Value| json!({"goal": "a", "limits": limits});
        check(&json!({"goal": "a"}), "ok");
        check(&json!({}), "missing field `goal`");
        check(&json!({"goal": " "}), "goal is empty");
        check(&with(json!({"steps": 0})), "limits.steps is 0, not 1 to 200");
        check(&with(json!({"steps": 201})), "not 1 to 200");
        check(&with(json!({"tokens": 0})), "limits.tokens");
        check(&with(json!({"cost": -1})), "above 0");
        check(&with(json!({"wall_time": "0s"})), "limits.wall_time");
        check(&with(json!({"wall_time": "1h", "cost": 0.5, "tokens": 10})), "ok");
        check(&with(json!({"turns": 3})), "unknown field `turns`");
        check(&json!({"goal": "a", "on_invalid": "fallback"}), "repair, fail and accept");
        check(&json!({"goal": "a", "temperature": 3}), "between 0 and 2");
        check(&json!({"goal": "a", "response_format": {"type": "xml"}}), "none of text");
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let asked = AgentSession::read(&json!({"goal": "a"})).expect("right");
        assert_eq!((asked.limits.steps, asked.max_tokens), (DEFAULT_STEPS, DEFAULT_MAX_TOKENS));
        assert_eq!(asked.policy().on_invalid, OnInvalid::Accept, "a step later it is judged");
        assert_eq!(
            (asked.on_truncated, asked.on_invalid),
            (OnTruncated::Larger, OnInvalid::Repair)
        );
    }
}

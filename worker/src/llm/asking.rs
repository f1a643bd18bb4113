//! What is asked next: the same with more room, the answer with what is wrong with it, or another
//! model. Pure: the same answers lead the same way, so that a successor walks it over what is stored.
//!
//! Each try is another question, and there are few: one with more room, one repair, and each model
//! that stands in.

use shared::domain::answer::larger_limit;
use shared::llm::{
    AnswerFault, ChatAnswer, ChatRequest, LlmError, Message, Models, OnInvalid, OnRefused,
    OnTruncated,
};

/// What a model is told of an answer that cannot be used.
const AGAIN: &str = "Answer once more, with nothing but what was asked for.";
/// What it is told of a tool that could have run, beside one that could not.
const NOT_RUN: &str =
    "not run, because another call of the same message cannot be; ask for all of them again";

/// A question on its way.
pub(super) struct Asking {
    /// As it was given.
    given: ChatRequest,
    /// The model asked for, and those that stand in.
    models: Vec<String>,
    /// Which of them is asked.
    at: usize,
    /// As it is asked now.
    question: ChatRequest,
    enlarged: bool,
    repaired: bool,
}

impl Asking {
    /// The way of a question.
    pub fn new(models: &Models, given: ChatRequest) -> Result<Self, LlmError> {
        let first = models.model_of(&given)?.to_owned();
        let stand_ins = match &given.policy.fallback {
            Some(stand_ins) => stand_ins,
            None => models.fallback_of(&first),
        };
        let mut all = vec![first];
        for model in stand_ins {
            if !all.contains(model) {
                all.push(model.clone());
            }
        }
        let question = ChatRequest { model: Some(all[0].clone()), ..given.clone() };
        Ok(Self { given, models: all, at: 0, question, enlarged: false, repaired: false })
    }

    /// What is asked now.
    pub fn question(&self) -> &ChatRequest {
        &self.question
    }

    /// The plain question to each model that stands in, by its place.
    pub fn stand_ins(&self) -> impl DoubleEndedIterator<Item = (usize, ChatRequest)> {
        let models = self.models.iter().enumerate().skip(1);
        let plain =
            |model: &String| ChatRequest { model: Some(model.clone()), ..self.given.clone() };
        models.map(move |(at, model)| (at, plain(model)))
    }

    /// Asks the model at a place from now on.
    pub fn go_to(&mut self, at: usize) {
        self.at = at;
        self.question = ChatRequest { model: Some(self.models[at].clone()), ..self.given.clone() };
    }

    /// Asks the next model, if there is one.
    pub fn stand_in(&mut self) -> bool {
        let next = self.at + 1;
        if next < self.models.len() {
            self.go_to(next);
        }
        self.at == next
    }

    /// After a paid answer that cannot be used: true when there is a next question.
    pub fn after(&mut self, answer: &ChatAnswer, fault: &AnswerFault) -> bool {
        let policy = &self.given.policy;
        match fault {
            AnswerFault::Truncated(_) => {
                let whole = self.given.wants_json() || !answer.tool_calls.is_empty();
                policy.on_truncated(whole) == OnTruncated::Larger && self.enlarge()
            }
            AnswerFault::Invalid(_) => match policy.on_invalid {
                OnInvalid::Repair => self.repair(answer, fault),
                OnInvalid::Fallback => self.stand_in(),
                OnInvalid::Fail | OnInvalid::Accept => false,
            },
            AnswerFault::Refused(_) => policy.on_refused == OnRefused::Fallback && self.stand_in(),
            // Not stored, so it never comes here as an answer.
            AnswerFault::Empty(_) => false,
        }
    }

    /// Once: the same with more room.
    fn enlarge(&mut self) -> bool {
        let larger = self.question.max_tokens.and_then(larger_limit);
        if self.enlarged || larger.is_none() {
            return false;
        }
        self.enlarged = true;
        self.question.max_tokens = larger;
        true
    }

    /// Once: the model sees its answer and what is wrong with it.
    fn repair(&mut self, answer: &ChatAnswer, fault: &AnswerFault) -> bool {
        if self.repaired {
            return false;
        }
        self.repaired = true;
        let messages = &mut self.question.messages;
        messages.push(Message::assistant(answer));
        if answer.tool_calls.is_empty() {
            messages.push(Message::user(format!("{fault}. {AGAIN}")));
        }
        for call in &answer.tool_calls {
            let said = match call.input(&self.given.tools) {
                Ok(_) => NOT_RUN.to_owned(),
                Err(fault) => format!("error: {fault}"),
            };
            messages.push(Message::tool(call, said));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::config;
    use shared::llm::{AnswerPolicy, Tool, ToolCall};

    use super::*;

    fn asking(policy: AnswerPolicy) -> Asking {
        let text = "model: {base_url: 'http://h', default_model: m, fallback: {m: [n, o]}}";
        let config = config::load_str(text, "b.yaml", &|_| None).expect("a configuration");
        let tool = json!({"type": "function", "function": {"name": "f"}});
        let tool: Tool = serde_json::from_value(tool).expect("a tool");
        let request = ChatRequest {
            messages: vec![Message::user("hi")],
            max_tokens: Some(100),
            tools: vec![tool],
            policy,
            ..ChatRequest::default()
        };
        Asking::new(&Models::from_config(&config), request).expect("a model")
    }

    fn model(asking: &Asking) -> &str {
        asking.question().model.as_deref().expect("named")
    }

    fn text(text: &str) -> ChatAnswer {
        ChatAnswer { text: text.to_owned(), ..ChatAnswer::default() }
    }

    #[test]
    fn a_refusal_goes_from_model_to_model_and_ends() {
        let refused = AnswerFault::Refused("no".to_owned());
        let mut way = asking(AnswerPolicy::default());
        let mut seen = vec![model(&way).to_owned()];
        while way.after(&text(""), &refused) {
            seen.push(model(&way).to_owned());
        }
        assert_eq!(seen, ["m", "n", "o"]);

        let fails = AnswerPolicy { on_refused: OnRefused::Fail, ..AnswerPolicy::default() };
        assert!(!asking(fails).after(&text(""), &refused));
        let alone = AnswerPolicy { fallback: Some(Vec::new()), ..AnswerPolicy::default() };
        assert!(!asking(alone).after(&text(""), &refused));
        let own = AnswerPolicy {
            fallback: Some(vec!["m".into(), "x".into()]),
            ..AnswerPolicy::default()
        };
        let mut way = asking(own);
        assert!(way.stand_in() && model(&way) == "x" && !way.stand_in());
    }

    #[test]
    fn a_cut_answer_gets_more_room_once() {
        let cut = AnswerFault::Truncated("cut".to_owned());
        let policy =
            AnswerPolicy { on_truncated: Some(OnTruncated::Larger), ..AnswerPolicy::default() };
        let mut way = asking(policy);
        assert!(way.after(&text("ha"), &cut));
        assert_eq!((way.question().max_tokens, model(&way)), (Some(400), "m"));
        assert!(!way.after(&text("ha"), &cut));
        assert!(!asking(AnswerPolicy::default()).after(&text("ha"), &cut));
    }

    #[test]
    fn a_repair_shows_the_answer_and_the_fault_once() {
        let invalid = AnswerFault::Invalid("at /n: no integer".to_owned());
        let policy = AnswerPolicy { on_invalid: OnInvalid::Repair, ..AnswerPolicy::default() };
        let mut way = asking(policy.clone());
        assert!(way.after(&text("{\"n\":\"x\"}"), &invalid));
        let said = &way.question().messages;
        assert_eq!(
            (said[1].role.as_str(), said[1].content.as_str()),
            ("assistant", "{\"n\":\"x\"}")
        );
        assert!(said[2].content.contains("at /n: no integer") && said[2].role == "user");
        assert!(!way.after(&text("{}"), &invalid));

        let call = |id: &str, name: &str| ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: "{}".to_owned(),
        };
        let answer = ChatAnswer { tool_calls: vec![call("1", "f"), call("2", "g")], ..text("") };
        let mut way = asking(policy);
        assert!(way.after(&answer, &invalid));
        let said = &way.question().messages;
        assert_eq!(said.len(), 4);
        assert!(said[2].content.contains("not run") && said[3].content.contains("no tool \"g\""));
        assert_eq!(said[3].tool_call_id.as_deref(), Some("2"));
    }

    #[test]
    fn who_stands_in_is_asked_the_plain_question() {
        let mut way =
            asking(AnswerPolicy { on_invalid: OnInvalid::Repair, ..AnswerPolicy::default() });
        assert!(way.after(&text("x"), &AnswerFault::Invalid("no JSON".to_owned())));
        assert!(way.stand_in());
        assert_eq!((way.question().messages.len(), model(&way)), (1, "n"));
        let places: Vec<usize> = way.stand_ins().map(|(at, _)| at).collect();
        assert_eq!(places, [1, 2]);
    }
}

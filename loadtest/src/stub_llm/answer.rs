//! What the stub says: a short text and token counts that depend on the question alone.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Words of the question that come back in the answer.
const ECHOED_WORDS: usize = 12;

/// Characters of the last message that the log keeps.
const ENDING: usize = 200;

/// A question as far as the stub understands it.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub model: String,
    /// All that the model is told, as text.
    prompt: String,
    /// The last thing the user said.
    last: String,
    pub max_tokens: Option<u64>,
    pub stream: bool,
    /// A stream tells its tokens too.
    pub include_usage: bool,
    /// Messages of the conversation.
    pub messages: usize,
    /// The end of the last of them, whoever spoke.
    pub ending: String,
    wants_json: bool,
    hash: String,
    pub input_tokens: u64,
}

impl Question {
    /// Reads a request body; an unexpected shape reads as an empty prompt.
    pub fn of(body: &Value) -> Self {
        let none = Vec::new();
        let messages = body["messages"].as_array().unwrap_or(&none);
        let texts: Vec<String> = messages.iter().map(|m| text_of(&m["content"])).collect();
        let user = messages.iter().rposition(|m| m["role"] == "user");
        let prompt = texts.join("\n");
        let model = body["model"].as_str().unwrap_or_default().to_owned();
        let hash = Sha256::digest(format!("{model}\n{prompt}").as_bytes());
        let limit = body.get("max_completion_tokens").or_else(|| body.get("max_tokens"));
        Self {
            model,
            last: user.and_then(|at| texts.get(at)).cloned().unwrap_or_default(),
            max_tokens: limit.and_then(Value::as_u64),
            stream: body["stream"] == true,
            include_usage: body["stream_options"]["include_usage"] == true,
            messages: messages.len(),
            ending: texts.last().map(|text| ending(text)).unwrap_or_default(),
            wants_json: body["response_format"]["type"].as_str().is_some_and(|t| t != "text"),
            hash: format!("{:08x}", u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])),
            // Four characters a token and a few for the frame of each message.
            input_tokens: tokens(&prompt) + 4 * messages.len() as u64,
            prompt,
        }
    }

    /// Eight digits that stand for model and prompt.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Text, its tokens and why it ended.
    pub fn answer(&self) -> (String, u64, &'static str) {
        let words: Vec<&str> = self.last.split_whitespace().take(ECHOED_WORDS).collect();
        let (words, size) = (words.join(" "), self.prompt.chars().count());
        let text = if self.wants_json {
            json!({ "summary": words, "id": self.hash, "characters": size }).to_string()
        } else {
            format!("Summary {} of {size} characters: {words}", self.hash)
        };
        match self.max_tokens {
            Some(limit) if tokens(&text) > limit => {
                let cut = text.chars().take(limit as usize * 4).collect();
                (cut, limit, "length")
            }
            _ => (text.clone(), tokens(&text), "stop"),
        }
    }
}

/// The last characters of a text.
fn ending(text: &str) -> String {
    let skipped = text.chars().count().saturating_sub(ENDING);
    text.chars().skip(skipped).collect()
}

fn tokens(text: &str) -> u64 {
    (text.chars().count() as u64).div_ceil(4)
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(extra: &Value) -> Question {
        let mut body = json!({
            "model": "m",
            "messages": [
                {"role": "system", "content": "be short"},
                {"role": "user", "content": [{"type": "text", "text": "orders of friday: 17"}]},
            ],
        });
        body.as_object_mut().expect("object").extend(extra.as_object().expect("object").clone());
        Question::of(&body)
    }

    #[test]
    fn the_same_question_has_the_same_answer_and_price() {
        let (one, two) = (question(&json!({})), question(&json!({})));
        assert_eq!(one.answer(), two.answer());
        assert_eq!((one.input_tokens, one.hash()), (two.input_tokens, two.hash()));
        assert!(one.answer().0.ends_with("orders of friday: 17"));
        assert_ne!(one.hash(), question(&json!({"model": "other"})).hash());
    }

    #[test]
    fn a_limit_cuts_and_a_format_is_kept() {
        assert_eq!(question(&json!({"max_tokens": 3})).answer().2, "length");
        let text = question(&json!({"response_format": {"type": "json_object"}})).answer().0;
        assert!(serde_json::from_str::<Value>(&text).expect("JSON")["summary"].is_string());
    }
}

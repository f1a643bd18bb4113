//! Scripts: queues of faults by model, consumed in order, one step a call.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::Value;

use super::fault::Fault;

/// The queue for every model that has none of its own.
const ANY: &str = "*";

/// All queues, and how often each question has met its model's own fault.
#[derive(Debug, Default)]
pub struct Scripts(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    queues: BTreeMap<String, VecDeque<Fault>>,
    met: BTreeMap<String, u32>,
}

impl Scripts {
    /// Adds steps to a queue.
    pub fn add(&self, model: &str, steps: Vec<Fault>) {
        let steps = steps
            .into_iter()
            .flat_map(|step| std::iter::repeat_n(step.clone(), step.times.unwrap_or(1) as usize));
        self.lock().queues.entry(model.to_owned()).or_default().extend(steps);
    }

    /// Adds what a file or a request says: queues by model, or one for all models.
    pub fn load(&self, text: &str) -> anyhow::Result<usize> {
        let script: Value = serde_json::from_str(text).context("a script is JSON")?;
        let queues: BTreeMap<String, Vec<Fault>> = match script {
            Value::Array(_) => BTreeMap::from([(
                ANY.to_owned(),
                serde_json::from_value(script).context("a list of steps")?,
            )]),
            other => serde_json::from_value(other).context("a map from model to steps")?,
        };
        let count = queues.values().map(Vec::len).sum();
        for (model, steps) in queues {
            self.add(&model, steps);
        }
        Ok(count)
    }

    /// The next step for a call, removed from its queue; a proper answer where none is left.
    pub(super) fn next(&self, model: &str, question: &str) -> Fault {
        let mut inner = self.lock();
        for queue in [model, ANY] {
            if let Some(step) = inner.queues.get_mut(queue).and_then(VecDeque::pop_front) {
                return step;
            }
        }
        let Some((fault, times)) = Fault::of_model(model) else { return Fault::default() };
        let Some(times) = times else { return fault };
        let met = inner.met.entry(format!("{model}\n{question}")).or_default();
        if *met >= times {
            return Fault::default();
        }
        *met += 1;
        fault
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        *self.lock() = Inner::default();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `POST /script`.
pub(super) async fn post_script(
    State(state): State<Arc<super::State>>,
    body: String,
) -> Result<String, (StatusCode, String)> {
    let count =
        state.scripts.load(&body).map_err(|e| (StatusCode::BAD_REQUEST, format!("{e:#}\n")))?;
    Ok(format!("{count} steps added\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_used_up_in_order_first_the_models_own() {
        let scripts = Scripts::default();
        scripts
            .load(r#"{"m": [{"status": 500}], "*": [{"status": 429, "times": 2}]}"#)
            .expect("ok");
        let seen: Vec<_> = (0..4).map(|_| scripts.next("m", "q").status).collect();
        assert_eq!(seen, [Some(500), Some(429), Some(429), None]);
    }

    #[test]
    fn a_model_that_fails_twice_does_so_for_every_question() {
        let scripts = Scripts::default();
        let ask = |question| scripts.next("stub-429x2", question).status;
        assert_eq!(
            [ask("a"), ask("b"), ask("a"), ask("a")],
            [Some(429), Some(429), Some(429), None]
        );
    }

    #[test]
    fn a_wrong_script_says_where() {
        let scripts = Scripts::default();
        for wrong in ["", "{", "3", r#"{"m": {"status": 1}}"#, r#"[{"stauts": 1}]"#] {
            assert!(scripts.load(wrong).is_err(), "{wrong}");
        }
    }
}

//! Faults of the model's endpoint: it throttles, fails, breaks off, dawdles, talks nonsense.

use async_trait::async_trait;
use rand::Rng as _;
use serde_json::json;
use tokio::time::Instant;

use super::signs::BITE;
use crate::drill::book::{End, Entry, Kind};
use crate::drill::fault::{Bite, Fault};
use crate::drill::field::{Field, until};
use crate::drill::load;
use crate::stub_llm;

/// How long a slow model takes.
const SLOW_MS: u64 = 4000;
/// An answer that ends in the middle, and whose length is right.
const HALF_AN_ANSWER: &str =
    "{\"id\": \"x\", \"choices\": [{\"index\": 0, \"message\": {\"role\": \"ass";

/// All of them.
pub(super) fn all() -> Vec<Box<dyn Fault>> {
    // Names that the stub understands: what it does, and how often to each question.
    let of = |name, summary, model, says| Box::new(Endpoint { name, summary, model, says });
    vec![
        of(
            "model.throttled",
            "the model answers 429 twice and asks for a second of patience",
            "stub-429-after1x2",
            Says::Status(429),
        ),
        of("model.errors", "the model answers 503 twice", "stub-503x2", Says::Status(503)),
        of("model.reset", "the model's answer breaks off in the middle", "stub-cutx1", Says::Cut),
        of("model.slow", "the model takes seconds to answer", "drill-slow", Says::Slow),
        of(
            "model.cut_json",
            "the model's answer is half a JSON document, in full length",
            "drill-half",
            Says::Half,
        ),
    ]
}

enum Says {
    Status(u16),
    Cut,
    Slow,
    Half,
}

struct Endpoint {
    name: &'static str,
    summary: &'static str,
    model: &'static str,
    says: Says,
}

#[async_trait(?Send)]
impl Fault for Endpoint {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let step = stub_llm::Fault::default();
        match self.says {
            Says::Slow => {
                field.stub.script(self.model, vec![stub_llm::Fault { hang_ms: SLOW_MS, ..step }]);
            }
            Says::Half => field.stub.script(self.model, vec![step.body(HALF_AN_ANSWER)]),
            Says::Status(_) | Says::Cut => {}
        }
        let before = self.calls(field);
        let number: u64 = field.dice.random();
        let payload = json!({"prompt": format!("what is {number}?"), "model": self.model});
        let task = load::task("model_invoke", payload);
        let id = task.id.0;
        field.accept(vec![task], Entry { kind: Kind::Question, end: End::Once }).await?;
        let done = "SELECT count(*) FROM tasks WHERE id = $1 AND finished_at IS NOT NULL";
        let began = Instant::now();
        until(
            "the model misbehaves",
            BITE,
            async || Ok((self.calls(field) > before).then_some(())),
        )
        .await?;
        until("the question ends", BITE, async || {
            Ok((field.count(done, &[&id]).await? == 1).then_some(()))
        })
        .await?;
        let calls = self.calls(field) - before;
        let took = began.elapsed().as_secs_f64();
        let proof =
            format!("the model was asked and did so {calls} times; the task ended in {took:.1} s");
        Ok(Bite::new(Instant::now(), proof))
    }
}

impl Endpoint {
    /// Calls at which it misbehaved.
    fn calls(&self, field: &Field) -> usize {
        let bad = |call: &stub_llm::Call| match self.says {
            Says::Status(status) => call.status == Some(status),
            Says::Cut | Says::Slow | Says::Half => true,
        };
        field.stub.calls().iter().filter(|call| call.model == self.model && bad(call)).count()
    }
}

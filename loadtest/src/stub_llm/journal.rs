//! The log of calls: what was asked, what it would have cost, and how often the same was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::Serialize;

/// Calls that are kept; totals go on beyond it.
const KEPT: usize = 200_000;

/// A call as logged. It is written when it arrives, so that hanging calls are seen too.
#[derive(Clone, Debug, Serialize)]
pub struct Call {
    /// When it arrived.
    pub time: DateTime<Utc>,
    /// Path and query it came by.
    pub path: String,
    /// Model asked for.
    pub model: String,
    /// Stands for model and prompt.
    pub question: String,
    /// `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// `traceparent`.
    pub traceparent: Option<String>,
    /// A stream was asked for.
    pub stream: bool,
    /// Limit asked for.
    pub max_tokens: Option<u64>,
    /// Messages of the conversation.
    pub messages: usize,
    /// The end of the last of them.
    pub ending: String,
    /// Status answered; null while it hangs.
    pub status: Option<u16>,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
}

/// Sums of calls.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Totals {
    /// Calls that arrived.
    pub calls: u64,
    /// Of those, answered properly: a provider would bill them.
    pub answered: u64,
    /// Tokens read by answered calls.
    pub input_tokens: u64,
    /// Tokens written by answered calls.
    pub output_tokens: u64,
}

/// `GET /usage`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Usage {
    /// All models.
    #[serde(flatten)]
    pub total: Totals,
    /// Different questions that were answered: less than `answered` means that something was paid twice.
    pub distinct_questions: usize,
    /// Each model.
    pub by_model: BTreeMap<String, Totals>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Journal(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    calls: Vec<Call>,
    questions: BTreeSet<String>,
    by_model: BTreeMap<String, Totals>,
}

impl Journal {
    /// Writes a call that arrived; answers where.
    pub fn arrived(&self, call: Call) -> usize {
        let mut inner = self.lock();
        inner.by_model.entry(call.model.clone()).or_default().calls += 1;
        if inner.calls.len() < KEPT {
            inner.calls.push(call);
            return inner.calls.len() - 1;
        }
        KEPT
    }

    /// Writes how it was answered.
    pub fn answered(&self, at: usize, call: &Call, status: u16, output_tokens: u64) {
        let mut inner = self.lock();
        if let Some(kept) = inner.calls.get_mut(at) {
            kept.status = Some(status);
            kept.output_tokens = output_tokens;
        }
        if output_tokens > 0 {
            inner.questions.insert(format!("{} {}", call.model, call.question));
            let totals = inner.by_model.entry(call.model.clone()).or_default();
            totals.answered += 1;
            totals.input_tokens += call.input_tokens;
            totals.output_tokens += output_tokens;
        }
    }

    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    pub fn usage(&self) -> Usage {
        let inner = self.lock();
        let mut total = Totals::default();
        for model in inner.by_model.values() {
            total.calls += model.calls;
            total.answered += model.answered;
            total.input_tokens += model.input_tokens;
            total.output_tokens += model.output_tokens;
        }
        let distinct_questions = inner.questions.len();
        Usage { total, distinct_questions, by_model: inner.by_model.clone() }
    }

    pub fn clear(&self) {
        *self.lock() = Inner::default();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `GET /calls`.
pub(super) async fn get_calls(State(state): State<Arc<super::State>>) -> Json<Vec<Call>> {
    Json(state.journal.calls())
}

/// `GET /usage`.
pub(super) async fn get_usage(State(state): State<Arc<super::State>>) -> Json<Usage> {
    Json(state.journal.usage())
}

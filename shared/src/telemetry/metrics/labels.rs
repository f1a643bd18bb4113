//! The words that may be labels. Payloads, forged messages and other people's servers must not create
//! series: a name is one of the configuration's, and of what a server says only the first few count.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError};

use opentelemetry::KeyValue;

use super::super::names::{ERROR_TYPE, belfry, gen_ai, http};

/// Stands for everything else.
pub(super) const OTHER: &str = "other";
/// Most kinds of errors that are told apart: statuses, SQLSTATEs and our own words.
const MOST_ERRORS: usize = 40;
/// Most models that are told apart by the name under which they answer.
const MOST_ANSWERERS: usize = 20;
/// Methods that are told apart.
const METHODS: [&str; 7] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];

static TASK_TYPES: OnceLock<BTreeSet<String>> = OnceLock::new();
static MODELS: OnceLock<BTreeSet<String>> = OnceLock::new();
static ERRORS: Few = Few::new(MOST_ERRORS);
static ANSWERERS: Few = Few::new(MOST_ANSWERERS);

/// Names the configured task types; all others are counted as `other`. The first call counts.
pub fn known_task_types(types: impl IntoIterator<Item = String>) {
    let _ = TASK_TYPES.set(types.into_iter().collect());
}

/// Names the configured models; all others are counted as `other`. The first call counts.
pub fn known_models(models: impl IntoIterator<Item = String>) {
    let _ = MODELS.set(models.into_iter().collect());
}

pub(super) fn of_type(task_type: &str) -> KeyValue {
    KeyValue::new(belfry::TASK_TYPE, configured(&TASK_TYPES, task_type).to_owned())
}

pub(super) fn of_model(model: &str) -> KeyValue {
    KeyValue::new(gen_ai::REQUEST_MODEL, configured(&MODELS, model).to_owned())
}

/// The name under which a model answers: providers add dates to what was asked for, so foreign names
/// count too, of models that are ours, and only the first few.
pub(super) fn of_answerer(asked: &str, answerer: &str) -> KeyValue {
    let told = if !is_known(&MODELS, asked) {
        OTHER
    } else if MODELS.get().is_some_and(|models| models.contains(answerer)) {
        answerer
    } else {
        ANSWERERS.word(answerer)
    };
    KeyValue::new(gen_ai::RESPONSE_MODEL, told.to_owned())
}

pub(super) fn of_method(method: &str) -> KeyValue {
    let known = METHODS.into_iter().find(|known| *known == method);
    KeyValue::new(http::METHOD, known.unwrap_or(OTHER))
}

pub(super) fn with_error(mut labels: Vec<KeyValue>, error_type: Option<&str>) -> Vec<KeyValue> {
    labels.extend(error_type.map(|error| KeyValue::new(ERROR_TYPE, ERRORS.word(error).to_owned())));
    labels
}

fn configured<'a>(known: &OnceLock<BTreeSet<String>>, word: &'a str) -> &'a str {
    if is_known(known, word) { word } else { OTHER }
}

/// Before anything is named, everything is.
fn is_known(known: &OnceLock<BTreeSet<String>>, word: &str) -> bool {
    known.get().is_none_or(|words| words.contains(word))
}

/// The first few words that come; all later ones are `other`.
struct Few {
    words: Mutex<BTreeSet<String>>,
    most: usize,
}

impl Few {
    const fn new(most: usize) -> Self {
        Self { words: Mutex::new(BTreeSet::new()), most }
    }

    fn word<'a>(&self, word: &'a str) -> &'a str {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.contains(word) {
            return word;
        }
        if words.len() < self.most {
            words.insert(word.to_owned());
            return word;
        }
        OTHER
    }
}

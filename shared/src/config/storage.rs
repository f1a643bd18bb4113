//! `storage` and `model`: where things are, and the variables that say so where the file does not.
//!
//! Variables read where the file says nothing (each also as `…_FILE`, a path whose trimmed
//! content is taken):
//!
//! | variable | unit | default | meaning |
//! |---|---|---|---|
//! | `DATABASE_URL` | URL | none | `storage.postgres.dsn` |
//! | `AMQP_URL` | URL | none | `storage.rabbitmq.url` |
//! | `RABBITMQ_URL` | URL | none | the same, where `AMQP_URL` is unset |
//! | `MODEL_BASE_URL` | URL | none | `model.base_url` |
//! | `MODEL_API_KEY` | text | none | `model.api_key` |
//! | `MODEL_NAME` | text | none | `model.default_model` |

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use super::check;
use super::keys;
use super::limits;
use super::loading::Loading;
use super::reader::{Place, Section};
use super::{Endpoint, Model, Price, RabbitMq};
use crate::domain::answer::MAX_FALLBACKS;

/// Default of `model.timeout`: long answers of slow models still fit.
pub const DEFAULT_MODEL_TIMEOUT: Duration = Duration::from_mins(2);

/// A secret from the file, else from the first variable that is set. The check's answer says what
/// is wrong, without the value.
fn secret_or_variable(
    place: Option<&Place<'_>>,
    loading: &Loading<'_>,
    variables: &[&str],
    is_right: fn(&str) -> Result<(), String>,
) -> Option<SecretString> {
    if let Some(place) = place
        && let Some(secret) = place.secret()
    {
        check::report(place, is_right(secret.expose_secret()));
        return Some(secret);
    }
    let (name, value) = variables.iter().find_map(|name| Some((*name, loading.variable(name)?)))?;
    if let Err(what) = is_right(&value) {
        loading.variable_problem(name, what);
    }
    Some(SecretString::from(value))
}

/// `storage.postgres.dsn`.
pub(super) fn database_url(storage: &Section<'_>, loading: &Loading<'_>) -> Option<SecretString> {
    let place = storage.section("postgres", keys::POSTGRES).get("dsn");
    secret_or_variable(place.as_ref(), loading, &["DATABASE_URL"], check::postgres_url)
}

/// `storage.rabbitmq`.
pub(super) fn rabbitmq(storage: &Section<'_>, loading: &Loading<'_>) -> RabbitMq {
    let section = storage.section("rabbitmq", keys::RABBITMQ);
    let variables = ["AMQP_URL", "RABBITMQ_URL"];
    let url = secret_or_variable(section.get("url").as_ref(), loading, &variables, check::amqp_url);
    let prefix = section.get("prefix").and_then(|place| {
        let text = place.text()?;
        check::report(&place, check::word(&text, "-_.", 64)).map(|()| text)
    });
    RabbitMq { url, prefix: prefix.unwrap_or_else(|| "belfry".to_owned()) }
}

/// `model`.
pub(super) fn model(
    section: &Section<'_>,
    loading: &Loading<'_>,
    timezone: chrono_tz::Tz,
) -> Model {
    let any = |_: &str| Ok(());
    let base_url = secret_or_variable(
        section.get("base_url").as_ref(),
        loading,
        &["MODEL_BASE_URL"],
        check::model_url,
    );
    let prices = section.whole_entries("prices").into_iter();
    let prices = prices.map(|(name, place)| (name.to_owned(), price(place))).collect();
    Model {
        base_url,
        api_key: secret_or_variable(
            section.get("api_key").as_ref(),
            loading,
            &["MODEL_API_KEY"],
            any,
        ),
        default_model: section
            .get("default_model")
            .and_then(|place| place.text())
            .or_else(|| loading.variable("MODEL_NAME")),
        timeout: section
            .get("timeout")
            .and_then(|place| place.positive_duration())
            .unwrap_or(DEFAULT_MODEL_TIMEOUT),
        endpoints: endpoints(section),
        fallback: fallback(section),
        limits: limits::limits(section, &prices, timezone),
        prices,
    }
}

fn endpoints(model: &Section<'_>) -> BTreeMap<String, Endpoint> {
    let mut endpoints = BTreeMap::new();
    let mut served: HashMap<String, String> = HashMap::new();
    for (name, place) in model.entries("endpoints") {
        let section = place.section(keys::ENDPOINT);
        let models = section.get("models").map(|place| place.items()).unwrap_or_default();
        let models = models.into_iter().filter_map(|place| {
            let model = place.required_text()?;
            if let Some(other) = served.insert(model.clone(), name.to_owned()) {
                place.problem(format!("{model} is listed under the endpoint {other} too"));
            }
            Some(model)
        });
        let models = models.collect();
        let api_key = section.get("api_key").and_then(|place| place.secret());
        // Without its URL (an unset variable, noted) an endpoint does not exist yet.
        if let Some(place) = section.required("base_url")
            && let Some(base_url) = place.secret()
        {
            check::report(&place, check::model_url(base_url.expose_secret()));
            endpoints.insert(name.to_owned(), Endpoint { base_url, api_key, models });
        }
    }
    endpoints
}

/// `model.fallback`: by model, who stands in for it.
fn fallback(model: &Section<'_>) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    for (name, place) in model.whole_entries("fallback") {
        let models: Vec<String> = place.items().iter().filter_map(Place::required_text).collect();
        if models.len() > MAX_FALLBACKS {
            place.problem(format!("names more than {MAX_FALLBACKS} models"));
        }
        if models.iter().any(|model| model == name) {
            place.problem(format!("{name} cannot stand in for itself"));
        }
        all.insert(name.to_owned(), models);
    }
    all
}

fn price(place: Place<'_>) -> Price {
    let section = place.section(keys::PRICE);
    let amount = |key| section.required(key).and_then(|place| place.amount()).unwrap_or_default();
    let optional = |key| section.get(key).and_then(|place| place.amount());
    Price {
        input: amount("input"),
        cached_input: optional("cached_input"),
        output: amount("output"),
        reasoning: optional("reasoning"),
    }
}

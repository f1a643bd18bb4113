//! `model.limits` and the budgets of schedules: what the fleet may ask of models.
//!
//! It only reads: the leader brings them into the database, where they count.

use std::collections::BTreeMap;

use super::check;
use super::keys;
use super::reader::{Place, Section};
use super::{Price, yaml};
use crate::domain::quota::{Limits, MAX_RATE, OverBudget, circle, micro};

/// Most that a counter of tokens takes.
const MAX_TOKENS: u64 = u64::MAX >> 1;
/// Most dollars a day: beyond it lies a slip of the unit.
const MAX_DOLLARS: f64 = 1e9;

/// `model.limits`; `timezone` is that of entries that name none.
pub(super) fn limits(
    model: &Section<'_>,
    prices: &BTreeMap<String, Price>,
    timezone: chrono_tz::Tz,
) -> BTreeMap<String, Limits> {
    let entries = model.whole_entries("limits");
    let mut read = BTreeMap::new();
    for (name, place) in &entries {
        let section = place.clone().section(keys::MODEL_LIMIT);
        let limits = model_limits(&section, timezone);
        if let Some(place) = section.get("daily_cost")
            && !prices.contains_key(*name)
        {
            place.problem(format!("{name} has no price in model.prices, so no cost is counted"));
        }
        read.insert((*name).to_owned(), limits);
    }
    for (name, place) in entries {
        let next = |model: &str| read.get(model)?.over_budget.instead().map(str::to_owned);
        if let Some(circle) = circle(name, next)
            && let Some(place) = place.section(keys::MODEL_LIMIT).get("over_budget")
        {
            place.problem(format!("leads back to where it began: {circle}"));
        }
    }
    read
}

fn model_limits(section: &Section<'_>, timezone: chrono_tz::Tz) -> Limits {
    let count = |key, most| section.get(key).and_then(|place| place.integer(1..=most));
    let rate = |key| count(key, u64::from(MAX_RATE)).and_then(|number| u32::try_from(number).ok());
    let burst = rate("burst");
    if let Some(place) = section.get("burst")
        && section.get("requests_per_minute").is_none()
    {
        place.problem("means nothing without `requests_per_minute`");
    }
    let zone = section.get("timezone").and_then(|place| check::zone(&place));
    Limits {
        requests_per_minute: rate("requests_per_minute"),
        burst,
        tokens_per_minute: count("tokens_per_minute", MAX_TOKENS),
        in_flight: rate("in_flight"),
        timezone: zone.unwrap_or(timezone),
        ..budget(section)
    }
}

/// `daily_tokens`, `daily_cost` and `over_budget`, which models and schedules share.
fn budget(section: &Section<'_>) -> Limits {
    let tokens = section.get("daily_tokens").and_then(|place| place.integer(1..=MAX_TOKENS));
    let cost = section.get("daily_cost").and_then(|place| {
        let dollars = place.amount()?;
        if dollars <= 0.0 || dollars > MAX_DOLLARS {
            place.problem("expected US dollars a day, more than 0");
            return None;
        }
        Some(micro(dollars).max(1))
    });
    let over_budget = section.get("over_budget").and_then(|place| {
        if section.get("daily_tokens").is_none() && section.get("daily_cost").is_none() {
            place.problem("means nothing without `daily_tokens` or `daily_cost`");
        }
        over_budget(place)
    });
    Limits {
        daily_tokens: tokens,
        daily_cost_micro: cost,
        over_budget: over_budget.unwrap_or_default(),
        ..Limits::default()
    }
}

/// `park`, `dead`, and `downgrade: MODEL` as a mapping or as a text.
fn over_budget(place: Place<'_>) -> Option<OverBudget> {
    if matches!(place.node.kind, yaml::Kind::Map(_)) {
        let section = place.section(keys::OVER_BUDGET);
        let model = section.required("downgrade")?.required_text()?;
        return Some(OverBudget::Downgrade(model.trim().to_owned()));
    }
    let text = place.required_text()?;
    text.parse().map_err(|what: String| place.problem(what)).ok()
}

/// `budget` of a schedule; its days end in the schedule's zone.
pub(super) fn schedule_budget(
    entry: &Section<'_>,
    prices: &BTreeMap<String, Price>,
) -> Option<Limits> {
    let section = entry.whole("budget")?.section(keys::BUDGET);
    let budget = budget(&section);
    if let Some(place) = section.get("daily_cost")
        && prices.is_empty()
    {
        place.problem("model.prices names no price, so no cost is counted");
    }
    Some(budget)
}

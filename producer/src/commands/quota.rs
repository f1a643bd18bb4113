//! `producer quota`: what the fleet may ask of models, what is left of it, and an operator's word.
//!
//! What is set here counts for the whole fleet at once; belfry.yaml stays as it is.

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use serde_json::json;
use shared::config::{Config, suggestion};
use shared::domain::quota::{MAX_RATE, Scope, circle, micro};
use shared::store::{Change, LimitChange, QuotaRow, Store};

use super::connect::{Context, actor, bounded};
use super::error::{Answer, CommandError};
use super::output::{self, counted, or_dash, time};

/// Looks at the limits of models and the budgets of schedules, sets them, opens closed models.
#[derive(Debug, Subcommand)]
pub enum Quota {
    /// Lists quotas with what is used of them
    List(List),
    /// Sets limits for the whole fleet, until the entry in belfry.yaml changes
    Set(Set),
    /// Opens a model that its provider has closed, and calls its tasks back
    Open(Open),
}

/// How many.
#[derive(Debug, Args)]
pub struct List {
    /// Also models that were asked on another day, and of which nothing is limited, used or under way
    #[arg(long)]
    all: bool,
}

/// Which limits.
#[derive(Debug, Args)]
pub struct Set {
    /// The model, or the schedule
    name: String,
    /// The name is a schedule's, which has a budget alone
    #[arg(long)]
    schedule: bool,
    /// requests_per_minute, burst, tokens_per_minute, in_flight, daily_tokens, daily_cost, timezone,
    /// over_budget; `none` lifts a limit
    #[arg(required = true, value_name = "KEY=VALUE")]
    limits: Vec<String>,
}

/// Which model.
#[derive(Debug, Args)]
pub struct Open {
    /// The model
    model: String,
}

/// Runs it.
pub async fn run(command: Quota, context: &Context) -> Answer {
    match command {
        Quota::List(args) => bounded("quota list", list(args, context)).await,
        Quota::Set(args) => set(args, context).await,
        Quota::Open(args) => open(args, context).await,
    }
}

async fn list(args: List, context: &Context) -> Answer {
    let (_, store) = context.store().await?;
    let mut quotas = store.quotas().await?;
    // Payloads name models, so these rows may be many.
    quotas.retain(|quota| args.all || !quota.is_idle());
    if context.json {
        return output::json(&quotas);
    }
    if quotas.is_empty() {
        output::talk("no model has been asked today, and no limit is set");
        return Ok(());
    }
    let header = [
        "QUOTA",
        "REQUESTS/MIN",
        "TOKENS/MIN",
        "IN FLIGHT",
        "TOKENS TODAY",
        "USD TODAY",
        "DAY ENDS",
        "OVER BUDGET",
        "STATE",
        "WAITING",
        "SET BY",
    ];
    output::table(&header, quotas.iter().map(listed).collect())
}

fn listed(quota: &QuotaRow) -> Vec<String> {
    let of = |used: String, limit: Option<String>| match limit {
        Some(limit) => format!("{used} of {limit}"),
        None => used,
    };
    let requests =
        quota.requests_per_minute.map(|rate| format!("{rate} (burst {})", or_dash(quota.burst)));
    let has_budget = quota.daily_tokens.is_some() || quota.daily_cost.is_some();
    let budget = |text: String| if has_budget { text } else { "-".to_owned() };
    vec![
        format!("{} {}", quota.scope, quota.name),
        or_dash(requests),
        or_dash(quota.tokens_per_minute),
        of(quota.in_flight.to_string(), quota.max_in_flight.map(|most| most.to_string())),
        of(
            quota.used_tokens.saturating_add(quota.held_tokens).to_string(),
            quota.daily_tokens.map(|most| most.to_string()),
        ),
        of(usd(quota.used_cost + quota.held_cost), quota.daily_cost.map(usd)),
        budget(time(quota.resets_at)),
        budget(quota.over_budget.clone()),
        state(quota),
        quota.waiting.to_string(),
        match &quota.set_by {
            Some(by) => by.clone(),
            None if quota.in_file => "belfry.yaml".to_owned(),
            None => "-".to_owned(),
        },
    ]
}

fn state(quota: &QuotaRow) -> String {
    let said = quota.closed_reason.as_deref().map(|said| output::short(said, 60));
    match (quota.closed_until, said) {
        (Some(until), Some(said)) => format!("{} (until {}: {said})", quota.state, time(until)),
        (None, Some(said)) => format!("{} ({said})", quota.state),
        (_, None) => quota.state.clone(),
    }
}

/// US dollars, as small as a call costs.
pub fn usd(dollars: f64) -> String {
    format!("{dollars:.4}")
}

async fn set(args: Set, context: &Context) -> Answer {
    let mut change = change_of(&args.limits).map_err(CommandError::Usage)?;
    let (config, store) = context.store().await?;
    let scope = if args.schedule { Scope::Schedule } else { Scope::Model };
    if scope == Scope::Schedule {
        if !is_budget(&change) {
            return Err(CommandError::Usage(
                "a schedule has a budget alone: daily_tokens, daily_cost, over_budget".to_owned(),
            ));
        }
        let entry = config.schedules.iter().find(|schedule| schedule.name == args.name);
        change.timezone = entry.map(|schedule| schedule.timezone);
    }
    let quotas = store.quotas().await?;
    is_known(&quotas, &config, scope, &args.name)?;
    let wish = Wish { scope, name: &args.name, change: &change };
    wish.judge(&quotas, &config)?;
    let done = store.set_quota(scope, &args.name, &change, &actor()).await;
    done.map_err(|error| {
        if error.is_data() {
            return CommandError::Usage(
                "burst means nothing without requests_per_minute".to_owned(),
            );
        }
        error.into()
    })?;
    changed(&store, scope, &args.name, context).await
}

async fn open(args: Open, context: &Context) -> Answer {
    let (config, store) = context.store().await?;
    if !store.open_quota(&args.model).await? {
        is_known(&store.quotas().await?, &config, Scope::Model, &args.model)?;
        return Err(CommandError::Conflict(format!("model {} is not closed", args.model)));
    }
    changed(&store, Scope::Model, &args.model, context).await
}

/// Calls back who waits, and says how it is now.
async fn changed(store: &Store, scope: Scope, name: &str, context: &Context) -> Answer {
    let woken = store.wake_waiting(scope, name).await?;
    let quotas = store.quotas().await?;
    let own = quotas.into_iter().find(|quota| quota.scope == scope.as_str() && quota.name == name);
    if context.json {
        return output::json(&json!({ "quota": own, "called_back": woken }));
    }
    let tasks = counted(woken, "task");
    output::text(&format!("{} {name}: done; {tasks} called back", scope.as_str()))
}

/// A slip of the name must not set a limit that nobody meets.
fn is_known(quotas: &[QuotaRow], config: &Config, scope: Scope, name: &str) -> Answer {
    let mut known: BTreeSet<&str> = match scope {
        Scope::Schedule => config.schedules.iter().map(|it| it.name.as_str()).collect(),
        Scope::Model => config.model_names(),
    };
    let rows = quotas.iter().filter(|quota| quota.scope == scope.as_str());
    known.extend(rows.map(|quota| quota.name.as_str()));
    if known.contains(name) {
        return Ok(());
    }
    let near = suggestion(name, known);
    let what = scope.as_str();
    let how = if scope == Scope::Model { "was ever asked or stands" } else { "stands" };
    Err(CommandError::NotFound(format!("no {what} {name} {how} in belfry.yaml{near}")))
}

/// Limits that somebody wants; what `config check` refuses is refused here, in the same words.
struct Wish<'a> {
    scope: Scope,
    name: &'a str,
    change: &'a LimitChange,
}

impl Wish<'_> {
    fn judge(&self, quotas: &[QuotaRow], config: &Config) -> Answer {
        let refuse = |what: String| Err(CommandError::Usage(what));
        let prices = &config.model.prices;
        if matches!(self.change.daily_cost_micro, Change::Set(_)) {
            if self.scope == Scope::Model && !prices.contains_key(self.name) {
                return refuse(format!(
                    "{} has no price in model.prices of belfry.yaml, so no cost is counted",
                    self.name
                ));
            }
            if prices.is_empty() {
                return refuse(
                    "model.prices of belfry.yaml names no price, so no cost is counted".to_owned(),
                );
            }
        }
        let Some(policy) = &self.change.over_budget else { return Ok(()) };
        if !self.has_budget(quotas) {
            return refuse(
                "over_budget: means nothing without `daily_tokens` or `daily_cost`".to_owned(),
            );
        }
        let Some(instead) = policy.instead() else { return Ok(()) };
        if self.scope == Scope::Model
            && let Some(circle) = circle(self.name, |model| self.instead_of(model, quotas, config))
        {
            return refuse(format!("over_budget: leads back to where it began: {circle}"));
        }
        is_known(quotas, config, Scope::Model, instead)
    }

    /// True when a budget is set once the wish is granted.
    fn has_budget(&self, quotas: &[QuotaRow]) -> bool {
        let row = quotas.iter().find(|it| it.scope == self.scope.as_str() && it.name == self.name);
        self.change.daily_tokens.leaves(row.is_some_and(|row| row.daily_tokens.is_some()))
            || self.change.daily_cost_micro.leaves(row.is_some_and(|row| row.daily_cost.is_some()))
    }

    /// Who is asked instead of a model once the wish is granted; the file counts where no row stands.
    fn instead_of(&self, model: &str, quotas: &[QuotaRow], config: &Config) -> Option<String> {
        let row = quotas.iter().find(|row| row.scope == Scope::Model.as_str() && row.name == model);
        let policy = match (row, &self.change.over_budget) {
            (_, Some(policy)) if model == self.name => policy.clone(),
            (Some(row), _) => row.over_budget.parse().ok()?,
            (None, _) => config.model.limits.get(model)?.over_budget.clone(),
        };
        policy.instead().map(str::to_owned)
    }
}

fn is_budget(change: &LimitChange) -> bool {
    let rest = LimitChange {
        daily_tokens: Change::Keep,
        daily_cost_micro: Change::Keep,
        over_budget: None,
        ..change.clone()
    };
    rest == LimitChange::default()
}

/// Reads `KEY=VALUE` words.
fn change_of(words: &[String]) -> Result<LimitChange, String> {
    let mut change = LimitChange::default();
    for word in words {
        let (key, value) = word.split_once('=').ok_or(format!("{word}: expected KEY=VALUE"))?;
        let (key, value) = (key.trim(), value.trim());
        let wrong = |what: &str| format!("{key}: {what}, found {value:?}");
        match key {
            "requests_per_minute" => {
                change.requests_per_minute = limit(value).map_err(|e| wrong(&e))?;
            }
            "burst" => {
                let Change::Set(burst) = limit(value).map_err(|e| wrong(&e))? else {
                    return Err(wrong("expected a whole number from 1"));
                };
                change.burst = Some(burst);
            }
            "tokens_per_minute" => {
                change.tokens_per_minute = limit(value).map_err(|e| wrong(&e))?;
            }
            "in_flight" => change.in_flight = limit(value).map_err(|e| wrong(&e))?,
            "daily_tokens" => change.daily_tokens = limit(value).map_err(|e| wrong(&e))?,
            "daily_cost" => {
                change.daily_cost_micro =
                    money(value).ok_or(wrong("expected US dollars, or none"))?;
            }
            "timezone" => {
                let zone = value.parse().map_err(|_| wrong("expected an IANA name such as UTC"))?;
                change.timezone = Some(zone);
            }
            "over_budget" => {
                change.over_budget = Some(value.parse().map_err(|what: String| wrong(&what))?);
            }
            other => return Err(format!("{other}: unknown limit{}", suggestion(other, KEYS))),
        }
    }
    Ok(change)
}

/// A number from 1 that its column can hold, or none.
fn limit<T: TryFrom<i64>>(text: &str) -> Result<Change<T>, String> {
    if text == "none" {
        return Ok(Change::Lift);
    }
    // As in the file: rates, and tokens.
    let most = if size_of::<T>() == 4 { i64::from(MAX_RATE) } else { i64::MAX };
    let number = text.parse::<i64>().ok().filter(|number| (1..=most).contains(number));
    let number = number.and_then(|number| T::try_from(number).ok());
    number
        .map(Change::Set)
        .ok_or_else(|| format!("expected a whole number from 1 to {most}, or none"))
}

/// US dollars, or none.
fn money(text: &str) -> Option<Change<u64>> {
    if text == "none" {
        return Some(Change::Lift);
    }
    let dollars = text.parse::<f64>().ok()?;
    (1e-6..=1e9).contains(&dollars).then(|| Change::Set(micro(dollars)))
}

/// What can be set.
const KEYS: [&str; 8] = [
    "requests_per_minute",
    "burst",
    "tokens_per_minute",
    "in_flight",
    "daily_tokens",
    "daily_cost",
    "timezone",
    "over_budget",
];

#[cfg(test)]
mod tests {
    use shared::domain::quota::OverBudget;

    use super::*;

    fn read(words: &[&str]) -> Result<LimitChange, String> {
        change_of(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn limits_are_read_as_the_file_spells_them() {
        let change = read(&[
            "requests_per_minute=60",
            "burst=5",
            "in_flight=none",
            "daily_cost=2.5",
            "over_budget=downgrade: small",
        ]);
        let expected = LimitChange {
            requests_per_minute: Change::Set(60),
            burst: Some(5),
            in_flight: Change::Lift,
            daily_cost_micro: Change::Set(2_500_000),
            over_budget: Some(OverBudget::Downgrade("small".to_owned())),
            ..LimitChange::default()
        };
        assert_eq!(change, Ok(expected));
    }

    #[test]
    fn a_slip_is_named() {
        for (word, said) in [
            ("rpm=60", "did you mean `requests_per_minute`?"),
            ("burst", "KEY=VALUE"),
            ("burst=none", "burst: expected a whole number"),
            ("in_flight=0", "in_flight: expected a whole number from 1"),
            ("requests_per_minute=9999999999", "requests_per_minute: expected"),
            ("daily_cost=-1", "daily_cost: expected US dollars"),
            ("timezone=Mars", "IANA"),
            ("over_budget=wait", "park, dead, or downgrade"),
        ] {
            let error = read(&[word]).expect_err(word);
            assert!(error.contains(said), "{word}: {error}");
        }
    }
}

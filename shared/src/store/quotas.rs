//! Quotas: the file's limits applied, an operator's set and opened, and what is left of each.
//!
//! Whether a call fits is decided in `call_admit.sql` alone.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_postgres::Row;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::connect::Store;
use super::enqueue::millis;
use super::error::Error;
use crate::domain::quota::{Limits, OverBudget, Quota, Scope, dollars};
use crate::retry::Pauses;

/// Between two tasks that a changed quota wakes.
pub const WAKE_STEP: Duration = Duration::from_millis(50);

/// A quota as listed. JSON: one object with these keys; money in US dollars, absent limits null.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaRow {
    /// model or schedule.
    pub scope: String,
    /// Its name.
    pub name: String,
    /// Requests a minute.
    pub requests_per_minute: Option<i32>,
    /// Requests at once after a pause.
    pub burst: Option<i32>,
    /// Tokens a minute.
    pub tokens_per_minute: Option<i64>,
    /// Calls at a time.
    pub max_in_flight: Option<i32>,
    /// Tokens a day.
    pub daily_tokens: Option<i64>,
    /// US dollars a day.
    pub daily_cost: Option<f64>,
    /// Whose midnight ends the day.
    pub timezone: String,
    /// park, dead, or downgrade: MODEL.
    pub over_budget: String,
    /// The file has an entry for it.
    pub in_file: bool,
    /// Who set it by hand.
    pub set_by: Option<String>,
    /// When.
    pub set_at: Option<DateTime<Utc>>,
    /// Calls under way.
    pub in_flight: i32,
    /// The day that is counted.
    pub day: String,
    /// Tokens of ended calls today.
    pub used_tokens: i64,
    /// Estimated tokens of calls under way.
    pub held_tokens: i64,
    /// US dollars of ended calls today.
    pub used_cost: f64,
    /// Estimated US dollars of calls under way.
    pub held_cost: f64,
    /// When the day ends.
    pub resets_at: DateTime<Utc>,
    /// open, closed, closed until opened, probing, probe next.
    pub state: String,
    /// Closed since.
    pub closed_at: Option<DateTime<Utc>>,
    /// Closed until, where there is an end.
    pub closed_until: Option<DateTime<Utc>>,
    /// Host and port that closed it.
    pub closed_endpoint: Option<String>,
    /// The provider's words.
    pub closed_reason: Option<String>,
    /// Tasks that it has sent away.
    pub waiting: i64,
}

impl QuotaRow {
    /// True when nothing is limited, used today, under way, closed or waited for.
    pub fn is_idle(&self) -> bool {
        let rates = self.requests_per_minute.is_some() || self.tokens_per_minute.is_some();
        let budget = self.daily_tokens.is_some() || self.daily_cost.is_some();
        let limited = rates || budget || self.max_in_flight.is_some() || self.in_file;
        let counts = [self.used_tokens, self.held_tokens, self.waiting, i64::from(self.in_flight)];
        !limited && self.set_by.is_none() && self.state == "open" && counts == [0; 4]
    }
}

/// What becomes of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// It stays.
    #[default]
    Keep,
    /// There is none any more.
    Lift,
    /// It is this.
    Set(T),
}

impl<T> Change<T> {
    /// True when there is a limit afterwards; `stood`: there was one before.
    pub fn leaves(&self, stood: bool) -> bool {
        match self {
            Self::Keep => stood,
            Self::Lift => false,
            Self::Set(_) => true,
        }
    }
}

/// Limits that an operator changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitChange {
    /// Requests a minute.
    pub requests_per_minute: Change<u32>,
    /// Requests at once; absent while the rate changes, it follows the rate.
    pub burst: Option<u32>,
    /// Tokens a minute.
    pub tokens_per_minute: Change<u64>,
    /// Calls at a time.
    pub in_flight: Change<u32>,
    /// Tokens a day.
    pub daily_tokens: Change<u64>,
    /// Millionths of a US dollar a day.
    pub daily_cost_micro: Change<u64>,
    /// Whose midnight ends the day.
    pub timezone: Option<chrono_tz::Tz>,
    /// What then becomes of tasks.
    pub over_budget: Option<OverBudget>,
}

impl LimitChange {
    /// The changed columns.
    fn columns(&self) -> Value {
        let mut all = Columns::default();
        all.change("requests_per_minute", self.requests_per_minute);
        // Bursts go with their rates.
        match (self.requests_per_minute, self.burst) {
            (Change::Set(rate), burst) => {
                let limits = Limits { requests_per_minute: Some(rate), burst, ..Limits::default() };
                all.put("burst", limits.burst());
            }
            (Change::Lift, _) => all.put("burst", Value::Null),
            (Change::Keep, Some(burst)) => all.put("burst", burst),
            (Change::Keep, None) => {}
        }
        all.change("tokens_per_minute", self.tokens_per_minute);
        match self.tokens_per_minute {
            Change::Set(rate) => {
                let limits = Limits { tokens_per_minute: Some(rate), ..Limits::default() };
                all.put("token_burst", limits.token_burst());
            }
            Change::Lift => all.put("token_burst", Value::Null),
            Change::Keep => {}
        }
        all.change("max_in_flight", self.in_flight);
        all.change("daily_tokens", self.daily_tokens);
        all.change("daily_cost_micro", self.daily_cost_micro);
        if let Some(timezone) = self.timezone {
            all.put("timezone", timezone.name());
        }
        if let Some(over_budget) = &self.over_budget {
            all.put("over_budget", over_budget.to_string());
        }
        Value::Object(all.0)
    }
}

#[derive(Default)]
struct Columns(Map<String, Value>);

impl Columns {
    fn put(&mut self, column: &str, value: impl Into<Value>) {
        self.0.insert(column.to_owned(), value.into());
    }

    fn change<T: Into<Value>>(&mut self, column: &str, change: Change<T>) {
        match change {
            Change::Keep => {}
            Change::Lift => self.put(column, Value::Null),
            Change::Set(limit) => self.put(column, limit),
        }
    }
}

impl Store {
    /// Brings the file's limits into force; safe to repeat. In the scopes of which its file speaks
    /// (`leads`) the leader applies every change of an entry and lifts the limits of entries that
    /// are gone; whoever else asks only begins what no file and no hand has said yet, so that an old
    /// file cannot undo a new one.
    ///
    /// Answers the quotas that changed.
    pub async fn apply_quotas(
        &self,
        quotas: &[Quota],
        leads: &[Scope],
    ) -> Result<Vec<(Scope, String)>, Error> {
        let column = |of: fn(&Limits) -> Option<u64>| -> Vec<Option<i64>> {
            quotas.iter().map(|q| of(&q.limits).map(u64::cast_signed)).collect()
        };
        let small = |of: fn(&Limits) -> Option<u32>| -> Vec<Option<i32>> {
            quotas.iter().map(|q| of(&q.limits).map(u32::cast_signed)).collect()
        };
        let leads: Vec<&str> = leads.iter().map(|scope| scope.as_str()).collect();
        let scopes: Vec<&str> = quotas.iter().map(|q| q.scope.as_str()).collect();
        let names: Vec<&str> = quotas.iter().map(|q| q.name.as_str()).collect();
        let files: Vec<Value> = quotas.iter().map(|q| q.limits.spec()).collect();
        let zones: Vec<&str> = quotas.iter().map(|q| q.limits.timezone.name()).collect();
        let policies: Vec<String> =
            quotas.iter().map(|q| q.limits.over_budget.to_string()).collect();
        let rows = self
            .query(
                include_str!("sql/quota_apply.sql"),
                &[
                    &scopes,
                    &names,
                    &files,
                    &small(|limits| limits.requests_per_minute),
                    &small(Limits::burst),
                    &column(|limits| limits.tokens_per_minute),
                    &column(Limits::token_burst),
                    &small(|limits| limits.in_flight),
                    &column(|limits| limits.daily_tokens),
                    &column(|limits| limits.daily_cost_micro),
                    &zones,
                    &leads,
                    &policies,
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let scope = row.get::<_, &str>("scope").parse().map_err(Error::row)?;
                Ok((scope, row.get("name")))
            })
            .collect()
    }

    /// The entries of a scope that applying these would change, by name.
    pub async fn differing_quotas(
        &self,
        quotas: &[Quota],
        scope: Scope,
    ) -> Result<Vec<String>, Error> {
        let own = || quotas.iter().filter(|quota| quota.scope == scope);
        let names: Vec<&str> = own().map(|quota| quota.name.as_str()).collect();
        let files: Vec<Value> = own().map(|quota| quota.limits.spec()).collect();
        let sql = include_str!("sql/quota_differs.sql");
        let rows = self.query(sql, &[&names, &files, &scope.as_str()]).await?;
        Ok(rows.iter().map(|row| row.get("name")).collect())
    }

    /// What the file in force says of a quota ([`Limits::spec`]); what was set by hand is not in it.
    pub async fn quota_of_file(&self, scope: Scope, name: &str) -> Result<Option<Value>, Error> {
        let sql = include_str!("sql/quota_file.sql");
        let row = self.query_opt(sql, &[&scope.as_str(), &name]).await?;
        Ok(row.map(|row| row.get("file")))
    }

    /// As a daemon begins: until it is done, or `stop`. Nothing may run without its limits.
    pub async fn begin_quotas(&self, quotas: &[Quota], stop: &CancellationToken) {
        let mut pauses = Pauses::new();
        while let Err(error) = self.apply_quotas(quotas, &[]).await {
            warn!(%error, "the limits of models wait for the database");
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pauses.next_pause()) => {}
            }
        }
    }

    /// All quotas, models first.
    pub async fn quotas(&self) -> Result<Vec<QuotaRow>, Error> {
        let rows = self.query(include_str!("sql/quotas.sql"), &[]).await?;
        Ok(rows.iter().map(quota_of).collect())
    }

    /// Sets limits by hand. They count until the file's entry changes.
    pub async fn set_quota(
        &self,
        scope: Scope,
        name: &str,
        change: &LimitChange,
        by: &str,
    ) -> Result<(), Error> {
        let change = change.columns();
        self.query(include_str!("sql/quota_set.sql"), &[&scope.as_str(), &name, &change, &by])
            .await
            .map(drop)
    }

    /// Opens a model that a provider's answer has closed; false when it is not closed.
    pub async fn open_quota(&self, model: &str) -> Result<bool, Error> {
        Ok(self.query_opt(include_str!("sql/quota_open.sql"), &[&model]).await?.is_some())
    }

    /// Calls back, one after another, the tasks that a quota has sent away. Answers how many.
    pub async fn wake_waiting(&self, scope: Scope, name: &str) -> Result<usize, Error> {
        let step = millis(WAKE_STEP);
        let rows = self
            .query(include_str!("sql/quota_wake.sql"), &[&scope.as_str(), &name, &step])
            .await?;
        Ok(rows.len())
    }
}

fn quota_of(row: &Row) -> QuotaRow {
    let cost = |column: &str| dollars(row.get(column));
    QuotaRow {
        scope: row.get("scope"),
        name: row.get("name"),
        requests_per_minute: row.get("requests_per_minute"),
        burst: row.get("burst"),
        tokens_per_minute: row.get("tokens_per_minute"),
        max_in_flight: row.get("max_in_flight"),
        daily_tokens: row.get("daily_tokens"),
        daily_cost: row.get::<_, Option<i64>>("daily_cost_micro").map(dollars),
        timezone: row.get("timezone"),
        over_budget: row.get("over_budget"),
        in_file: row.get("in_file"),
        set_by: row.get("set_by"),
        set_at: row.get("set_at"),
        in_flight: row.get("in_flight"),
        day: row.get("day"),
        used_tokens: row.get("used_tokens"),
        held_tokens: row.get("held_tokens"),
        used_cost: cost("used_cost_micro"),
        held_cost: cost("held_cost_micro"),
        resets_at: row.get("resets_at"),
        state: row.get("state"),
        closed_at: row.get("closed_at"),
        closed_until: row.get("closed_until"),
        closed_endpoint: row.get("closed_endpoint"),
        closed_reason: row.get("closed_reason"),
        waiting: row.get("waiting"),
    }
}

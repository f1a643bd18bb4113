//! Questions to a loaded configuration, and what it says when a value is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use secrecy::{ExposeSecret, SecretString};

use super::problems::{Problem, Problems};
use super::{Config, Pool};
use crate::domain::quota::{Limits, Quota, Scope};

/// A value that is needed now and was given neither in the file nor in the environment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {what} is given: set `{key}` in belfry.yaml, or the variable {variable}")]
pub struct Missing {
    /// What it is, in words.
    pub what: &'static str,
    /// Its key in the file.
    pub key: &'static str,
    /// Its variable.
    pub variable: &'static str,
}

impl Config {
    /// The pool that runs a task type.
    pub fn pool_of(&self, task_type: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.task_types.iter().any(|own| own == task_type))
    }

    /// Where Postgres is.
    pub fn database_url(&self) -> Result<&SecretString, Missing> {
        self.database_url.as_ref().ok_or(Missing {
            what: "PostgreSQL connection string",
            key: "storage.postgres.dsn",
            variable: "DATABASE_URL",
        })
    }

    /// Where RabbitMQ is.
    pub fn amqp_url(&self) -> Result<&SecretString, Missing> {
        self.rabbitmq.url.as_ref().ok_or(Missing {
            what: "RabbitMQ URL",
            key: "storage.rabbitmq.url",
            variable: "AMQP_URL",
        })
    }

    /// The model that is asked when a payload names none.
    pub fn default_model(&self) -> Result<&str, Missing> {
        self.model.default_model.as_deref().ok_or(Missing {
            what: "default model",
            key: "model.default_model",
            variable: "MODEL_NAME",
        })
    }

    /// All limits and budgets.
    pub fn quotas(&self) -> Vec<Quota> {
        let of = |scope: Scope, all: &BTreeMap<String, Limits>| {
            let quotas = all.iter().map(move |(name, limits)| Quota {
                scope,
                name: name.clone(),
                limits: limits.clone(),
            });
            quotas.collect::<Vec<_>>()
        };
        [of(Scope::Model, &self.model.limits), of(Scope::Schedule, &self.budgets)].concat()
    }

    /// Every model that it names, wherever it does: what payloads may name beside these is anybody's.
    pub fn model_names(&self) -> BTreeSet<&str> {
        let model = &self.model;
        let limits = model.limits.values().chain(self.budgets.values());
        let instead = limits.filter_map(|limits| limits.over_budget.instead());
        let keys = model.limits.keys().chain(model.prices.keys()).chain(model.fallback.keys());
        let listed = model.fallback.values().flatten();
        let listed = listed.chain(model.endpoints.values().flat_map(|endpoint| &endpoint.models));
        let named = keys.chain(listed).chain(&model.default_model).map(String::as_str);
        named.chain(instead).collect()
    }

    /// An error where a part of the file (`tasks`, `reports.daily`) uses unset variables.
    ///
    /// Loading only notes them; whoever runs that part asks here first.
    pub fn require_complete(&self, part: &str) -> Result<(), Problems> {
        let inside = |path: &str| {
            path.strip_prefix(part)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let problems = self.unset.iter().filter(|unset| inside(&unset.path)).map(|unset| Problem {
            line: Some(unset.line),
            path: unset.path.clone(),
            what: format!("the variable {} is not set, and this value is used now", unset.variable),
            file: self.name.clone(),
        });
        Problems::of(problems.collect()).map_or(Ok(()), Err)
    }
}

/// A connection string for messages: host, port and database, never user, password or options.
#[derive(Clone, Copy)]
pub struct Redacted<'a>(pub &'a str);

impl<'a> Redacted<'a> {
    /// Of a secret.
    pub fn of(secret: &'a SecretString) -> Self {
        Self(secret.expose_secret())
    }
}

impl fmt::Display for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_once("://") {
            Some((scheme, rest)) => f.write_str(url_place(scheme, rest)),
            None => keyword_place(self.0, f),
        }
    }
}

impl fmt::Debug for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn url_place<'a>(scheme: &str, rest: &'a str) -> &'a str {
    let (place, options) = rest.split_once(['?', '#']).unwrap_or((rest, ""));
    // A password with a bare `?` or `#` moves the `@` behind it: then nothing is certain.
    if options.contains('@') {
        return "(hidden)";
    }
    // The last `@`: a password may hold another.
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    // The path of a webhook is its secret.
    if scheme.starts_with("http") { place.split('/').next().unwrap_or(place) } else { place }
}

/// `host=db port=5432 dbname=x user=… password=…` as `db:5432/x`.
fn keyword_place(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let value = |key: &str| {
        text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    };
    match value("host") {
        Some(host) => f.write_str(host)?,
        None => f.write_str("(no host)")?,
    }
    if let Some(port) = value("port") {
        write!(f, ":{port}")?;
    }
    value("dbname").map_or(Ok(()), |name| write!(f, "/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: &str) {
        assert_eq!(Redacted(url).to_string(), expected);
        assert_eq!(format!("{:?}", Redacted(url)), expected);
    }

    #[test]
    fn a_redacted_url_shows_the_place_alone() {
        check("postgres://fleet:pa55@db:5432/tasks?sslmode=disable", "db:5432/tasks");
        check("postgres://fleet:p@s/5@db:5432/tasks", "db:5432/tasks");
        check("amqps://u:p@mq.example/%2f", "mq.example/%2f");
        check("amqp://mq", "mq");
        check("host=db port=5432 dbname=tasks user=u password=pa55", "db:5432/tasks");
        check("password='a b' user=u", "(no host)");
        check("https://hooks.example/T0/secret", "hooks.example");
        check("postgres://u:p?a55@db/tasks", "(hidden)");
        check("postgres://db/tasks?password=pa@55", "(hidden)");
    }
}

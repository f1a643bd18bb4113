//! From the command line's choices to configuration, store and broker, each with a clear end.

use std::path::PathBuf;
use std::time::Duration;

use shared::broker::{Operator, Settings, Topology};
use shared::config::{self, Config};
use shared::process;
use shared::store::{Purpose, Store, StoreOptions};

use super::error::CommandError;
use super::request;

/// A command that only reads has answered, or failed, within this.
pub const READ_LIMIT: Duration = Duration::from_millis(9500);

/// Connections of a command: a batch keeps two statements in flight, doctor asks beside them.
const POOL_SIZE: usize = 3;

/// What the global options say.
#[derive(Clone, Debug)]
pub struct Context {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--json`.
    pub json: bool,
}

impl Context {
    /// The configuration: the file's payloads are judged by `config check` and by the daemon.
    pub fn config(&self) -> Result<Config, CommandError> {
        Ok(config::load(self.config.as_deref())?)
    }

    /// The configuration and a store whose schema is this binary's.
    pub async fn store(&self) -> Result<(Config, Store), CommandError> {
        let config = self.config()?;
        let store = store(&config)?;
        store.check_schema().await?;
        Ok((config, store))
    }
}

/// A store for a command; nothing is connected yet.
pub fn store(config: &Config) -> Result<Store, CommandError> {
    let dsn = config.database_url()?.clone();
    let mut options = StoreOptions::new(dsn, "belfry command", Purpose::Command);
    options.crash_limit = config.limits.crash_limit;
    options.key_retention = config.retention.execution_keys;
    options.pool_size = POOL_SIZE;
    // A command that only asks the database needs no broker.
    options.place = broker_settings(config).ok().and_then(|settings| settings.place().ok());
    Ok(Store::open(&options)?)
}

/// Every name on the broker.
pub fn topology(config: &Config) -> Topology {
    let pools = config.pools.iter().map(|pool| pool.name.as_str());
    Topology::new(config.rabbitmq.prefix.as_str(), pools)
}

/// How the broker is reached.
pub fn broker_settings(config: &Config) -> Result<Settings, CommandError> {
    let url = config.amqp_url()?.clone();
    Ok(Settings::new(url, config.rabbitmq.prefix.as_str(), process::label("producer")))
}

/// A connection for looking at the broker.
pub async fn operator(config: &Config) -> Result<Operator, CommandError> {
    Ok(Operator::connect(&broker_settings(config)?).await?)
}

/// Who acts, for the record: `user@host`.
pub fn actor() -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(config::variable);
    request::one_line(&format!("{}@{}", user.as_deref().unwrap_or("unknown"), process::host()))
}

/// Gives a reading command up before the person does.
pub async fn bounded<T>(
    what: &str,
    work: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    tokio::time::timeout(READ_LIMIT, work).await.unwrap_or_else(|_| {
        Err(CommandError::Unreachable(format!(
            "`{what}` had no answer within {READ_LIMIT:?}; `producer doctor` says which service is slow"
        )))
    })
}

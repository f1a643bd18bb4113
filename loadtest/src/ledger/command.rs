//! `loadtest ledger`.

use std::path::Path;

use anyhow::bail;
use clap::Args;
use shared::config;
use shared::http::Url;
use shared::store::{Purpose, Store, StoreOptions};

use super::{Options, audit};
use crate::report;

/// What the command line says.
#[derive(Args, Clone, Debug)]
pub struct LedgerOptions {
    /// As one JSON document
    #[arg(long)]
    pub json: bool,
    /// Nothing may be left to do: every task has ended, every queue of work is empty
    #[arg(long)]
    pub expect_settled: bool,
    /// RabbitMQ's management API, to count messages in workers' hands
    #[arg(long, value_name = "URL", env = "RABBITMQ_MANAGEMENT_URL", hide_env_values = true)]
    pub management: Option<Url>,
}

/// Audits the house, prints what it found, and fails if a promise is broken.
pub async fn run(path: Option<&Path>, options: LedgerOptions) -> anyhow::Result<()> {
    let config = config::load(path)?;
    let dsn = config.database_url()?.clone();
    let store = Store::open(&StoreOptions::new(dsn, "loadtest ledger", Purpose::Command))?;
    store.check_schema().await?;
    let LedgerOptions { json, expect_settled, management } = options;
    let ledger = audit(&config, &Options { expect_settled, management }).await?;
    if json {
        report::print_json(&ledger)?;
    } else {
        print!("{}", report::ledger(&ledger));
    }
    match ledger.broken() {
        Some(broken) => bail!(broken),
        None => Ok(()),
    }
}

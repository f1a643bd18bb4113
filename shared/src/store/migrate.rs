//! Migrations: applied by `producer migrate` alone, under one advisory lock, each in a transaction.
//!
//! refinery 0.10 takes no lock of its own, so five starters at once would race; the lock is held by
//! the session that migrates. Workers never migrate: they check the version.

use std::time::Duration;

use refinery::embed_migrations;
use serde::Serialize;
use tokio_postgres::Config;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::connect::{CONNECT_TIMEOUT, Store, describe, tls};
use super::error::{Error, chain};
use super::workers::Registration;

embed_migrations!("../migrations");

/// Schema version that this binary was built for.
pub const SCHEMA_VERSION: u32 = 14;

/// Key of the advisory lock: "belfry" as a number.
const LOCK: i64 = 0x6265_6c66_7279;

/// Pause between two looks for the schema.
const SCHEMA_POLL: Duration = Duration::from_secs(1);

/// A migration may take this long.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(300);

/// What `migrate` did. JSON: `{"version","applied"}`.
#[derive(Clone, Debug, Serialize)]
pub struct MigrationReport {
    /// Version now.
    pub version: u32,
    /// Files applied just now.
    pub applied: Vec<String>,
}

/// Brings a database to [`SCHEMA_VERSION`]. Any number of callers may do so at once.
pub async fn migrate(dsn: &str) -> Result<MigrationReport, Error> {
    let mut config: Config =
        dsn.parse().map_err(|e: tokio_postgres::Error| Error::Dsn(chain(&e)))?;
    let at = describe(&config)?;
    config.connect_timeout(CONNECT_TIMEOUT).application_name("belfry migrate");
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, config.connect(tls()));
    let (mut client, connection) = connecting
        .await
        .map_err(|_| Error::Timeout { at: at.clone(), seconds: CONNECT_TIMEOUT.as_secs() })?
        .map_err(|e| Error::from_postgres(e, &at))?;
    #[expect(clippy::disallowed_methods, reason = "the connection ends with this function")]
    let driver = tokio::spawn(connection);

    let work = async {
        let fail = |e| Error::from_postgres(e, &at);
        client
            .batch_execute("SET lock_timeout = '60s'; SET TimeZone = 'UTC'")
            .await
            .map_err(fail)?;
        client.execute(include_str!("sql/migration_lock.sql"), &[&LOCK]).await.map_err(fail)?;
        let report = migrations::runner()
            .run_async(&mut client)
            .await
            .map_err(|e| Error::Migration(chain(&e)))?;
        let applied = report.applied_migrations().iter().map(ToString::to_string).collect();
        Ok(MigrationReport { version: SCHEMA_VERSION, applied })
    };
    let done = tokio::time::timeout(MIGRATION_TIMEOUT, work).await;
    // Dropping the client ends the session, and with it the lock.
    drop(client);
    driver.abort();
    done.map_err(|_| Error::Timeout { at: at.clone(), seconds: MIGRATION_TIMEOUT.as_secs() })?
}

impl Store {
    /// Waits until the schema is there and nobody else's house is in it, or `stop`: a daemon never
    /// migrates. One line for each reason.
    pub async fn wait_until_usable(&self, stop: &CancellationToken) {
        let mut told = String::new();
        while let Err(error) = self.check_usable().await {
            if !go_on(&error, &mut told, stop).await {
                return;
            }
        }
    }

    /// Waits until a first incarnation is registered in a usable database, or `stop`; false when it
    /// is not registered.
    pub async fn wait_until_registered(
        &self,
        who: &Registration,
        stop: &CancellationToken,
    ) -> bool {
        let mut told = String::new();
        while let Err(error) = self.register_usable(who).await {
            if !go_on(&error, &mut told, stop).await {
                return false;
            }
        }
        true
    }

    async fn check_usable(&self) -> Result<(), Error> {
        self.check_schema().await?;
        self.check_place().await
    }

    async fn register_usable(&self, who: &Registration) -> Result<(), Error> {
        self.check_schema().await?;
        self.register_first(who).await
    }

    /// Fails unless the schema is the one this binary was built for.
    pub async fn check_schema(&self) -> Result<(), Error> {
        let found = match self.query_opt(include_str!("sql/schema_version.sql"), &[]).await {
            Ok(row) => row.and_then(|row| row.get::<_, Option<i32>>("version")).unwrap_or(0) as u32,
            // No history table: an empty database.
            Err(error) if error.code() == Some("42P01") => 0,
            Err(error) => return Err(error),
        };
        if found == SCHEMA_VERSION {
            return Ok(());
        }
        let advice = if found < SCHEMA_VERSION {
            "run `producer migrate`"
        } else {
            "upgrade this binary; it is older than the database"
        };
        Err(Error::Schema { found, wanted: SCHEMA_VERSION, advice })
    }
}

/// Tells why a daemon waits, once for each reason, and pauses; false at `stop`.
async fn go_on(error: &Error, told: &mut String, stop: &CancellationToken) -> bool {
    let text = error.to_string();
    if text != *told {
        warn!(error = text, "waiting for the database");
        *told = text;
    }
    tokio::select! {
        () = stop.cancelled() => false,
        () = tokio::time::sleep(SCHEMA_POLL) => true,
    }
}

/// The texts of all migrations, oldest first; a test's template is named by them.
#[cfg(feature = "testing")]
pub fn migration_texts() -> Vec<String> {
    let mut all = migrations::runner().get_migrations().clone();
    all.sort();
    all.iter().filter_map(|m| m.sql().map(str::to_owned)).collect()
}

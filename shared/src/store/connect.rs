//! Connections: a small pool, sessions set up for short statements, every wait bounded.
//!
//! Few connections and big batches are faster than many connections; a slot does not need one.

use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, PoolError, Timeouts};
use secrecy::{ExposeSecret, SecretString};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::claim::ClaimBatcher;
use super::error::{Error, chain};
use super::record::CompleteBatcher;
use super::session::Session;

/// Connections of one process for its work.
pub const POOL_SIZE: usize = 6;
/// A host that does not answer is given up after this.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait for a free connection.
pub const POOL_WAIT: Duration = Duration::from_secs(5);
/// The server gives a statement up after this; below the client's own limit, so that a statement
/// that the client gave up is not still waiting on the server.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// The client gives an answer up after this.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);
/// A row lock is given up after this.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Added to a task's timeout for its deadline: the worker's own timeout fires first.
pub const DEADLINE_GRACE: Duration = Duration::from_secs(10);
/// How long an execution key is kept unless configuration says otherwise.
pub const KEY_RETENTION: Duration = Duration::from_secs(90 * 24 * 3600);

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A daemon: short statements by primary key, planned alike on an empty table and a full one.
    Daemon,
    /// A command: reads of any shape.
    Command,
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// `postgres://…`
    pub dsn: SecretString,
    /// Shown in `pg_stat_activity`.
    pub application: String,
    /// Daemon or command.
    pub purpose: Purpose,
    /// Crashes after which a task is dead.
    pub crash_limit: u32,
    /// Life of an execution key.
    pub key_retention: Duration,
    /// Connections at most.
    pub pool_size: usize,
    /// The corner of the broker that goes with this database, as its processes say when they register;
    /// `None` where nobody asks.
    pub place: Option<String>,
}

impl StoreOptions {
    /// The house's defaults.
    pub fn new(dsn: SecretString, application: &str, purpose: Purpose) -> Self {
        Self {
            dsn,
            application: application.to_owned(),
            purpose,
            crash_limit: 3,
            key_retention: KEY_RETENTION,
            pool_size: POOL_SIZE,
            place: None,
        }
    }
}

/// The database, as the house speaks to it. Clones share the pool and the batchers.
#[derive(Clone)]
pub struct Store {
    pub(super) pool: Pool,
    pub(super) at: String,
    pub(super) crash_limit: u32,
    pub(super) key_retention: Duration,
    pub(super) place: Option<String>,
    pub(super) claims: ClaimBatcher,
    pub(super) completions: CompleteBatcher,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Store {
    /// Prepares a pool; connects when first asked. Checks only the connection string.
    pub fn open(options: &StoreOptions) -> Result<Self, Error> {
        let mut config: Config = options
            .dsn
            .expose_secret()
            .parse()
            .map_err(|e: tokio_postgres::Error| Error::Dsn(chain(&e)))?;
        let at = describe(&config)?;
        config.connect_timeout(CONNECT_TIMEOUT).application_name(&options.application);
        config.keepalives_idle(Duration::from_secs(10));
        config.tcp_user_timeout(Duration::from_secs(15));

        let manager = Manager::from_config(config, tls(), ManagerConfig::default());
        let settings = session_settings(options.purpose);
        let pool = Pool::builder(manager)
            .max_size(options.pool_size)
            .timeouts(Timeouts {
                wait: Some(POOL_WAIT),
                create: Some(CONNECT_TIMEOUT),
                recycle: Some(CONNECT_TIMEOUT),
            })
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .post_create(Hook::async_fn(move |client, _| {
                let settings = settings.clone();
                Box::pin(async move {
                    // The pool's own limit ends before this, and a slot would wait for ever.
                    let setting = client.batch_execute(&settings);
                    match tokio::time::timeout(CONNECT_TIMEOUT, setting).await {
                        Ok(set) => set.map_err(HookError::Backend),
                        Err(_) => Err(HookError::message("no answer to the session's settings")),
                    }
                })
            }))
            .build()
            .map_err(|e| Error::Dsn(e.to_string()))?;
        Ok(Self {
            claims: ClaimBatcher::new(),
            completions: CompleteBatcher::new(),
            pool,
            at,
            crash_limit: options.crash_limit,
            key_retention: options.key_retention,
            place: options.place.clone(),
        })
    }

    /// Host, port and database, without credentials.
    pub fn address(&self) -> &str {
        &self.at
    }

    /// Asks whether the server answers, and takes writes.
    pub async fn ping(&self) -> Result<(), Error> {
        let session = self.session().await?;
        let rows = session.query(include_str!("sql/ping.sql"), &[]).await?;
        if rows.first().is_some_and(|row| row.get("read_only")) {
            session.close();
            return Err(Error::ReadOnly { at: self.at.clone() });
        }
        Ok(())
    }

    pub(super) async fn session(&self) -> Result<Session, Error> {
        let client = self.pool.get().await.map_err(|error| self.pool_error(error))?;
        Ok(Session::new(client, self.pool.clone(), self.at.clone()))
    }

    pub(super) async fn query(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        let session = self.session().await?;
        let answer = session.query(sql, params).await;
        if answer.as_ref().is_err_and(Error::is_away) {
            session.close();
        }
        answer
    }

    /// One row or none.
    pub(super) async fn query_opt(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, Error> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    fn pool_error(&self, error: PoolError) -> Error {
        match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                Error::from_postgres(error, &self.at)
            }
            PoolError::Timeout(_) => {
                Error::Timeout { at: self.at.clone(), seconds: CONNECT_TIMEOUT.as_secs() }
            }
            other => Error::Unreachable { at: self.at.clone(), cause: other.to_string() },
        }
    }
}

/// Sessions of a daemon plan by index even on a table that was never analysed: a statement prepared
/// on an empty table would keep its sequential scan after the table has grown (measured 3.2 × slower).
fn session_settings(purpose: Purpose) -> String {
    let common = format!(
        "SET TimeZone = 'UTC'; SET default_transaction_isolation = 'read committed'; \
         SET statement_timeout = {}; SET lock_timeout = {}; \
         SET idle_in_transaction_session_timeout = 10000; SET jit = off;",
        STATEMENT_TIMEOUT.as_millis(),
        LOCK_TIMEOUT.as_millis(),
    );
    match purpose {
        Purpose::Command => common,
        Purpose::Daemon => format!(
            "{common} SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;"
        ),
    }
}

pub(super) fn tls() -> MakeRustlsConnect {
    crate::http::install_crypto();
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config =
        rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    MakeRustlsConnect::new(config)
}

/// `host:port/database` of a configuration, for messages.
pub(super) fn describe(config: &Config) -> Result<String, Error> {
    let host = match config.get_hosts().first() {
        Some(tokio_postgres::config::Host::Tcp(name)) => name.clone(),
        Some(tokio_postgres::config::Host::Unix(path)) => path.display().to_string(),
        None => return Err(Error::Dsn("it names no host".to_owned())),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    Ok(format!("{host}:{port}/{}", config.get_dbname().unwrap_or_default()))
}

//! The drill's own questions to the seed's database: patient ones, since the server may be broken
//! at that moment by the drill itself.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use secrecy::SecretString;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use crate::database;

/// Time for a question to be answered while services are down.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// One answer may take this long; then the connection is taken for dead.
const ANSWER: Duration = Duration::from_secs(10);
/// Pause between two tries.
const AGAIN: Duration = Duration::from_millis(100);

/// A question's values.
pub type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Asks by one direct connection, and by a new one when that is gone. Clones share it.
#[derive(Clone)]
pub struct Rows {
    dsn: SecretString,
    client: Arc<Mutex<Option<Client>>>,
}

impl Rows {
    /// Connects when first asked.
    pub fn new(dsn: SecretString) -> Self {
        Self { dsn, client: Arc::default() }
    }

    /// A connection of one's own; tries again until the server is there.
    pub async fn connect(&self) -> anyhow::Result<Client> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match database::connect(&self.dsn).await {
                Err(_) if Instant::now() < deadline => sleep(AGAIN).await,
                answer => return answer,
            }
        }
    }

    /// All rows of an answer. Asks again until the server is there.
    ///
    /// # Errors
    /// After `PATIENCE`, and at once for a question that no server would answer.
    pub async fn all(&self, sql: &str, params: Params<'_>) -> anyhow::Result<Vec<Row>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.ask(sql, params).await {
                Err(error) if Instant::now() < deadline && !is_wrong(&error) => sleep(AGAIN).await,
                answer => return answer.with_context(|| sql.to_owned()),
            }
        }
    }

    /// The one number of an answer.
    pub async fn count(&self, sql: &str, params: Params<'_>) -> anyhow::Result<i64> {
        let rows = self.all(sql, params).await?;
        Ok(rows.first().with_context(|| format!("no row: {sql}"))?.get(0))
    }

    async fn ask(&self, sql: &str, params: Params<'_>) -> anyhow::Result<Vec<Row>> {
        let mut client = self.client.lock().await;
        let open = match client.take().filter(|open| !open.is_closed()) {
            Some(open) => open,
            None => database::connect(&self.dsn).await?,
        };
        let answer = timeout(ANSWER, open.query(sql, params)).await.context("no answer")?;
        *client = Some(open);
        Ok(answer?)
    }
}

/// A mistake of ours: classes 22 and 42 mean the question, not the server.
fn is_wrong(error: &anyhow::Error) -> bool {
    let state = error.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    state.is_some_and(|state| state.code().starts_with("42") || state.code().starts_with("22"))
}

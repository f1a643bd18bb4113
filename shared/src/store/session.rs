//! A borrowed connection, and the house's way of asking on it.
//!
//! Every answer has a limit. A connection whose answer is still due when it is given back (it was
//! too late, or nobody waits any more) is closed instead: it may be silent for ever, and the next
//! one to borrow it would find that out the slow way.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use deadpool_postgres::{Object, Pool};
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::connect::ANSWER_TIMEOUT;
use super::error::Error;

/// See the module.
pub(super) struct Session {
    /// `None` only while it is dropped.
    client: Option<Object>,
    pool: Pool,
    at: String,
    /// Questions that are not answered yet.
    due: AtomicUsize,
}

impl Session {
    pub(super) fn new(client: Object, pool: Pool, at: String) -> Self {
        Self { client: Some(client), pool, at, due: AtomicUsize::new(0) }
    }

    /// Runs a prepared statement; repeats once when the cached plan is stale.
    pub(super) async fn query(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        self.bounded(async {
            match self.ask(sql, params).await {
                // A migration changed a table under a prepared statement.
                Err(error) if error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED) => {
                    self.client().statement_cache.clear();
                    self.ask(sql, params).await
                }
                answer => answer,
            }
        })
        .await
    }

    async fn ask(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let statement = self.client().prepare_cached(sql).await?;
        self.client().query(&statement, params).await
    }

    /// For [`Session::bounded`].
    pub(super) fn client(&self) -> &Object {
        self.client.as_ref().expect("closed only when dropped")
    }

    /// One conversation within the time for an answer.
    pub(super) async fn bounded<T>(
        &self,
        asking: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        self.due.fetch_add(1, Ordering::Relaxed);
        let Ok(answer) = timeout(ANSWER_TIMEOUT, asking).await else {
            // The server gives statements up before this, so that the way to it is broken: those
            // that wait in the pool go the same way.
            self.pool.retain(|_, _| false);
            return Err(Error::Timeout { at: self.at.clone(), seconds: ANSWER_TIMEOUT.as_secs() });
        };
        self.due.fetch_sub(1, Ordering::Relaxed);
        answer.map_err(|error| Error::from_postgres(error, &self.at))
    }

    /// Closes the connection, whatever is open on it: the server rolls that back.
    pub(super) fn close(mut self) {
        self.discard();
    }

    fn discard(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if *self.due.get_mut() > 0 {
            self.discard();
        }
    }
}

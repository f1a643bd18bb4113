//! A short transaction of a few statements, on one connection, that never waits for the network of
//! anybody else.
//!
//! Dropped unfinished, it closes its connection: the server rolls back, and nothing half-done returns
//! to the pool. A handler's completing transaction is another thing: [`super::Tx`].

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connect::Store;
use super::error::Error;
use super::session::Session;

/// An open transaction.
pub(super) struct Transaction(Option<Session>);

impl Store {
    /// Begins one.
    pub(super) async fn transaction(&self) -> Result<Transaction, Error> {
        let transaction = Transaction(Some(self.session().await?));
        transaction.say("BEGIN").await?;
        Ok(transaction)
    }
}

impl Transaction {
    /// Runs a statement; answers its rows.
    pub(super) async fn query(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        self.session()?.query(sql, params).await
    }

    /// Keeps everything. An error leaves it open whether the server did.
    pub(super) async fn commit(mut self) -> Result<(), Error> {
        self.say("COMMIT").await?;
        // The connection is clean: back to the pool.
        drop(self.0.take());
        Ok(())
    }

    async fn say(&self, word: &str) -> Result<(), Error> {
        let session = self.session()?;
        session.bounded(session.client().batch_execute(word)).await
    }

    fn session(&self) -> Result<&Session, Error> {
        self.0.as_ref().ok_or_else(|| Error::row("the transaction has ended"))
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            session.close();
        }
    }
}

//! Incarnations: a random identity per start of a process, kept alive by a heartbeat.
//!
//! A lost identity is never renewed: the process takes a new one.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::connect::Store;
use super::enqueue::millis;
use super::error::Error;
use crate::domain::attempt::Incarnation;

/// Key of the advisory lock under which a first incarnation is registered.
const PLACE_LOCK: i64 = 0x706c_6163_6521;
const REGISTER: &str = include_str!("sql/register.sql");
const PLACE: &str = include_str!("sql/place.sql");

/// What a process says of itself.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Its identity.
    pub id: Incarnation,
    /// `worker` or `producer`.
    pub role: &'static str,
    /// `role@host#pid`.
    pub label: String,
    /// Pool to slots.
    pub pools: BTreeMap<String, usize>,
    /// Life of the lease.
    pub ttl: Duration,
}

/// A process as listed. JSON: one object with these keys.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerRow {
    /// Identity.
    pub id: Uuid,
    /// `worker` or `producer`.
    pub role: String,
    /// `role@host#pid`.
    pub label: String,
    /// Version of the binary.
    pub version: String,
    /// Pool to slots.
    pub pools: Value,
    /// Registration.
    pub started_at: DateTime<Utc>,
    /// Last heartbeat.
    pub seen_at: DateTime<Utc>,
    /// Lease not over and not fenced.
    pub alive: bool,
    /// Takes nothing new.
    pub draining: bool,
    /// Stopped in good order at.
    pub stopped_at: Option<DateTime<Utc>>,
    /// Tasks it runs now.
    pub running: i64,
}

impl Store {
    /// Registers an incarnation.
    pub async fn register(&self, who: &Registration) -> Result<(), Error> {
        let pools = serde_json::to_value(&who.pools).map_err(Error::row)?;
        self.query(REGISTER, &self.registration(who, &millis(who.ttl), &pools)).await.map(drop)
    }

    /// Registers the first incarnation of a process, unless another installation is there. One
    /// process after the other: two that look at the same time would both find nobody.
    pub async fn register_first(&self, who: &Registration) -> Result<(), Error> {
        let pools = serde_json::to_value(&who.pools).map_err(Error::row)?;
        let transaction = self.transaction().await?;
        transaction.query(include_str!("sql/place_lock.sql"), &[&PLACE_LOCK]).await?;
        if let Some(ours) = &self.place {
            let theirs = transaction.query(PLACE, &[ours]).await?;
            occupied(theirs.first(), ours)?;
        }
        transaction.query(REGISTER, &self.registration(who, &millis(who.ttl), &pools)).await?;
        transaction.commit().await
    }

    fn registration<'a>(
        &'a self,
        who: &'a Registration,
        ttl: &'a i64,
        pools: &'a Value,
    ) -> [&'a (dyn ToSql + Sync); 7] {
        [&who.id.0, &who.role, &who.label, &env!("CARGO_PKG_VERSION"), pools, ttl, &self.place]
    }

    /// Fails while processes of another installation work on this database: two that relay each other's
    /// tasks to their own corner of the broker would wonder where they are.
    pub async fn check_place(&self) -> Result<(), Error> {
        let Some(ours) = &self.place else { return Ok(()) };
        occupied(self.query_opt(PLACE, &[ours]).await?.as_ref(), ours)
    }

    /// Renews a lease; `None` when the identity is over, else whether a drain is asked.
    pub async fn renew(&self, id: Incarnation, ttl: Duration) -> Result<Option<bool>, Error> {
        let row = self.query_opt(include_str!("sql/renew.sql"), &[&id.0, &millis(ttl)]).await?;
        Ok(row.map(|row| row.get("draining")))
    }

    /// Ends an identity in good order.
    pub async fn retire(&self, id: Incarnation) -> Result<(), Error> {
        self.query(include_str!("sql/stop.sql"), &[&id.0]).await.map(drop)
    }

    /// Living processes, or all that are on record.
    pub async fn workers(&self, all: bool) -> Result<Vec<WorkerRow>, Error> {
        let rows = self.query(include_str!("sql/workers.sql"), &[&all]).await?;
        Ok(rows
            .iter()
            .map(|row| WorkerRow {
                id: row.get("id"),
                role: row.get("role"),
                label: row.get("label"),
                version: row.get("version"),
                pools: row.get("pools"),
                started_at: row.get("started_at"),
                seen_at: row.get("seen_at"),
                alive: row.get("alive"),
                draining: row.get("draining"),
                stopped_at: row.get("stopped_at"),
                running: row.get("running"),
            })
            .collect())
    }
}

/// An error where a process of another installation was found.
fn occupied(found: Option<&Row>, ours: &str) -> Result<(), Error> {
    let Some(row) = found else { return Ok(()) };
    let (label, theirs) = (row.get("label"), row.get("place"));
    Err(Error::Occupied { label, theirs, ours: ours.to_owned() })
}

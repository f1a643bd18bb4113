//! Faults of PostgreSQL: it restarts, throws its clients out, refuses to write, waits, is full.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use async_trait::async_trait;
use rand::seq::IndexedRandom as _;
use secrecy::ExposeSecret as _;
use shared::http::Url;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::disk_full::DiskFull;
use super::signs::{self, BITE, RED};
use crate::drill::fault::{Bite, Fault};
use crate::drill::field::{Field, until};
use crate::drill::kept;

/// The members among the server's clients.
const MEMBERS: &str = "(application_name LIKE 'worker@%' OR application_name LIKE 'producer@%') AND datname = current_database()";
/// How long backends are killed, and the pause between two rounds.
const STORM: Duration = Duration::from_secs(3);
const STORM_EVERY: Duration = Duration::from_millis(200);
/// A table is locked for longer than the house waits for a lock (2 s) and than a lease (3 s).
const LOCKED: Duration = Duration::from_secs(5);
/// What a member's log says of a server that only reads, that is full of clients, and of a lock
/// that took too long.
const READ_ONLY: &str = "takes no writes";
const TOO_MANY: &str = "too many clients";
const LOCK_TIMEOUT: &str = "(55P03)";

/// All of them.
pub(super) fn all() -> Vec<Box<dyn Fault>> {
    vec![
        Box::new(Restart),
        Box::new(BackendsKilled),
        Box::new(ReadOnly),
        Box::new(LockStorm),
        Box::new(Exhausted),
        Box::new(DiskFull),
    ]
}

/// An immediate stop, as in a power cut, and a start.
struct Restart;

#[async_trait(?Send)]
impl Fault for Restart {
    fn name(&self) -> &'static str {
        "postgres.restart"
    }

    fn summary(&self) -> &'static str {
        "PostgreSQL stops immediately, as in a power cut, and starts again"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let started = "SELECT pg_postmaster_start_time()::text AS at";
        let before: String = field.connect().await?.query_one(started, &[]).await?.get("at");
        field.services.verb("restart-postgres").await?;
        let since = Instant::now();
        let now: String = field.connect().await?.query_one(started, &[]).await?.get("at");
        ensure!(now != before, "the server of {before} still serves");
        Ok(Bite::new(since, format!("the server of {before} is gone, one of {now} serves")))
    }
}

/// Every connection of every member is terminated, again and again.
struct BackendsKilled;

#[async_trait(?Send)]
impl Fault for BackendsKilled {
    fn name(&self) -> &'static str {
        "postgres.backends_killed"
    }

    fn summary(&self) -> &'static str {
        "the backends of all members are terminated, again and again for 3 s"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let client = field.connect().await?;
        let mut killed = 0;
        let began = Instant::now();
        while began.elapsed() < STORM {
            killed += terminate(&client).await?;
            sleep(STORM_EVERY).await;
        }
        ensure!(killed > 0, "no member had a connection");
        Ok(Bite::new(Instant::now(), format!("{killed} backends were terminated")))
    }
}

/// Terminates the members' backends; answers how many.
async fn terminate(client: &Client) -> anyhow::Result<i64> {
    let sql = format!(
        "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {MEMBERS}"
    );
    Ok(client.query_one(&sql, &[]).await?.get(0))
}

/// Every new transaction may only read, as on a standby.
struct ReadOnly;

#[async_trait(?Send)]
impl Fault for ReadOnly {
    fn name(&self) -> &'static str {
        "postgres.read_only"
    }

    fn summary(&self) -> &'static str {
        "PostgreSQL refuses every write, as a standby does"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let before = kept::lines_with(field, READ_ONLY)?;
        let all = signs::everybody(field);
        let client = field.connect().await?;
        set_read_only(&client, true).await?;
        let bitten = async {
            let red = signs::one_red(field, &all).await?;
            let lines = signs::more_lines(field, READ_ONLY, before).await?;
            anyhow::Ok((red, lines))
        }
        .await;
        set_read_only(&client, false).await?;
        let since = Instant::now();
        let (red, lines) = bitten?;
        let proof = format!(
            "members were refused {lines} times, not ready after {:.1} s",
            red.as_secs_f64()
        );
        Ok(Bite::new(since, proof).measured(signs::TURNED_RED, red, RED))
    }
}

async fn set_read_only(client: &Client, on: bool) -> anyhow::Result<()> {
    let word = if on { "on" } else { "off" };
    // One statement each: ALTER SYSTEM refuses to run in a transaction.
    let statements = [
        &format!("ALTER SYSTEM SET default_transaction_read_only = {word}"),
        "SELECT pg_reload_conf()",
    ];
    for statement in statements {
        client.batch_execute(statement).await.with_context(|| statement.to_owned())?;
    }
    Ok(())
}

/// Somebody's transaction locks a table that everybody needs.
struct LockStorm;

#[async_trait(?Send)]
impl Fault for LockStorm {
    fn name(&self) -> &'static str {
        "postgres.lock_storm"
    }

    fn summary(&self) -> &'static str {
        "a transaction locks the tasks, the workers or the attempts for 5 s"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let table = *["tasks", "workers", "attempts"].choose(&mut field.dice).context("a table")?;
        let before = kept::lines_with(field, LOCK_TIMEOUT)?;
        let mut client = field.connect().await?;
        let transaction = client.transaction().await?;
        let locking = format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
        transaction.batch_execute(&locking).await.context(locking)?;
        let began = Instant::now();
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        let waiters = until("somebody waits for the lock", BITE, async || {
            let waiters = field.count(waiting, &[]).await?;
            Ok((waiters > 0).then_some(waiters))
        })
        .await?;
        let lines = signs::more_lines(field, LOCK_TIMEOUT, before).await?;
        sleep(LOCKED.saturating_sub(began.elapsed())).await;
        transaction.rollback().await?;
        let held = began.elapsed().as_secs_f64();
        let proof = format!(
            "{table} was locked for {held:.1} s: {waiters} waited, SQLSTATE 55P03 met {lines} times"
        );
        Ok(Bite::new(Instant::now(), proof))
    }
}

/// Strangers who never log in hold every connection that the server has.
struct Exhausted;

#[async_trait(?Send)]
impl Fault for Exhausted {
    fn name(&self) -> &'static str {
        "postgres.exhausted"
    }

    fn summary(&self) -> &'static str {
        "strangers hold all connections of PostgreSQL, and the members lose theirs"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let before = kept::lines_with(field, TOO_MANY)?;
        let all = signs::everybody(field);
        let own = field.connect().await?;
        let mut strangers = Vec::new();
        let bitten = async {
            take_all(field, &mut strangers).await?;
            // What the members lose is taken before they come back, or soon after.
            until("a member finds no connection", BITE, async || {
                terminate(&own).await?;
                take_all(field, &mut strangers).await?;
                Ok((kept::lines_with(field, TOO_MANY)? > before).then_some(()))
            })
            .await?;
            signs::one_red(field, &all).await
        }
        .await;
        let held = strangers.len();
        drop(strangers);
        let since = Instant::now();
        let red = bitten?;
        let proof = format!(
            "{held} connections were held, SQLSTATE 53300 for the next, a member not ready after {:.1} s",
            red.as_secs_f64()
        );
        Ok(Bite::new(since, proof))
    }
}

/// Dials until the server has no connection left. Who says hello and then nothing holds one for the
/// server's `authentication_timeout` of a minute.
async fn take_all(field: &Field, strangers: &mut Vec<TcpStream>) -> anyhow::Result<()> {
    let hello = hello(field)?;
    loop {
        let mut socket = TcpStream::connect(field.services.postgres()?).await?;
        socket.write_all(&hello).await?;
        let mut answer = vec![0; 256];
        let read =
            timeout(BITE, socket.read(&mut answer)).await.context("no answer to hello")??;
        let told = String::from_utf8_lossy(&answer[..read]);
        match answer[0] {
            // It asks for the password.
            b'R' => strangers.push(socket),
            // "sorry, too many clients already"
            b'E' if told.contains(SqlState::TOO_MANY_CONNECTIONS.code()) => return Ok(()),
            _ => bail!("PostgreSQL answered a hello with {told:?}"),
        }
    }
}

/// The first message of a client, version 3.0 of the protocol.
fn hello(field: &Field) -> anyhow::Result<Vec<u8>> {
    let dsn = field.ground.config().database_url()?;
    let url = Url::parse(dsn.expose_secret()).ok().context("the connection string is no URL")?;
    let database = url.path().trim_start_matches('/');
    let body = format!("user\0{}\0database\0{database}\0\0", url.username());
    let mut hello = u32::try_from(body.len() + 8)?.to_be_bytes().to_vec();
    hello.extend([0, 3, 0, 0]);
    hello.extend(body.as_bytes());
    Ok(hello)
}

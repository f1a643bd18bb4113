//! Named data sources of `db_query`: one statement, in a transaction that cannot write unless the
//! source says so.
//!
//! A payload brings SQL and values, never a connection string. What a query may do is decided by the
//! role of the source, not by looking at its text: the transaction is read-only and has a statement
//! timeout, a superuser's powers are put down, and the extended protocol takes one statement. Rows
//! become JSON in the database, so that every type has a faithful form; rows and bytes are capped.
//! That is a seat belt, no wall: give `sources` roles that may read what queries may read.

mod error;
mod param;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Timeouts};
use futures::{StreamExt as _, pin_mut};
use secrecy::ExposeSecret;
use serde_json::{Map, Number, Value};
use tokio::sync::OnceCell;
use tokio_postgres::types::Type;
use tokio_postgres::{Column, Config as PgConfig, Row};
use tracing::warn;

use super::connect::{describe, tls};
use crate::config::{Config, Source as SourceConfig};
use crate::telemetry::names::db;
use crate::telemetry::{metrics, spans};
pub use error::SourceError;
use param::Param;

/// Most bytes of JSON in one answer: it becomes a task's result.
pub const MAX_BYTES: usize = 1024 * 1024;
/// Connections to one source at most; databases of other people are shared politely.
const POOL_SIZE: usize = 4;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait for one of the connections.
const POOL_WAIT: Duration = Duration::from_secs(10);
/// Given to the server beyond its own statement timeout before the connection is taken as dead.
const ANSWER_GRACE: Duration = Duration::from_secs(5);
/// Digits that a JSON number of double precision carries exactly.
const EXACT_DIGITS: usize = 15;

/// All sources of a configuration; connects when first asked. Clones share connections.
#[derive(Clone, Debug, Default)]
pub struct Sources(Arc<BTreeMap<String, Source>>);

#[derive(Debug)]
struct Source {
    settings: SourceConfig,
    pool: Result<Pool, SourceError>,
    role: OnceCell<Role>,
}

/// What a source's connection may do by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// As much as it was granted.
    Plain,
    /// Everything: its powers are put down before each query.
    Superuser,
}

impl Sources {
    /// Prepares them. What is missing is an error where it is used.
    pub fn open(config: &Config) -> Self {
        let open = |(name, settings): (&String, &SourceConfig)| {
            let pool = open_pool(name, settings);
            (name.clone(), Source { settings: settings.clone(), pool, role: OnceCell::new() })
        };
        Self(Arc::new(config.sources.iter().map(open).collect()))
    }

    /// Runs one statement; each row is an object by column names.
    pub async fn query_json(
        &self,
        name: &str,
        sql: &str,
        params: &[Value],
    ) -> Result<Vec<Value>, SourceError> {
        let source = self.0.get(name).ok_or_else(|| SourceError::Unknown {
            name: name.to_owned(),
            known: self.0.keys().cloned().collect(),
        })?;
        let span = spans::db_query(name, summary(sql), sql);
        let started = Instant::now();
        let answer = span.in_scope(source.query(sql, params)).await;
        let error_type = answer.as_ref().err().map(SourceError::error_type);
        match &answer {
            Ok(rows) => span.set(db::RETURNED_ROWS, rows.len() as i64),
            Err(error) => span.fail(&error.error_type(), error.to_string()),
        }
        metrics::db_query(name, started.elapsed(), error_type.as_deref());
        answer
    }
}

impl Source {
    async fn query(&self, sql: &str, params: &[Value]) -> Result<Vec<Value>, SourceError> {
        let pool = self.pool.as_ref().map_err(Clone::clone)?;
        let client = pool.get().await.map_err(SourceError::from_pool)?;
        let limit = self.settings.statement_timeout + ANSWER_GRACE;
        let cancel = client.cancel_token();
        match tokio::time::timeout(limit, self.transaction(&client, sql, params)).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                // A failed transaction is rolled back; a connection that cannot is not used again.
                if client.batch_execute("ROLLBACK").await.is_err() {
                    drop(Object::take(client));
                }
                Err(error)
            }
            Err(_) => {
                drop(Object::take(client));
                // The server may still be at it; whether the cancel arrives does not matter here.
                let _ = cancel.cancel_query(tls()).await;
                Err(SourceError::Timeout { after: limit })
            }
        }
    }

    async fn transaction(
        &self,
        client: &Object,
        sql: &str,
        params: &[Value],
    ) -> Result<Vec<Value>, SourceError> {
        let role = self.role.get_or_try_init(|| role_of(client)).await?;
        client.batch_execute(&self.opening(*role)).await.map_err(SourceError::from_postgres)?;
        let statement = Statement::of(sql);
        let inner = client.prepare(statement.text).await.map_err(SourceError::from_postgres)?;
        let wanted = inner.params().len();
        if wanted != params.len() {
            return Err(SourceError::Params { wanted, given: params.len() });
        }
        let params: Vec<Param<'_>> = params.iter().map(Param).collect();
        if inner.columns().is_empty() {
            if self.settings.read_only {
                return Err(SourceError::NoRows);
            }
            let rows = client.execute_raw(&inner, &params).await;
            let affected = rows.map_err(SourceError::from_postgres)?;
            self.close(client).await?;
            return Ok(vec![serde_json::json!({ "rows_affected": affected })]);
        }
        if let Some(column) = doubled(inner.columns()) {
            return Err(SourceError::Doubled { column });
        }
        let wrapped = statement.as_json(inner.columns(), self.settings.max_rows);
        let rows = self.rows(client, &wrapped, &params, inner.columns()).await?;
        self.close(client).await?;
        Ok(rows)
    }

    async fn rows(
        &self,
        client: &Object,
        wrapped: &Wrapped,
        params: &[Param<'_>],
        columns: &[Column],
    ) -> Result<Vec<Value>, SourceError> {
        let fail = |error| SourceError::from_postgres(error).moved(wrapped.offset);
        let prepared = client.prepare(&wrapped.text).await.map_err(fail)?;
        let stream = client.query_raw(&prepared, params).await.map_err(fail)?;
        pin_mut!(stream);
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(row) = stream.next().await {
            let row = row.map_err(fail)?;
            if rows.len() == self.settings.max_rows {
                return Err(SourceError::TooManyRows { limit: self.settings.max_rows });
            }
            let (object, size) = object_of(&row, columns)?;
            bytes += size;
            if bytes > MAX_BYTES {
                return Err(SourceError::TooLarge { limit: MAX_BYTES });
            }
            rows.push(object);
        }
        Ok(rows)
    }

    /// The first words of every transaction.
    fn opening(&self, role: Role) -> String {
        let timeout = self.settings.statement_timeout.as_millis();
        let mode = if self.settings.read_only { "READ ONLY" } else { "READ WRITE" };
        let role = match role {
            Role::Superuser if self.settings.read_only => "SET LOCAL ROLE pg_read_all_data;",
            _ => "",
        };
        format!(
            "BEGIN {mode}; SET LOCAL statement_timeout = {timeout}; \
             SET LOCAL idle_in_transaction_session_timeout = 10000; \
             SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO'; {role}"
        )
    }

    /// The last word. Reading ends with a rollback, which also takes back any `set_config`.
    async fn close(&self, client: &Object) -> Result<(), SourceError> {
        let word = if self.settings.read_only { "ROLLBACK" } else { "COMMIT" };
        client.batch_execute(word).await.map_err(SourceError::from_postgres)
    }
}

fn open_pool(name: &str, settings: &SourceConfig) -> Result<Pool, SourceError> {
    let wrong = |why: String| SourceError::Dsn { name: name.to_owned(), why };
    let dsn = settings.dsn.as_ref().ok_or_else(|| SourceError::Unset { name: name.to_owned() })?;
    let parsed = dsn.expose_secret().parse::<PgConfig>();
    let mut config = parsed.map_err(|error| wrong(super::error::chain(&error)))?;
    describe(&config).map_err(|error| wrong(error.to_string()))?;
    config.connect_timeout(CONNECT_TIMEOUT).application_name("belfry db_query");
    // What one query set for its session, the next one must not find.
    let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Clean };
    Pool::builder(Manager::from_config(config, tls(), manager_config))
        .max_size(POOL_SIZE)
        .timeouts(Timeouts {
            wait: Some(POOL_WAIT),
            create: Some(CONNECT_TIMEOUT),
            recycle: Some(CONNECT_TIMEOUT),
        })
        .runtime(deadpool_postgres::Runtime::Tokio1)
        .build()
        .map_err(|error| wrong(error.to_string()))
}

async fn role_of(client: &Object) -> Result<Role, SourceError> {
    let row = client.query_one(include_str!("sql/source_role.sql"), &[]).await;
    let row = row.map_err(SourceError::from_postgres)?;
    if !row.get::<_, bool>("superuser") {
        return Ok(Role::Plain);
    }
    if !row.get::<_, bool>("has_reader") {
        return Err(SourceError::Superuser);
    }
    warn!(
        "a source of db_query connects as a superuser; its queries run as pg_read_all_data, but a \
         role of its own would be safer"
    );
    Ok(Role::Superuser)
}

/// A payload's statement.
struct Statement<'a> {
    text: &'a str,
}

/// It, as a query for JSON texts.
struct Wrapped {
    text: String,
    /// Characters before the payload's own: positions in errors are told without them.
    offset: u32,
}

impl<'a> Statement<'a> {
    /// Without the semicolons at its end.
    fn of(sql: &'a str) -> Self {
        Self { text: sql.trim_end_matches(|c: char| c == ';' || c.is_whitespace()) }
    }

    fn as_json(&self, columns: &[Column], max_rows: usize) -> Wrapped {
        let names: Vec<String> = (1..=columns.len()).map(|n| format!("c{n}")).collect();
        let cells = columns.iter().zip(&names).map(|(column, name)| match *column.type_() {
            // Exact, whatever its digits; to_json would leave them to a double.
            Type::NUMERIC => format!("{name}::text"),
            Type::BYTEA => {
                format!("to_json(translate(encode({name}, 'base64'), chr(10), ''))::text")
            }
            _ => format!("to_json({name})::text"),
        });
        let cells = cells.collect::<Vec<_>>().join(", ");
        // By position, since names may repeat; the line break ends a trailing comment.
        let before = format!("WITH q({}) AS (", names.join(", "));
        let (text, limit) = (self.text, max_rows.saturating_add(1));
        Wrapped {
            text: format!("{before}{text}\n) SELECT {cells} FROM q LIMIT {limit}"), // sql as data
            offset: before.chars().count() as u32,
        }
    }
}

/// The first name that two columns have.
fn doubled(columns: &[Column]) -> Option<String> {
    let mut names = BTreeSet::new();
    let mut columns = columns.iter().map(Column::name);
    columns.find(|name| !names.insert(*name)).map(str::to_owned)
}

/// A row as an object, with the bytes it took.
fn object_of(row: &Row, columns: &[Column]) -> Result<(Value, usize), SourceError> {
    let mut object = Map::new();
    let mut bytes = 2;
    for (at, column) in columns.iter().enumerate() {
        let unreadable =
            |why: String| SourceError::Unreadable { column: column.name().to_owned(), why };
        let cell: Option<&str> = row.try_get(at).map_err(|error| unreadable(error.to_string()))?;
        bytes += column.name().len() + cell.map_or(4, str::len) + 4;
        let value = match cell {
            None => Value::Null,
            Some(text) if *column.type_() == Type::NUMERIC => exact(text),
            Some(text) => serde_json::from_str(text).map_err(|e| unreadable(e.to_string()))?,
        };
        object.insert(column.name().to_owned(), value);
    }
    Ok((Value::Object(object), bytes))
}

/// A numeric as a number where that is exact, else as its text.
fn exact(text: &str) -> Value {
    if let Ok(whole) = text.parse::<i64>() {
        return whole.into();
    }
    let digits = text.chars().filter(char::is_ascii_digit).count();
    let number = text.parse::<f64>().ok().filter(|_| digits <= EXACT_DIGITS);
    number.and_then(Number::from_f64).map_or_else(|| text.into(), Value::Number)
}

/// The first word of a statement, for the span's name.
fn summary(sql: &str) -> &str {
    const WORDS: [&str; 7] = ["SELECT", "WITH", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE"];
    let first = sql.split(|c: char| !c.is_ascii_alphabetic()).find(|word| !word.is_empty());
    let known =
        first.and_then(|word| WORDS.into_iter().find(|known| known.eq_ignore_ascii_case(word)));
    known.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_numeric_is_a_number_only_where_that_is_exact() {
        assert_eq!(exact("17"), json!(17));
        assert_eq!(exact("12.50"), json!(12.5));
        assert_eq!(exact("-0.1"), json!(-0.1));
        assert_eq!(exact("1234567890123456.75"), json!("1234567890123456.75"));
        assert_eq!(exact("NaN"), json!("NaN"));
    }

    #[test]
    fn a_summary_is_one_word_of_a_small_set() {
        assert_eq!(summary("  select * from t"), "SELECT");
        assert_eq!(summary("(VALUES (1))"), "VALUES");
        assert_eq!(summary("-- x\nSELECT 1"), "");
        assert_eq!(summary(""), "");
    }
}

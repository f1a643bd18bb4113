//! A fresh, migrated database per test, copied from a template that is migrated once.

use secrecy::SecretString;
use tokio_postgres::{Client, Config, NoTls};
use uuid::Uuid;

use super::needed;
use crate::store::{self, Purpose, Store, StoreOptions};

/// Serialises the making of the template and the copies between test processes.
const TEMPLATE_LOCK: i64 = 0x7465_6d70;

/// A database that exists as long as this value.
pub struct TestDatabase {
    /// Its connection string.
    pub dsn: String,
    name: String,
    admin: String,
}

impl TestDatabase {
    /// Copies the migrated template.
    pub async fn create() -> Self {
        let admin = needed("DATABASE_URL");
        let template = format!("belfry_template_{}", fingerprint());
        let name = format!("belfry_test_{}", Uuid::new_v4().simple());
        let client = connect(&admin).await;
        let run = async |sql: String| client.batch_execute(&sql).await.expect("admin statement");
        run(format!("SELECT pg_advisory_lock({TEMPLATE_LOCK})")).await;
        let known = client
            .query_opt("SELECT FROM pg_database WHERE datname = $1", &[&template])
            .await
            .expect("catalogue");
        if known.is_none() {
            let making = format!("{template}_making");
            run(format!("DROP DATABASE IF EXISTS {making} WITH (FORCE)")).await;
            run(format!("CREATE DATABASE {making}")).await;
            store::migrate(&with_database(&admin, &making)).await.expect("migrate the template");
            run(format!("ALTER DATABASE {making} RENAME TO {template}")).await;
        }
        run(format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        run(format!("SELECT pg_advisory_unlock({TEMPLATE_LOCK})")).await;
        Self { dsn: with_database(&admin, &name), name, admin }
    }

    /// An empty database, not migrated.
    pub async fn empty() -> Self {
        let admin = needed("DATABASE_URL");
        let name = format!("belfry_test_{}", Uuid::new_v4().simple());
        let client = connect(&admin).await;
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("create");
        Self { dsn: with_database(&admin, &name), name, admin }
    }

    /// A store on it, as a daemon has one.
    pub fn store(&self) -> Store {
        Store::open(&self.options()).expect("a valid connection string")
    }

    /// Options for a store on it.
    pub fn options(&self) -> StoreOptions {
        StoreOptions::new(SecretString::from(self.dsn.clone()), "belfry test", Purpose::Daemon)
    }

    /// A bare connection, for what only a test may do.
    pub async fn client(&self) -> Client {
        connect(&self.dsn).await
    }

    /// Moves the database's clock by so many seconds.
    pub async fn move_clock(&self, seconds: i64) {
        let sql = format!(
            "CREATE OR REPLACE FUNCTION belfry_now() RETURNS timestamptz LANGUAGE sql VOLATILE \
             AS $$ SELECT clock_timestamp() + interval '{seconds} seconds' $$"
        );
        self.client().await.batch_execute(&sql).await.expect("move the clock");
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (admin, name) = (self.admin.clone(), self.name.clone());
        // A runtime of its own: the test's may be gone already.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(async {
                    let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                    let _ = connect(&admin).await.batch_execute(&sql).await;
                });
            }
        });
        let _ = dropping.join();
    }
}

async fn connect(dsn: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(dsn, NoTls)
        .await
        .unwrap_or_else(|e| panic!("no PostgreSQL for the tests ({e}): run `script/services up`"));
    #[expect(clippy::disallowed_methods, reason = "ends with the client")]
    tokio::spawn(connection);
    client
}

fn with_database(admin: &str, name: &str) -> String {
    let config: Config = admin.parse().expect("DATABASE_URL");
    assert!(config.get_dbname().is_some(), "DATABASE_URL names a database");
    let mut url: url::Url = admin.parse().expect("DATABASE_URL is a URL");
    url.set_path(name);
    url.to_string()
}

fn fingerprint() -> String {
    use sha2::{Digest, Sha256};
    let mut hasher = Sha256::new();
    for migration in store::migration_texts() {
        hasher.update(migration.as_bytes());
    }
    crate::domain::execution_key::hex(&hasher.finalize()[..6])
}

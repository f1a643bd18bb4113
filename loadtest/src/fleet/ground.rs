//! Ground of one's own: a database that nobody else uses, a prefix on the broker, a configuration.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use secrecy::{ExposeSecret as _, SecretString};
use shared::broker::{Operator, Settings, Topology};
use shared::config::{self, Config};
use shared::http::Url;
use shared::process;
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::database;

/// See the module. [`Ground::clear`] takes it away; only its directory goes by itself.
#[derive(Debug)]
pub struct Ground {
    config: Config,
    directory: TempDir,
    admin: SecretString,
    database: String,
    variables: Vec<(&'static str, SecretString)>,
}

impl Ground {
    /// Makes a migrated database and a topology beside those that `base` names; both are called
    /// `name` and this process's id. `yaml` is the rest of the configuration.
    pub async fn prepare(base: &Config, name: &str, yaml: &str) -> anyhow::Result<Self> {
        let admin = base.database_url()?.clone();
        let amqp = base.amqp_url()?.clone();
        let id = std::process::id();
        let database = format!("belfry_{name}_{id}");
        let dsn = with_database(&admin, &database)?;
        let variables = vec![("DATABASE_URL", dsn.clone()), ("AMQP_URL", amqp)];
        let yaml = format!("storage:\n  rabbitmq: {{prefix: belfry-{name}-{id}}}\n{yaml}");
        let lookup = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.expose_secret().to_owned())
        };
        let config = config::load_str(&yaml, "belfry.yaml", &lookup)?;
        let directory = tempfile::Builder::new().prefix("belfry-").tempdir()?;
        std::fs::write(directory.path().join("belfry.yaml"), yaml)?;

        let ground = Self { config, directory, admin, database, variables };
        let operator = Operator::connect(&ground.settings()?).await?;
        let declared = operator.declare(&ground.topology()).await;
        operator.close().await;
        declared?;
        let client = database::connect(&ground.admin).await?;
        // Left behind by a process of our number that was killed.
        drop_database(&client, &ground.database).await?;
        client
            .batch_execute(&format!("CREATE DATABASE {}", ground.database))
            .await
            .with_context(|| format!("creating the database {}", ground.database))?;
        shared::store::migrate(dsn.expose_secret()).await?;
        Ok(ground)
    }

    /// Its configuration, as its processes read it.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its configuration file.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("belfry.yaml")
    }

    /// Its directory, for logs.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves its directory where it is, for whoever wants to look; answers where.
    pub fn keep(&mut self) -> PathBuf {
        self.directory.disable_cleanup(true);
        self.directory.path().to_owned()
    }

    /// How to reach the broker.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let url = self.config.amqp_url()?.clone();
        Ok(Settings::new(url, &self.config.rabbitmq.prefix, process::label("loadtest")))
    }

    /// Its names on the broker.
    pub fn topology(&self) -> Topology {
        let pools = self.config.pools.iter().map(|pool| pool.name.clone());
        Topology::new(&self.config.rabbitmq.prefix, pools)
    }

    /// The address of its database with another host and port: a link that leads there.
    pub fn database_url_at(&self, at: SocketAddr) -> anyhow::Result<String> {
        through(self.config.database_url()?, at)
    }

    /// The address of its broker with another host and port: a link that leads there.
    pub fn amqp_url_at(&self, at: SocketAddr) -> anyhow::Result<String> {
        through(self.config.amqp_url()?, at)
    }

    /// Adds to what processes started from now on find in their environment.
    pub fn tell(&mut self, name: &'static str, value: impl Into<String>) {
        self.variables.push((name, SecretString::from(value.into())));
    }

    /// What its processes find in their environment.
    pub fn environment(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.variables.iter().map(|(name, value)| (*name, value.expose_secret()))
    }

    /// Takes database and topology away, with what is in them.
    pub async fn clear(self) -> anyhow::Result<()> {
        let operator = Operator::connect(&self.settings()?).await?;
        let deleted = operator.delete_all(&self.topology()).await;
        operator.close().await;
        let client = database::connect(&self.admin).await?;
        drop_database(&client, &self.database).await?;
        Ok(deleted?)
    }
}

async fn drop_database(client: &Client, name: &str) -> anyhow::Result<()> {
    let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
    client.batch_execute(&sql).await.with_context(|| format!("dropping the database {name}"))
}

fn through(url: &SecretString, at: SocketAddr) -> anyhow::Result<String> {
    // What cannot be parsed is not repeated: it may hold a password.
    let mut url = Url::parse(url.expose_secret()).ok().context("the address is no URL")?;
    let moved = url.set_ip_host(at.ip()).and_then(|()| url.set_port(Some(at.port())));
    moved.ok().context("the address has no host")?;
    Ok(url.into())
}

fn with_database(admin: &SecretString, name: &str) -> anyhow::Result<SecretString> {
    // What cannot be parsed is not repeated: it may hold a password.
    let mut url =
        Url::parse(admin.expose_secret()).ok().context("the connection string is no URL")?;
    url.set_path(name);
    Ok(SecretString::from(String::from(url)))
}

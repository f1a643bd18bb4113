//! Services of the drill's own: PostgreSQL and RabbitMQ as `script/services` starts them, in a
//! directory that goes with the drill.
//!
//! It never touches anybody else's: the addresses in the environment are kept from the script.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use secrecy::{ExposeSecret as _, SecretString};
use shared::config::{self, Config};
use shared::http::Url;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::database;

/// Where the script lies in a checkout.
const SCRIPT: &str = "script/services";
/// Longest time for the script: the first `up` may install packages.
const START: Duration = Duration::from_mins(10);
/// Longest time for any other word.
const VERB: Duration = Duration::from_mins(3);
/// Who listens on this host takes a connection within this.
const LISTENS: Duration = Duration::from_secs(1);
/// What names services; none of it reaches the script.
const OTHERS: [&str; 4] =
    ["DATABASE_URL", "AMQP_URL", "RABBITMQ_MANAGEMENT_URL", "BELFRY_BASE_PORT"];

/// Services of the drill's own cannot be had on this machine: exit code 4.
#[derive(Debug, thiserror::Error)]
#[error("PostgreSQL and RabbitMQ of the drill's own do not start; script/services up says why")]
pub struct NotStarted;

/// See the module. [`Services::wipe`] takes them away, and so does dropping them.
#[derive(Debug)]
pub struct Services {
    script: PathBuf,
    state: TempDir,
    database_url: SecretString,
    amqp_url: SecretString,
    management: Url,
    gone: bool,
}

impl Services {
    /// Finds the script of the checkout: from the working directory upwards, else from this program
    /// upwards.
    ///
    /// # Errors
    /// When there is none.
    pub fn script() -> anyhow::Result<PathBuf> {
        let here = std::env::current_dir().context("the working directory")?;
        let program = std::env::current_exe().context("where this program is")?;
        let found = here.ancestors().chain(program.ancestors()).map(|folder| folder.join(SCRIPT));
        found.into_iter().find(|path| path.is_file()).with_context(|| {
            format!("there is no {SCRIPT} above {} ; run the drill in a checkout", here.display())
        })
    }

    /// Starts both. Takes seconds where the servers are installed.
    ///
    /// # Errors
    /// [`NotStarted`], with the script's last words.
    pub async fn start(script: PathBuf) -> anyhow::Result<Self> {
        let state = tempfile::Builder::new().prefix("belfry-drill-").tempdir()?;
        // As root the servers run as users of their own, which must enter.
        std::fs::set_permissions(state.path(), std::fs::Permissions::from_mode(0o755))?;
        let mut this = Self {
            script,
            state,
            database_url: SecretString::default(),
            amqp_url: SecretString::default(),
            management: Url::parse("http://127.0.0.1").context("a URL")?,
            gone: false,
        };
        this.say(&["up"], START).await.context(NotStarted)?;
        let told = this.say(&["env"], VERB).await?;
        this.database_url = exported(&told, "DATABASE_URL")?.into();
        this.amqp_url = exported(&told, "AMQP_URL")?.into();
        this.management = exported(&told, "RABBITMQ_MANAGEMENT_URL")?.parse()?;
        Ok(this)
    }

    /// Both addresses, as a configuration.
    pub fn config(&self) -> anyhow::Result<Config> {
        let lookup = |name: &str| match name {
            "DATABASE_URL" => Some(self.database_url.expose_secret().to_owned()),
            "AMQP_URL" => Some(self.amqp_url.expose_secret().to_owned()),
            _ => None,
        };
        Ok(config::load_str("", "the drill's services", &lookup)?)
    }

    /// The management API, with its login.
    pub fn management(&self) -> &Url {
        &self.management
    }

    /// Where PostgreSQL listens.
    pub fn postgres(&self) -> anyhow::Result<SocketAddr> {
        address(&self.database_url)
    }

    /// Where RabbitMQ listens.
    pub fn rabbitmq(&self) -> anyhow::Result<SocketAddr> {
        address(&self.amqp_url)
    }

    /// The directory of the servers' data.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// Starts what is down. Costs nothing where both listen: it stands between a blow and the time
    /// of recovery.
    pub async fn up(&self) -> anyhow::Result<()> {
        for at in [self.postgres()?, self.rabbitmq()?] {
            if !matches!(timeout(LISTENS, TcpStream::connect(at)).await, Ok(Ok(_))) {
                return self.say(&["up"], VERB).await.map(drop);
            }
        }
        Ok(())
    }

    /// A word of the script: `stop-postgres`, `start-rabbitmq`, `wipe-rabbitmq`.
    pub async fn verb(&self, verb: &str) -> anyhow::Result<()> {
        self.say(&[verb], VERB).await.map(drop)
    }

    /// `rabbitmqctl` with these arguments; answers what it said.
    pub async fn ctl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let all: Vec<&str> = std::iter::once("ctl").chain(arguments.iter().copied()).collect();
        self.say(&all, VERB).await
    }

    /// A fresh direct connection, as the server's superuser, to the database beside the ground's.
    pub async fn connect(&self) -> anyhow::Result<Client> {
        database::connect(&self.database_url).await
    }

    /// Runs statements by a fresh direct connection.
    pub async fn sql(&self, statements: &str) -> anyhow::Result<()> {
        let client = self.connect().await?;
        client.batch_execute(statements).await.with_context(|| format!("running {statements:?}"))
    }

    /// Stops both and deletes their data.
    pub async fn wipe(mut self) -> anyhow::Result<()> {
        self.say(&["wipe"], VERB).await?;
        self.gone = true;
        Ok(())
    }

    async fn say(&self, arguments: &[&str], patience: Duration) -> anyhow::Result<String> {
        let what = || format!("{} {}", self.script.display(), arguments.join(" "));
        let mut command = Command::new(&self.script);
        command.args(arguments).env("BELFRY_STATE", self.state.path()).stdin(Stdio::null());
        for name in OTHERS {
            command.env_remove(name);
        }
        let output = timeout(patience, command.kill_on_drop(true).output())
            .await
            .map_err(|_| anyhow::anyhow!("{} did not end within {patience:?}", what()))?
            .with_context(what)?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} ended with {}:\n{error}", what(), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        if self.gone {
            return;
        }
        let mut command = std::process::Command::new(&self.script);
        command.arg("wipe").env("BELFRY_STATE", self.state.path()).stdin(Stdio::null());
        for name in OTHERS {
            command.env_remove(name);
        }
        // There is nobody left to tell.
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// The value of a line `export NAME=VALUE`, without the quoting of the shell.
fn exported(lines: &str, name: &str) -> anyhow::Result<String> {
    let start = format!("export {name}=");
    let Some(value) = lines.lines().find_map(|line| line.strip_prefix(&start)) else {
        bail!("{SCRIPT} env does not name {name}");
    };
    Ok(value.replace('\\', ""))
}

fn address(url: &SecretString) -> anyhow::Result<SocketAddr> {
    let url = Url::parse(url.expose_secret()).ok().context("the address is no URL")?;
    let (host, port) = url.host_str().zip(url.port()).context("the address names no port")?;
    Ok(SocketAddr::new(host.parse().context("the services listen on loopback")?, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_script_exports_is_read_as_a_shell_does() {
        let lines = "export DATABASE_URL=postgres://a:b@127.0.0.1:1/c\n\
                     export AMQP_URL=amqp://a:b@127.0.0.1:2/%2f\\&x=1\n";
        assert_eq!(exported(lines, "AMQP_URL").expect("there"), "amqp://a:b@127.0.0.1:2/%2f&x=1");
        assert!(exported(lines, "RABBITMQ_MANAGEMENT_URL").is_err());
        let url = exported(lines, "DATABASE_URL").expect("there").into();
        assert_eq!(address(&url).expect("an address"), ([127, 0, 0, 1], 1).into());
    }
}

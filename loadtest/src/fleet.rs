//! Real processes on ground of their own: a database, a prefix on the broker, a configuration, and
//! the programs `producer` and `worker` as they are shipped.
//!
//! Addresses and passwords go to the processes by environment, never into a file. It never reaches
//! into a process: it starts, asks for readiness, measures from outside, stops and kills.

mod door;
mod ground;
mod usage;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

pub use door::Door;
pub use ground::Ground;
pub use usage::Usage;

/// Pause between two questions for readiness.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// Lines of a process's log that are shown when it failed.
const TAIL: usize = 20;

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `producer run`.
    Producer,
    /// `worker run`.
    Worker,
}

impl Role {
    /// The program's name.
    pub fn program(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Worker => "worker",
        }
    }

    /// The program that was built together with this one.
    ///
    /// # Errors
    /// When it was not built.
    pub fn path(self) -> anyhow::Result<PathBuf> {
        let own = std::env::current_exe().context("where this program is")?;
        let folder = own.parent().unwrap_or(Path::new("."));
        // Tests are built one folder deeper.
        let folder = if folder.ends_with("deps") { folder.join("..") } else { folder.to_owned() };
        let (path, name) = (folder.join(self.program()), self.program());
        ensure!(path.is_file(), "{} is not there; build it: cargo build -p {name}", path.display());
        Ok(path)
    }
}

/// A process of the fleet. Dropped, it is killed.
#[derive(Debug)]
pub struct Member {
    /// Which program it is.
    pub role: Role,
    /// When it was started.
    pub started: Instant,
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Member {
    /// Starts one; its log goes to a file of the ground.
    pub fn start(ground: &Ground, role: Role) -> anyhow::Result<Self> {
        Self::start_with(ground, role, &[])
    }

    /// Starts one with more variables.
    pub fn start_with(ground: &Ground, role: Role, more: &[(&str, &str)]) -> anyhow::Result<Self> {
        let program = role.path()?;
        let address = free_address()?;
        let log = ground.directory().join(format!("{}-{}.log", role.program(), address.port()));
        let file = std::fs::File::create(&log).context("creating a log")?;
        let child = Command::new(&program)
            .arg("run")
            .arg("--config")
            .arg(ground.file())
            .env_remove("BELFRY_CONFIG")
            .envs(ground.environment())
            .envs(more.iter().copied())
            .env("BELFRY_HTTP_ADDR", address.to_string())
            .stdin(Stdio::null())
            .stdout(file.try_clone().context("a second handle of the log")?)
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self { role, started: Instant::now(), child, address, log })
    }

    /// Its process id, until it has ended.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until its readiness page says so; an early end is told with the end of its log.
    pub async fn ready(&mut self, patience: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        while !shared::health::probe(self.address).await {
            if let Some(status) = self.child.try_wait().context("asking for the process")? {
                bail!("{} ended at its start ({status}):\n{}", self.role.program(), self.tail());
            }
            if Instant::now() >= deadline {
                let name = self.role.program();
                bail!("{name} was not ready within {patience:?}:\n{}", self.tail());
            }
            sleep(ASK_AGAIN).await;
        }
        Ok(())
    }

    /// What it has used so far.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        Usage::of(self.pid().context("the process has ended")?)
    }

    /// SIGKILL: no goodbye to anybody.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("killing a process")
    }

    /// True while its readiness page says so.
    pub async fn is_ready(&self) -> bool {
        shared::health::probe(self.address).await
    }

    /// SIGTERM, and its end.
    pub async fn stop(self, patience: Duration) -> anyhow::Result<ExitStatus> {
        self.terminate().await?;
        self.ended(patience).await
    }

    /// SIGTERM, and no waiting.
    pub async fn terminate(&self) -> anyhow::Result<()> {
        let pid = self.pid().context("the process has ended")?.to_string();
        // A shell's `kill` is there on every Unix, and this crate may hold no unsafe code.
        let told = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &pid]).status().await?;
        ensure!(told.success(), "SIGTERM was not delivered: {told}");
        Ok(())
    }

    /// Its end.
    pub async fn ended(mut self, patience: Duration) -> anyhow::Result<ExitStatus> {
        timeout(patience, self.child.wait())
            .await
            .map_err(|_| {
                let name = self.role.program();
                anyhow::anyhow!("{name} did not stop within {patience:?}:\n{}", self.tail())
            })?
            .context("waiting for a process")
    }

    /// Where its pages are.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its whole log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last lines of its log.
    pub fn tail(&self) -> String {
        let text = self.log();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

/// A port nobody uses now. Another process may take it before ours; then ours says so.
fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
    Ok(listener.local_addr()?)
}

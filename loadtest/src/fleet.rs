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
use shared::http;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

pub use door::Door;
pub use ground::Ground;
pub use usage::Usage;

/// Pause between two questions for readiness.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// A page is there within this.
const PAGE_TIMEOUT: Duration = Duration::from_secs(3);
/// As much of it is read.
const MOST_OF_A_PAGE: usize = 4 * 1024 * 1024;
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

/// How a process is started, where it is not simply run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Launch<'a> {
    /// The program that runs it, with its arguments, e.g. `unshare`.
    pub through: &'a [&'a str],
    /// More arguments of its own.
    pub arguments: &'a [&'a str],
    /// More variables.
    pub variables: &'a [(&'a str, &'a str)],
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
        Self::launch(ground, role, &Launch { variables: more, ..Launch::default() })
    }

    /// Starts one in a way of its own.
    pub fn launch(ground: &Ground, role: Role, how: &Launch<'_>) -> anyhow::Result<Self> {
        let program = role.path()?;
        let address = free_address()?;
        let log = ground.directory().join(format!("{}-{}.log", role.program(), address.port()));
        let file = std::fs::File::create(&log).context("creating a log")?;
        let mut command = match how.through {
            [] => Command::new(&program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(&program);
                command
            }
        };
        let child = command
            .arg("run")
            .arg("--config")
            .arg(ground.file())
            .args(how.arguments)
            .env_remove("BELFRY_CONFIG")
            .envs(ground.environment())
            .envs(how.variables.iter().copied())
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

    /// How it ended, once it has.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The name of its log in the ground's directory.
    pub fn log_name(&self) -> String {
        self.log.file_name().unwrap_or_default().to_string_lossy().into_owned()
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

    /// One of its pages, `/metrics` for instance: status and body.
    pub async fn page(&self, path: &str) -> anyhow::Result<(u16, String)> {
        let request = http::trusted_client()?.get(format!("http://{}{path}", self.address));
        let deadline = Instant::now() + PAGE_TIMEOUT;
        let answer = http::send(request, deadline).await?;
        let status = answer.status().as_u16();
        let body = http::read_limited(answer, MOST_OF_A_PAGE, deadline).await?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// SIGTERM, and its end.
    pub async fn stop(self, patience: Duration) -> anyhow::Result<ExitStatus> {
        self.terminate().await?;
        self.ended(patience).await
    }

    /// SIGTERM, and no waiting.
    pub async fn terminate(&self) -> anyhow::Result<()> {
        self.signal("TERM").await
    }

    /// A signal by its name without SIG, and no waiting.
    pub async fn signal(&self, name: &str) -> anyhow::Result<()> {
        let pid = self.pid().context("the process has ended")?.to_string();
        // A shell's `kill` is there on every Unix, and this crate may hold no unsafe code.
        let script = "kill -s \"$0\" \"$1\"";
        let told = Command::new("sh").args(["-c", script, name, &pid]).status().await?;
        ensure!(told.success(), "SIG{name} was not delivered: {told}");
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

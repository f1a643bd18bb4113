//! A full disk under two tables: a small file system that goes with the fault, whatever happens.
//!
//! Only root can mount one, and only a server that runs on this host can use it.

use std::fs::{File, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use async_trait::async_trait;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::signs::{self, BITE};
use crate::drill::fault::{Bite, Fault};
use crate::drill::field::{Field, until};
use crate::drill::kept;

/// Size of the file system: far above what the tables hold.
const SIZE: &str = "size=64m,mode=0700";
/// Tables that grow, one with every claim and one with every task. Rows of the second never change, so
/// that it has no room of its own that it could use up first.
const TABLES: [&str; 2] = ["attempts", "task_inputs"];
/// Its place on the small disk.
const TABLESPACE: &str = "belfry_drill_full";
/// A table of the fault's own there, to see that the disk is full.
const PROBE: &str = "belfry_drill_probe";
/// What a member's log says of it.
const FULL: &str = "(53100)";
/// A lock on the table is waited for so long, so often: others use it.
const LOCK_WAIT: &str = "SET lock_timeout = '1s'";
const AGAIN: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct DiskFull;

#[async_trait(?Send)]
impl Fault for DiskFull {
    fn name(&self) -> &'static str {
        "postgres.disk_full"
    }

    fn summary(&self) -> &'static str {
        "the disk under the tables of attempts and inputs is full (root: a small tmpfs)"
    }

    async fn unavailable(&self, field: &Field) -> Option<String> {
        let data = data_directory(field);
        if std::fs::metadata("/proc/self").map_or(true, |own| own.uid() != 0) {
            return Some("only root can mount a small file system".to_owned());
        }
        if !data.is_dir() {
            return Some("PostgreSQL does not run on this host's own file system".to_owned());
        }
        let trial = Disk::mount(&field.services.state().join("drill-trial"), &data);
        trial.err().map(|error| format!("a file system cannot be mounted: {error:#}"))
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let place = field.services.state().join("drill-full");
        let disk = Disk::mount(&place, &data_directory(field))?;
        let client = field.connect().await?;
        client.batch_execute(LOCK_WAIT).await?;
        let bitten = fill(field, &client, &disk).await;
        let healed = disk.empty();
        let since = Instant::now();
        let moved = leave(&client).await;
        drop(disk);
        healed?;
        moved?;
        let lines = bitten?;
        let proof = format!("SQLSTATE 53100 for a statement of ours and {lines} times for members");
        Ok(Bite::new(since, proof))
    }
}

fn data_directory(field: &Field) -> PathBuf {
    field.services.state().join("pg")
}

/// Moves the tables there and fills the rest; answers how often members' logs said so.
async fn fill(field: &Field, client: &Client, disk: &Disk) -> anyhow::Result<usize> {
    let before = kept::lines_with(field, FULL)?;
    let location = disk.place.display();
    patiently(client, &format!("CREATE TABLESPACE {TABLESPACE} LOCATION '{location}'")).await?;
    patiently(client, &format!("CREATE TABLE {PROBE} (filler text) TABLESPACE {TABLESPACE}"))
        .await?;
    for table in TABLES {
        patiently(client, &format!("ALTER TABLE {table} SET TABLESPACE {TABLESPACE}")).await?;
    }
    disk.fill()?;
    let insert =
        format!("INSERT INTO {PROBE} SELECT repeat('x', 1000) FROM generate_series(1, 100)");
    match client.batch_execute(&insert).await {
        Err(error) if error.code() == Some(&SqlState::DISK_FULL) => (),
        Err(error) => return Err(error).context(insert),
        Ok(()) => bail!("the disk is not full: {insert} went well"),
    }
    signs::more_lines(field, FULL, before).await
}

/// Takes everything off the small disk again.
async fn leave(client: &Client) -> anyhow::Result<()> {
    for table in TABLES {
        patiently(client, &format!("ALTER TABLE {table} SET TABLESPACE pg_default")).await?;
    }
    patiently(client, &format!("DROP TABLE IF EXISTS {PROBE}")).await?;
    patiently(client, &format!("DROP TABLESPACE IF EXISTS {TABLESPACE}")).await
}

/// Runs a statement, again while others hold its table.
async fn patiently(client: &Client, statement: &str) -> anyhow::Result<()> {
    until(statement, BITE, async || match client.batch_execute(statement).await {
        Ok(()) => Ok(Some(())),
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            sleep(AGAIN).await;
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| statement.to_owned()),
    })
    .await
}

/// A small file system; unmounted when it is dropped, also where a drill is interrupted.
struct Disk {
    place: PathBuf,
}

impl Disk {
    /// Mounts one that the owner of `data` may use.
    fn mount(place: &Path, data: &Path) -> anyhow::Result<Self> {
        let owner = std::fs::metadata(data).context("the server's directory")?;
        std::fs::create_dir_all(place).context("making the mount point")?;
        let place = place.to_owned();
        let told = Command::new("mount")
            .args(["-t", "tmpfs", "-o", SIZE, "belfry-drill"])
            .arg(&place)
            .stdin(Stdio::null())
            .output()
            .context("running mount")?;
        let disk = Self { place };
        ensure!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr).trim());
        chown(&disk.place, Some(owner.uid()), Some(owner.gid())).context("giving it away")?;
        std::fs::set_permissions(&disk.place, Permissions::from_mode(0o700))?;
        Ok(disk)
    }

    /// Takes all the room that is left.
    fn fill(&self) -> anyhow::Result<()> {
        let mut file = File::create(self.filler()).context("making the filler")?;
        let piece = vec![b'x'; 4096];
        loop {
            match file.write_all(&piece) {
                Ok(()) => (),
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error).context("filling the disk"),
            }
        }
    }

    /// Gives the room back.
    fn empty(&self) -> anyhow::Result<()> {
        match std::fs::remove_file(self.filler()) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).context("removing the filler")
            }
            _ => Ok(()),
        }
    }

    fn filler(&self) -> PathBuf {
        self.place.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a server that still has files open there keeps them until it closes them.
        let _ = Command::new("umount").arg("-l").arg(&self.place).stdin(Stdio::null()).output();
        let _ = std::fs::remove_dir(&self.place);
    }
}

//! Faults of clocks: members whose host is an hour off, and a database whose clock steps.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use tokio::time::Instant;

use super::signs::BITE;
use crate::drill::fault::{Bite, Fault};
use crate::drill::field::{Field, until};
use crate::drill::kept;
use crate::fleet::Role;

/// Where Debian and others keep the library that tells a process another time.
const LIBRARY: &str = "faketime/libfaketime.so.1";
const FOLDERS: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];
/// How far the database's clock steps: beyond every lease.
const STEP: &str = "20 seconds";

/// All of them.
pub(super) fn all() -> Vec<Box<dyn Fault>> {
    vec![
        Box::new(HostClock {
            name: "clock.ahead",
            offset: "+3600",
            summary: "a worker and the leader live an hour ahead",
        }),
        Box::new(HostClock {
            name: "clock.behind",
            offset: "-3600",
            summary: "a worker and the leader live an hour behind",
        }),
        Box::new(DatabaseClock),
    ]
}

struct HostClock {
    name: &'static str,
    offset: &'static str,
    summary: &'static str,
}

#[async_trait(?Send)]
impl Fault for HostClock {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    async fn unavailable(&self, _field: &Field) -> Option<String> {
        library()
            .is_none()
            .then(|| "libfaketime is not installed (apt-get install libfaketime)".to_owned())
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let library = library().context("libfaketime")?;
        let library = library.to_string_lossy();
        let offset = format!("{}s", self.offset);
        // Timers must not jump with the clock: no real skew does that.
        let told = [
            ("LD_PRELOAD", library.as_ref()),
            ("FAKETIME", offset.as_str()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
        ];
        let worker = field.any(Role::Worker);
        let (leader, term) = field.leader().await?;
        let others = field.fleet.of(Role::Producer).into_iter().filter(|&at| at != leader);
        let skewed: Vec<usize> = others.chain([worker]).collect();
        for &at in &skewed {
            field.fleet.man(&field.ground, at, &told)?;
        }
        field.fleet.ready().await?;
        // The one with the right time goes, so that one with a wrong one leads.
        field.fleet.kill(leader).await?;
        let ticks = "SELECT count(*) FROM ticks WHERE epoch > $1";
        until("a leader with a wrong clock ticks", BITE, async || {
            Ok((field.count(ticks, &[&term]).await? > 0).then_some(()))
        })
        .await?;
        let label = "SELECT count(*) FROM attempts WHERE worker LIKE $1";
        let pid = field.fleet.posts[worker].pid().unwrap_or_default();
        let its = format!("%#{pid}");
        until("a worker with a wrong clock works", BITE, async || {
            Ok((field.count(label, &[&its]).await? > 0).then_some(()))
        })
        .await?;
        let skew = kept::log_skew(field, skewed[0])?;
        let wanted: f64 = self.offset.parse().context("a number")?;
        anyhow::ensure!(
            (skew - wanted).abs() < 120.0,
            "its log is {skew:.0} s off, and not {wanted:.0} s"
        );
        for at in skewed.into_iter().chain([leader]) {
            field.fleet.man(&field.ground, at, &[])?;
        }
        Ok(Bite::new(
            Instant::now(),
            format!("the log of a member that led and worked is {skew:.0} s off"),
        ))
    }
}

fn library() -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(LIBRARY)).find(|path| path.is_file())
}

struct DatabaseClock;

#[async_trait(?Send)]
impl Fault for DatabaseClock {
    fn name(&self) -> &'static str {
        "clock.database"
    }

    fn summary(&self) -> &'static str {
        "the database's clock steps 20 s forward, which ends every lease, and back again"
    }

    async fn strike(&self, field: &mut Field) -> anyhow::Result<Bite> {
        let fenced = "SELECT count(*) FROM workers WHERE fenced_at IS NOT NULL";
        let before = field.count(fenced, &[]).await?;
        set_clock(field, &format!("clock_timestamp() + interval '{STEP}'")).await?;
        field.log.tell("the database's clock is ahead");
        let bitten = until("leases end", BITE, async || {
            let more = field.count(fenced, &[]).await? - before;
            Ok((more > 0).then_some(more))
        })
        .await;
        // Some work under the wrong clock, whose instants lie in the future afterwards.
        tokio::time::sleep(Duration::from_secs(2)).await;
        set_clock(field, "clock_timestamp()").await?;
        field.log.tell("the database's clock is right again");
        Ok(Bite::new(Instant::now(), format!("{} leases ended at the step", bitten?)))
    }
}

async fn set_clock(field: &Field, body: &str) -> anyhow::Result<()> {
    let sql = format!(
        "CREATE OR REPLACE FUNCTION belfry_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ SELECT {body} $$"
    );
    field.connect().await?.batch_execute(&sql).await.context("setting the database's clock")
}

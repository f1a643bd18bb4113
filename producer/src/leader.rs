//! Leadership: takes and keeps the lead, ticks while it has it, steps down at any doubt.
//!
//! The lease saves work; safety is in the tick statement. A leader that cannot renew in time stops
//! ticking before its lease ends; a standby asks again and again. A term begins with applying the
//! leader's file, unless one that was read later is in force.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SubsecRound as _, Utc};
use shared::config::Config;
use shared::domain::attempt::Incarnation;
use shared::domain::quota::Scope;
use shared::relay::Relay;
use shared::shutdown::Shutdown;
use shared::store::{Error, Store, Term};
use shared::telemetry::metrics;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};
use uuid::Uuid;

use crate::announcer::Announcer;
use crate::applying::{self, Look, Report};
use crate::commands::output::counted;
use crate::ticker::{Round, Ticker};

/// Longest sleep between two looks, whatever is next: bounds what a step of the database's clock
/// can delay.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Pause between two looks for what others have applied.
const LOOK_FOR_CHANGES: Duration = Duration::from_secs(1);

/// Least sleep of a standby, which wakes when the lease of another ends.
const SHORTEST_SLEEP: Duration = Duration::from_millis(10);

/// Removed schedules that are named in the log.
const NAMED: usize = 20;

/// What leading needs.
pub struct Candidate {
    /// The database.
    pub store: Store,
    /// Told of new tasks.
    pub relay: Relay,
    /// The file.
    pub config: Arc<Config>,
    /// When it was read, on this host.
    pub read: Instant,
    /// Our identity.
    pub incarnation: Incarnation,
    /// Our label.
    pub label: String,
    /// Pause between renewals.
    pub interval: Duration,
    /// Life of the lease.
    pub ttl: Duration,
    /// True while we lead.
    pub leads: watch::Sender<bool>,
}

impl Candidate {
    /// Stands for the lead, and leads, until the soft token.
    pub async fn run(self, shutdown: &Shutdown) {
        let announcer = Announcer::start(self.relay.clone(), shutdown);
        let mut read_at = None;
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                () = shutdown.soft.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = self.interval.min(LONGEST_SLEEP);
            // Asking for the lead locks its row, so only who may get it does.
            match self.store.lead_left().await {
                Ok(left) if left.is_zero() => self.stand(&mut read_at, &announcer, shutdown).await,
                // At the very end of the lease: the next look would be up to a pause late.
                Ok(left) => pause = pause.min(left + SHORTEST_SLEEP),
                Err(error) => warn!(%error, "cannot ask who leads"),
            }
        }
    }

    /// Asks for the lead, and leads if it is free.
    async fn stand(
        &self,
        read_at: &mut Option<DateTime<Utc>>,
        announcer: &Announcer,
        shutdown: &Shutdown,
    ) {
        // A token per term: a term that ended in doubt must never be taken for the next one.
        let token = Uuid::new_v4();
        match self.ask(token).await {
            Ok(Some(renewal)) => {
                info!(epoch = renewal.term.epoch, "leading");
                self.tell(true);
                // Once, and by the database's clock, with which that of other files is told.
                let read_at = *read_at
                    .get_or_insert_with(|| (renewal.now() - self.read.elapsed()).trunc_subsecs(6));
                let ended = self.lead(renewal, read_at, announcer, shutdown).await;
                self.tell(false);
                self.say_why(renewal.term.epoch, ended).await;
                // Lets a standby follow at once. Failing that, the lease ends by itself.
                let leaving = self.store.step_down(token);
                let _ = tokio::time::timeout(self.interval, leaving).await;
            }
            Ok(None) => {}
            Err(error) => warn!(%error, "cannot ask for the lead"),
        }
    }

    fn tell(&self, leads: bool) {
        self.leads.send_replace(leads);
        metrics::leading(leads);
    }

    /// One line for each term that ended, which with those of the others explains every number.
    async fn say_why(&self, epoch: i64, ended: Result<Ended, Error>) {
        let why = match ended {
            Ok(Ended::Stopping) => return info!(epoch, "leads no more: it stops"),
            Ok(Ended::Silence) => "a renewal took longer than is left of the lease".to_owned(),
            Ok(Ended::Lost) => self.who_leads(epoch).await,
            Err(error) => error.to_string(),
        };
        warn!(epoch, %why, "leads no more");
    }

    /// Who has the lead that was ours.
    async fn who_leads(&self, epoch: i64) -> String {
        match tokio::time::timeout(self.interval, self.store.leader()).await {
            Ok(Ok(Some(leader))) if leader.epoch != epoch => {
                format!("{} has taken the lead, epoch {}", leader.label, leader.epoch)
            }
            _ => "the lease was over before it was renewed".to_owned(),
        }
    }

    async fn ask(&self, token: Uuid) -> Result<Option<Renewal>, Error> {
        let asked = Instant::now();
        let term = self.store.lead(token, self.incarnation, &self.label, self.ttl).await?;
        Ok(term.map(|term| Renewal { term, asked, answered: Instant::now() }))
    }

    /// One term. Any error, and any doubt about the lease, ends it.
    async fn lead(
        &self,
        mut last: Renewal,
        read_at: DateTime<Utc>,
        announcer: &Announcer,
        shutdown: &Shutdown,
    ) -> Result<Ended, Error> {
        // On the heap: an apply is a large state, and every term carries it otherwise.
        let beginning = Box::pin(self.begin(read_at, announcer.clone()));
        let mut ticker = match self.while_leading(&mut last, beginning).await? {
            Ok(begun) => begun?,
            Err(ended) => return Ok(ended),
        };
        let mut looked = Instant::now();
        loop {
            if shutdown.soft.is_cancelled() {
                return Ok(Ended::Stopping);
            }
            if let Some(ended) = self.keep(&mut last).await? {
                return Ok(ended);
            }
            // Either may wait for a long apply; the lease is renewed meanwhile.
            if looked.elapsed() >= LOOK_FOR_CHANGES {
                looked = Instant::now();
                match self.while_leading(&mut last, ticker.refresh()).await? {
                    Ok(refreshed) => drop(refreshed?),
                    Err(ended) => return Ok(ended),
                }
            }
            let (term, now) = (last.term, last.now());
            let round = match self.while_leading(&mut last, ticker.round(&term, now)).await? {
                Ok(round) => round?,
                Err(ended) => return Ok(ended),
            };
            let Round::Until(next) = round else {
                if let Some(ended) = self.renew(&mut last).await? {
                    return Ok(ended);
                }
                continue;
            };
            let pause = next
                .map_or(LONGEST_SLEEP, |next| (next - last.now()).to_std().unwrap_or_default())
                .min(LONGEST_SLEEP)
                .min(self.interval.saturating_sub(last.asked.elapsed()));
            tokio::select! {
                () = shutdown.soft.cancelled() => return Ok(Ended::Stopping),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Puts our file in force, if it says schedules and none that was read later is, and takes what is
    /// in force then.
    async fn begin(&self, read_at: DateTime<Utc>, announcer: Announcer) -> Result<Ticker, Error> {
        let (store, entries) = (&self.store, &self.config.schedules);
        let in_force = loop {
            let look = Look::at(store, entries).await?;
            let newest = look.file.read_at.is_none_or(|newest| newest < read_at);
            if newest {
                // A file without `tasks` does not speak of their budgets either.
                let spoken: &[Scope] = if self.config.says_tasks {
                    &[Scope::Model, Scope::Schedule]
                } else {
                    &[Scope::Model]
                };
                self.store.apply_quotas(&self.config.quotas(), spoken).await?;
            }
            if let Some(silence) = self.config.silence() {
                let kept = look.standing.len();
                if kept > 0 {
                    warn!(
                        "{silence}, so what is in force stays and ticks ({}); write `tasks: []` to remove all",
                        counted(kept, "schedule")
                    );
                }
                break look.in_force(entries);
            }
            if !newest {
                if !look.diff.is_empty() {
                    warn!(applied_by = look.file.applied_by, applied_at = ?look.file.applied_at,
                        "schedules of a file that was read later are in force, and ours are not: \
                         restart this producer with that file, or run `producer schedules apply`");
                }
                break look.in_force(entries);
            }
            let said = (read_at, self.label.as_str());
            let Some((report, in_force)) = applying::apply(store, entries, &look, said).await?
            else {
                continue;
            };
            if !look.diff.is_empty() {
                tell(&report);
            }
            if report.ticked > 0 {
                self.relay.poke();
            }
            break in_force;
        };
        Ticker::begin(self.store.clone(), announcer, self.config.clone(), in_force).await
    }

    /// The part of a lease in which we act.
    fn safe(&self) -> Duration {
        self.ttl * 4 / 5
    }

    /// Renews when it is time; says so when the term is over, or may be.
    async fn keep(&self, last: &mut Renewal) -> Result<Option<Ended>, Error> {
        if last.asked.elapsed() >= self.interval
            && let Some(ended) = self.renew(last).await?
        {
            return Ok(Some(ended));
        }
        Ok((last.asked.elapsed() >= self.safe()).then_some(Ended::Silence))
    }

    /// Renews the lease and what we know of the database's clock.
    async fn renew(&self, last: &mut Renewal) -> Result<Option<Ended>, Error> {
        let until = last.asked + self.safe();
        match tokio::time::timeout_at(until, self.ask(last.term.token)).await {
            Ok(renewed) => match renewed? {
                Some(renewed) => *last = renewed,
                None => return Ok(Some(Ended::Lost)),
            },
            Err(_) => return Ok(Some(Ended::Silence)),
        }
        Ok(None)
    }

    /// Does something that may take longer than a lease, unless the term ends meanwhile.
    async fn while_leading<T>(
        &self,
        last: &mut Renewal,
        work: impl Future<Output = T>,
    ) -> Result<Result<T, Ended>, Error> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(Ok(done)),
                () = tokio::time::sleep_until(last.asked + self.interval) => {}
            }
            if let Some(ended) = self.keep(last).await? {
                return Ok(Err(ended));
            }
        }
    }
}

/// Says what a file changed, and names what it removed: that may be a mistake.
fn tell(report: &Report) {
    info!(
        revision = report.revision,
        added = report.added.len(),
        renamed = report.renamed.len(),
        changed = report.changed.len(),
        removed = report.removed.len(),
        unchanged = report.unchanged,
        ticked = report.ticked,
        "applied the file's schedules"
    );
    if !report.removed.is_empty() {
        let (count, named) = (report.removed.len(), report.removed.iter().take(NAMED));
        let names = named.map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if count > NAMED { ", …" } else { "" };
        warn!("removed {}, which the file has no more: {names}{more}", counted(count, "schedule"));
    }
}

/// How a term ends, errors of the database apart.
#[derive(Clone, Copy, Debug)]
enum Ended {
    /// This producer is told to stop.
    Stopping,
    /// The database says that the lease is not ours.
    Lost,
    /// A renewal was not answered while the lease was surely ours.
    Silence,
}

/// A renewal: the term, when we asked for it and when the answer came.
///
/// The lease is counted from before the question, so that it cannot end earlier than we think; the
/// database's present from the answer, so that no tick is early.
#[derive(Clone, Copy)]
struct Renewal {
    term: Term,
    asked: Instant,
    answered: Instant,
}

impl Renewal {
    /// The database's present: late by the answer's way at most, never early.
    fn now(&self) -> DateTime<Utc> {
        self.term.now + self.answered.elapsed()
    }
}

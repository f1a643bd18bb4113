//! Leadership: takes and keeps the lead, ticks while it has it, steps down at any doubt.
//!
//! The lease saves work; safety is in the tick statement. A leader that cannot renew in time stops
//! ticking before its lease ends; a standby asks again and again.

use std::time::Duration;

use chrono::{DateTime, Utc};
use shared::domain::attempt::Incarnation;
use shared::domain::schedule::Schedule;
use shared::relay::Relay;
use shared::shutdown::Shutdown;
use shared::store::{Error, Store, Term};
use shared::telemetry::metrics;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};
use uuid::Uuid;

use crate::ticker::{Round, Ticker};

/// Longest sleep between two looks, whatever is next: bounds what a step of the database's clock
/// can delay.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Least sleep of a standby, which wakes when the lease of another ends.
const SHORTEST_SLEEP: Duration = Duration::from_millis(10);

/// What leading needs.
pub struct Candidate {
    /// The database.
    pub store: Store,
    /// Told of new tasks.
    pub relay: Relay,
    /// The file's schedules.
    pub schedules: Vec<Schedule>,
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
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                () = shutdown.soft.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = self.interval.min(LONGEST_SLEEP);
            // Asking for the lead locks its row, so only who may get it does.
            match self.store.lead_left().await {
                Ok(left) if left.is_zero() => self.stand(shutdown).await,
                // At the very end of the lease: the next look would be up to a pause late.
                Ok(left) => pause = pause.min(left + SHORTEST_SLEEP),
                Err(error) => warn!(%error, "cannot ask who leads"),
            }
        }
    }

    /// Asks for the lead, and leads if it is free.
    async fn stand(&self, shutdown: &Shutdown) {
        // A token per term: a term that ended in doubt must never be taken for the next one.
        let token = Uuid::new_v4();
        match self.ask(token).await {
            Ok(Some(renewal)) => {
                info!(epoch = renewal.term.epoch, "leading");
                self.tell(true);
                let ended = self.lead(renewal, shutdown).await;
                self.tell(false);
                if let Err(error) = ended {
                    warn!(%error, "stepped down");
                }
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

    async fn ask(&self, token: Uuid) -> Result<Option<Renewal>, Error> {
        let asked = Instant::now();
        let term = self.store.lead(token, self.incarnation, &self.label, self.ttl).await?;
        Ok(term.map(|term| Renewal { term, asked, answered: Instant::now() }))
    }

    /// One term. Any error, and any doubt about the lease, ends it.
    async fn lead(&self, mut last: Renewal, shutdown: &Shutdown) -> Result<(), Error> {
        let safe = self.ttl * 4 / 5;
        let mut ticker =
            Ticker::begin(self.store.clone(), self.relay.clone(), &self.schedules).await?;
        loop {
            if shutdown.soft.is_cancelled() || last.asked.elapsed() >= safe {
                return Ok(());
            }
            if last.asked.elapsed() >= self.interval {
                let asking = self.ask(last.term.token);
                match tokio::time::timeout_at(last.asked + safe, asking).await {
                    Ok(renewed) => match renewed? {
                        Some(renewed) => last = renewed,
                        None => return Ok(()),
                    },
                    Err(_) => return Ok(()),
                }
            }
            let until = last.asked + safe;
            let round = tokio::time::timeout_at(until, ticker.round(&last.term, last.now()));
            let next = match round.await {
                Ok(round) => match round? {
                    Round::Until(next) => next,
                    Round::TermOver => return Ok(()),
                },
                Err(_) => return Ok(()),
            };
            let pause = next
                .and_then(|next| (next - last.now()).to_std().ok())
                .map_or(LONGEST_SLEEP, |pause| pause.min(LONGEST_SLEEP))
                .min(self.interval.saturating_sub(last.asked.elapsed()));
            tokio::select! {
                () = shutdown.soft.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
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

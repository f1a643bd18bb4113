//! The watch: looks at schedules and at processes, and begins and ends episodes of trouble.
//!
//! Every producer watches, standbys too: a leader that hangs is just what they are to see. A look
//! costs a page of schedules, however many there are. It posts nothing and mends nothing: episodes
//! write alerts, and the alerts' sender posts them.

mod members;
mod schedules;
mod succession;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use shared::shutdown::Shutdown;
use shared::store::{Beginning, Ending, Episode, EpisodeKind, Error, Store, Watched};
use tokio::time::Instant;
use tracing::warn;

use schedules::Judged;

/// Pause between two looks.
pub const LOOK: Duration = Duration::from_secs(2);
/// Schedules that one look judges: a hundred thousand are gone through in a few minutes.
pub const PAGE: i64 = 1000;
/// A schedule is behind when an instant is due for this long, or for two leases where that is longer,
/// and not decided: a standby has taken over by then.
pub const BEHIND_AFTER: Duration = Duration::from_secs(30);
/// … and when nothing has moved for this long while we looked: who has just begun to lead, after an
/// outage of all producers, is not behind but catching up.
pub const SURE_AFTER: Duration = Duration::from_secs(10);
/// A process is lost when its lease has been over for this long without a goodbye: one that was only
/// cut off from the database has registered again by then. Nor is any before we have looked that long
/// ourselves: where all were cut off, or we alone were frozen, the others are still to register.
pub const LOST_AFTER: Duration = Duration::from_secs(10);
/// What was missed or lost before is no news any more.
pub const NEWS: Duration = Duration::from_secs(3600);
/// Who came in whose place is judged over so long: of all that is news it is known what came after, and
/// of all that came since what was before.
pub const VIEW: Duration = Duration::from_hours(2);
/// A lost process whose place nobody took is forgotten: there are fewer of them now.
pub const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);

/// Schedules that are judged before others get the thread.
const BREATH: usize = 50;

/// The watch of one producer.
pub struct Watch {
    store: Store,
    behind_after: TimeDelta,
    /// Who is back after so long is not missed by anybody: its loss is told then.
    prompt: TimeDelta,
    /// Where the next page begins.
    after: Option<String>,
    /// Where the next look at open episodes begins.
    after_episode: i64,
    /// Schedules that seem to be behind: their mark, and since when we have seen it there.
    suspects: HashMap<String, (DateTime<Utc>, Instant)>,
    /// Since when we look without a gap, and when last.
    looking: Option<(Instant, Instant)>,
}

impl Watch {
    /// A watch over the house whose leases live so long.
    pub fn new(store: Store, ttl: Duration) -> Self {
        let delta = |long| TimeDelta::from_std(long).unwrap_or(TimeDelta::MAX);
        Self {
            store,
            behind_after: delta(BEHIND_AFTER.max(ttl * 2)),
            prompt: delta(LOST_AFTER + ttl),
            after: None,
            after_episode: 0,
            suspects: HashMap::new(),
            looking: None,
        }
    }

    /// Watches until the soft token.
    pub async fn run(mut self, shutdown: &Shutdown) {
        loop {
            tokio::select! {
                () = shutdown.soft.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            if let Err(error) = self.look().await {
                warn!(%error, "the watch could not look; it will again");
            }
        }
    }

    async fn look(&mut self) -> Result<(), Error> {
        let now = self.store.now().await?;
        let episodes = self.store.episodes(VIEW).await?;
        let mut beginnings = self.page(now).await?;
        beginnings.extend(self.missed().await?);
        let mut endings = self.recovered(&episodes, now).await?;
        endings.extend(self.ticking_again(&episodes).await?);
        let members = self.store.members(LOST_AFTER, NEWS, VIEW).await?;
        let judged = members::judge(&members, &episodes, now, self.prompt);
        if self.has_looked_for(LOST_AFTER) {
            beginnings.extend(judged.lost);
        }
        // What is open already is news only where more was missed.
        let known: HashSet<(EpisodeKind, &str)> =
            episodes.iter().map(|episode| (episode.kind, episode.subject.as_str())).collect();
        beginnings.retain(|b| {
            b.kind == EpisodeKind::Missed || !known.contains(&(b.kind, b.subject.as_str()))
        });
        endings.extend(judged.over);
        // What is over first: who is back may have gone again.
        self.store.end_episodes(&endings).await?;
        self.store.begin_episodes(&beginnings).await
    }

    /// True when no two looks were further apart for so long. Called once a look, when it has read.
    fn has_looked_for(&mut self, long: Duration) -> bool {
        let now = Instant::now();
        let unbroken = self.looking.filter(|(_, last)| now - *last < long);
        let since = unbroken.map_or(now, |(since, _)| since);
        self.looking = Some((since, now));
        now - since >= long
    }

    /// Judges the next page of schedules.
    async fn page(&mut self, now: DateTime<Utc>) -> Result<Vec<Beginning>, Error> {
        let page = self.store.watched(self.after.as_deref(), PAGE).await?;
        // A page that is not full is the last one.
        let full = page.len() as i64 == PAGE;
        self.after = page.last().filter(|_| full).map(|last| last.name.clone());
        if !full {
            // What was paused or removed meanwhile is not looked at again.
            self.suspects.retain(|_, (_, since)| since.elapsed() < NEWS);
        }
        let mut beginnings = Vec::new();
        for (n, schedule) in page.iter().enumerate() {
            if n % BREATH == BREATH - 1 {
                tokio::task::yield_now().await;
            }
            let judged = schedules::judge(schedule, now, self.behind_after);
            if !matches!(judged, Judged::Behind { .. }) {
                self.suspects.remove(&schedule.name);
            } else if !self.is_sure(schedule) {
                continue;
            }
            beginnings.extend(judged.beginning(&schedule.name));
        }
        Ok(beginnings)
    }

    /// True when the mark has not moved while we looked.
    fn is_sure(&mut self, schedule: &Watched) -> bool {
        let seen = self.suspects.entry(schedule.name.clone());
        let (mark, since) = seen.or_insert_with(|| (schedule.mark, Instant::now()));
        if *mark != schedule.mark {
            (*mark, *since) = (schedule.mark, Instant::now());
        }
        since.elapsed() >= SURE_AFTER
    }

    async fn missed(&self) -> Result<Vec<Beginning>, Error> {
        let missed = self.store.missed_ticks(NEWS, PAGE).await?;
        Ok(missed.iter().map(schedules::missed).collect())
    }

    /// Schedules that were behind, or had no next tick, and are well or at rest now.
    async fn recovered(
        &mut self,
        episodes: &[Episode],
        now: DateTime<Utc>,
    ) -> Result<Vec<Ending>, Error> {
        let lasts = |e: &&Episode| {
            e.open && matches!(e.kind, EpisodeKind::Behind | EpisodeKind::NoNextTick)
        };
        let some: Vec<&Episode> = episodes
            .iter()
            .filter(lasts)
            .filter(|episode| episode.id > self.after_episode)
            .take(PAGE as usize)
            .collect();
        self.after_episode = some.last().map_or(0, |last| last.id);
        let names: Vec<&str> = some.iter().map(|episode| episode.subject.as_str()).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let watched = self.store.watched_of(&names).await?;
        let watched: HashMap<&str, &Watched> =
            watched.iter().map(|watched| (watched.name.as_str(), watched)).collect();
        let ending = |episode: &&Episode| {
            let schedule = watched.get(episode.subject.as_str());
            let judged = schedule.map(|s| schedules::judge(s, now, self.behind_after));
            schedules::ending(episode, judged.as_ref())
        };
        Ok(some.iter().filter_map(ending).collect())
    }

    /// Schedules that missed instants and tick again, or are at rest now.
    async fn ticking_again(&self, episodes: &[Episode]) -> Result<Vec<Ending>, Error> {
        let open: Vec<&Episode> = episodes
            .iter()
            .filter(|episode| episode.open && episode.kind == EpisodeKind::Missed)
            .take(PAGE as usize)
            .collect();
        if open.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = open.iter().map(|episode| episode.subject.as_str()).collect();
        let newest = self.store.newest_ticks(&names).await?;
        let ending = |episode: &&Episode| {
            let newest = newest.iter().find(|tick| tick.schedule == episode.subject)?;
            schedules::ticks_again(episode, newest)
        };
        Ok(open.iter().filter_map(ending).collect())
    }
}

//! Who came in whose place, told from times alone.
//!
//! A label is no identity: processes in containers with a fixed host name share one. What is certain is
//! when each incarnation began and when it was seen last. It can be followed only by one that began after
//! it was seen last, and each newcomer follows one: so many places are free as have ended, less those that
//! have come since. It pages nobody: `members` does.

use std::collections::{BTreeSet, HashMap, HashSet};

use chrono::{DateTime, TimeDelta, Utc};
use shared::store::EpisodeKind;
use uuid::Uuid;

/// What is known of an incarnation.
#[derive(Clone, Debug)]
pub(super) struct Life<'a> {
    /// Its identity.
    pub id: Uuid,
    /// What its loss is called: workers follow workers, and producers producers.
    pub kind: EpisodeKind,
    /// Its label.
    pub label: &'a str,
    /// When it began; `None` for one that can follow nobody, or has followed somebody already.
    pub began: Option<DateTime<Utc>>,
    /// When it was seen last; `None` for one that was followed already. Those that live are seen again
    /// before long: until then a newcomer that began since may yet turn out to be theirs, and follows
    /// nobody else.
    pub seen: Option<DateTime<Utc>>,
    /// It said goodbye.
    pub stopped: bool,
}

/// Who followed whom.
pub(super) struct Succession<'a>(HashMap<Uuid, &'a Life<'a>>);

impl<'a> Succession<'a> {
    /// Of these incarnations. A restart comes within `prompt`.
    ///
    /// Namesakes follow each other first, as a process that was cut off or restarted in its container
    /// does; whoever is left may follow anybody of its role.
    pub fn of(lives: &'a [Life<'a>], prompt: TimeDelta) -> Self {
        let mut heirs = HashMap::new();
        let mut taken = HashSet::new();
        for by_label in [true, false] {
            let mut groups: HashMap<(EpisodeKind, &str), Group<'a>> = HashMap::new();
            for life in lives {
                let label = if by_label { life.label } else { "" };
                let group = groups.entry((life.kind, label)).or_default();
                if let Some(seen) = life.seen.filter(|_| !heirs.contains_key(&life.id)) {
                    group.ended.push((seen, life));
                }
                if let Some(began) = life.began.filter(|_| !taken.contains(&life.id)) {
                    group.newcomers.push((began, life));
                }
            }
            for (ended, heir) in groups.into_values().flat_map(|group| group.matched(prompt)) {
                heirs.insert(ended.id, heir);
                taken.insert(heir.id);
            }
        }
        Self(heirs)
    }

    /// Who followed it.
    pub fn heir(&self, id: Uuid) -> Option<&'a Life<'a>> {
        self.0.get(&id).copied()
    }
}

/// Those among whom one may follow another.
#[derive(Default)]
struct Group<'a> {
    ended: Vec<(DateTime<Utc>, &'a Life<'a>)>,
    newcomers: Vec<(DateTime<Utc>, &'a Life<'a>)>,
}

impl<'a> Group<'a> {
    /// Each newcomer with the one that it followed.
    fn matched(mut self, prompt: TimeDelta) -> Vec<(&'a Life<'a>, &'a Life<'a>)> {
        self.ended.sort_by_key(|(seen, life)| (*seen, life.id));
        self.newcomers.sort_by_key(|(began, life)| (*began, life.id));
        let mut places = Places::default();
        let mut next = 0;
        let mut pairs = Vec::new();
        for (began, heir) in self.newcomers {
            while let Some((seen, life)) = self.ended.get(next).filter(|(seen, _)| *seen < began) {
                places.of(life).insert((*seen, next));
                next += 1;
            }
            let lately = began.checked_sub_signed(prompt).unwrap_or(DateTime::<Utc>::MIN_UTC);
            if let Some(at) = places.take(lately) {
                pairs.push((self.ended[at].1, heir));
            }
        }
        pairs
    }
}

/// Places that somebody left, by when, and nobody has taken.
#[derive(Default)]
struct Places {
    vanished: BTreeSet<(DateTime<Utc>, usize)>,
    stopped: BTreeSet<(DateTime<Utc>, usize)>,
}

impl Places {
    fn of(&mut self, life: &Life<'_>) -> &mut BTreeSet<(DateTime<Utc>, usize)> {
        if life.stopped { &mut self.stopped } else { &mut self.vanished }
    }

    /// The place for one that begins now. Who vanished lately has waited longest for its restart, which
    /// is on its way: first come, first served. Else it is that of the last one seen: an old loss does
    /// not take what belongs to one that was just restarted in good order.
    fn take(&mut self, lately: DateTime<Utc>) -> Option<usize> {
        let restarts = self.vanished.range((lately, 0)..).next();
        let newest = self.vanished.last().max(self.stopped.last());
        let place = *restarts.or(newest)?;
        self.vanished.remove(&place);
        self.stopped.remove(&place);
        Some(place.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: TimeDelta = TimeDelta::seconds(25);

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(second)
    }

    /// One of two hundred places in a fleet: what it goes through, one incarnation after the other.
    struct Place {
        random: u64,
        lives: Vec<(i64, i64, bool)>,
    }

    impl Place {
        fn below(&mut self, bound: i64) -> i64 {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            i64::try_from(self.random >> 33).unwrap_or(0) % bound
        }

        /// Lives of a minute or so, each followed within twenty seconds by the next; the last still lives.
        fn of(random: u64, until: i64) -> Vec<(i64, i64, bool)> {
            let mut place = Self { random, lives: Vec::new() };
            let mut began = place.below(20);
            loop {
                let (seen, stopped) = (began + 1 + place.below(90), place.below(2) == 0);
                let next = seen + 1 + place.below(19);
                if next >= until {
                    place.lives.push((began, until, false));
                    return place.lives;
                }
                place.lives.push((began, seen, stopped));
                began = next;
            }
        }
    }

    /// However many namesakes crash, stop and come back at the same time: who comes back promptly is
    /// missed by nobody.
    #[test]
    fn no_prompt_restart_is_a_loss() {
        for seed in 0..20_u64 {
            let places = (0..200).map(|n| Place::of(seed * 1000 + n, 900));
            let lives: Vec<Life<'_>> = places
                .flatten()
                .map(|(began, seen, stopped)| Life {
                    id: Uuid::new_v4(),
                    kind: EpisodeKind::LostWorker,
                    label: "worker@fixed#1",
                    began: Some(at(began)),
                    seen: Some(at(seen)),
                    stopped,
                })
                .collect();

            let succession = Succession::of(&lives, PROMPT);

            for life in lives.iter().filter(|life| life.seen < Some(at(900)) && !life.stopped) {
                let heir = succession.heir(life.id).unwrap_or_else(|| panic!("{seed}: {life:?}"));
                let (seen, began) = (life.seen.expect("seen"), heir.began.expect("a newcomer"));
                assert!(began > seen && began - seen < PROMPT, "{seed}: {life:?}, {heir:?}");
            }
        }
    }
}

//! What the watch says of processes: who vanished, and who took whose place.

use std::collections::HashSet;

use chrono::{DateTime, SecondsFormat, Utc};
use shared::store::{Beginning, Ending, Episode, EpisodeKind, Member};
use uuid::Uuid;

use super::FORGOTTEN;

/// Processes that vanished: their lease is over and they said no goodbye. What was cut off and registered
/// anew did not, whatever became of it later.
pub(super) fn lost(members: &[Member]) -> Vec<Beginning> {
    members.iter().filter(|member| member.gone).map(beginning).collect()
}

fn beginning(member: &Member) -> Beginning {
    Beginning {
        kind: kind_of(&member.role),
        subject: newest(member),
        name: member.label.clone(),
        detail: format!(
            "The {} {} vanished without goodbye; its last heartbeat was at {}, and what it ran is \
             given back",
            member.role,
            member.label,
            member.seen_at.to_rfc3339_opts(SecondsFormat::Secs, true)
        ),
        until: Some(member.seen_at),
    }
}

fn kind_of(role: &str) -> EpisodeKind {
    if role == "producer" { EpisodeKind::LostProducer } else { EpisodeKind::LostWorker }
}

/// The identity that a process has now, or had last.
fn newest(member: &Member) -> String {
    member.ids.first().map(Uuid::to_string).unwrap_or_default()
}

/// Lost processes that are back, or whose place is taken: by one of the same role that began later, each
/// of which takes one place. Nobody waits for ever: an old loss is forgotten.
pub(super) fn replaced(
    episodes: &[Episode],
    members: &[Member],
    now: DateTime<Utc>,
) -> Vec<Ending> {
    let mut taken: HashSet<String> =
        episodes.iter().filter_map(|episode| episode.ended_by.clone()).collect();
    let mut newcomers: Vec<&Member> = members.iter().filter(|member| member.alive).collect();
    newcomers.sort_by_key(|member| member.began_at);
    let is_loss = |e: &&Episode| {
        e.open && matches!(e.kind, EpisodeKind::LostProducer | EpisodeKind::LostWorker)
    };
    let mut losses: Vec<&Episode> = episodes.iter().filter(is_loss).collect();
    losses.sort_by_key(|episode| episode.until);
    let mut endings = Vec::new();
    for loss in losses {
        // It may have gone again since: that is another story.
        let is_it = |m: &&Member| m.label == loss.name && m.started_at > loss.until;
        // One that only registered anew was there before, and is nobody's successor.
        let fits = |m: &&&Member| {
            m.began_at > loss.until
                && kind_of(&m.role) == loss.kind
                && !m.ids.iter().any(|id| taken.contains(&id.to_string()))
        };
        if let Some(same) = members.iter().find(is_it) {
            let by = newest(same);
            // Of two losses of one process the first tells it.
            let fresh = taken.insert(by.clone());
            let detail = fresh.then(|| format!("The {} {} is back", same.role, loss.name));
            endings.push(Ending { id: loss.id, detail, by: Some(by) });
        } else if let Some(newcomer) = newcomers.iter().find(fits) {
            let by = newest(newcomer);
            taken.insert(by.clone());
            let detail =
                format!("The {} {} is replaced by {}", newcomer.role, loss.name, newcomer.label);
            endings.push(Ending { id: loss.id, detail: Some(detail), by: Some(by) });
        } else if (now - loss.until).to_std().is_ok_and(|age| age > FORGOTTEN) {
            endings.push(Ending { id: loss.id, detail: None, by: None });
        }
    }
    endings
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(second)
    }

    /// One that lives, or is gone, and registered once.
    fn member(role: &str, label: &str, started: i64, seen: i64, alive: bool) -> Member {
        Member {
            ids: vec![Uuid::new_v4()],
            role: role.to_owned(),
            label: label.to_owned(),
            began_at: at(started),
            started_at: at(started),
            seen_at: at(seen),
            alive,
            gone: !alive,
        }
    }

    /// The same, registered anew.
    fn again(member: &Member, started: i64, alive: bool) -> Member {
        let ids = std::iter::once(Uuid::new_v4()).chain(member.ids.iter().copied()).collect();
        let (started_at, gone) = (at(started), !alive);
        Member { ids, started_at, seen_at: started_at, alive, gone, ..member.clone() }
    }

    fn open(n: i64, beginning: &Beginning) -> Episode {
        Episode {
            id: n,
            kind: beginning.kind,
            subject: beginning.subject.clone(),
            name: beginning.name.clone(),
            until: beginning.until.expect("its last heartbeat"),
            open: true,
            ended_by: None,
        }
    }

    #[test]
    fn who_comes_back_is_back_even_if_it_leaves_again_and_replaces_nobody() {
        let worker = member("worker", "worker@a#1", 0, 100, false);
        let other = member("worker", "worker@b#1", 0, 90, false);
        let lost = lost(&[worker.clone(), other.clone()]);
        let losses: Vec<Episode> = lost.iter().zip(1..).map(|(lost, n)| open(n, lost)).collect();
        let twice = [losses[0].clone(), Episode { id: 3, ..losses[0].clone() }];
        let left = Member { gone: false, ..again(&worker, 120, false) };

        let back = replaced(&losses, &[again(&worker, 120, true), other.clone()], at(130));
        let gone_again = replaced(&losses, &[again(&worker, 120, false), other.clone()], at(150));
        let said_goodbye = replaced(&losses, &[left.clone(), other], at(150));
        let told_once = replaced(&twice, &[left], at(150));

        assert_eq!(back.iter().map(|e| e.id).collect::<Vec<_>>(), [1]);
        assert_eq!(back[0].detail.as_deref(), Some("The worker worker@a#1 is back"));
        assert_eq!((gone_again.len(), said_goodbye.len()), (1, 1));
        let told: Vec<bool> = told_once.iter().map(|e| e.detail.is_some()).collect();
        assert_eq!(told, [true, false]);
    }

    #[test]
    fn each_newcomer_takes_one_place_of_its_role() {
        let mut members = vec![
            member("worker", "worker@a#1", 0, 100, false),
            member("worker", "worker@b#1", 0, 101, false),
            member("producer", "producer@a#1", 0, 102, false),
            member("worker", "worker@old#1", 50, 200, true),
            member("worker", "worker@c#1", 110, 200, true),
        ];
        let mut episodes: Vec<Episode> =
            lost(&members).iter().zip(1..).map(|(lost, n)| open(n, lost)).collect();

        let first = replaced(&episodes, &members, at(210));
        episodes[0].open = false;
        episodes[0].ended_by.clone_from(&first[0].by);
        let again = replaced(&episodes, &members, at(212));
        members.push(member("producer", "producer@a#1", 220, 225, true));
        let last = replaced(&episodes, &members, at(230));

        let ended = |endings: &[Ending]| endings.iter().map(|e| e.id).collect::<Vec<_>>();
        assert_eq!((ended(&first), ended(&again), ended(&last)), (vec![1], vec![], vec![3]));
        assert!(first[0].detail.as_deref().is_some_and(|told| told.ends_with("by worker@c#1")));
        assert!(last[0].detail.as_deref().is_some_and(|told| told.ends_with("is back")));
    }

    #[test]
    fn an_old_loss_is_forgotten_in_silence() {
        let members = [member("worker", "worker@a#1", 0, 100, false)];
        let episodes = [open(1, &lost(&members)[0])];
        let later = at(101) + TimeDelta::from_std(FORGOTTEN).expect("a day");

        let endings = replaced(&episodes, &members, later + TimeDelta::seconds(1));

        assert_eq!(endings, [Ending { id: 1, detail: None, by: None }]);
        assert_eq!(replaced(&episodes, &members, later - TimeDelta::seconds(2)), []);
    }
}

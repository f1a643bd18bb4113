//! What the watch says of processes: who vanished, and who took whose place.

use std::collections::HashSet;

use chrono::{DateTime, SecondsFormat, Utc};
use shared::store::{Beginning, Ending, Episode, EpisodeKind, Member};

use super::FORGOTTEN;

/// Processes that vanished: their lease is over, they said no goodbye, and nobody lives under their
/// label. One that was cut off and registered anew is the same process.
pub(super) fn lost(members: &[Member]) -> Vec<Beginning> {
    let alive: HashSet<&str> =
        members.iter().filter(|member| member.alive).map(|member| member.label.as_str()).collect();
    let is_lost = |member: &&Member| !member.alive && !alive.contains(member.label.as_str());
    members.iter().filter(is_lost).map(beginning).collect()
}

fn beginning(member: &Member) -> Beginning {
    Beginning {
        kind: kind_of(&member.role),
        subject: member.id.to_string(),
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

/// Lost processes whose place is taken: by one with the same label, or by one of the same role that
/// started later, each of which takes one place. Nobody waits for ever: an old loss is forgotten.
pub(super) fn replaced(
    episodes: &[Episode],
    members: &[Member],
    now: DateTime<Utc>,
) -> Vec<Ending> {
    let mut taken: HashSet<String> =
        episodes.iter().filter_map(|episode| episode.ended_by.clone()).collect();
    let mut newcomers: Vec<&Member> = members.iter().filter(|member| member.alive).collect();
    newcomers.sort_by_key(|member| member.started_at);
    let is_loss = |e: &&Episode| {
        e.open && matches!(e.kind, EpisodeKind::LostProducer | EpisodeKind::LostWorker)
    };
    let mut losses: Vec<&Episode> = episodes.iter().filter(is_loss).collect();
    losses.sort_by_key(|episode| episode.until);
    let mut endings = Vec::new();
    for loss in losses {
        let fits = |member: &&&Member| {
            let same = member.label == loss.name;
            let later = member.started_at > loss.until && kind_of(&member.role) == loss.kind;
            (same || later) && !taken.contains(&member.id.to_string())
        };
        if let Some(newcomer) = newcomers.iter().find(fits) {
            taken.insert(newcomer.id.to_string());
            let detail = if newcomer.label == loss.name {
                format!("The {} {} is back", newcomer.role, loss.name)
            } else {
                format!("The {} {} is replaced by {}", newcomer.role, loss.name, newcomer.label)
            };
            let by = Some(newcomer.id.to_string());
            endings.push(Ending { id: loss.id, detail: Some(detail), by });
        } else if (now - loss.until).to_std().is_ok_and(|age| age > FORGOTTEN) {
            endings.push(Ending { id: loss.id, detail: None, by: None });
        }
    }
    endings
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use uuid::Uuid;

    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(second)
    }

    fn member(role: &str, label: &str, started: i64, seen: i64, alive: bool) -> Member {
        Member {
            id: Uuid::new_v4(),
            role: role.to_owned(),
            label: label.to_owned(),
            started_at: at(started),
            seen_at: at(seen),
            alive,
        }
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
    fn a_process_that_registered_anew_is_not_lost() {
        let members = [
            member("worker", "worker@a#1", 0, 100, false),
            member("worker", "worker@a#1", 120, 130, true),
            member("worker", "worker@b#1", 0, 100, false),
        ];

        let lost = lost(&members);

        assert_eq!(lost.len(), 1);
        assert_eq!((lost[0].kind, lost[0].name.as_str()), (EpisodeKind::LostWorker, "worker@b#1"));
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

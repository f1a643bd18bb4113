//! What the watch says of processes: who vanished, and who took whose place.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use shared::store::{Beginning, Ending, Episode, EpisodeKind, Member};
use uuid::Uuid;

use super::succession::{Life, Succession};
use super::{FORGOTTEN, VIEW};

/// Processes that vanished, and losses that are over.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// Their lease is over, they said no goodbye, and no namesake has come in their place.
    pub lost: Vec<Beginning>,
    /// Lost processes that are back, or whose place is taken. Nobody waits for ever: an old loss is
    /// forgotten.
    pub over: Vec<Ending>,
}

/// Judges who is on record, and who is known to be lost; a restart comes within `prompt`.
pub(super) fn judge(
    members: &[Member],
    episodes: &[Episode],
    now: DateTime<Utc>,
    prompt: TimeDelta,
) -> Judged {
    let lives = lives(members, episodes, now);
    let succession = Succession::of(&lives, prompt);
    let is_lost = |member: &&Member| {
        let heir = succession.heir(member.id);
        member.gone && heir.is_none_or(|heir| heir.label != member.label)
    };
    let stopped: HashSet<Uuid> = members.iter().filter(|m| m.stopped).map(|m| m.id).collect();
    let over = losses(episodes).filter(|(_, loss)| loss.open).filter_map(|(id, loss)| {
        let heir = succession.heir(id);
        let (role, name) = (role_of(loss.kind), &loss.name);
        let detail = match heir {
            Some(heir) if heir.label == name => Some(format!("The {role} {name} is back")),
            Some(heir) => Some(format!("The {role} {name} is replaced by {}", heir.label)),
            None if stopped.contains(&id) => {
                Some(format!("The {role} {name} has stopped in good order after all"))
            }
            None if is_forgotten(loss, now) => None,
            None => return None,
        };
        Some(Ending { id: loss.id, detail, by: heir.map(|heir| heir.id.to_string()) })
    });
    Judged { lost: members.iter().filter(is_lost).map(beginning).collect(), over: over.collect() }
}

/// Who may follow, and be followed: those on record, and the lost that are not any more. Who followed a
/// lost one by the word of an earlier look follows nobody else.
fn lives<'a>(members: &'a [Member], episodes: &'a [Episode], now: DateTime<Utc>) -> Vec<Life<'a>> {
    let heirs: HashSet<&str> = episodes.iter().filter_map(|e| e.ended_by.as_deref()).collect();
    let mut known: HashMap<Uuid, &Episode> = losses(episodes).collect();
    let mut lives = Vec::with_capacity(members.len() + known.len());
    for member in members {
        let was_followed = known.remove(&member.id).is_some_and(|loss| !loss.open);
        // Whom one that began earlier followed may be on record no more.
        let is_old = (now - member.started_at).to_std().is_ok_and(|age| age > VIEW);
        let is_newcomer = !is_old && !heirs.contains(member.id.to_string().as_str());
        lives.push(Life {
            id: member.id,
            kind: kind_of(&member.role),
            label: &member.label,
            began: is_newcomer.then_some(member.started_at),
            seen: (!was_followed).then_some(member.seen_at),
            stopped: member.stopped,
        });
    }
    lives.extend(known.into_iter().filter(|(_, loss)| loss.open).map(|(id, loss)| Life {
        id,
        kind: loss.kind,
        label: &loss.name,
        began: None,
        seen: Some(loss.until),
        stopped: false,
    }));
    lives
}

/// Episodes of lost processes by their incarnations.
fn losses(episodes: &[Episode]) -> impl Iterator<Item = (Uuid, &Episode)> {
    let is_loss =
        |e: &&Episode| matches!(e.kind, EpisodeKind::LostProducer | EpisodeKind::LostWorker);
    episodes.iter().filter(is_loss).filter_map(|loss| Some((loss.subject.parse().ok()?, loss)))
}

fn is_forgotten(loss: &Episode, now: DateTime<Utc>) -> bool {
    (now - loss.until).to_std().is_ok_and(|age| age > FORGOTTEN)
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

fn role_of(kind: EpisodeKind) -> &'static str {
    if kind == EpisodeKind::LostProducer { "producer" } else { "worker" }
}

#[cfg(test)]
mod tests;

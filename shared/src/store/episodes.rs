//! Episodes: troubles with a beginning and an end, and the alerts that tell of both.
//!
//! Any producer may begin and end them: one that is open is not begun again, and whoever ends one
//! tells it, in the same transaction. It never judges: the watch does.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio_postgres::Row;

use super::connect::Store;
use super::enqueue::millis;
use super::error::Error;
use super::transaction::Transaction;

/// Names that an alert carries.
const NAMED: usize = 20;
/// Sentences of one alert; the others are counted.
const SENTENCES: usize = 10;

/// What kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EpisodeKind {
    /// A schedule will never tick again, though nobody ended it.
    NoNextTick,
    /// A schedule's instants are due and not decided.
    Behind,
    /// Instants of a schedule were recorded as missed.
    Missed,
    /// A producer vanished without goodbye.
    LostProducer,
    /// A worker did.
    LostWorker,
}

impl EpisodeKind {
    const ALL: [Self; 5] =
        [Self::NoNextTick, Self::Behind, Self::Missed, Self::LostProducer, Self::LostWorker];

    /// The name in the database and in the webhook's body.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoNextTick => "no_next_tick",
            Self::Behind => "behind",
            Self::Missed => "missed",
            Self::LostProducer => "lost_producer",
            Self::LostWorker => "lost_worker",
        }
    }
}

/// An episode that is open, or that a newcomer has ended lately.
#[derive(Clone, Debug)]
pub struct Episode {
    /// Its number.
    pub id: i64,
    /// Kind.
    pub kind: EpisodeKind,
    /// Whose trouble: a schedule's name, or an incarnation.
    pub subject: String,
    /// What people call it.
    pub name: String,
    /// Newest evidence.
    pub until: DateTime<Utc>,
    /// Not over.
    pub open: bool,
    /// The incarnation that took a lost one's place.
    pub ended_by: Option<String>,
}

/// Trouble that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// Kind.
    pub kind: EpisodeKind,
    /// Whose: a schedule's name, or an incarnation.
    pub subject: String,
    /// What people call it.
    pub name: String,
    /// A sentence about it.
    pub detail: String,
    /// The newest evidence: what is not newer than an earlier episode's begins none. `None` is now.
    pub until: Option<DateTime<Utc>>,
}

/// Trouble that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The episode's number.
    pub id: i64,
    /// A sentence about it; `None` when it is only forgotten, and not told.
    pub detail: Option<String>,
    /// The incarnation that took a lost one's place.
    pub by: Option<String>,
}

impl Store {
    /// Open episodes, and those that a newcomer ended within `lately`.
    pub async fn episodes(&self, lately: Duration) -> Result<Vec<Episode>, Error> {
        let rows = self.query(include_str!("sql/episodes.sql"), &[&millis(lately)]).await?;
        rows.iter()
            .map(|row| {
                Ok(Episode {
                    id: row.get("id"),
                    kind: kind_of(row)?,
                    subject: row.get("subject"),
                    name: row.get("name"),
                    until: row.get("until"),
                    open: row.get("open"),
                    ended_by: row.get("ended_by"),
                })
            })
            .collect()
    }

    /// Begins what has not begun yet, and tells of that in one alert a kind.
    pub async fn begin_episodes(&self, all: &[Beginning]) -> Result<(), Error> {
        for kind in EpisodeKind::ALL {
            let some: Vec<&Beginning> = all.iter().filter(|b| b.kind == kind).collect();
            if some.is_empty() {
                continue;
            }
            let subjects: Vec<&str> = some.iter().map(|b| b.subject.as_str()).collect();
            let names: Vec<&str> = some.iter().map(|b| b.name.as_str()).collect();
            let details: Vec<&str> = some.iter().map(|b| b.detail.as_str()).collect();
            let until: Vec<Option<DateTime<Utc>>> = some.iter().map(|b| b.until).collect();
            let transaction = self.transaction().await?;
            let begun = transaction
                .query(
                    include_str!("sql/begin_episodes.sql"),
                    &[&kind.as_str(), &subjects, &names, &details, &until],
                )
                .await?;
            tell(&transaction, "begun", &begun).await?;
            transaction.commit().await?;
        }
        Ok(())
    }

    /// Ends episodes, and tells of those that nobody else has ended meanwhile.
    pub async fn end_episodes(&self, all: &[Ending]) -> Result<(), Error> {
        if all.is_empty() {
            return Ok(());
        }
        let ids: Vec<i64> = all.iter().map(|e| e.id).collect();
        let details: Vec<Option<&str>> = all.iter().map(|e| e.detail.as_deref()).collect();
        let by: Vec<Option<&str>> = all.iter().map(|e| e.by.as_deref()).collect();
        let transaction = self.transaction().await?;
        let over =
            transaction.query(include_str!("sql/end_episodes.sql"), &[&ids, &details, &by]).await?;
        tell(&transaction, "over", &over).await?;
        transaction.commit().await
    }

    /// Tells again of troubles that last, so long after they were told.
    pub async fn repeat_episodes(&self, after: Duration) -> Result<(), Error> {
        let transaction = self.transaction().await?;
        let due =
            transaction.query(include_str!("sql/repeat_episodes.sql"), &[&millis(after)]).await?;
        tell(&transaction, "again", &due).await?;
        transaction.commit().await
    }
}

/// One alert for each kind among the rows, however many they are: a fleet in trouble is one message.
async fn tell(transaction: &Transaction, stage: &str, rows: &[Row]) -> Result<(), Error> {
    for kind in EpisodeKind::ALL {
        let word = kind.as_str();
        let about: Vec<&Row> =
            rows.iter().filter(|row| row.get::<_, &str>("kind") == word).collect();
        if about.is_empty() {
            continue;
        }
        let names: Vec<&str> = about.iter().take(NAMED).map(|row| row.get("name")).collect();
        let sentences: Vec<&str> = about.iter().map(|row| row.get("detail")).collect();
        let still = if stage == "again" { "Still: " } else { "" };
        let text = format!("{still}{}", told(&sentences));
        transaction.query(include_str!("sql/tell.sql"), &[&word, &stage, &names, &text]).await?;
    }
    Ok(())
}

fn told(sentences: &[&str]) -> String {
    let mut lines: Vec<String> =
        sentences.iter().take(SENTENCES).map(|line| (*line).to_owned()).collect();
    if sentences.len() > SENTENCES {
        lines.push(format!("and {} more", sentences.len() - SENTENCES));
    }
    lines.join("\n")
}

fn kind_of(row: &Row) -> Result<EpisodeKind, Error> {
    let name: &str = row.get("kind");
    let kind = EpisodeKind::ALL.into_iter().find(|kind| kind.as_str() == name);
    kind.ok_or_else(|| Error::row(format!("unknown kind of episode {name:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_troubles_are_one_message() {
        assert_eq!(told(&["a is behind"]), "a is behind");
        let many: Vec<String> = (1..=12).map(|n| format!("{n} is behind")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let text = told(&many);
        assert!(text.starts_with("1 is behind\n2 is behind\n") && text.ends_with("\nand 2 more"));
        assert_eq!(text.lines().count(), 11);
    }
}

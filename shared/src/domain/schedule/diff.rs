//! What a file changes in the schedules that are in force.
//!
//! It only compares: an edit is told by the entry's digest, a rename by what the file says of it.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;

use super::{Digest, Schedule};

/// Where a schedule in force stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Every planned instant up to here has its tick row.
    pub mark: DateTime<Utc>,
    /// Of its spec; `None` where an older binary wrote it.
    pub digest: Option<Digest>,
}

/// What applying a file does. Entries are places in the file, so that a large one is not copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// New ones.
    pub added: Vec<usize>,
    /// Known under another name.
    pub renamed: Vec<Rename>,
    /// Known, and said otherwise.
    pub changed: Vec<usize>,
    /// In force and not in the file, by name.
    pub removed: Vec<String>,
    /// Known, and said the same.
    pub unchanged: Vec<usize>,
}

/// An entry that goes on under another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    /// The name in force.
    pub from: String,
    /// The entry in the file.
    pub to: usize,
}

/// One key of an entry. JSON: `{"field","old","new"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// Key in the file.
    pub field: &'static str,
    /// Value in force.
    pub old: Value,
    /// Value in the file.
    pub new: Value,
}

impl Diff {
    /// Compares the file with what is in force, by name; an unknown digest is no match.
    pub fn of(file: &[Schedule], in_force: &HashMap<String, Standing>) -> Self {
        let mut diff = Self::default();
        let named: HashSet<&str> = file.iter().map(|entry| entry.name.as_str()).collect();
        let mut went_on: HashSet<&str> = HashSet::new();
        for (n, entry) in file.iter().enumerate() {
            let from = entry.renamed_from.as_deref();
            match (in_force.get(&entry.name), from) {
                (Some(known), _) if known.digest == Some(entry.digest()) => diff.unchanged.push(n),
                (Some(_), _) => diff.changed.push(n),
                (None, Some(from)) if in_force.contains_key(from) && !named.contains(from) => {
                    went_on.insert(from);
                    diff.renamed.push(Rename { from: from.to_owned(), to: n });
                }
                (None, _) => diff.added.push(n),
            }
        }
        let gone = in_force.keys().map(String::as_str);
        let gone = gone.filter(|name| !named.contains(name) && !went_on.contains(name));
        diff.removed = gone.map(str::to_owned).collect();
        diff.removed.sort_unstable();
        diff
    }

    /// True when the file is in force already.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty()
            && self.renamed.is_empty()
            && self.changed.is_empty()
            && self.removed.is_empty()
    }
}

/// What differs between two entries, key by key in the order of the manual.
pub fn changes(old: &Schedule, new: &Schedule) -> Vec<FieldChange> {
    let both = old.fields().into_iter().zip(new.fields());
    let different = both.filter(|((_, old), (_, new))| old != new);
    let mut changes: Vec<FieldChange> =
        different.map(|((field, old), (_, new))| FieldChange { field, old, new }).collect();
    // An edit of all entries has as many of these.
    changes.shrink_to_fit();
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cron::Cron;

    fn entry(name: &str, cron: &str, renamed_from: Option<&str>) -> Schedule {
        let cron = Cron::parse(cron).expect("a cron line");
        let renamed_from = renamed_from.map(str::to_owned);
        Schedule { renamed_from, ..Schedule::new(name, cron, "probe", "io_pool") }
    }

    fn in_force(entries: &[Schedule]) -> HashMap<String, Standing> {
        let mark = DateTime::UNIX_EPOCH;
        let standing = |entry: &Schedule| Standing { mark, digest: Some(entry.digest()) };
        entries.iter().map(|entry| (entry.name.clone(), standing(entry))).collect()
    }

    #[test]
    fn every_kind_of_difference_is_told() {
        let before = in_force(&[
            entry("stays", "0 1 * * *", None),
            entry("moves", "0 2 * * *", None),
            entry("goes", "0 3 * * *", None),
            entry("was", "0 4 * * *", None),
        ]);
        let file = [
            entry("stays", "0 1 * * *", Some("ignored")),
            entry("moves", "0 22 * * *", None),
            entry("is", "0 4 * * *", Some("was")),
            entry("comes", "0 5 * * *", Some("never_was")),
        ];

        let diff = Diff::of(&file, &before);

        let expected = Diff {
            added: vec![3],
            renamed: vec![Rename { from: "was".to_owned(), to: 2 }],
            changed: vec![1],
            removed: vec!["goes".to_owned()],
            unchanged: vec![0],
        };
        assert_eq!(diff, expected);
        assert!(Diff::of(&file[..1], &in_force(&file[..1])).is_empty());
    }

    #[test]
    fn an_entry_of_an_older_binary_without_a_digest_is_looked_at_again() {
        let file = [entry("a", "0 1 * * *", None)];

        let mut before = in_force(&file);
        before.get_mut("a").expect("in force").digest = None;

        assert_eq!(Diff::of(&file, &before).changed, [0]);
    }

    #[test]
    fn changes_are_named_by_the_keys_of_the_file() {
        let old = entry("a", "0 1 * * *", None);
        let mut new = entry("a", "0 2 * * *", None);
        new.timeout = std::time::Duration::from_mins(1);

        let told: Vec<String> = changes(&old, &new)
            .into_iter()
            .map(|change| format!("{}: {} -> {}", change.field, change.old, change.new))
            .collect();

        let expected = [r#"schedule: "0 1 * * *" -> "0 2 * * *""#, r#"timeout: "300s" -> "60s""#];
        assert_eq!(told, expected);
    }
}

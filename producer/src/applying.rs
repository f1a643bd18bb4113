//! Applying a file: what is in force becomes what the file says, and no instant is lost or doubled.
//!
//! What was due under an edited, renamed or removed entry is ticked under it first, in the same
//! transaction; the new entries begin at that moment. A leader applies its file at the start of its
//! term, `producer schedules apply` at any time, and the leader then ticks what is in force.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use shared::domain::schedule::{Diff, Digest, FieldChange, Schedule, Standing, changes};
use shared::store::{Apply, Error, FileInForce, Kept, Store};
use tracing::warn;

use crate::due;

/// Old entries that are ticked together.
const CHUNK: usize = due::MAX_TICKS;

/// A file beside what is in force.
pub struct Look {
    /// The file in force.
    pub file: FileInForce,
    /// Its schedules.
    pub standing: HashMap<String, Standing>,
    /// What applying the other file would do.
    pub diff: Diff,
}

/// What an apply did, or would do. JSON: one object with these keys.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Revision in force afterwards.
    pub revision: i64,
    /// New schedules.
    pub added: Vec<String>,
    /// Schedules that go on under another name.
    pub renamed: Vec<Renamed>,
    /// Edited ones.
    pub changed: Vec<Changed>,
    /// Ones that are no longer in the file.
    pub removed: Vec<String>,
    /// New ones that say what a removed one said: perhaps a rename that nobody declared.
    pub alike: Vec<Renamed>,
    /// How many stay as they are.
    pub unchanged: usize,
    /// Ticks that were due under old entries and were decided first.
    pub ticked: usize,
}

/// An edited schedule.
#[derive(Clone, Debug, Serialize)]
pub struct Changed {
    /// Its name.
    pub name: String,
    /// What differs.
    pub fields: Vec<FieldChange>,
}

/// A schedule under a new name.
#[derive(Clone, Debug, Serialize)]
pub struct Renamed {
    /// Its name before.
    pub from: String,
    /// Its name now.
    pub to: String,
    /// What else differs.
    pub fields: Vec<FieldChange>,
}

impl Report {
    /// True when the file is in force already.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty()
            && self.renamed.is_empty()
            && self.changed.is_empty()
            && self.removed.is_empty()
    }
}

impl Look {
    /// Compares.
    pub async fn at(store: &Store, entries: &[Schedule]) -> Result<Self, Error> {
        // The file first: whatever is applied after this answer, the apply finds another revision.
        let file = store.file_in_force().await?;
        let standing = store.in_force().await?;
        let diff = Diff::of(entries, &standing);
        Ok(Self { file, standing, diff })
    }

    /// The names in force that would not be afterwards, or not as they are.
    fn old_names<'a>(&'a self, entries: &'a [Schedule]) -> Vec<&'a str> {
        let changed = self.diff.changed.iter().map(|n| entries[*n].name.as_str());
        let renamed = self.diff.renamed.iter().map(|rename| rename.from.as_str());
        changed.chain(renamed).chain(self.diff.removed.iter().map(String::as_str)).collect()
    }

    /// Added entries that say what a removed one said.
    fn alike(&self, entries: &[Schedule]) -> Vec<Renamed> {
        let removed = self.diff.removed.iter();
        let mut gone: HashMap<Digest, &String> =
            removed.filter_map(|name| Some((self.standing.get(name)?.digest?, name))).collect();
        if gone.is_empty() {
            return Vec::new();
        }
        let added = self.diff.added.iter().map(|n| &entries[*n]);
        let alike = added.filter_map(|entry| {
            let from = gone.remove(&entry.digest())?.clone();
            Some(Renamed { from, to: entry.name.clone(), fields: Vec::new() })
        });
        alike.collect()
    }

    /// What it comes to, with the old entries at hand.
    fn report(&self, entries: &[Schedule], old: &HashMap<String, Schedule>) -> Report {
        let name = |n: &usize| entries[*n].name.clone();
        let fields = |from: &str, to: usize| {
            old.get(from).map_or_else(Vec::new, |old| changes(old, &entries[to]))
        };
        let renamed = self.diff.renamed.iter().map(|rename| Renamed {
            from: rename.from.clone(),
            to: name(&rename.to),
            fields: fields(&rename.from, rename.to),
        });
        let changed = self.diff.changed.iter().map(|n| {
            let name = name(n);
            Changed { fields: fields(&name, *n), name }
        });
        // One without a difference had no digest yet: an older binary wrote it.
        let changed: Vec<Changed> = changed.filter(|c| !c.fields.is_empty()).collect();
        Report {
            revision: self.file.revision,
            added: self.diff.added.iter().map(name).collect(),
            renamed: renamed.collect(),
            removed: self.diff.removed.clone(),
            alike: self.alike(entries),
            unchanged: self.diff.unchanged.len() + self.diff.changed.len() - changed.len(),
            changed,
            ticked: 0,
        }
    }
}

/// What applying would do.
pub async fn rehearse(store: &Store, entries: &[Schedule]) -> Result<Report, Error> {
    let look = Look::at(store, entries).await?;
    let old = store.specs(&look.old_names(entries)).await?;
    Ok(look.report(entries, &by_name(&old)))
}

/// Applies a file that was read at an instant of the database's clock. `None` when another was
/// faster: look again.
pub async fn apply(
    store: &Store,
    entries: &[Schedule],
    look: &Look,
    (read_at, by): (DateTime<Utc>, &str),
) -> Result<Option<Report>, Error> {
    let Some(mut apply) = store.begin_apply(look.file.revision).await? else { return Ok(None) };
    let old_names = look.old_names(entries);
    let old = apply.old(&old_names).await?;
    let schedules = by_name(&old);
    let mut report = look.report(entries, &schedules);
    report.ticked = tick_old(&apply, &old, &schedules).await?;

    let diff = &look.diff;
    let put = diff.added.iter().chain(&diff.changed).chain(diff.renamed.iter().map(|r| &r.to));
    let put: Vec<&Schedule> = put.map(|n| &entries[*n]).collect();
    apply.put(&put).await?;
    for rename in &diff.renamed {
        apply.rename(&rename.from, &entries[rename.to].name).await?;
    }
    let renamed = diff.renamed.iter().map(|rename| rename.from.as_str());
    let gone: Vec<&str> = renamed.chain(diff.removed.iter().map(String::as_str)).collect();
    apply.remove(&gone).await?;
    report.revision = apply.commit(read_at, by).await?;
    Ok(Some(report))
}

/// Ticks what was due under old entries; answers how many instants were decided just now.
async fn tick_old(
    apply: &Apply,
    old: &[Kept],
    schedules: &HashMap<String, Schedule>,
) -> Result<usize, Error> {
    let mut ticked = 0;
    for chunk in old.chunks(CHUNK) {
        let due = chunk.iter().filter_map(|kept| Some((schedules.get(&kept.name)?, kept.mark)));
        for batch in due::batches(due, apply.now()) {
            let (inputs, _spans): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            let decided = apply.tick(&inputs).await?;
            ticked += decided.iter().filter(|tick| tick.fresh).count();
        }
    }
    Ok(ticked)
}

fn by_name(kept: &[Kept]) -> HashMap<String, Schedule> {
    let read = |kept: &Kept| match Schedule::from_spec(&kept.name, &kept.spec) {
        Ok(schedule) => Some((kept.name.clone(), schedule)),
        Err(what) => {
            warn!(what, "what is due under it cannot be ticked");
            None
        }
    };
    kept.iter().filter_map(read).collect()
}

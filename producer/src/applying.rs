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

/// Old entries that are read, compared and ticked together: read, one is many times its size at rest,
/// and an edit may touch them all.
pub const CHUNK: usize = due::MAX_TICKS;

/// A name in force that will not be afterwards, or not as it is, and the file's entry that goes on
/// for it.
pub type Old<'a> = (&'a str, Option<usize>);

/// What differs, by the name in force.
type Differences = HashMap<String, Vec<FieldChange>>;

/// A file beside what is in force.
pub struct Look {
    /// The file in force.
    pub file: FileInForce,
    /// Its schedules.
    pub standing: HashMap<String, Standing>,
    /// What applying the other file would do.
    pub diff: Diff,
}

/// What is in force, as whoever ticks it begins.
pub struct InForce {
    /// Counts the applied changes.
    pub revision: i64,
    /// Entries of the file, by their places in it, with their marks.
    pub of_file: Vec<(usize, DateTime<Utc>)>,
    /// Names of what the file does not have, or not so.
    pub others: Vec<String>,
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
    /// Schedules whose budget is another one now.
    pub budgets: Vec<String>,
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
            && self.budgets.is_empty()
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

    /// What is in force and would not be afterwards, or not as it is.
    pub fn old<'a>(&'a self, entries: &'a [Schedule]) -> Vec<Old<'a>> {
        let changed = self.diff.changed.iter().map(|n| (entries[*n].name.as_str(), Some(*n)));
        let renamed =
            self.diff.renamed.iter().map(|rename| (rename.from.as_str(), Some(rename.to)));
        let removed = self.diff.removed.iter().map(|name| (name.as_str(), None));
        changed.chain(renamed).chain(removed).collect()
    }

    /// What is in force as long as nothing is applied.
    pub fn in_force(&self, entries: &[Schedule]) -> InForce {
        let others = self.old(entries).into_iter().map(|(name, _)| name.to_owned());
        InForce {
            revision: self.file.revision,
            of_file: self.unchanged(entries).collect(),
            others: others.collect(),
        }
    }

    /// Entries that are in force as they are, with their marks.
    fn unchanged<'a>(
        &'a self,
        entries: &'a [Schedule],
    ) -> impl Iterator<Item = (usize, DateTime<Utc>)> + 'a {
        let unchanged = self.diff.unchanged.iter();
        unchanged.filter_map(|n| Some((*n, self.standing.get(&entries[*n].name)?.mark)))
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

    /// What it comes to.
    fn report(&self, entries: &[Schedule], mut differences: Differences) -> Report {
        let name = |n: &usize| entries[*n].name.clone();
        let mut fields = |from: &str| differences.remove(from).unwrap_or_default();
        let renamed = self.diff.renamed.iter().map(|rename| Renamed {
            from: rename.from.clone(),
            to: name(&rename.to),
            fields: fields(&rename.from),
        });
        let renamed = renamed.collect();
        let changed = self.diff.changed.iter().map(|n| {
            let name = name(n);
            Changed { fields: fields(&name), name }
        });
        // One without a difference had no digest yet: an older binary wrote it.
        let changed: Vec<Changed> = changed.filter(|c| !c.fields.is_empty()).collect();
        Report {
            revision: self.file.revision,
            added: self.diff.added.iter().map(name).collect(),
            renamed,
            removed: self.diff.removed.clone(),
            alike: self.alike(entries),
            unchanged: self.diff.unchanged.len() + self.diff.changed.len() - changed.len(),
            changed,
            ..Report::default()
        }
    }
}

/// What applying would do.
pub async fn rehearse(store: &Store, entries: &[Schedule]) -> Result<Report, Error> {
    let look = Look::at(store, entries).await?;
    let (differences, _) = read_old(store, entries, &look).await?;
    Ok(look.report(entries, differences))
}

/// Applies a file that was read at an instant of the database's clock; answers what that came to and
/// what is in force by it. `None` when another was faster: look again.
pub async fn apply(
    store: &Store,
    entries: &[Schedule],
    look: &Look,
    (read_at, by): (DateTime<Utc>, &str),
) -> Result<Option<(Report, InForce)>, Error> {
    // Before the transaction, in which nothing else ticks: should another file get into force
    // meanwhile, it does not begin.
    let (differences, next) = read_old(store, entries, look).await?;
    let Some(mut apply) = store.begin_apply(look.file.revision).await? else { return Ok(None) };
    let due = next.into_iter().filter(|(_, at)| *at <= apply.now()).map(|(name, _)| name);
    let due: Vec<&str> = due.collect();
    let mut ticked = 0;
    for names in due.chunks(CHUNK) {
        ticked += tick_old(&apply, &apply.old(names).await?).await?;
    }
    let mut report = Report { ticked, ..look.report(entries, differences) };

    let diff = &look.diff;
    let put = diff.added.iter().chain(&diff.changed).chain(diff.renamed.iter().map(|r| &r.to));
    let put: Vec<usize> = put.copied().collect();
    let written: Vec<&Schedule> = put.iter().map(|n| &entries[*n]).collect();
    let ahead = apply.put(&written).await?;
    for rename in &diff.renamed {
        apply.rename(&rename.from, &entries[rename.to].name).await?;
    }
    let renamed = diff.renamed.iter().map(|rename| rename.from.as_str());
    let gone: Vec<&str> = renamed.chain(diff.removed.iter().map(String::as_str)).collect();
    apply.remove(&gone).await?;
    let now = apply.now();
    report.revision = apply.commit(read_at, by).await?;

    let mark = |n: usize| ahead.get(&entries[n].name).copied().unwrap_or(now);
    let of_file = look.unchanged(entries).chain(put.into_iter().map(|n| (n, mark(n)))).collect();
    let in_force = InForce { revision: report.revision, of_file, others: Vec::new() };
    Ok(Some((report, in_force)))
}

/// Reads old entries: what differs, and what is next under each, by the marks of the look.
async fn read_old<'a>(
    store: &Store,
    entries: &'a [Schedule],
    look: &'a Look,
) -> Result<(Differences, Vec<(&'a str, DateTime<Utc>)>), Error> {
    let (mut differences, mut next) = (Differences::new(), Vec::new());
    for old in look.old(entries).chunks(CHUNK) {
        let kept = store.specs(&names(old)).await?;
        let schedules = by_name(&kept);
        differences.extend(compare(old, entries, &schedules));
        next.extend(old.iter().filter_map(|(name, _)| {
            let mark = look.standing.get(*name)?.mark;
            Some((*name, schedules.get(*name)?.next_due(mark)?))
        }));
    }
    Ok((differences, next))
}

/// Ticks what was due under old entries; answers how many instants were decided just now.
async fn tick_old(apply: &Apply, old: &[Kept]) -> Result<usize, Error> {
    let schedules = by_name(old);
    let due = old.iter().filter_map(|kept| Some((schedules.get(&kept.name)?, kept.mark)));
    let due: Vec<_> = due.collect();
    let pauses = apply.pause_edges(&due::late(&due, apply.now())).await?;
    let mut ticked = 0;
    for batch in due::batches(&due, &pauses, apply.now()) {
        let (inputs, _spans): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let decided = apply.tick(&inputs).await?;
        ticked += decided.iter().filter(|tick| tick.fresh).count();
    }
    Ok(ticked)
}

/// Their names.
fn names<'a>(old: &[Old<'a>]) -> Vec<&'a str> {
    old.iter().map(|(name, _)| *name).collect()
}

/// What differs of old entries that go on.
fn compare(
    old: &[Old<'_>],
    entries: &[Schedule],
    schedules: &HashMap<String, Schedule>,
) -> Differences {
    let compared = old.iter().filter_map(|(name, to)| {
        let fields = changes(schedules.get(*name)?, &entries[(*to)?]);
        Some(((*name).to_owned(), fields))
    });
    compared.collect()
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

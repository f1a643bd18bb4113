//! The list of checks: which promise each belongs to, what it counts, where its query is.
//!
//! A query lists what it looks at as `(offender text, broken boolean)`, so that psql shows the same.

/// The promises of the contract, in their order.
pub const PROMISES: [&str; 6] = [
    "one tick, one task",
    "one execution key, one committed result",
    "nothing accepted is lost",
    "paid once",
    "messages have no authority",
    "said plainly: at most once, and every failure counted",
];

/// What a query is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// Seconds that execution keys are kept.
    KeysKept,
    /// Seconds that finished tasks are kept.
    TasksKept,
    /// Seconds after which a sweep is late.
    Late,
    /// Pools, their ready messages, and seconds after which a message is late.
    Depths,
    /// Queues of work, their ready and their unacked messages.
    Queues,
    /// Schedules and their planned instants.
    Instants,
    /// The same, and since when each schedule was looked at.
    InstantsAndSpans,
}

/// One check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Number of its promise.
    pub promise: u8,
    /// Its name, which is its file's.
    pub name: &'static str,
    /// What it counts.
    pub counts: &'static str,
    /// What its query is given.
    pub needs: Needs,
    /// Only asked where nothing may be left to do.
    pub only_settled: bool,
    /// The query.
    pub sql: &'static str,
}

macro_rules! checks {
    ($($promise:literal $name:literal $needs:ident $counts:literal $(, $settled:ident)?;)*) => {
        &[$(Check {
            promise: $promise,
            name: $name,
            counts: $counts,
            needs: Needs::$needs,
            only_settled: checks!(@settled $($settled)?),
            sql: include_str!(concat!("sql/p", stringify!($promise), "_", $name, ".sql")),
        }),*]
    };
    (@settled) => { false };
    (@settled only_settled) => { true };
}

/// All checks, promise by promise.
pub fn checks() -> &'static [Check] {
    checks! {
        1 "instants" Instants "planned instants, each in exactly one tick row";
        1 "rows" InstantsAndSpans "tick rows, each for instants that were planned";
        1 "targets" KeysKept "ticks and runs by hand with a task, which exists or has left its key";
        1 "tasks" Nothing "tasks of schedules, each made by its own tick or by one person";
        1 "by_hand" TasksKept "runs by hand, none of an instant that had its task from its tick";
        1 "terms" Nothing "ticks, each decided in a term that began";
        2 "keys" KeysKept "tasks, each the holder of its execution key";
        2 "results" Nothing "completed tasks, each with its one result";
        2 "completions" Nothing "tasks, completed by one attempt or by none";
        2 "claims" Nothing "tasks, held by one open attempt while running, else by none";
        2 "sequence" Nothing "pairs of attempts, one after the other";
        2 "journal" Nothing "steps and model calls, written under their attempt's claim";
        3 "accepted" TasksKept "keys, inputs and states, each with the others";
        3 "messages" Depths "tasks that wait for a worker, none forgotten by relay and sweep";
        3 "running" Late "running tasks, none forgotten by rescue and deadline";
        3 "held" Late "tasks that Postgres holds back, none forgotten";
        3 "letters" Nothing "dead tasks, each with its letter";
        3 "alerts" Nothing "dead letters, each with an alert";
        3 "settled_tasks" Nothing "tasks, all ended", only_settled;
        3 "settled_queues" Queues "queues of work, all empty", only_settled;
        4 "paid_once" Nothing "answered model calls, none asked again";
        4 "counters" TasksKept "quotas, each counting what its calls say";
        4 "sent" Nothing "model calls in flight, none of a task that has ended";
        4 "unknown" Nothing "model calls of unknown outcome (listed, never a violation)";
        5 "runs" Nothing "tasks, each run by as many attempts as it says";
        5 "early" Nothing "delays between attempts, none cut short";
        5 "late" Nothing "tasks with a deadline for their start, none started after it";
        5 "orphans" Nothing "messages without a task (listed, never a violation)";
        6 "once" Nothing "spans of tasks that must not rerun, each with one attempt";
        6 "counts" Nothing "tasks, each with the failures and crashes of its attempts";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_says_why_and_has_a_name_of_its_own() {
        let mut names = std::collections::BTreeSet::new();
        for check in checks() {
            assert!(check.sql.starts_with("-- "), "{} begins with its reason", check.name);
            assert!(names.insert((check.promise, check.name)), "{} stands twice", check.name);
            assert!((1..=PROMISES.len()).contains(&usize::from(check.promise)), "{}", check.name);
        }
    }

    #[test]
    fn every_query_in_the_folder_is_asked() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ledger/sql");
        let files = std::fs::read_dir(folder).expect("the folder of queries").count();
        assert_eq!(files, checks().len());
    }
}

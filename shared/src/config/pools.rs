//! `task_pools`: which task types share which slots and which queue.

use std::collections::HashMap;

use super::Pool;
use super::check;
use super::keys::{self, BUILT_IN_TYPES};
use super::problems::nearest;
use super::reader::{Place, Section};

/// Default of `task_pools.*.max_workers`.
pub const DEFAULT_MAX_WORKERS: usize = 10;
/// Most slots of a pool in one process; more belongs in more processes.
pub const MAX_SLOTS: u64 = 1000;

/// The pools of a file that names none: waiting work apart from computing work.
fn default_pools() -> Vec<Pool> {
    let pool = |name: &str, max_workers, types: &[&str]| Pool {
        name: name.to_owned(),
        max_workers,
        task_types: types.iter().map(|&task_type| task_type.to_owned()).collect(),
    };
    vec![
        pool("io_pool", 20, &["http_call", "db_query", "model_invoke", "agent_session"]),
        pool("cpu_pool", 4, &["data_processing", "report_generation", "command"]),
    ]
}

/// `task_pools`.
pub(super) fn pools(root: &Section<'_>) -> Vec<Pool> {
    let Some(place) = root.whole("task_pools") else { return default_pools() };
    if place.entries().is_empty() {
        place.problem("it has no pool, so nothing could run; drop the key for the default pools");
        return Vec::new();
    }
    let mut pool_of: HashMap<String, String> = HashMap::new();
    let pools = place.whole_entries().into_iter().map(|(name, place)| {
        check::report(&place, check::pool_name(name));
        let section = place.section(keys::POOL);
        let max_workers = section.get("max_workers").and_then(|place| place.integer(1..=MAX_SLOTS));
        let types = section.required("task_types").map(|place| place.items()).unwrap_or_default();
        let types = types.into_iter().filter_map(|place| {
            let task_type = place.required_text()?;
            check_type(&place, &task_type);
            match pool_of.insert(task_type.clone(), name.to_owned()) {
                Some(other) => {
                    place.problem(format!("{task_type} is in the pool {other} already; keep one"));
                    None
                }
                None => Some(task_type),
            }
        });
        Pool {
            name: name.to_owned(),
            task_types: types.collect(),
            max_workers: max_workers.and_then(|n| n.try_into().ok()).unwrap_or(DEFAULT_MAX_WORKERS),
        }
    });
    pools.collect()
}

/// A type that no built-in handler has: a slip of the pen, or a handler of the user's own.
fn check_type(place: &Place<'_>, task_type: &str) {
    if BUILT_IN_TYPES.contains(&task_type) {
        return;
    }
    if check::report(place, check::word(task_type, "-_.", 128)).is_none() {
        return;
    }
    match nearest(task_type, BUILT_IN_TYPES) {
        Some(near) => {
            place.problem(format!("no handler is named {task_type}; did you mean `{near}`?"));
        }
        None => place.note(&format!(
            "no built-in handler is named {task_type}; a worker must bring one of its own"
        )),
    }
}

//! `tasks`: the schedules.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::check;
use super::keys;
use super::limits;
use super::loading::Loading;
use super::payload;
use super::problems::suggestion;
use super::reader::{Place, Section};
use super::sections;
use super::shelf::Shelf;
use super::timing;
use super::yaml::Node;
use super::{Pool, Price, Scheduler};
use crate::domain::cron::Cron;
use crate::domain::execution_key::is_unseen;
use crate::domain::payloads;
use crate::domain::quota::Limits;
use crate::domain::schedule::{CatchUp, DEFAULT_CATCH_UP_WINDOW, Overlap, Schedule};
use crate::domain::task::{
    DEFAULT_TIMEOUT, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES, Priority, Semantics,
};
use crate::domain::template::{self, DEFAULT_KEY_TEMPLATE};

/// Judges a payload by its task type; handlers' schemas come in here.
pub type PayloadCheck<'a> = &'a dyn Fn(&str, &Value) -> Result<(), String>;

/// `overlap`, with the words of Kubernetes and Temporal. Case does not matter.
const OVERLAPS: &[(&str, Overlap)] = &[
    ("skip", Overlap::Skip),
    ("queue", Overlap::Queue),
    ("queue_all", Overlap::QueueAll),
    ("replace", Overlap::Replace),
    ("allow", Overlap::Allow),
    ("forbid", Overlap::Skip),
    ("buffer_one", Overlap::Queue),
    ("bufferone", Overlap::Queue),
    ("buffer_all", Overlap::QueueAll),
    ("bufferall", Overlap::QueueAll),
    ("cancel_other", Overlap::Replace),
    ("cancelother", Overlap::Replace),
    ("terminate_other", Overlap::Replace),
    ("terminateother", Overlap::Replace),
    ("allow_all", Overlap::Allow),
    ("allowall", Overlap::Allow),
];

const CATCH_UPS: &[(&str, CatchUp)] =
    &[("latest", CatchUp::Latest), ("all", CatchUp::All), ("none", CatchUp::None)];

const SEMANTICS: &[(&str, Semantics)] =
    &[("at_least_once", Semantics::AtLeastOnce), ("at_most_once", Semantics::AtMostOnce)];

const PRIORITIES: &[(&str, Priority)] =
    &[("low", Priority::Low), ("normal", Priority::Normal), ("high", Priority::High)];

/// What schedules refer to.
pub(super) struct Context<'a> {
    pub scheduler: &'a Scheduler,
    pub pools: &'a [Pool],
    /// Names of `secrets`.
    pub secrets: Vec<&'a str>,
    /// Names of `sources`.
    pub sources: Vec<&'a str>,
    /// Names of `reports`.
    pub reports: Vec<&'a str>,
    /// Task types that may be tools of sessions.
    pub session_tools: &'a [String],
    pub payload_check: PayloadCheck<'a>,
    /// `model.prices`.
    pub prices: &'a BTreeMap<String, Price>,
}

/// What is read of `tasks`.
#[derive(Default)]
pub(super) struct Tasks {
    /// Whether the file says them, if only as an empty list.
    pub said: bool,
    pub schedules: Vec<Schedule>,
    /// By schedule.
    pub budgets: BTreeMap<String, Limits>,
}

/// Reads all entries: those that an alias stands for, which are in the tree, and those of the shelf.
/// What has problems is left out.
pub(super) fn schedules(root: &Section<'_>, shelf: &Shelf, context: &Context<'_>) -> Tasks {
    let (Some(tasks), Some(root)) = (root.whole("tasks"), root.place()) else {
        return Tasks::default();
    };
    let mut entries = Entries {
        context,
        index: 0,
        names: Names::sized(shelf.len()),
        read: Tasks {
            said: true,
            schedules: Vec::with_capacity(shelf.len()),
            budgets: BTreeMap::new(),
        },
    };
    for item in tasks.items() {
        entries.take(root.loading, item.node);
    }
    shelf.each(|node| entries.take(root.loading, node));
    entries.names.check_renames(root.loading);
    entries.read
}

/// The entries so far.
struct Entries<'a> {
    context: &'a Context<'a>,
    index: usize,
    names: Names,
    read: Tasks,
}

impl Entries<'_> {
    /// Reads the next one.
    fn take(&mut self, loading: &Loading<'_>, node: &Node) {
        let path = format!("tasks[{}]", self.index);
        self.index += 1;
        let section = Place { loading, node, path, line: node.line }.section(keys::TASK);
        let name = section.required("name").and_then(|place| self.names.own(&place));
        let renamed_from = section.get("renamed_from").and_then(|place| self.names.former(&place));
        let budget = limits::schedule_budget(&section, self.context.prices);
        let Some(schedule) = schedule(&section, name, self.context) else { return };
        if let Some(budget) = budget {
            let budget = Limits { timezone: schedule.timezone, ..budget };
            self.read.budgets.insert(schedule.name.clone(), budget);
        }
        self.read.schedules.push(Schedule { renamed_from, ..schedule });
    }
}

/// The names of the file, with their lines.
struct Names {
    lines: HashMap<String, usize>,
    /// Former names, with the lines and paths where they are said.
    former: Vec<(String, usize, String)>,
}

impl Names {
    /// Room for so many.
    fn sized(count: usize) -> Self {
        Self { lines: HashMap::with_capacity(count), former: Vec::new() }
    }

    fn own(&mut self, place: &Place<'_>) -> Option<String> {
        let name = name(place)?;
        if let Some(first) = self.lines.insert(name.clone(), place.line) {
            place.problem(format!("a schedule named {name} is there already, on line {first}"));
        }
        Some(name)
    }

    fn former(&mut self, place: &Place<'_>) -> Option<String> {
        let name = name(place)?;
        self.former.push((name.clone(), place.line, place.path.clone()));
        Some(name)
    }

    /// A name that an entry gave up is nobody's now, and went to one.
    fn check_renames(&self, loading: &Loading<'_>) {
        let mut heirs: HashMap<&str, usize> = HashMap::new();
        for (from, line, path) in &self.former {
            let problem = |what| loading.report(Some(*line), path.clone(), what);
            if let Some(taken) = self.lines.get(from) {
                problem(format!(
                    "{from} is still the name of a schedule, on line {taken}; only one that is gone can have another name now"
                ));
            }
            if let Some(first) = heirs.insert(from, *line) {
                problem(format!("{from} was renamed on line {first} already"));
            }
        }
    }
}

fn schedule(
    section: &Section<'_>,
    name: Option<String>,
    context: &Context<'_>,
) -> Option<Schedule> {
    // Everything is read before the first `?`, so that all problems of an entry are seen.
    let duration = |key: &str| section.get(key).and_then(|place| place.positive_duration());
    let cron = section.required("schedule").and_then(|place| cron(&place));
    let timezone = section.get("timezone").and_then(|place| check::zone(&place));
    let task = section.required("task_type").and_then(|place| task_type(&place, context.pools));
    let payload = payload(section, task.as_ref().map(|(task_type, _)| task_type.as_str()), context);
    let execution_key_template = section.get("execution_key_template").and_then(|place| {
        let text = place.required_text()?;
        if let Err(error) = template::check(&text) {
            place.problem(error.to_string());
        }
        Some(text)
    });
    let overlap = section.get("overlap").and_then(|place| place.choice(OVERLAPS));
    let catch_up = section.get("catch_up").and_then(|place| place.choice(CATCH_UPS));
    let catch_up_window = section.get("catch_up_window").and_then(|place| place.duration());
    let timeout = duration("timeout");
    let semantics = section.get("semantics").and_then(|place| place.choice(SEMANTICS));
    let paused = section.get("paused").and_then(|place| place.boolean());
    let retry = sections::retry(section, context.scheduler.retry);
    let priority = section.get("priority").and_then(|place| place.choice(PRIORITIES));
    let timezone = timezone.unwrap_or(context.scheduler.timezone);
    let timing = timing::read(section, cron.as_ref(), timezone);

    let (task_type, pool) = task?;
    Some(Schedule {
        name: name?,
        cron: cron?,
        timezone,
        task_type,
        pool,
        payload: payload.into(),
        execution_key_template: execution_key_template
            .unwrap_or_else(|| DEFAULT_KEY_TEMPLATE.to_owned()),
        timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
        retry,
        semantics: semantics.unwrap_or_default(),
        overlap: overlap.unwrap_or_default(),
        catch_up: catch_up.unwrap_or_default(),
        catch_up_window: catch_up_window.unwrap_or(DEFAULT_CATCH_UP_WINDOW),
        paused: paused.unwrap_or(false),
        jitter: timing.jitter,
        start_at: timing.start_at,
        end_at: timing.end_at,
        deadline: timing.deadline,
        priority: priority.unwrap_or_default(),
        renamed_from: None,
    })
}

/// A printable name, of seen characters alone, without white space at its ends.
fn name(place: &Place<'_>) -> Option<String> {
    let name = place.required_text()?;
    if name.len() > MAX_NAME_BYTES || name.trim() != name || name.contains(is_unseen) {
        place.problem(format!(
            "a name has at most {MAX_NAME_BYTES} bytes, printable, with no space at its ends"
        ));
        return None;
    }
    Some(name)
}

fn cron(place: &Place<'_>) -> Option<Cron> {
    let text = place.required_text()?;
    Cron::parse(&text).map_err(|error| place.problem(error.to_string())).ok()
}

/// The task type and its pool.
fn task_type(place: &Place<'_>, pools: &[Pool]) -> Option<(String, String)> {
    let task_type = place.required_text()?;
    let pool = pools.iter().find(|pool| pool.task_types.contains(&task_type));
    let Some(pool) = pool else {
        let known = pools.iter().flat_map(|pool| pool.task_types.iter().map(String::as_str));
        place.problem(format!(
            "{task_type} is in no pool of task_pools{}",
            suggestion(&task_type, known)
        ));
        return None;
    };
    Some((task_type, pool.name.clone()))
}

fn payload(section: &Section<'_>, task_type: Option<&str>, context: &Context<'_>) -> Value {
    let Some(place) = section.whole("payload") else {
        let empty = Value::Object(serde_json::Map::new());
        if section.get("payload").is_some_and(|place| place.is_unset()) {
            // Nothing to judge yet.
            return empty;
        }
        if let (Some(task_type), Some(place)) = (task_type, section.place())
            && let Err(what) = (context.payload_check)(task_type, &empty)
        {
            place.problem(format!("`payload` is missing: {what}"));
        }
        return empty;
    };
    let payload = payload::json(&place);
    let bytes = payload.to_string().len();
    if bytes > MAX_PAYLOAD_BYTES {
        place.problem(format!(
            "{bytes} bytes are more than a payload may have ({MAX_PAYLOAD_BYTES}); store them elsewhere and pass a reference"
        ));
    }
    payload::check_texts(&place, &context.secrets);
    if let Some(task_type) = task_type
        && let Err(what) = (context.payload_check)(task_type, &payload)
    {
        place.problem(what);
    }
    if let Some(task_type) = task_type
        && let Err(what) = payloads::check_tools(task_type, &payload, context.session_tools)
    {
        place.problem(what);
    }
    let named = match task_type {
        Some("db_query") => Some(("source", &context.sources)),
        Some("report_generation") => Some(("report", &context.reports)),
        _ => None,
    };
    if let Some((what, known)) = named
        && let Some(name) = payload[what].as_str()
        && !name.contains("{{")
        && !known.contains(&name)
    {
        place.problem(format!(
            "no {what} is named {name}{}",
            suggestion(name, known.iter().copied())
        ));
    }
    payload
}

//! `belfry.yaml` and the conventional environment variables: what every binary reads at its door.
//!
//! Loading never stops at the first problem: all are listed, with line and path, and the process
//! ends with exit code 2. It opens no connection and never repeats a secret.
//!
//! | variable | unit | default | meaning |
//! |---|---|---|---|
//! | `BELFRY_CONFIG` | path | `./belfry.yaml`, if there | the file, where `--config` is not given |
//!
//! `sections` lists the variables that stand in for keys.

mod access;
mod check;
mod documents;
mod duration;
mod environment;
pub mod keys;
mod limits;
mod loading;
mod payload;
mod pools;
mod problems;
mod reader;
mod reports;
mod schedules;
mod sections;
mod shelf;
mod storage;
mod timing;
mod types;
mod yaml;

use std::io::Read;
use std::path::{Path, PathBuf};

pub use access::{Missing, Redacted};
pub use documents::{Document, documents};
pub use duration::{LONGEST as LONGEST_DURATION, parse as parse_duration};
use environment::Environment;
pub use environment::Lookup;
use loading::Loading;
pub use payload::exact_number;
pub use problems::{Problem, Problems, suggestion};
use reader::Place;
pub use schedules::PayloadCheck;
pub use sections::MOST_RETRIES;
use shelf::Shelf;
pub use types::*;
use yaml::{Node, Stream};

/// Largest file that is read: a hundred thousand generated schedules have a third of it.
pub const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// The file where none is named.
const DEFAULT_FILE: &str = "belfry.yaml";

/// Loads the file that `--config` names, else `BELFRY_CONFIG`, else `./belfry.yaml` if it is there;
/// without a file the environment alone counts.
pub fn load(path: Option<&Path>) -> Result<Config, Problems> {
    load_checked(path, &|_, _| Ok(()))
}

/// As [`load`], and judges each schedule's payload.
pub fn load_checked(path: Option<&Path>, payload: PayloadCheck<'_>) -> Result<Config, Problems> {
    let loader = Loader { variables: &variable, payload };
    match path.map(Path::to_owned).or_else(|| variable("BELFRY_CONFIG").map(PathBuf::from)) {
        Some(path) => loader.file(&path),
        None if Path::new(DEFAULT_FILE).exists() => loader.file(Path::new(DEFAULT_FILE)),
        None => loader.environment(),
    }
}

/// Loads a text; `name` is what messages call it, and its directory holds template files.
pub fn load_str(text: &str, name: &str, variables: Lookup<'_>) -> Result<Config, Problems> {
    Loader { variables, payload: &|_, _| Ok(()) }.text(text, name)
}

/// The process's variable; an empty one counts as unset.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// What loading depends on beside the file.
#[derive(Clone, Copy)]
pub struct Loader<'a> {
    /// The variables.
    pub variables: Lookup<'a>,
    /// The judge of payloads.
    pub payload: PayloadCheck<'a>,
}

impl Loader<'_> {
    /// Loads a file.
    pub fn file(&self, path: &Path) -> Result<Config, Problems> {
        let name = path.display().to_string();
        let text = read(path).map_err(|what| Problems::one(&name, None, what))?;
        let mut config = self.text(&text, &name)?;
        config.path = Some(path.to_owned());
        Ok(config)
    }

    /// Loads no file: defaults and variables.
    pub fn environment(&self) -> Result<Config, Problems> {
        self.text("", "environment")
    }

    /// Loads a text.
    pub fn text(&self, text: &str, name: &str) -> Result<Config, Problems> {
        if let Some(at) = text.find('\0') {
            let line = text[..at].matches('\n').count() + 1;
            return Err(Problems::one(name, Some(line), "holds a NUL byte; save it as UTF-8 text"));
        }
        let loading = Loading::new(name, Environment::new(self.variables));
        let mut flaws = Vec::new();
        // The one section that may be large.
        let mut shelf = Shelf::default();
        let stream = Stream { key: "tasks", take: &mut |node| shelf.put(&node) };
        let root = yaml::parse(text, &mut flaws, stream);
        for flaw in flaws {
            loading.flaw(flaw);
        }
        let config = root.map(|root| self.config(&loading, &root, &shelf));
        loading.finish(config)
    }

    fn config(&self, loading: &Loading<'_>, node: &Node, shelf: &Shelf) -> Config {
        let place = Place { loading, node, path: String::new(), line: node.line };
        let root = place.section(keys::ROOT);
        let storage = root.section("storage", keys::STORAGE);
        let scheduler = sections::scheduler(&root.section("scheduler", keys::SCHEDULER));
        let pools = pools::pools(&root);
        let sources = sections::sources(&root);
        let secrets = sections::secrets(&root);
        let session_tools = sections::session_tools(&root);
        let secret_names: Vec<&str> = secrets.keys().map(String::as_str).collect();
        let directory = Path::new(loading.name).parent().unwrap_or(Path::new(""));
        let model = root.section("model", keys::MODEL);
        let model = storage::model(&model, loading, scheduler.timezone);
        let schedule_context = schedules::Context {
            scheduler: &scheduler,
            pools: &pools,
            secrets: secret_names.clone(),
            sources: sources.keys().map(String::as_str).collect(),
            reports: root.entries("reports").into_iter().map(|(name, _)| name).collect(),
            session_tools: &session_tools,
            payload_check: self.payload,
            prices: &model.prices,
        };
        let report_context = reports::Context {
            sources: sources.keys().map(String::as_str).collect(),
            secrets: secret_names,
            directory,
        };
        let tasks = schedules::schedules(&root, shelf, &schedule_context);
        Config {
            path: None,
            name: loading.name.to_owned(),
            database_url: storage::database_url(&storage, loading),
            rabbitmq: storage::rabbitmq(&storage, loading),
            budgets: tasks.budgets,
            model,
            says_tasks: tasks.said,
            schedules: tasks.schedules,
            alerts: sections::alerts(&root.section("alerts", keys::ALERTS)),
            http: sections::http(&root.section("http", keys::HTTP)),
            limits: sections::limits(&root.section("limits", keys::LIMITS)),
            retention: sections::retention(&root.section("retention", keys::RETENTION)),
            reports: reports::reports(&root, &report_context),
            artifacts_dir: root
                .section("artifacts", keys::ARTIFACTS)
                .get("dir")
                .and_then(|place| Some(directory.join(place.text()?))),
            session_tools: session_tools.clone(),
            http_addr: sections::http_addr(&root, loading),
            scheduler,
            pools,
            sources,
            secrets,
            notes: Vec::new(),
            unset: Vec::new(),
        }
    }
}

/// Reads a file within bounds.
fn read(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err("is larger than 64 MiB; large inputs belong in files of their own".to_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let right = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = right.split(|byte| *byte == b'\n').count();
        format!("is not UTF-8 text (line {line})")
    })
}

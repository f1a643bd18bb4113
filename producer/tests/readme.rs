//! The README is true: its commands run, its examples load, its links lead somewhere.
//!
//! Blocks fenced as `sh` are run, in order, in one shell; those fenced as `console` are sketches for
//! the reader and are not.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use secrecy::SecretString;
use shared::broker::{Operator, Settings, Topology};
use shared::config::Loader;
use shared::testing::{TestDatabase, needed};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use uuid::Uuid;

const README: &str = include_str!("../../README.md");
/// The pages whose links are followed.
const PAGES: [&str; 4] = ["README.md", "README.zh-CN.md", "ARCHITECTURE.md", "CHANGELOG.md"];
/// A reader who waits longer than this has left.
const PATIENCE: Duration = Duration::from_secs(120);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The contents of all blocks with this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}");
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line != opening {
            continue;
        }
        let block = lines.by_ref().take_while(|line| *line != "```");
        found.push(block.fold(String::new(), |text, line| text + line + "\n"));
    }
    found
}

/// The directory with `producer`, `worker` and `loadtest`.
fn programs() -> PathBuf {
    let producer = Path::new(env!("CARGO_BIN_EXE_producer"));
    let directory = producer.parent().expect("a program lies in a directory").to_owned();
    for program in ["worker", "loadtest"] {
        assert!(
            directory.join(program).is_file(),
            "{program} is not built beside producer; the README runs it: cargo build --workspace --bins"
        );
    }
    directory
}

/// The shell with all that it has started; all of it ends with this value.
struct Shell {
    child: Child,
    group: u32,
    directory: TempDir,
}

impl Shell {
    fn run(script: &str, variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let said = File::create(directory.path().join("said")).expect("a file");
        let too = said.try_clone().expect("the same file");
        let child = Command::new("bash")
            .args(["-c", script])
            .current_dir(directory.path())
            // The house of whoever runs the tests is not ours to use.
            .env_remove("BELFRY_CONFIG")
            .env_remove("BELFRY_HTTP_ADDR")
            .env_remove("RUST_LOG")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(said)
            .stderr(too)
            .process_group(0)
            .spawn()
            .expect("bash is there");
        let group = child.id().expect("not yet awaited");
        Self { child, group, directory }
    }

    /// Its exit code; `None` when it takes too long, or was killed.
    async fn ended(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.ok()?.expect("our child").code()
    }

    /// What it said, and what the daemons logged.
    fn told(&self) -> String {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let mut told = read(&self.directory.path().join("said"));
        let logs = ["stub", "producer", "producer-2", "worker-1", "worker-2", "worker-3"];
        for log in logs.map(|name| format!("{name}.log")) {
            let path = self.directory.path().join("tower").join(&log);
            write!(told, "\n== {log}\n{}", read(&path)).expect("a String takes all");
        }
        told
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let kill = format!("kill -KILL -- -{}", self.group);
        let mut bash = std::process::Command::new("bash");
        // Fails when all of the group has ended, as it should.
        let _ = bash.args(["-c", &kill]).stderr(Stdio::null()).status();
    }
}

/// A port that was free a moment ago.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_readme_work_in_order() {
    let programs = programs();
    let database = TestDatabase::empty().await;
    let (amqp, fleet, stub) =
        (needed("AMQP_URL"), format!("readme-{}", Uuid::new_v4().simple()), free_address());
    let mut script = format!("set -eu -o pipefail\nPATH='{}':$PATH\n", programs.display());
    for (n, block) in blocks(README, "sh").iter().enumerate() {
        write!(script, "echo '== block {}'\n{block}", n + 1).expect("a String takes all");
    }

    let variables = [
        ("DATABASE_URL", database.dsn.as_str()),
        ("AMQP_URL", &amqp),
        ("FLEET", &fleet),
        ("STUB", &stub),
    ];
    let mut shell = Shell::run(&script, &variables);
    let code = shell.ended().await;

    let told = shell.told();
    drop(shell);
    forget(&amqp, &fleet).await;
    assert_eq!(code, Some(0), "{told}");
    for (what, sign) in [
        ("the echo comes back", "\"hello\": \"tower\""),
        ("the second question is known", "is completed; waiting"),
        ("the failed task says so", "exit code 5"),
        ("its letter is listed", "answered 503"),
        ("the killed worker's attempt is told", "attempt 1: lease_expired"),
        ("and the one that followed", "attempt 2: completed"),
    ] {
        assert!(told.contains(sign), "{what}: {sign:?} is not in\n{told}");
    }
}

/// Takes the fleet's exchanges and queues off the broker.
async fn forget(amqp: &str, fleet: &str) {
    let settings = Settings::new(SecretString::from(amqp.to_owned()), fleet, "test@here#1");
    let operator = Operator::connect(&settings).await.expect("a broker");
    let topology = Topology::new(fleet, ["io_pool", "cpu_pool"]);
    operator.delete_all(&topology).await.expect("deleted");
    operator.close().await;
}

#[test]
fn the_yaml_of_the_readme_loads() {
    let loader = Loader { variables: &|_| None, payload: &|_, _| Ok(()) };
    let directory = tempfile::tempdir().expect("a directory");
    let all = blocks(README, "yaml");
    assert!(!all.is_empty());
    for block in all {
        let file = directory.path().join("belfry.yaml");
        fs::write(&file, &block).expect("written");

        let config = loader.file(&file).unwrap_or_else(|problems| panic!("{problems}"));

        assert!(config.notes.is_empty(), "{:?}", config.notes);
    }
}

#[test]
fn every_variable_of_the_manual_is_in_the_readme() {
    let manual = include_str!("../../docs/configuration.md");
    let names = |page: &'static str| -> BTreeSet<&'static str> {
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let words = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
        let name = |c: char| c.is_ascii_uppercase() || c == '_';
        words.filter(|word| word.len() > 3 && word.chars().all(name)).collect()
    };

    let told = names(README);

    let missing: Vec<_> = names(manual).into_iter().filter(|name| !told.contains(name)).collect();
    assert!(missing.is_empty() && !told.is_empty(), "not in README: {missing:?}");
}

#[test]
fn every_link_leads_somewhere() {
    let decisions = fs::read_dir(root().join("docs/decisions")).expect("decisions");
    let decisions = decisions.map(|entry| entry.expect("an entry").path());
    let pages = PAGES.iter().map(|page| root().join(page)).chain(decisions);
    let mut broken = String::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        let beside = page.parent().expect("a page lies in a directory");
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|t| !t.contains("://") && !t.starts_with('#')) {
            let path = target.split('#').next().unwrap_or(target);
            if !beside.join(path).exists() {
                writeln!(broken, "{}: {target}", page.display()).expect("a String takes all");
            }
        }
    }
    assert!(broken.is_empty(), "{broken}");
}

/// Rows that name a function and the file it is in: "| … | `function` | `path` |".
#[test]
fn every_function_on_the_map_is_where_the_map_says() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("a map");
    let mut seen = 0;
    for row in map.lines().filter(|line| line.ends_with(".rs` |")) {
        let cells: Vec<_> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [_, _, function, path, _] = cells[..] else { continue };
        let text = fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        let name = function.rsplit("::").next().unwrap_or(function);
        assert!(text.contains(&format!("fn {name}")), "no fn {name} in {path}: {row}");
        seen += 1;
    }
    assert!(seen > 8, "the map has lost its arrows");
}

//! What goes wrong at the command line: the exit code, and a message that says what to do.
#![expect(dead_code, reason = "the house serves several stories")]

mod house;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use shared::testing::needed;
use url::Url;

use house::{House, Said, command, run};

/// A configuration whose services nobody runs.
const NOBODY: &str = "\
storage:
  postgres: {dsn: 'postgres://u:geheim@127.0.0.1:1/x'}
  rabbitmq: {url: 'amqp://u:geheim@127.0.0.1:1'}
task_pools:
  io_pool: {max_workers: 20, task_types: [http_call, mine]}
";

fn said(config: &str, args: &[&str]) -> Said {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("belfry.yaml"), config).expect("written");
    run(command(dir.path().to_owned(), args), None)
}

#[track_caller]
fn check(args: &[&str], code: i32, part: &str) {
    let said = said(NOBODY, args).with(code).complains(part);
    assert!(!said.err.contains("geheim") && !said.err.contains("panicked"), "{said:?}");
}

#[test]
fn wrong_words_are_exit_code_2() {
    check(&["publish"], 2, "required");
    check(&["publish", "http_cal"], 2, "did you mean `http_call`?");
    check(&["publish", "zzz"], 2, "known: http_call");
    check(&["publish", "http_call"], 2, "payload of http_call: missing field `url`");
    check(&["publish", "mine", "--payload", "[1e999]"], 2, "number out of range");
    check(&["publish", "mine", "--payload", "12345678901234567890"], 4, "PostgreSQL");
    check(&["publish", "mine", "--payload", "123456789012345678901"], 2, "put it in quotes");
    check(&["publish", "mine", "--payload", "{"], 2, "--payload is not JSON");
    check(&["publish", "mine", "--payload", "@none.json"], 2, "none.json cannot be read");
    check(&["publish", "mine", "--payload", r#""a\u0000b""#], 2, "NUL");
    check(&["publish", "mine", "--key", ""], 2, "must not be empty");
    check(&["publish", "mine", "--key", "a\nb"], 2, "printable");
    check(&["publish", "mine", "--key", &"k".repeat(256)], 2, "at most 255 bytes");
    check(&["publish", "mine", "--name", " n"], 2, "white space");
    check(&["publish", "mine", "--delay", "soon"], 2, "30s, 10m");
    check(&["publish", "mine", "--delay", "-1s"], 2, "error");
    check(&["publish", "mine", "--at", "tomorrow"], 2, "read as UTC");
    check(&["publish", "mine", "--at", "2030-01-01T00:00", "--delay", "1s"], 2, "cannot be used");
    check(&["publish", "mine", "--timeout", "0"], 2, "at least 1 ms");
    check(&["publish", "mine", "--max-retry", "1001"], 2, "at most 1000");
    check(&["publish", "mine", "--max-retry", "-1"], 2, "error");
    check(&["schedules", "apply"], 2, "belfry.yaml does not say `tasks`, so there is nothing");
    check(&["publish", "mine", "--wait=ever"], 2, "expected seconds");
    check(&["publish", "mine", "--batch", "x"], 2, "cannot be used");
    check(&["publish", "mine", "--skip-invalid"], 2, "cannot be used");
    check(&["publish", "--batch", "none.jsonl"], 2, "none.jsonl cannot be read");
    check(&["tasks", "list", "--state", "done"], 2, "one of: scheduled, waiting");
    check(&["tasks", "list", "--limit", "0"], 2, "1..");
    check(&["tasks", "show", "42"], 2, "a task's id is a UUID");
    check(&["dead", "replay"], 2, "required");
    check(&["dead", "replay", "1", "--all"], 2, "cannot be used");
    check(&["dead", "replay", "x"], 2, "invalid");
    check(&["schedules", "next", "x", "-n", "0"], 2, "1..");
    check(&["cron", "next", "61 * * * *"], 2, "minute");
    check(&["completions", "tcl"], 2, "bash");
    check(&["health"], 2, "http_addr");
    check(&["doctor", "--wait", "1x"], 2, "expected seconds");
    check(&["frobnicate"], 2, "unrecognized subcommand");
    check(&["--config", "none.yaml", "tasks", "list"], 2, "none.yaml");
}

#[test]
fn a_wrong_file_is_told_whole_and_a_missing_value_by_name() {
    let wrong = said("a: 1\ntasks: 3\n", &["status"]).with(2);
    wrong.complains("belfry.yaml:1: a: unknown key").complains("belfry.yaml:2: tasks: expected");
    said("", &["tasks", "list"]).with(2).complains("DATABASE_URL");
    said("", &["topology", "show"]).with(2).complains("AMQP_URL");
    said("", &["migrate"]).with(2).complains("storage.postgres.dsn");
    said("a: 1\n", &["config", "check"]).with(2).complains("1 problem");
    let json = said("a: 1\n", &["config", "check", "--json"]).with(2);
    assert_eq!(json.json()["ok"], false);
}

#[test]
fn a_service_that_nobody_runs_is_exit_code_4() {
    check(&["publish", "mine"], 4, "cannot reach PostgreSQL at 127.0.0.1:1/x");
    check(&["tasks", "list"], 4, "127.0.0.1:1/x");
    check(&["dead", "list"], 4, "127.0.0.1:1/x");
    check(&["schedules", "list"], 4, "127.0.0.1:1/x");
    check(&["status"], 4, "RabbitMQ at 127.0.0.1:1");
    check(&["migrate"], 4, "127.0.0.1:1/x");
    check(&["topology", "declare"], 4, "RabbitMQ at 127.0.0.1:1 cannot be reached");
    let sick = said(NOBODY, &["doctor"]).with(4);
    assert!(
        sick.out.contains("FAILED  postgres") && sick.out.contains("FAILED  rabbitmq"),
        "{sick:?}"
    );
}

/// Takes connections and never says a word.
#[test]
fn a_silent_service_ends_a_command_within_ten_seconds() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = silent.local_addr().expect("bound").port();
    let config = format!(
        "storage:\n  postgres: {{dsn: 'postgres://u:p@127.0.0.1:{port}/x'}}\n  \
         rabbitmq: {{url: 'amqp://u:p@127.0.0.1:{port}'}}\n"
    );
    let commands: [&[&str]; 5] =
        [&["tasks", "list"], &["status"], &["topology", "show"], &["doctor"], &["dead", "list"]];
    std::thread::scope(|scope| {
        for args in commands {
            let config = &config;
            scope.spawn(move || {
                let started = Instant::now();
                said(config, args).with(4);
                assert!(started.elapsed() < Duration::from_secs(11), "{args:?}");
            });
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_says_which_service_refused() {
    let house = House::open().await;
    let mut wrong: Url = needed("AMQP_URL").parse().expect("a URL");
    wrong.set_password(Some("wrong")).expect("a password");
    house.configure(wrong.as_str(), "");
    house.producer(&["topology", "show"]).with(4).complains("refused").complains("password");

    wrong = needed("AMQP_URL").parse().expect("a URL");
    wrong.set_path("/nowhere");
    house.configure(wrong.as_str(), "");
    house.producer(&["topology", "show"]).with(4).complains("no such vhost");

    let mut dsn: Url = house.database.dsn.parse().expect("a URL");
    dsn.set_path("/nowhere");
    let config = format!("storage: {{postgres: {{dsn: '{dsn}'}}}}\n");
    said(&config, &["tasks", "list"]).with(4).complains("\"nowhere\" does not exist");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_is_exit_code_3() {
    let house = House::open().await;
    let nobody = "00000000-0000-0000-0000-000000000000";
    let table: [(&[&str], &str); 7] = [
        (&["tasks", "show", nobody], "there is no task"),
        (&["tasks", "why", nobody], "there is no task"),
        (&["tasks", "wait", nobody], "there is no task"),
        (&["tasks", "cancel", nobody], "there is no task"),
        (&["dead", "show", "7"], "there is no dead letter 7"),
        (&["dead", "replay", "7"], "there is no dead letter 7"),
        (&["artifacts", "get", "7"], "there is no artifact"),
    ];
    for (args, part) in table {
        house.producer(args).with(3).complains(part);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = command(dir.path().to_owned(), &["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    drop(child.stdout.take());
    let ended = child.wait_with_output().expect("ended");
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert!(ended.status.success(), "{:?}", ended.status);
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(command(Path::new("/").to_owned(), &["completions", shell]), None).with(0);
        assert!(script.out.contains("schedules"), "{shell}");
    }
    assert!(
        Command::new(env!("CARGO_BIN_EXE_producer"))
            .arg("--version")
            .output()
            .is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("schema"),)
    );
}

#[test]
fn an_apply_without_a_file_is_refused_before_anything_is_asked() {
    let dir = tempfile::tempdir().expect("a directory");
    for args in [["schedules", "apply"].as_slice(), &["schedules", "apply", "--dry-run"]] {
        let said = run(command(dir.path().to_owned(), args), None).with(2);
        said.complains("there is no file that says `tasks`").complains("write `tasks: []`");
    }
}

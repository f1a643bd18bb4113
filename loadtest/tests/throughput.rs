//! A small run of `loadtest throughput`: what it says, and that it leaves nothing behind.

#[path = "fleet/programs.rs"]
mod programs;

use std::process::{Command, Output};

use serde_json::Value;
use shared::testing::needed;
use tokio_postgres::NoTls;

/// Runs the binary; answers its process id too, by which its database is called.
fn throughput(arguments: &[&str]) -> (u32, Output) {
    let child = Command::new(env!("CARGO_BIN_EXE_loadtest"))
        .arg("throughput")
        .args(arguments)
        .env_remove("BELFRY_CONFIG")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary runs");
    (child.id(), child.wait_with_output().expect("it ends"))
}

async fn is_left(pid: u32) -> bool {
    let (client, connection) =
        tokio_postgres::connect(&needed("DATABASE_URL"), NoTls).await.expect("PostgreSQL");
    shared::shutdown::Shutdown::new().spawn(connection);
    let name = format!("belfry_bench_{pid}");
    let found = client.query("SELECT FROM pg_database WHERE datname = $1", &[&name]).await;
    !found.expect("asked").is_empty()
}

#[tokio::test]
async fn a_small_run_is_measured_audited_and_cleared_away() {
    programs::are_fresh();
    needed("AMQP_URL");

    let (pid, output) = throughput(&[
        "--json",
        "--tasks",
        "700",
        "--slots",
        "50",
        "--steady-rate",
        "50",
        "--steady-for",
        "1s",
    ]);

    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(document["ledger_ok"], true);
    assert_eq!(document["setup"]["tasks"], 700);
    assert_eq!(document["steady"]["tasks"], 50);
    for figure in [
        "/publish/per_second",
        "/publish/wal_bytes_per_task",
        "/drain/start_up_seconds",
        "/drain/per_second",
        "/drain/worker_cpu_micros_per_task",
        "/drain/worker_peak_rss_bytes",
        "/drain/commits_per_task",
        "/drain/wal_bytes_per_task",
        "/steady/p50_ms",
    ] {
        let value = document.pointer(figure).and_then(Value::as_f64);
        assert!(value.is_some_and(|value| value > 0.0), "{figure}: {value:?}");
    }
    let steady = |name: &str| document["steady"][name].as_f64().expect("a number");
    assert!(steady("p50_ms") <= steady("p95_ms") && steady("p95_ms") <= steady("p99_ms"));
    assert!(!is_left(pid).await, "its database was dropped");
}

#[tokio::test]
async fn a_run_past_its_limit_fails_and_is_cleared_away() {
    programs::are_fresh();
    needed("AMQP_URL");

    let (pid, output) = throughput(&["--tasks", "200000", "--limit", "1s"]);

    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("not done within 1s"), "{stderr}");
    assert!(!is_left(pid).await, "its database was dropped");
}

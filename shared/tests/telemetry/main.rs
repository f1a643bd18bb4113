//! What a collector sees of a process, and what a process suffers from a collector.
//!
//! Telemetry belongs to a whole process, so each story runs a child (`child.rs`) with an environment
//! of its own and looks from outside: at its output, and at a real OTLP receiver.

mod life;

use std::net::Ipv4Addr;
use std::process::{Output, Stdio};
use std::time::Duration;

use shared::telemetry::receiver::Receiver;
use shared::testing::Unique;
use tokio::net::TcpListener;
use tokio::process::Command;

use life::assert_life;

/// Long enough for a loaded machine; nothing waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the child with these variables and no others.
async fn child(scenario: &str, variables: &[(&str, &str)]) -> Output {
    let child = Command::new(env!("CARGO_BIN_EXE_telemetry_child"))
        .args(scenario.split(' '))
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output();
    let output = tokio::time::timeout(PATIENCE, child).await.expect("in time").expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// What the child printed after `name=`.
fn printed(output: &Output, name: &str) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let value = text.lines().find_map(|line| line.split_once(&format!("{name}=")));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).1.to_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn one_trace_per_task_arrives_over_grpc_and_over_http() {
    for (runtime, protocol) in [
        ("multi", "grpc"),
        ("current", "grpc"),
        ("multi", "http/protobuf"),
        ("current", "http/protobuf"),
    ] {
        let receiver = Receiver::start().await.expect("receiver");
        let address = if protocol == "grpc" { receiver.grpc } else { receiver.http };

        let output = child(
            &format!("{runtime} life"),
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{address}")),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ],
        )
        .await;

        // The child has flushed and gone: everything is there or never will be.
        assert_life(&receiver.received(), &printed(&output, "trace_id"));
    }
}

#[tokio::test]
async fn nothing_is_sent_unless_it_is_asked_for() {
    let receiver = Receiver::start().await.expect("receiver");
    let endpoint = format!("http://{}", receiver.http);
    let none = |name| (name, "none");
    for switch in [
        vec![("OTEL_SDK_DISABLED", "true")],
        ["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"].map(none).to_vec(),
    ] {
        let mut variables = switch;
        variables.push(("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint));
        child("multi life", &variables).await;
        let seen = receiver.received();
        assert!(seen.spans.is_empty() && seen.logs.is_empty(), "{seen:#?}");
        assert!(seen.metrics.is_empty(), "{seen:#?}");
    }

    // The standard's default endpoint is localhost; somebody may listen there.
    let usual = TcpListener::bind((Ipv4Addr::LOCALHOST, 4318)).await;
    let output = child("multi life", &[]).await;
    assert_eq!(printed(&output, "trace_id").len(), 32, "ids are valid without a collector");
    assert_eq!(stderr(&output).lines().count(), 2, "only our own: {}", stderr(&output));
    if let Ok(usual) = usual {
        let asked = tokio::time::timeout(Duration::from_millis(10), usual.accept()).await;
        assert!(asked.is_err(), "it connected to the default endpoint");
    }
}

#[tokio::test]
async fn one_signal_can_be_turned_off_alone() {
    let receiver = Receiver::start().await.expect("receiver");
    let endpoint = format!("http://{}", receiver.http);
    let variables =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_LOGS_EXPORTER", "none")];
    child("multi life", &variables).await;

    let seen = receiver.received();

    assert!(seen.span("tick nightly").is_some() && !seen.metrics.is_empty());
    assert!(seen.logs.is_empty());
}

/// A collector that refuses, one that accepts and never answers, one that wants TLS: the process
/// works on and ends in time.
#[tokio::test]
async fn a_dead_collector_costs_a_moment_at_the_end() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
    let silent = (silent.local_addr().expect("bound"), silent);
    let refused = {
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
        gone.local_addr().expect("bound")
    };
    for (endpoint, runtime) in [
        (format!("http://{refused}"), "multi"),
        (format!("https://{refused}"), "multi"),
        (format!("http://{}", silent.0), "multi"),
        (format!("http://{}", silent.0), "current"),
    ] {
        for protocol in ["grpc", "http/protobuf"] {
            let output = child(
                &format!("{runtime} life"),
                &[
                    ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
                    ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ],
            )
            .await;
            let took: u64 = printed(&output, "shutdown_ms").parse().expect("a number");
            assert!(took < 3000, "{endpoint} {protocol}: {took} ms\n{}", stderr(&output));
            assert!(!stderr(&output).contains("are not exported"), "{}", stderr(&output));
        }
    }
    drop(silent);
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_one_is_said_once_and_the_work_goes_on() {
    let output = child("multi life", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317")]).await;
    let lines = stderr(&output);
    assert_eq!(lines.matches("OTEL_EXPORTER_OTLP_ENDPOINT is not a URL").count(), 1, "{lines}");
    assert_eq!(printed(&output, "trace_id").len(), 32);
}

/// Exporting causes log lines; exporting those would never end.
#[tokio::test]
async fn the_most_talkative_level_feeds_no_loop() {
    for protocol in ["grpc", "http/protobuf"] {
        let receiver = Receiver::start().await.expect("receiver");
        let address = if protocol == "grpc" { receiver.grpc } else { receiver.http };
        child(
            "multi chatter",
            &[
                ("RUST_LOG", "trace"),
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{address}")),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_BSP_SCHEDULE_DELAY", "50"),
                ("OTEL_BLRP_SCHEDULE_DELAY", "50"),
            ],
        )
        .await;

        let seen = receiver.received();

        let strangers: Vec<_> =
            seen.logs.iter().filter(|log| !log.target.starts_with("telemetry")).take(5).collect();
        assert!(strangers.is_empty(), "{protocol}: {strangers:#?}");
        assert_eq!(seen.logs.len(), 40, "{protocol}");
        assert_eq!(seen.spans.len(), 40, "{protocol}");
    }
}

#[tokio::test]
async fn json_lines_carry_the_trace_and_the_task() {
    let output = child("multi life", &[("LOG_FORMAT", "json")]).await;
    let text = stderr(&output);
    let lines: Vec<_> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<Unique>(line).unwrap_or_else(|e| panic!("{e}: {line}")).0
        })
        .collect();
    let line = lines.iter().find(|line| line["message"] == "asked the model").expect("the line");
    assert_eq!(line["trace_id"], printed(&output, "trace_id"));
    assert_eq!(line["task.type"], "model_invoke");
    assert_eq!(line["task.run"], 1, "the event's own word");
    let mut runs = lines.iter().filter_map(|line| line.get("task.run"));
    assert!(runs.all(serde_json::Value::is_number), "{text}");
}

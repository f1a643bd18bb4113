//! One trace from the tick to the model call, at a real OTLP receiver, over both protocols; and
//! silence where no collector is named.

use std::time::Duration;

use loadtest::fleet::{Ground, Member, Role};
use loadtest::stub_llm::{Stub, StubOptions};
use shared::config::{self, Config};
use shared::telemetry::receiver::{Received, ReceivedSpan, Receiver};

const PATIENCE: Duration = Duration::from_secs(40);

/// The spans of one task's life, innermost first.
fn life(received: &Received) -> Option<Vec<ReceivedSpan>> {
    let mut span = received.spans.iter().find(|span| span.name.starts_with("chat "))?;
    let mut chain = vec![span.clone()];
    while !span.parent_span_id.is_empty() {
        span = received.spans.iter().find(|s| s.span_id == span.parent_span_id)?;
        chain.push(span.clone());
    }
    Some(chain)
}

async fn fleet(name: &str, stub: &Stub) -> Ground {
    let base: Config = config::load(None).expect("the services' addresses");
    let yaml = format!(
        "scheduler: {{heartbeat_interval: 1, heartbeat_ttl: 3}}\n\
         model: {{base_url: '{}', api_key: stub, default_model: stub-model}}\n\
         task_pools:\n  io_pool: {{max_workers: 2, task_types: [model_invoke]}}\n\
         tasks:\n  - {{name: ask, schedule: '* * * * * *', task_type: model_invoke, payload: {{prompt: hello}}}}\n",
        stub.url
    );
    Ground::prepare(&base, name, &yaml).await.expect("ground")
}

async fn start(ground: &Ground) -> Vec<Member> {
    let mut members = Vec::new();
    for role in [Role::Producer, Role::Worker] {
        let mut member = Member::start(ground, role).expect("started");
        member.ready(PATIENCE).await.expect("ready");
        members.push(member);
    }
    members
}

async fn one_trace(protocol: &str) {
    shared::http::install_crypto();
    let receiver = Receiver::start().await.expect("a receiver");
    let stub = Stub::start(StubOptions::default()).await.expect("a stub");
    let mut ground = fleet(&format!("trace{}", &protocol[..4]), &stub).await;
    let address = if protocol == "grpc" { receiver.grpc } else { receiver.http };
    ground.tell("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"));
    ground.tell("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
    ground.tell("OTEL_BSP_SCHEDULE_DELAY", "200");
    let members = start(&ground).await;

    let chain = receiver.wait_for(life, PATIENCE).await;

    for member in members {
        member.stop(PATIENCE).await.expect("stopped");
    }
    ground.clear().await.expect("cleared");
    let chain = chain.unwrap_or_else(|| {
        let names: Vec<_> = receiver.received().spans.iter().map(|s| s.name.clone()).collect();
        panic!("no whole trace; spans seen: {names:?}")
    });
    let names: Vec<&str> =
        chain.iter().map(|s| s.name.split(' ').next().expect("a word")).collect();
    assert_eq!(names, ["chat", "attempt", "process", "publish", "tick"]);
    assert!(chain.iter().all(|span| span.trace_id == chain[0].trace_id));
    assert!(chain.iter().all(|span| !span.failed), "{chain:?}");
    let kinds: Vec<&str> = chain.iter().map(|span| span.kind).collect();
    assert_eq!(kinds, ["client", "internal", "consumer", "producer", "internal"]);
    for (attribute, least) in [("gen_ai.usage.input_tokens", 1), ("gen_ai.usage.output_tokens", 1)]
    {
        let tokens = chain[0].attributes.get(attribute).and_then(serde_json::Value::as_i64);
        assert!(tokens.is_some_and(|n| n >= least), "{attribute}: {tokens:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_the_tick_to_the_model_over_grpc() {
    one_trace("grpc").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_the_tick_to_the_model_over_http() {
    one_trace("http/protobuf").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_nothing_is_exported_and_nothing_complains() {
    shared::http::install_crypto();
    let stub = Stub::start(StubOptions::default()).await.expect("a stub");
    let ground = fleet("untraced", &stub).await;
    let members = start(&ground).await;
    shared::testing::within(PATIENCE, "a model call", async || {
        (!stub.calls().is_empty()).then_some(())
    })
    .await;

    let mut logs = Vec::new();
    for member in members {
        let log = member.tail();
        member.stop(PATIENCE).await.expect("stopped");
        logs.push(log);
    }

    ground.clear().await.expect("cleared");
    for log in logs {
        let lower = log.to_lowercase();
        assert!(!lower.contains("otlp") && !lower.contains("opentelemetry"), "{log}");
    }
}

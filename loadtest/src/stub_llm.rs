//! A model that costs nothing: OpenAI-compatible, deterministic, and as broken as it is told to be.
//!
//! Answers and token counts depend on the question alone, so that two runs can be compared call by
//! call. Failures come from a model's name (`stub-429x2`), a script or a request header; every call
//! is in the log at `/calls`, which is what "paid once" is measured by. Beside the model it serves
//! the plain endpoints that `http_call` meets in demos and tests. It never calls anybody.

mod answer;
mod chat;
mod demo;
mod fault;
mod journal;
mod render;
mod script;
mod session;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::routing::{get, post};
use clap::Args;
use shared::config::parse_duration;
use shared::shutdown::Shutdown;
use tokio::net::TcpListener;

pub use fault::{Fault, StreamFault};
pub use journal::{Call, Totals, Usage};
pub use script::Scripts;

/// How the stub behaves.
#[derive(Args, Clone, Debug)]
pub struct StubOptions {
    /// Address and port; port 0 takes a free one, which is printed
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8089")]
    pub listen: SocketAddr,
    /// Time before each answer, e.g. 50ms
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = parse_duration)]
    pub latency: Duration,
    /// Accept only this key (Bearer or api-key); others get 401
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,
    /// Faults to begin with: JSON, {"MODEL or *": [STEP, …]} or [STEP, …]
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
}

impl Default for StubOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            latency: Duration::ZERO,
            api_key: None,
            script: None,
        }
    }
}

/// What the endpoints share.
#[derive(Debug)]
struct State {
    options: StubOptions,
    scripts: Scripts,
    journal: journal::Journal,
    demo: demo::Demo,
}

/// A stub that listens, for tests in the same process; it stops when dropped.
#[derive(Debug)]
pub struct Stub {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    state: Arc<State>,
    server: tokio::task::JoinHandle<()>,
}

impl Stub {
    /// Starts one.
    pub async fn start(options: StubOptions) -> anyhow::Result<Self> {
        let (listener, state) = open(options).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let app = router(Arc::clone(&state));
        let server = Shutdown::new().spawn(async move {
            // A listener that fails ends the test that uses it.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { url, state, server })
    }

    /// The calls so far, oldest first.
    pub fn calls(&self) -> Vec<Call> {
        self.state.journal.calls()
    }

    /// What they amount to.
    pub fn usage(&self) -> Usage {
        self.state.journal.usage()
    }

    /// Requests at `/effects` so far, by idempotency key.
    pub fn effects(&self) -> BTreeMap<String, u64> {
        self.state.demo.effects()
    }

    /// Alerts at `/alerts` so far.
    pub fn alerts(&self) -> usize {
        self.state.demo.alerts()
    }

    /// Adds steps for a model (`*` for all).
    pub fn script(&self, model: &str, steps: Vec<Fault>) {
        self.state.scripts.add(model, steps);
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Serves until SIGTERM or SIGINT. The first line on stdout says where.
pub async fn run(options: StubOptions) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    shutdown.listen_for_signals().context("listening for signals")?;
    let (listener, state) = open(options).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = router(state);
    tokio::select! {
        // Hanging answers are part of the act, so nobody waits for them.
        () = shutdown.soft.cancelled() => Ok(()),
        served = async { axum::serve(listener, app).await } => served.context("serving"),
    }
}

async fn open(options: StubOptions) -> anyhow::Result<(TcpListener, Arc<State>)> {
    let scripts = Scripts::default();
    if let Some(path) = &options.script {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("reading the script {}", path.display()))?;
        scripts.load(&text).with_context(|| format!("reading the script {}", path.display()))?;
    }
    let listener = TcpListener::bind(options.listen)
        .await
        .with_context(|| format!("listening on {}", options.listen))?;
    let (journal, demo) = (journal::Journal::default(), demo::Demo::default());
    Ok((listener, Arc::new(State { options, scripts, journal, demo })))
}

fn router(state: Arc<State>) -> Router {
    Router::new()
        // Whatever a base URL leads to: /v1/chat/completions, /openai/deployments/d/chat/completions.
        .route("/chat/completions", post(chat::completions))
        .route("/v1/models", get(chat::models))
        .route("/calls", get(journal::get_calls))
        .route("/usage", get(journal::get_usage))
        .route("/script", post(script::post_script))
        .route("/reset", post(reset))
        .merge(demo::router())
        .fallback(chat::any_path)
        .with_state(state)
}

/// Forgets calls, scripts, counters and alerts.
async fn reset(axum::extract::State(state): axum::extract::State<Arc<State>>) -> &'static str {
    state.journal.clear();
    state.scripts.clear();
    state.demo.clear();
    "reset\n"
}

//! `/livez`, `/readyz` and `/metrics` of a daemon, on `http_addr`.
//!
//! Alive is who answers; ready is who has everything it needs. The details name checks and say how
//! they are, never a version, an address or a DSN. There is no way to change anything through here.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::http;
use crate::telemetry::metrics;

/// How long a probe waits: less than the usual probe timeout of an orchestrator.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// The checks of one process; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Health {
    checks: Arc<Mutex<BTreeMap<&'static str, Check>>>,
    stopping: CancellationToken,
}

/// One thing that the process needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// It is there.
    pub ready: bool,
    /// For a person.
    pub detail: String,
}

/// The answer of `/readyz`.
#[derive(Debug, Serialize)]
struct Report {
    ready: bool,
    checks: BTreeMap<&'static str, Check>,
}

/// Why there is no health server.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} (http_addr): {source}; is the port taken by another process?")]
pub struct BindError {
    address: SocketAddr,
    source: std::io::Error,
}

/// The running server; it stops when dropped.
#[derive(Debug)]
#[must_use = "the health server stops when this is dropped"]
pub struct Server {
    /// Where it listens, with the real port.
    pub address: SocketAddr,
    task: AbortHandle,
}

impl Health {
    /// Checks that are red until they are first set. `stopping` turns everything red: a daemon that
    /// drains takes no new work.
    pub fn expecting(checks: &[&'static str], stopping: CancellationToken) -> Self {
        let health = Self { stopping, ..Self::default() };
        for &name in checks {
            health.set(name, false, "not yet checked");
        }
        health
    }

    /// Says how a check is now.
    pub fn set(&self, name: &'static str, ready: bool, detail: impl Into<String>) {
        let check = Check { ready, detail: detail.into() };
        self.lock().insert(name, check);
    }

    /// True when nothing is red.
    pub fn is_ready(&self) -> bool {
        self.report().ready
    }

    fn report(&self) -> Report {
        let mut checks = self.lock().clone();
        if self.stopping.is_cancelled() {
            let detail = "the process is stopping".to_owned();
            checks.insert("process", Check { ready: false, detail });
        }
        Report { ready: checks.values().all(|check| check.ready), checks }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, Check>> {
        // A map of finished values is whole even if a writer panicked.
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves the three pages until the returned server is dropped: also during the drain, which is
    /// when people look.
    pub async fn serve(&self, address: SocketAddr) -> Result<Server, BindError> {
        let failed = |source| BindError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let pages = Router::new()
            .route("/livez", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(prometheus))
            .with_state(self.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "answers while the tracked tasks drain; ends with the Server"
        )]
        let task = tokio::spawn(async move { axum::serve(listener, pages).await });
        Ok(Server { address, task: task.abort_handle() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn readyz(State(health): State<Health>) -> Response {
    let report = health.report();
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(report)).into_response()
}

async fn prometheus() -> Response {
    match metrics::render() {
        Ok(page) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Asks a daemon on this host whether it is ready, for the `health` commands.
pub async fn probe(address: SocketAddr) -> bool {
    let Ok(client) = http::local_client() else {
        return false;
    };
    let deadline = tokio::time::Instant::now() + PROBE_TIMEOUT;
    let request = client.get(format!("http://{}/readyz", reachable(address)));
    http::send_unseen(request, deadline).await.is_ok_and(|answer| answer.status() == StatusCode::OK)
}

/// Where a server that listens everywhere is reached from its own host.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    async fn page(server: &Server, path: &str) -> (u16, String) {
        let client = http::local_client().expect("client");
        let deadline = Instant::now() + PROBE_TIMEOUT;
        let request = client.get(format!("http://{}{path}", server.address));
        let answer = http::send(request, deadline).await.expect("answer");
        let status = answer.status().as_u16();
        let body = http::read_limited(answer, 1 << 20, deadline).await.expect("body");
        (status, String::from_utf8(body.to_vec()).expect("text"))
    }

    #[tokio::test]
    async fn ready_means_that_no_check_is_red() {
        let stopping = CancellationToken::new();
        let health = Health::expecting(&["postgres", "rabbitmq"], stopping.clone());
        let server = health.serve(ANY).await.expect("bound");
        assert!(!probe(server.address).await);

        health.set("postgres", true, "connected");
        let (status, body) = page(&server, "/readyz").await;
        let report: serde_json::Value = serde_json::from_str(&body).expect("json");
        assert_eq!((status, &report["ready"]), (503, &false.into()));
        assert_eq!(report["checks"]["postgres"]["detail"], "connected");
        assert_eq!(report["checks"]["rabbitmq"]["ready"], false);

        health.set("rabbitmq", true, "connected");
        assert_eq!(page(&server, "/readyz").await.0, 200);
        assert!(probe(server.address).await && health.is_ready());

        stopping.cancel();
        assert_eq!(page(&server, "/readyz").await.0, 503);
        assert_eq!(page(&server, "/livez").await, (200, "ok\n".to_owned()));
        assert_eq!(page(&server, "/metrics").await.0, 200);
        assert_eq!(page(&server, "/other").await.0, 404);
    }

    #[tokio::test]
    async fn a_taken_port_is_said_and_a_stopped_server_is_gone() {
        let server = Health::default().serve(ANY).await.expect("bound");
        let error = Health::default().serve(server.address).await.expect_err("taken").to_string();
        assert!(
            error.contains(&server.address.to_string()) && error.contains("http_addr"),
            "{error}"
        );

        let address = server.address;
        drop(server);
        let gone = Instant::now() + PROBE_TIMEOUT;
        while probe(address).await {
            assert!(Instant::now() < gone, "still answers");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn nobody_there_is_not_ready() {
        let free = TcpListener::bind(ANY).await.expect("bind").local_addr().expect("bound");
        assert!(!probe(free).await);
        let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 80);
        assert_eq!(reachable(everywhere).to_string(), "127.0.0.1:80");
    }
}

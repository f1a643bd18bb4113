//! A collector in memory: real OTLP over gRPC and over HTTP, for tests (feature `testing`).
//!
//! It understands what the exporters really send, so a test sees kinds, parents, links and status as
//! an operator's backend would. It keeps everything and answers success; it is no stub of ours.

mod model;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

pub use model::{Received, ReceivedLog, ReceivedMetric, ReceivedSpan};

/// The running collector; it stops when dropped.
#[derive(Debug)]
#[must_use = "the receiver stops when this is dropped"]
pub struct Receiver {
    /// Where it speaks gRPC.
    pub grpc: SocketAddr,
    /// Where it speaks HTTP/protobuf.
    pub http: SocketAddr,
    received: watch::Receiver<Received>,
    tasks: [AbortHandle; 2],
}

/// What the services write to.
#[derive(Clone, Debug)]
struct Inbox(watch::Sender<Received>);

impl Receiver {
    /// Starts on two free ports of the loopback interface.
    pub async fn start() -> std::io::Result<Self> {
        let (inbox, received) = watch::channel(Received::default());
        let inbox = Inbox(inbox);
        let grpc_listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let http_listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (grpc, http) = (grpc_listener.local_addr()?, http_listener.local_addr()?);

        let services = Server::builder()
            .add_service(TraceServiceServer::new(inbox.clone()))
            .add_service(MetricsServiceServer::new(inbox.clone()))
            .add_service(LogsServiceServer::new(inbox.clone()))
            .serve_with_incoming(TcpIncoming::from(grpc_listener));
        let pages = Router::new()
            .route("/v1/traces", post(traces))
            .route("/v1/metrics", post(metrics))
            .route("/v1/logs", post(logs))
            .layer(DefaultBodyLimit::disable())
            .with_state(inbox);
        #[expect(
            clippy::disallowed_methods,
            reason = "a test's servers; they end with the Receiver"
        )]
        let tasks = [
            tokio::spawn(async move { drop(services.await) }).abort_handle(),
            tokio::spawn(async move { drop(axum::serve(http_listener, pages).await) })
                .abort_handle(),
        ];
        Ok(Self { grpc, http, received, tasks })
    }

    /// What has arrived so far.
    pub fn received(&self) -> Received {
        self.received.borrow().clone()
    }

    /// Waits until `find` finds it in what has arrived; `None` at the deadline.
    pub async fn wait_for<T>(
        &self,
        mut find: impl FnMut(&Received) -> Option<T>,
        deadline: Duration,
    ) -> Option<T> {
        let mut received = self.received.clone();
        let search = async {
            loop {
                if let Some(found) = find(&received.borrow_and_update()) {
                    return Some(found);
                }
                received.changed().await.ok()?;
            }
        };
        tokio::time::timeout(deadline, search).await.unwrap_or_default()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

#[tonic::async_trait]
impl TraceService for Inbox {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send_modify(|received| received.add_traces(request.into_inner()));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Inbox {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.0.send_modify(|received| received.add_metrics(request.into_inner()));
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Inbox {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.0.send_modify(|received| received.add_logs(request.into_inner()));
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

async fn traces(State(inbox): State<Inbox>, body: Bytes) -> Result<Vec<u8>, StatusCode> {
    let request = ExportTraceServiceRequest::decode(body).map_err(|_| StatusCode::BAD_REQUEST)?;
    inbox.0.send_modify(|received| received.add_traces(request));
    Ok(ExportTraceServiceResponse::default().encode_to_vec())
}

async fn metrics(State(inbox): State<Inbox>, body: Bytes) -> Result<Vec<u8>, StatusCode> {
    let request = ExportMetricsServiceRequest::decode(body).map_err(|_| StatusCode::BAD_REQUEST)?;
    inbox.0.send_modify(|received| received.add_metrics(request));
    Ok(ExportMetricsServiceResponse::default().encode_to_vec())
}

async fn logs(State(inbox): State<Inbox>, body: Bytes) -> Result<Vec<u8>, StatusCode> {
    let request = ExportLogsServiceRequest::decode(body).map_err(|_| StatusCode::BAD_REQUEST)?;
    inbox.0.send_modify(|received| received.add_logs(request));
    Ok(ExportLogsServiceResponse::default().encode_to_vec())
}

//! The broker's management API, for what it does in milliseconds and `rabbitmqctl` in seconds.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use shared::http::{self, Method, StatusCode, Url};
use tokio::time::Instant;

use super::field::{Field, until};

/// Longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Largest answer that is read.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// A broker's figures are there within this after its start: they are gathered every few seconds.
const TOLD: Duration = Duration::from_secs(30);

/// The API of the drill's own broker, in the ground's vhost.
pub struct Management {
    client: http::Client,
    base: Url,
    vhost: String,
}

impl Management {
    /// Of a field's services.
    pub fn of(field: &Field) -> anyhow::Result<Self> {
        let vhost = field.ground.settings()?.address()?.vhost;
        let base = field.services.management().clone();
        Ok(Self { client: http::trusted_client()?, base, vhost })
    }

    /// The process of the one node, which a broker that has just begun does not tell yet.
    pub async fn process(&self) -> anyhow::Result<String> {
        until("the broker tells its process", TOLD, async || {
            let nodes = self.ask(Method::GET, &["nodes"], None).await?;
            let pid = nodes.get(0).and_then(|node| node.get("os_pid")).and_then(Value::as_str);
            Ok(pid.map(str::to_owned))
        })
        .await
    }

    /// Whether a memory or disk alarm is on.
    pub async fn has_alarm(&self) -> anyhow::Result<bool> {
        let (status, answer) =
            self.send(Method::GET, &["health", "checks", "alarms"], None).await?;
        let is_on = status == StatusCode::SERVICE_UNAVAILABLE;
        ensure!(is_on || status.is_success(), "it answered {status}: {answer}");
        Ok(is_on)
    }

    /// The names of connections that call themselves so at their beginning: `worker@`.
    pub async fn connections(&self, called: &[&str]) -> anyhow::Result<Vec<String>> {
        let all = self.ask(Method::GET, &["connections"], None).await?;
        let is_meant = |connection: &&Value| {
            let own = connection.get("user_provided_name").and_then(Value::as_str);
            own.is_some_and(|own| called.iter().any(|start| own.starts_with(start)))
        };
        let meant = all.as_array().context("no list of connections")?.iter().filter(is_meant);
        Ok(meant.filter_map(|it| Some(it.get("name")?.as_str()?.to_owned())).collect())
    }

    /// Closes a connection from the broker's side; false when it had gone.
    pub async fn close(&self, connection: &str) -> anyhow::Result<bool> {
        self.delete(&["connections", connection]).await
    }

    /// Makes a queue that nobody needs.
    pub async fn make_queue(&self, queue: &str) -> anyhow::Result<()> {
        let path = ["queues", &self.vhost, queue];
        self.ask(Method::PUT, &path, Some(&serde_json::json!({"durable": true}))).await.map(drop)
    }

    /// Whether a queue exists.
    pub async fn has_queue(&self, queue: &str) -> anyhow::Result<bool> {
        let (status, _) = self.send(Method::GET, &["queues", &self.vhost, queue], None).await?;
        ensure!(status.is_success() || status == StatusCode::NOT_FOUND, "it answered {status}");
        Ok(status.is_success())
    }

    /// Deletes a queue with everything in it; false when there was none.
    pub async fn delete_queue(&self, queue: &str) -> anyhow::Result<bool> {
        self.delete(&["queues", &self.vhost, queue]).await
    }

    /// Throws the ready messages of a queue away.
    pub async fn purge(&self, queue: &str) -> anyhow::Result<()> {
        let purged = self.delete(&["queues", &self.vhost, queue, "contents"]).await?;
        ensure!(purged, "there is no queue {queue}");
        Ok(())
    }

    /// Looks at so many messages as the UI's "Get messages" does, and puts them back; answers how
    /// many there were.
    pub async fn look_at(&self, queue: &str, count: usize) -> anyhow::Result<usize> {
        let wish = serde_json::json!(
            {"count": count, "ackmode": "reject_requeue_true", "encoding": "auto", "truncate": 50}
        );
        let path = ["queues", &self.vhost, queue, "get"];
        let seen = self.ask(Method::POST, &path, Some(&wish)).await?;
        Ok(seen.as_array().map_or(0, Vec::len))
    }

    /// Sets a policy for queues whose names begin so.
    pub async fn set_policy(
        &self,
        name: &str,
        prefix: &str,
        definition: Value,
    ) -> anyhow::Result<()> {
        let pattern = format!("^{}", prefix.replace('.', "\\."));
        let policy = serde_json::json!(
            {"pattern": pattern, "definition": definition, "apply-to": "queues", "priority": 9}
        );
        let path = ["policies", &self.vhost, name];
        self.ask(Method::PUT, &path, Some(&policy)).await.map(drop)
    }

    /// Takes a policy away.
    pub async fn delete_policy(&self, name: &str) -> anyhow::Result<()> {
        self.delete(&["policies", &self.vhost, name]).await.map(drop)
    }

    async fn delete(&self, path: &[&str]) -> anyhow::Result<bool> {
        let (status, body) = self.send(Method::DELETE, path, None).await?;
        ensure!(
            status.is_success() || status == StatusCode::NOT_FOUND,
            "it answered {status}: {body}"
        );
        Ok(status.is_success())
    }

    async fn ask(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let (status, answer) = self.send(method, path, body).await?;
        ensure!(status.is_success(), "it answered {status}: {answer}");
        Ok(answer)
    }

    async fn send(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let what = format!("{method} {} of the management API", path.join("/"));
        let mut url = self.base.clone();
        url.path_segments_mut()
            .map_err(|()| anyhow::anyhow!("its URL has no path"))?
            .pop_if_empty()
            .push("api")
            .extend(path);
        let mut request = self.client.request(method, url);
        if let Some(body) = body {
            request = request.json(body);
        }
        let deadline = Instant::now() + ANSWER;
        let response = http::send(request, deadline).await.with_context(|| what.clone())?;
        let status = response.status();
        let bytes = http::read_limited(response, MOST_BYTES, deadline).await.context(what)?;
        // A 204 has no body.
        Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }
}

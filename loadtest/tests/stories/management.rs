//! The broker's management API: what an operator does to connections and queues.

use std::time::Duration;

use serde_json::{Value, json};
use shared::http::{self, Method, Url};
use shared::testing::{needed, within};
use tokio::time::Instant;

use crate::house::{House, PATIENCE};

/// Longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Largest answer that is read.
const MOST_BYTES: usize = 16 * 1024 * 1024;

pub struct Management {
    base: Url,
    vhost: String,
}

impl Management {
    pub fn of(house: &House) -> Self {
        let base = Url::parse(&needed("RABBITMQ_MANAGEMENT_URL")).expect("a URL");
        let settings = house.ground.settings().expect("a broker");
        Self { base, vhost: settings.address().expect("a URL").vhost }
    }

    /// Closes the connections whose name holds all of these, once the API knows one.
    pub async fn close(&self, parts: &[&str]) {
        let names = within(PATIENCE, "the connection is listed", async || {
            let all = self.ask(Method::GET, &["connections"], None).await;
            let is_meant = |it: &&Value| {
                let name = it["user_provided_name"].as_str().unwrap_or_default();
                parts.iter().all(|part| name.contains(part))
            };
            let meant = all.as_array().expect("a list").iter().filter(is_meant);
            let names: Vec<String> =
                meant.filter_map(|it| it["name"].as_str().map(str::to_owned)).collect();
            (!names.is_empty()).then_some(names)
        })
        .await;
        for name in names {
            self.ask(Method::DELETE, &["connections", &name], None).await;
        }
    }

    /// Sets a policy for one queue.
    pub async fn set_policy(&self, queue: &str, definition: Value) {
        let pattern = format!("^{}$", queue.replace('.', "\\."));
        let policy = json!({"pattern": pattern, "definition": definition, "apply-to": "queues"});
        self.ask(Method::PUT, &["policies", &self.vhost, queue], Some(&policy)).await;
    }

    /// Takes it away.
    pub async fn delete_policy(&self, queue: &str) {
        self.ask(Method::DELETE, &["policies", &self.vhost, queue], None).await;
    }

    async fn ask(&self, method: Method, path: &[&str], body: Option<&Value>) -> Value {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("a path").pop_if_empty().push("api").extend(path);
        let mut request = http::trusted_client().expect("a client").request(method, url);
        if let Some(body) = body {
            request = request.json(body);
        }
        let deadline = Instant::now() + ANSWER;
        let response = http::send(request, deadline).await.expect("the management API");
        let status = response.status();
        // A connection that has gone by itself is as good as closed.
        assert!(status.is_success() || status.as_u16() == 404, "{path:?}: {status}");
        let bytes = http::read_limited(response, MOST_BYTES, deadline).await.expect("its answer");
        serde_json::from_slice(&bytes).unwrap_or(Value::Null)
    }
}

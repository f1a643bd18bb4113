//! Alerts: posts the rows that deaths have written, each at least once.
//!
//! Every producer may send; a row is taken for a while by the one that posts it. It never writes an
//! alert of its own.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use shared::http;
use shared::shutdown::Shutdown;
use shared::store::{Alert, Error, Store};
use tracing::{info, warn};

/// Pause between two looks.
pub const POLL: Duration = Duration::from_secs(1);
/// Alerts posted in one look.
const BATCH: i64 = 20;
/// A webhook gets this long.
const POST_TIMEOUT: Duration = Duration::from_secs(5);

/// The sender.
pub struct Alerts {
    store: Store,
    webhook: Option<SecretString>,
    client: http::Client,
}

impl Alerts {
    /// A sender; without a webhook the rows (and the log) are all there is.
    pub fn new(store: Store, webhook: Option<SecretString>) -> Result<Self, http::Error> {
        Ok(Self { store, webhook, client: http::trusted_client()? })
    }

    /// Sends until the soft token.
    pub async fn run(&self, shutdown: &Shutdown) {
        loop {
            if let Err(error) = self.look().await {
                warn!(%error, "alerts wait for the database");
            }
            tokio::select! {
                () = shutdown.soft.cancelled() => return,
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }

    async fn look(&self) -> Result<(), Error> {
        for alert in self.store.due_alerts(BATCH).await? {
            warn!(alert = alert.id, dead_letter = alert.dead_letter_id, text = %alert.text, "alert");
            match &self.webhook {
                None => self.store.alert_sent(alert.id).await?,
                Some(url) => match self.post(url, &alert).await {
                    Ok(()) => {
                        info!(alert = alert.id, "the webhook accepted it");
                        self.store.alert_sent(alert.id).await?;
                    }
                    Err(error) => {
                        warn!(alert = alert.id, error, "the webhook did not; it is tried again");
                        self.store.alert_failed(alert.id, &error).await?;
                    }
                },
            }
        }
        Ok(())
    }

    /// Slack-compatible: `text`; the rest is for those who read JSON.
    async fn post(&self, url: &SecretString, alert: &Alert) -> Result<(), String> {
        let body = json!({
            "text": alert.text,
            "kind": alert.kind,
            "alert_id": alert.id,
            "dead_letter_id": alert.dead_letter_id,
            "seq": alert.seq,
            "created_at": alert.created_at,
        });
        let request = self
            .client
            .post(url.expose_secret())
            .header("idempotency-key", format!("belfry-alert-{}", alert.id))
            .json(&body);
        let deadline = tokio::time::Instant::now() + POST_TIMEOUT;
        let answer = http::send(request, deadline).await.map_err(|e| e.to_string())?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("the webhook answered {status}")),
        }
    }
}

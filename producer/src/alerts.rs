//! Alerts: posts the rows that deaths and the watch have written, each at least once.
//!
//! Every producer may send; a row is taken for a while by the one that posts it. What is open and
//! unclaimed, or lasts, gets another row after a while. It never decides that something is worth an
//! alert.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use shared::config;
use shared::http;
use shared::shutdown::Shutdown;
use shared::store::{Alert, Error, Store};
use tokio::time::Instant;
use tracing::{info, warn};

/// Pause between two looks.
pub const POLL: Duration = Duration::from_secs(1);
/// Alerts posted in one look.
const BATCH: i64 = 20;
/// Alerts repeated in one look.
const REPEATED: i64 = 500;
/// Longest pause between two looks for what is to be repeated, which read every open letter.
const REPEAT_POLL: Duration = Duration::from_secs(15);
/// A webhook gets this long.
const POST_TIMEOUT: Duration = Duration::from_secs(5);

/// The sender.
pub struct Alerts {
    store: Store,
    webhook: Option<SecretString>,
    repeat: Duration,
    client: http::Client,
}

impl Alerts {
    /// A sender; without a webhook the rows (and the log) are all there is.
    pub fn new(store: Store, settings: &config::Alerts) -> Result<Self, http::Error> {
        let (webhook, repeat) = (settings.webhook.clone(), settings.repeat);
        Ok(Self { store, webhook, repeat, client: http::trusted_client()? })
    }

    /// Sends until the soft token.
    pub async fn run(&self, shutdown: &Shutdown) {
        // A short period is met as closely as a long one.
        let pause = (self.repeat / 10).clamp(POLL, REPEAT_POLL);
        let mut repeated = None::<Instant>;
        loop {
            let repeats = repeated.is_none_or(|last| last.elapsed() >= pause);
            if repeats {
                repeated = Some(Instant::now());
            }
            if let Err(error) = self.look(repeats).await {
                warn!(%error, "alerts wait for the database");
            }
            tokio::select! {
                () = shutdown.soft.cancelled() => return,
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }

    async fn look(&self, repeats: bool) -> Result<(), Error> {
        if repeats {
            self.store.repeat_alerts(self.repeat, REPEATED).await?;
            self.store.repeat_episodes(self.repeat).await?;
        }
        for alert in self.store.due_alerts(BATCH).await? {
            warn!(alert = alert.id, kind = alert.kind, dead_letter = alert.dead_letter_id, text = %alert.text, "alert");
            match &self.webhook {
                None => self.store.alert_sent(alert.id).await?,
                Some(url) => match post(&self.client, url, &alert).await {
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
}

/// Posts an alert to a webhook; the error says what the webhook did instead of accepting it.
///
/// Slack-compatible: `text`; the rest is for those who read JSON.
pub async fn post(client: &http::Client, url: &SecretString, alert: &Alert) -> Result<(), String> {
    let body = json!({
        "text": alert.text,
        "kind": alert.kind,
        "stage": alert.stage,
        "subjects": alert.subjects,
        "alert_id": alert.id,
        "dead_letter_id": alert.dead_letter_id,
        "seq": alert.seq,
        "created_at": alert.created_at,
    });
    let request = client
        .post(url.expose_secret())
        .header("idempotency-key", format!("belfry-alert-{}", alert.id))
        .json(&body);
    let deadline = Instant::now() + POST_TIMEOUT;
    let answer = http::send(request, deadline).await.map_err(|e| e.to_string())?;
    match answer.status() {
        status if status.is_success() => Ok(()),
        status => Err(format!("the webhook answered {status}")),
    }
}

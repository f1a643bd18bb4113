//! When a fault is survived: new work is done, and every member is ready.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::book::{End, Entry, Kind};
use super::field::Field;
use super::load;

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(100);
const COMPLETED: &str = "SELECT count(*) FROM tasks WHERE id = $1 AND state = 'completed'";

/// Waits until a task that is committed now has completed and every member is ready; answers how
/// long after `since` that was.
///
/// # Errors
/// After `limit`, with what is missing.
pub async fn recover(
    field: &mut Field,
    since: Instant,
    limit: Duration,
) -> anyhow::Result<Duration> {
    let canary = load::task("probe", json!({}));
    let id = canary.id.0;
    field.accept(vec![canary], Entry { kind: Kind::Plain, end: End::Completed }).await?;
    loop {
        let completed = field.rows.count(COMPLETED, &[&id]).await? == 1;
        let unready = field.fleet.unready().await;
        let took = since.elapsed();
        match (completed, unready) {
            (true, None) if took <= limit => return Ok(took),
            (completed, unready) if took > limit => {
                let work = if completed { "new work is done" } else { "no new work is done" };
                let members = match unready {
                    Some(name) => format!("{name} is not ready"),
                    None => "every member is ready".to_owned(),
                };
                anyhow::bail!("after {:.1} s {work} and {members}", took.as_secs_f64());
            }
            _ => sleep(LOOK).await,
        }
    }
}

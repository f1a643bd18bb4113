//! `producer health`: the probe of a container, answered by the daemon on this host.

use shared::health;

use super::connect::Context;
use super::error::{Answer, CommandError};

/// Runs it: exit 0 ready, 1 not.
pub async fn run(context: &Context) -> Answer {
    let address = context.config()?.http_addr.ok_or_else(|| {
        CommandError::Usage("no `http_addr` is configured, so nothing can be asked".to_owned())
    })?;
    if health::probe(address).await {
        return Ok(());
    }
    Err(CommandError::Failed(format!("the daemon on {address} does not answer, or is not ready")))
}

//! The house's clock, so that a test can move it. Database time is `belfry_now()`, not this.
//!
//! Only for what never meets another host: log lines, artifact names, local timers.

use chrono::{DateTime, Utc};

/// The present of this process.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the host's clock")]
pub fn now() -> DateTime<Utc> {
    Utc::now()
}

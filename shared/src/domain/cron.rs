//! Cron lines: the grammar and what instants they mean in a zone.

/// A parsed cron line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    text: String,
}

impl Cron {
    /// The line as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

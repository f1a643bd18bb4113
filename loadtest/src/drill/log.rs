//! The story of a drill as it happens: printed at once, and kept for the report.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use tokio::time::Instant;

/// A line. JSON: `{"at_seconds","text"}`.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Seconds since the drill began.
    pub at_seconds: f64,
    /// What happened.
    pub text: String,
}

/// See the module. Clones write to the same story.
#[derive(Clone, Debug)]
pub struct Log {
    began: Instant,
    lines: Arc<Mutex<Vec<Line>>>,
}

impl Log {
    /// An empty one; its time begins now.
    pub fn new() -> Self {
        Self { began: Instant::now(), lines: Arc::default() }
    }

    /// An empty one with the same time.
    #[must_use]
    pub fn fresh(&self) -> Self {
        Self { began: self.began, lines: Arc::default() }
    }

    /// Seconds since it began.
    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Writes a line on stderr and keeps it.
    pub fn tell(&self, text: impl Into<String>) {
        let line = Line { at_seconds: self.seconds(), text: text.into() };
        eprintln!("{:7.1} s  {}", line.at_seconds, line.text);
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// The lines so far.
    pub fn lines(&self) -> Vec<Line> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::new()
    }
}

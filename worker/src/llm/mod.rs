//! Model calls: one client for OpenAI-compatible endpoints, each call traced and journalled.

/// The configured endpoints.
#[derive(Clone, Debug, Default)]
pub struct Models;

impl Models {
    /// The endpoints of a configuration; a missing one is an error where it is used.
    pub fn from_config(_config: &shared::config::Config) -> Self {
        Self
    }
}

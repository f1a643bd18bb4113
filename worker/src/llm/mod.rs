//! Model calls: one client for OpenAI-compatible endpoints, each call traced and journalled.

/// The configured endpoints.
#[derive(Clone, Debug, Default)]
pub struct Models;

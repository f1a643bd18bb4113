//! The only builder of HTTP clients.

//! The only builder of HTTP clients.

/// Makes ring the process's TLS provider, once.
pub fn install_crypto() {
    // A second call finds it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

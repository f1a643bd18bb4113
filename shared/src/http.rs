//! The only builder of HTTP clients.
/// x
pub fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

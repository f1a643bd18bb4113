//! The only builder of HTTP clients: a guarded one for payloads, a trusting one for configuration.
//!
//! A payload's URL is a stranger's wish, so [`PayloadClient`] checks every hop and every resolved
//! address, ignores proxy variables and drops credentials between hosts. URLs from `belfry.yaml`
//! (models, webhooks) are the operator's own: [`trusted_client`] honours `HTTPS_PROXY` and
//! `NO_PROXY` and reaches private hosts, but carries its key to no other host. [`model_client`] is
//! the same and follows no redirect at all: each request may be billed.
//! Nothing here reads a body without a limit or waits without a deadline.

mod body;
mod error;
mod guard;
mod payload;
mod proxy;
mod resolve;
mod send;

use std::sync::Once;
use std::time::Duration;

pub use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
pub use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};

pub use body::{Pieces, read_limited, read_up_to};
pub use error::{Blocked, Error};
pub use guard::Guard;
pub use payload::{Call, PayloadClient, headers, payload_client};
pub use proxy::proxy_of;
pub use send::send;
pub(crate) use send::send_unseen;

use reqwest::redirect;

/// A host that does not answer the handshake in this time is taken as down. Shorter than any
/// sensible deadline, so that "nothing was sent" is known instead of guessed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Idle connections are closed before most servers close them: a request that meets a closing
/// connection has an unknown outcome.
const POOL_IDLE: Duration = Duration::from_secs(20);

/// Most redirects that a trusted call follows on its own host.
const TRUSTED_REDIRECTS: usize = 3;

/// Installs the process's cryptography (ring). Every `main` and every test that speaks TLS calls it;
/// repeating it does nothing.
pub fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that someone installed one before; then that one serves.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// A client for addresses that the operator configured, webhooks for instance.
///
/// It sets no total timeout: wrap calls in [`send()`], which has the deadline.
pub fn trusted_client() -> Result<Client, Error> {
    let client = builder().redirect(redirect::Policy::custom(stay_at_home));
    client.build().map_err(|error| Error::setup(&error))
}

/// A client for model endpoints: as [`trusted_client`], and one call is one request.
pub fn model_client() -> Result<Client, Error> {
    let client = builder().redirect(redirect::Policy::custom(stay_there));
    client.build().map_err(|error| Error::setup(&error))
}

/// A client for this host's own ports: no proxy, no redirects.
pub(crate) fn local_client() -> Result<Client, Error> {
    let client = builder().no_proxy().redirect(redirect::Policy::none());
    client.build().map_err(|error| Error::setup(&error))
}

/// What every client has in common.
#[expect(clippy::disallowed_methods, reason = "the one place that builds clients")]
fn builder() -> reqwest::ClientBuilder {
    install_crypto();
    Client::builder()
        .user_agent(concat!("belfry/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(POOL_IDLE)
        .tcp_keepalive(POOL_IDLE)
        .referer(false)
}

/// Follows a redirect only on the same host, never down to plain HTTP, and only where the method
/// and body survive: a POST that silently becomes a GET is a riddle for whoever reads the answer.
fn stay_at_home(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let Some(from) = attempt.previous().last() else { return attempt.stop() };
    let to = attempt.url();
    let same_host = from.host() == to.host()
        && (from.scheme() == to.scheme()
            && from.port_or_known_default() == to.port_or_known_default()
            || from.scheme() == "http" && to.scheme() == "https");
    let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
    if same_host && keeps_method && attempt.previous().len() <= TRUSTED_REDIRECTS {
        return attempt.follow();
    }
    let why = format!("it redirects to {}; configure that address instead", error::location(to));
    attempt.error(why)
}

/// Follows nothing: a request that is sent twice is a question that may be paid twice, and only the
/// first of them is in the journal.
fn stay_there(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let to = attempt.url();
    let why = if attempt.previous().last() == Some(to) {
        "it redirects to the very address that was asked, in a circle: mend what answers there, or \
         configure another address"
            .to_owned()
    } else {
        let place = error::place(to);
        format!(
            "it redirects to {place}, and a model is asked once: configure that address instead"
        )
    };
    attempt.error(why)
}

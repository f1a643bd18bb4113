//! A bare connection to the database, for what only an outsider may do: look at everything, and
//! make databases of its own. It is never used to do the house's work.

use std::time::Duration;

use anyhow::Context as _;
use secrecy::{ExposeSecret as _, SecretString};
use shared::config::Redacted;
use shared::shutdown::Shutdown;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

/// A host that does not answer is given up after this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The database cannot be reached: exit code 4.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach PostgreSQL at {at}: {cause}; is it running, and is the address right?")]
pub struct Unreachable {
    at: String,
    cause: String,
}

/// Connects; statements see UTC and no limits but the caller's own.
pub async fn connect(dsn: &SecretString) -> anyhow::Result<Client> {
    let at = Redacted::of(dsn).to_string();
    let mut config: Config =
        dsn.expose_secret().parse().with_context(|| format!("the connection string of {at}"))?;
    config.connect_timeout(CONNECT_TIMEOUT).application_name("loadtest");
    let away = |cause: String| Unreachable { at: at.clone(), cause };
    let (client, connection) = tokio::time::timeout(CONNECT_TIMEOUT, config.connect(tls()))
        .await
        .map_err(|_| away(format!("no answer within {CONNECT_TIMEOUT:?}")))?
        .map_err(|error| away(with_cause(&error)))?;
    // Ends with the client; nobody waits for it.
    Shutdown::new().spawn(connection);
    client.batch_execute("SET TimeZone = 'UTC'; SET jit = off").await?;
    Ok(client)
}

/// The driver's own words end where the cause begins.
fn with_cause(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn tls() -> MakeRustlsConnect {
    shared::http::install_crypto();
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config =
        rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    MakeRustlsConnect::new(config)
}

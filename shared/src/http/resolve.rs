//! The resolver of the guarded client: looks a name up once and gives out only vetted addresses.
//!
//! The connection is made to exactly these, so a name that changes its mind between check and use
//! (DNS rebinding) gains nothing. Literal addresses never come here: the client skips its resolver
//! for them, which is why [`super::Guard::check`] judges them before each hop.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::error::{Blocked, Unresolved};
use super::guard::Guard;

/// A name server that does not answer in this time fails the call, unsent.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(4);

/// How names become addresses; tests bring their own.
type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// See the module.
pub(super) struct VettingResolver {
    guard: Arc<Guard>,
    lookup: Lookup,
}

impl VettingResolver {
    /// Asks the system.
    pub(super) fn new(guard: Arc<Guard>) -> Self {
        Self { guard, lookup: Arc::new(|name| Box::pin(system(name))) }
    }

    #[cfg(test)]
    pub(super) fn with_lookup(guard: Arc<Guard>, lookup: Lookup) -> Self {
        Self { guard, lookup }
    }
}

impl Resolve for VettingResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        let (guard, lookup) = (Arc::clone(&self.guard), (self.lookup)(name.clone()));
        Box::pin(async move {
            let answers = tokio::time::timeout(LOOKUP_TIMEOUT, lookup)
                .await
                .unwrap_or_else(|_| Err(io::Error::other("the name server does not answer")))
                .map_err(|error| Unresolved { why: error.to_string() })?;
            let vetted = vet(&guard, &name, &answers)?;
            let addresses = vetted.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

/// The answers that may be reached; an error when there is none.
fn vet(
    guard: &Guard,
    name: &str,
    answers: &[IpAddr],
) -> Result<Vec<IpAddr>, Box<dyn std::error::Error + Send + Sync>> {
    let (vetted, refused): (Vec<IpAddr>, Vec<IpAddr>) =
        answers.iter().partition(|&&address| guard.permits_resolved(name, address));
    match (vetted.is_empty(), refused.first()) {
        (false, _) => Ok(vetted),
        (true, Some(&address)) => Err(Blocked::address(name, address).into()),
        (true, None) => Err(Unresolved { why: "the name has no address".to_owned() }.into()),
    }
}

async fn system(name: String) -> io::Result<Vec<IpAddr>> {
    let found = tokio::net::lookup_host((name, 0)).await?;
    Ok(found.map(|address| address.ip()).collect())
}

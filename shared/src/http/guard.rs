//! Where a payload may send a request: public addresses, and what `http.allow_hosts` names.
//!
//! It judges the parsed host, never the text (`0x7f.1` and `①②⑦.0.0.1` parse to 127.0.0.1), and
//! addresses rather than names: a name is judged by what it resolves to, in [`super::resolve`].

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use super::error::{Blocked, Error, authority};
use crate::config::HttpGuard;

/// The rules of one configuration.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    allow_private: bool,
    /// Host → ports; no ports means all of them.
    allowed: BTreeMap<Host<String>, Vec<u16>>,
}

impl Guard {
    /// Reads the configuration. An entry is `host`, `host:port` or an address.
    pub fn new(config: &HttpGuard) -> Result<Self, Error> {
        let mut guard = Self { allow_private: config.allow_private, ..Self::default() };
        // An entry without a port allows all ports, whatever else is said about the host.
        let mut open = Vec::new();
        for entry in &config.allow_hosts {
            let (host, port) = entry_of(entry).ok_or_else(|| {
                Error::Url(format!(
                    "http.allow_hosts: {entry:?} is not host, host:port or an address"
                ))
            })?;
            match port {
                Some(port) => guard.allowed.entry(host).or_default().push(port),
                None => open.push(host),
            }
        }
        guard.allowed.extend(open.into_iter().map(|host| (host, Vec::new())));
        Ok(guard)
    }

    /// Judges scheme, literal address and port before anything is resolved or sent.
    pub fn check(&self, url: &Url) -> Result<(), Error> {
        if !matches!(url.scheme(), "http" | "https") {
            let scheme = url.scheme();
            return Err(Error::Url(format!("the scheme {scheme:?} is not http or https")));
        }
        let host = url.host().ok_or_else(|| Error::Url("the URL has no host".to_owned()))?;
        let host = bare(host.to_owned());
        let port = url.port_or_known_default().unwrap_or_default();
        match self.allowed.get(&host) {
            Some(ports) if ports.is_empty() || ports.contains(&port) => return Ok(()),
            // The resolver sees names without ports, so the port is judged here for good.
            Some(ports) if matches!(host, Host::Domain(_)) => {
                let why = format!("http.allow_hosts has it for port {ports:?} only");
                return Err(Blocked { target: authority(url), why }.into());
            }
            _ => {}
        }
        let address = match host {
            Host::Domain(_) => return Ok(()),
            Host::Ipv4(address) => IpAddr::V4(address),
            Host::Ipv6(address) => IpAddr::V6(address),
        };
        if self.permits(address) {
            return Ok(());
        }
        Err(Blocked::address(authority(url), address).into())
    }

    /// Judges an address that a name resolved to.
    pub(super) fn permits_resolved(&self, name: &str, address: IpAddr) -> bool {
        let literal = match address {
            IpAddr::V4(address) => Host::Ipv4(address),
            IpAddr::V6(address) => Host::Ipv6(address),
        };
        let name = bare(Host::Domain(name.to_ascii_lowercase()));
        self.allowed.contains_key(&name)
            || self.allowed.get(&literal).is_some_and(Vec::is_empty)
            || self.permits(address)
    }

    /// Judges an address that nobody named.
    fn permits(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                is_public_v4(address) || self.allow_private && is_site_v4(address)
            }
            IpAddr::V6(address) => {
                is_public_v6(address) || self.allow_private && is_site_v6(address)
            }
        }
    }
}

/// Reads one entry of `http.allow_hosts`.
fn entry_of(entry: &str) -> Option<(Host<String>, Option<u16>)> {
    let entry = entry.trim();
    if let Ok(address) = entry.parse::<Ipv6Addr>() {
        return Some((Host::Ipv6(address), None));
    }
    let (host, port) = match entry.rsplit_once(':') {
        // The last colon of `[::1]` is inside the brackets.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().ok()?)),
        _ => (entry, None),
    };
    if host.is_empty() || host.contains(['/', '@', '*']) {
        return None;
    }
    Host::parse(host).ok().map(|host| (bare(host), port))
}

/// A name without its final dot: `localhost.` is `localhost`.
fn bare(host: Host<String>) -> Host<String> {
    match host {
        Host::Domain(name) => Host::Domain(name.trim_end_matches('.').to_owned()),
        address => address,
    }
}

/// Networks of IPv4 that are not the public internet (IANA special-purpose registry).
const NOT_PUBLIC_V4: [([u8; 4], u8); 16] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 31, 196, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

/// Networks of 2000::/3 that are not the public internet: documentation, Teredo and the rest of the
/// protocol assignments, 6to4 (which hides a v4 address), documentation again.
const NOT_PUBLIC_V6: [([u16; 2], u8); 4] =
    [([0x2001, 0x0db8], 32), ([0x2001, 0], 23), ([0x2002, 0], 16), ([0x3fff, 0], 20)];

fn is_public_v4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    !NOT_PUBLIC_V4.iter().any(|(network, length)| {
        (bits ^ Ipv4Addr::from_octets(*network).to_bits()) >> (32 - length) == 0
    })
}

/// Everything outside 2000::/3 is local, mapped (`::ffff:0:0/96`), translated (`64:ff9b::/96`),
/// multicast or unassigned.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    let inside = |first: u128, second: u128, length: u8| {
        (bits ^ (first << 112 | second << 96)) >> (128 - length) == 0
    };
    inside(0x2000, 0, 3)
        && !NOT_PUBLIC_V6
            .iter()
            .any(|([first, second], length)| inside((*first).into(), (*second).into(), *length))
}

/// What `allow_private` opens. Link-local stays shut: 169.254.169.254 gives away cloud credentials.
fn is_site_v4(address: Ipv4Addr) -> bool {
    let shared = address.octets()[0] == 100 && address.octets()[1] & 0xc0 == 64;
    address.is_private() || address.is_loopback() || shared
}

fn is_site_v6(address: Ipv6Addr) -> bool {
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_site_v4(mapped);
    }
    address.is_unique_local() || address.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(allow_hosts: &[&str], allow_private: bool) -> Guard {
        let allow_hosts = allow_hosts.iter().map(|&host| host.to_owned()).collect();
        Guard::new(&HttpGuard { allow_hosts, allow_private }).expect("entries")
    }

    fn permits(guard: &Guard, url: &str) -> bool {
        guard.check(&Url::parse(url).expect(url)).is_ok()
    }

    #[test]
    fn every_odd_spelling_of_a_private_address_is_refused() {
        let guard = guard(&[], false);
        for host in [
            "127.0.0.1",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "0177.0.0.1",
            "127.1",
            "①②⑦.0.0.1",
            "127。0。0。1",
            "a@127.0.0.1:80#@x",
            "0",
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "169.254.169.254",
            "172.31.255.255",
            "192.168.0.1",
            "192.0.0.8",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "[::]",
            "[::1]",
            "[::127.0.0.1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:8.8.8.8]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b:1::1]",
            "[2002:7f00:1::]",
            "[2001:0:1::1]",
            "[2001:db8::1]",
            "[fc00::1]",
            "[fd12::1]",
            "[fe80::1]",
            "[fec0::1]",
            "[ff02::1]",
            "[100::1]",
        ] {
            assert!(!permits(&guard, &format!("http://{host}/")), "{host}");
        }
        for host in
            ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "[2606:4700::1111]", "x.example"]
        {
            assert!(permits(&guard, &format!("https://{host}/")), "{host}");
        }
    }

    #[test]
    fn only_http_and_https() {
        for url in ["file:///etc/passwd", "gopher://x.example/", "ftp://x.example/", "data:,x"] {
            assert!(!permits(&guard(&["x.example"], true), url), "{url}");
        }
    }

    #[test]
    fn allow_hosts_opens_what_it_names_and_nothing_else() {
        let guard = guard(
            &["127.0.0.1:8080", "10.1.2.3", "[::1]:9", "Intranet.Example:8443", "db."],
            false,
        );
        assert!(
            permits(&guard, "http://127.0.0.1:8080/") && permits(&guard, "http://0x7f.1:8080/")
        );
        assert!(
            !permits(&guard, "http://127.0.0.1:8081/")
                && !permits(&guard, "http://127.0.0.2:8080/")
        );
        assert!(permits(&guard, "http://10.1.2.3:1/") && !permits(&guard, "http://10.1.2.4/"));
        assert!(permits(&guard, "http://[::1]:9/") && !permits(&guard, "http://[::1]/"));
        assert!(permits(&guard, "https://intranet.example:8443/"));
        assert!(!permits(&guard, "https://intranet.example/"));
        let private = IpAddr::from([10, 9, 9, 9]);
        assert!(
            guard.permits_resolved("DB", private)
                && guard.permits_resolved("intranet.example", private)
        );
        assert!(!guard.permits_resolved("other", private));
        assert!(guard.permits_resolved("other", IpAddr::from([10, 1, 2, 3])));
        assert!(!guard.permits_resolved("other", IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn allow_private_leaves_link_local_shut() {
        let guard = guard(&[], true);
        for host in ["127.0.0.1", "10.0.0.1", "[::1]", "[fd00::1]", "100.64.0.1"] {
            assert!(permits(&guard, &format!("http://{host}/")), "{host}");
        }
        for host in ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "224.0.0.1"] {
            assert!(!permits(&guard, &format!("http://{host}/")), "{host}");
        }
    }

    #[test]
    fn an_entry_that_is_no_host_is_named() {
        for entry in ["", "http://x", "a/b", "*.x", "x:port", "x:99999", ":80"] {
            let config = HttpGuard { allow_hosts: vec![entry.to_owned()], allow_private: false };
            let error = Guard::new(&config).expect_err(entry).to_string();
            assert!(error.contains(&format!("{entry:?}")), "{error}");
        }
    }
}

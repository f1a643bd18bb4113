//! What makes a value right. Answers say what is wrong and never repeat a value that may be secret.

use std::net::SocketAddr;

use chrono_tz::{TZ_VARIANTS, Tz};

use super::problems::nearest;
use super::reader::{Place, shown};

/// Reports an error at its place; `None` when there was one.
pub(super) fn report(place: &Place<'_>, checked: Result<(), String>) -> Option<()> {
    checked.map_err(|what| place.problem(what)).ok()
}

/// An IANA zone.
pub(super) fn zone(place: &Place<'_>) -> Option<Tz> {
    let expanded = place.expanded("a time zone")?;
    if !expanded.unset.is_empty() {
        place.note_unset(&expanded.unset);
        return None;
    }
    let name = expanded.text.trim();
    let zone = name.parse().ok();
    if zone.is_none() {
        let near = nearest_zone(name).map_or_else(
            || "expected an IANA name such as UTC or Asia/Shanghai".to_owned(),
            |near| format!("did you mean {near}?"),
        );
        place.problem(format!("unknown time zone{}; {near}", shown(&expanded)));
    }
    zone
}

/// The zone whose name, or whose city alone, is nearest.
fn nearest_zone(name: &str) -> Option<&'static str> {
    let word = name.replace(' ', "_");
    // Two letters are near every other two.
    if word.chars().count() < 3 {
        return None;
    }
    let names = || TZ_VARIANTS.into_iter().map(Tz::name);
    if word.contains('/') {
        return nearest(&word, names());
    }
    let city = |zone: &'static str| zone.rsplit('/').next().unwrap_or(zone);
    let near = nearest(&word, names().map(city))?;
    names().find(|zone| city(zone) == near)
}

/// A name of ASCII letters, digits and the given signs.
pub(super) fn word(text: &str, signs: &str, longest: usize) -> Result<(), String> {
    let is_known = |c: char| c.is_ascii_alphanumeric() || signs.contains(c);
    if text.is_empty() || text.len() > longest || !text.chars().all(is_known) {
        return Err(format!("a name here has 1 to {longest} letters, digits or any of {signs}"));
    }
    Ok(())
}

/// A pool's name, which is part of its queue's name.
pub(super) fn pool_name(text: &str) -> Result<(), String> {
    let is_known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    if text.is_empty() || text.len() > 32 || !text.chars().all(is_known) {
        return Err("a pool's name has 1 to 32 of a-z, 0-9, _ and -".to_owned());
    }
    Ok(())
}

/// A name that a template can say.
pub(super) fn identifier(text: &str) -> Result<(), String> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("a name of a template's value begins with a letter".to_owned());
    }
    word(text, "_", 64)
}

/// A PostgreSQL URL, or libpq's `host=… dbname=…`.
pub(super) fn postgres_url(text: &str) -> Result<(), String> {
    match text.split_once("://") {
        Some(("postgres" | "postgresql", rest)) if !rest.is_empty() => Ok(()),
        None if text.contains('=') => Ok(()),
        _ => Err("expected postgres://user:password@host:5432/database".to_owned()),
    }
}

/// An AMQP URL.
pub(super) fn amqp_url(text: &str) -> Result<(), String> {
    const FORM: &str = "expected amqp:// or amqps://user:password@host:5672/vhost";
    let url = url::Url::parse(text).map_err(|error| format!("{FORM} ({error})"))?;
    if !matches!(url.scheme(), "amqp" | "amqps") || url.host_str().is_none_or(str::is_empty) {
        return Err(FORM.to_owned());
    }
    Ok(())
}

/// An HTTP URL.
pub(super) fn http_url(text: &str) -> Result<(), String> {
    const FORM: &str = "expected http:// or https://host/path";
    let url = url::Url::parse(text).map_err(|error| format!("{FORM} ({error})"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(FORM.to_owned());
    }
    Ok(())
}

/// A model's base URL: a path is put behind its own, a query (Azure's `api-version`) stays, and a
/// user with a password is basic authentication. It may hold secrets.
pub(super) fn model_url(text: &str) -> Result<(), String> {
    http_url(text.trim().trim_matches(['"', '\'']))
}

/// True for `https://user:password@host/`.
pub(super) fn has_credentials(url: &str) -> bool {
    let place = url.split_once("://").map_or(url, |(_, place)| place);
    place.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

/// `name`, `name:port` or an address.
pub(super) fn host(text: &str) -> Result<(), String> {
    if text.contains(['/', '*', '@']) || text.contains(char::is_whitespace) {
        return Err("expected a host or host:port, without scheme, path or *".to_owned());
    }
    Ok(())
}

/// An address to listen on; `:9090` is every interface, `localhost` the loopback one.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    let full = match (text.strip_prefix("localhost:"), text.strip_prefix(':')) {
        (Some(port), _) => format!("127.0.0.1:{port}"),
        (None, Some(port)) => format!("0.0.0.0:{port}"),
        (None, None) => text.to_owned(),
    };
    full.parse().map_err(|_| "expected address:port, such as 127.0.0.1:9090".to_owned())
}

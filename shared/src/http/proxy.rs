//! Which proxy a trusted call takes, so that an error can name it.
//!
//! The client reads the variables itself; this asks the same rules for one address. It never shows
//! a proxy's user and password.

use axum::http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use url::Url;

/// `host:port` of the proxy that `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` give a URL
/// of the configuration; `None` where it is called directly. Loopback is no exception by itself.
pub fn proxy_of(url: &Url) -> Option<String> {
    named(&Matcher::from_env(), url)
}

fn named(matcher: &Matcher, url: &Url) -> Option<String> {
    let target = url.as_str().parse::<Uri>().ok()?;
    let proxy = matcher.intercept(&target)?;
    let uri = proxy.uri();
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    Some(format!("{}:{port}", uri.host()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_named_without_its_password() {
        let matcher = Matcher::builder()
            .https("http://user:hunter2@proxy.example:3128")
            .http("http://plain.example")
            .no("internal.example,127.0.0.1")
            .build();
        let of = |url| named(&matcher, &Url::parse(url).expect("a URL"));
        assert_eq!(of("https://api.example/v1").as_deref(), Some("proxy.example:3128"));
        assert_eq!(of("http://api.example/v1").as_deref(), Some("plain.example:80"));
        assert_eq!(of("http://localhost:1/v1").as_deref(), Some("plain.example:80"));
        for direct in
            ["https://internal.example", "https://a.internal.example", "http://127.0.0.1:9"]
        {
            assert_eq!(of(direct), None, "{direct}");
        }
    }
}

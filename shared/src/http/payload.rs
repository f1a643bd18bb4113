//! The client of payload-driven calls: every hop is checked, nothing is carried to a stranger.

use std::sync::Arc;

use bytes::Bytes;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Client, Method, Request, Response, StatusCode, redirect};
use tokio::time::Instant;
use url::Url;

use super::error::{Error, authority};
use super::guard::Guard;
use super::resolve::VettingResolver;
use super::send::{Trace, observed};

/// Most redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// Headers that are about the connection or its framing; a payload that sets them could split one
/// request into two.
const NOT_SETTABLE: [HeaderName; 9] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
    header::PROXY_AUTHORIZATION,
];

/// Headers that may follow to another host: all others may hold a key.
const MAY_TRAVEL: [HeaderName; 4] =
    [header::ACCEPT, header::ACCEPT_LANGUAGE, header::CONTENT_TYPE, header::USER_AGENT];

/// A request that a payload asks for.
#[derive(Clone, Debug)]
pub struct Call {
    /// Method.
    pub method: Method,
    /// Target.
    pub url: Url,
    /// Headers, from [`headers`].
    pub headers: HeaderMap,
    /// Body, kept so that a 307 can repeat it.
    pub body: Option<Bytes>,
}

impl Call {
    /// A GET without headers.
    pub fn get(url: &str) -> Result<Self, Error> {
        let url = Url::parse(url).map_err(|error| Error::Url(format!("not a URL: {error}")))?;
        Ok(Self { method: Method::GET, url, headers: HeaderMap::new(), body: None })
    }

    /// The call that a redirect leads to.
    fn redirected(mut self, status: StatusCode, to: Url) -> Self {
        let becomes_get = status == StatusCode::SEE_OTHER && self.method != Method::HEAD
            || self.method == Method::POST
                && matches!(status, StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND);
        if becomes_get {
            self.method = Method::GET;
            self.body = None;
            self.headers.remove(header::CONTENT_TYPE);
        }
        if self.url.origin() != to.origin() {
            let names: Vec<HeaderName> = self.headers.keys().cloned().collect();
            for name in names.iter().filter(|name| !MAY_TRAVEL.contains(name)) {
                self.headers.remove(name);
            }
        }
        self.url = to;
        self
    }
}

/// The guarded client; clones share connections.
#[derive(Clone, Debug)]
pub struct PayloadClient {
    client: Client,
    guard: Arc<Guard>,
}

/// Builds the guarded client. Proxy variables are ignored: a proxy would resolve names itself,
/// behind the guard's back.
pub fn payload_client(guard: &Guard) -> Result<PayloadClient, Error> {
    let guard = Arc::new(guard.clone());
    PayloadClient::build(Arc::clone(&guard), VettingResolver::new(guard))
}

impl PayloadClient {
    fn build(guard: Arc<Guard>, resolver: VettingResolver) -> Result<Self, Error> {
        let client = super::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .dns_resolver(Arc::new(resolver))
            .build()
            .map_err(|error| Error::setup(&error))?;
        Ok(Self { client, guard })
    }

    /// Sends a call and follows its redirects, until the headers of the last answer or the deadline.
    pub async fn send(&self, mut call: Call, deadline: Instant) -> Result<Response, Error> {
        for _ in 0..=MAX_REDIRECTS {
            let response = self.hop(&call, deadline).await?;
            let Some(to) = next_hop(&call.url, &response)? else {
                return Ok(response);
            };
            call = call.redirected(response.status(), to);
        }
        let why = format!("more than {MAX_REDIRECTS} redirects");
        Err(Error::Redirect { target: authority(&call.url), why })
    }

    /// One request to a target that the guard has judged.
    async fn hop(&self, call: &Call, deadline: Instant) -> Result<Response, Error> {
        self.guard.check(&call.url)?;
        let mut request = Request::new(call.method.clone(), call.url.clone());
        *request.headers_mut() = call.headers.clone();
        *request.body_mut() = call.body.clone().map(Body::from);
        observed(&self.client, request, deadline, Trace::Told).await
    }
}

/// Where an answer sends us, if it does.
fn next_hop(from: &Url, response: &Response) -> Result<Option<Url>, Error> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = response.headers().get(header::LOCATION) else {
        return Ok(None);
    };
    let refuse = |why: &str| Error::Redirect { target: authority(from), why: why.to_owned() };
    let location = location.to_str().map_err(|_| refuse("its Location is not text"))?;
    let mut to = from.join(location).map_err(|_| refuse("its Location is not a URL"))?;
    // A stranger does not choose our credentials.
    let _ = to.set_username("");
    let _ = to.set_password(None);
    Ok(Some(to))
}

/// Checks headers that a payload asks for. A value is never repeated in an error.
pub fn headers<'a>(
    wanted: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    for (name, value) in wanted {
        let refuse = |why| Error::Header { name: name.to_owned(), why };
        let key = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| refuse("is not a valid header name"))?;
        if NOT_SETTABLE.contains(&key) {
            return Err(refuse("is set by the client itself"));
        }
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| refuse("has a value with line breaks or control characters"))?;
        value.set_sensitive(true);
        headers.append(key, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn headers_cannot_split_a_request() {
        for (name, value) in [
            ("X-A", "a\r\nX-B: c"),
            ("X A", "x"),
            ("Host", "x"),
            ("content-length", "0"),
            ("Transfer-Encoding", "chunked"),
        ] {
            let error = headers([(name, value)]).expect_err(name);
            assert_eq!(error.class(), crate::domain::outcome::ErrorClass::Invalid);
            assert!(!error.sent() && !error.to_string().contains(value), "{error}");
        }
        assert_eq!(headers([("X-A", "1"), ("x-a", "2")]).expect("two").len(), 2);
    }

    #[test]
    fn credentials_stay_with_their_host() {
        let call = Call {
            method: Method::POST,
            headers: headers([("X-Api-Key", "k"), ("Accept", "a"), ("Content-Type", "t")])
                .expect("headers"),
            body: Some(Bytes::from_static(b"b")),
            ..Call::get("https://a.example/").expect("url")
        };
        let to = |url: &str, status| call.clone().redirected(status, Url::parse(url).expect("url"));
        let home = to("https://a.example/2", StatusCode::TEMPORARY_REDIRECT);
        assert!(home.headers.contains_key("x-api-key") && home.body.is_some());
        for away in ["https://b.example/", "https://a.example:444/", "http://a.example/"] {
            let call = to(away, StatusCode::PERMANENT_REDIRECT);
            assert!(!call.headers.contains_key("x-api-key"), "{away}");
            assert!(call.headers.contains_key("accept") && call.method == Method::POST);
        }
        let seen = to("https://a.example/3", StatusCode::FOUND);
        assert!(seen.method == Method::GET && seen.body.is_none());
        assert!(!seen.headers.contains_key("content-type"));
    }

    /// S3: a name that answers 127.0.0.1 every other time never leads there.
    #[tokio::test]
    async fn a_name_that_changes_its_mind_gains_nothing() {
        let canary = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = canary.local_addr().expect("bound").port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let guard = Arc::new(Guard::default());
        let resolver = VettingResolver::with_lookup(
            Arc::clone(&guard),
            Arc::new(move |_| {
                let loopback = count.fetch_add(1, Ordering::SeqCst) % 2 == 1;
                let answers = if loopback {
                    // Nothing listens in TEST-NET, and the guard must not let us find out.
                    vec![[127, 0, 0, 1].into(), [192, 0, 2, 1].into()]
                } else {
                    vec![[10, 0, 0, 1].into()]
                };
                Box::pin(async move { Ok(answers) })
            }),
        );
        let client = PayloadClient::build(guard, resolver).expect("client");

        for _ in 0..4 {
            let call = Call::get(&format!("http://rebind.example:{port}/")).expect("url");
            let deadline = Instant::now() + Duration::from_secs(10);
            let error = client.send(call, deadline).await.expect_err("refused");
            assert!(matches!(error, Error::Blocked(_)), "{error:?}");
            assert!(error.to_string().contains("http.allow_hosts"), "{error}");
        }

        assert_eq!(asked.load(Ordering::SeqCst), 4);
        let nobody = tokio::time::timeout(Duration::from_millis(50), canary.accept()).await;
        assert!(nobody.is_err(), "the canary was reached");
    }

    /// Of mixed answers only the vetted are used, and the lookup is not repeated.
    #[tokio::test]
    async fn the_connection_goes_to_a_vetted_answer() {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = server.local_addr().expect("bound").port();
        let config = crate::config::HttpGuard {
            allow_hosts: vec!["127.0.0.1".to_owned()],
            allow_private: false,
        };
        let guard = Arc::new(Guard::new(&config).expect("guard"));
        let resolver = VettingResolver::with_lookup(
            Arc::clone(&guard),
            Arc::new(|_| {
                Box::pin(async { Ok(vec![[127, 0, 0, 2].into(), [127, 0, 0, 1].into()]) })
            }),
        );
        let client = PayloadClient::build(guard, resolver).expect("client");

        let call = Call::get(&format!("http://mixed.example:{port}/")).expect("url");
        let deadline = Instant::now() + Duration::from_secs(10);
        let answered = async {
            let (mut stream, _) = server.accept().await.expect("accept");
            let _ = stream.read(&mut [0; 1024]).await.expect("request");
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("write");
            stream
        };
        let (response, _stream) = tokio::join!(client.send(call, deadline), answered);

        assert_eq!(response.expect("answer").status(), StatusCode::NO_CONTENT);
    }
}

//! A call of curl as an `http_call`, where every one of its options has a meaning there.

use std::net::{IpAddr, Ipv6Addr};

use serde_json::{Map, Value, json};
use shared::config::{MOST_RETRIES, parse_duration};
use shared::http::Url;

use super::{Entry, at_most};

/// Headers that hold what no payload should.
const SECRET_HEADERS: [&str; 5] =
    ["authorization", "proxy-authorization", "cookie", "x-api-key", "x-auth-token"];

/// A request.
#[derive(Debug, Default)]
pub(super) struct Request {
    url: Option<String>,
    method: Option<String>,
    headers: Map<String, Value>,
    body: Option<String>,
    timeout: Option<String>,
    retries: Option<u64>,
    checks_status: bool,
    /// The URL's brackets and braces stand for themselves.
    is_literal: bool,
}

/// The request that these words make; `None` where curl does more than one plain request.
pub(super) fn request(words: &[String]) -> Option<Request> {
    let (program, rest) = words.split_first()?;
    if program.rsplit('/').next() != Some("curl") {
        return None;
    }
    let mut request = Request::default();
    let mut rest = rest.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        if let Some(long) = word.strip_prefix("--") {
            request.long(long, &mut rest)?;
        } else if let Some(short) = word.strip_prefix('-').filter(|short| !short.is_empty()) {
            request.short(short, &mut rest)?;
        } else if request.url.replace(word.to_owned()).is_some() {
            return None;
        }
    }
    let written = request.url.as_deref()?;
    if !request.is_literal && is_pattern(written) {
        return None;
    }
    let url: Url = written.parse().ok()?;
    let plain = matches!(url.scheme(), "http" | "https") && url.username().is_empty();
    (plain && url.password().is_none()).then_some(request)
}

/// True where curl makes several requests of a URL (`[1-3]`, `{a,b}`), or refuses it. A backslash
/// takes a sign's meaning from it, and is a slash to others.
fn is_pattern(url: &str) -> bool {
    let mut rest = url;
    while let Some(at) = rest.find(['[', ']', '{', '}', '\\']) {
        let inside = rest[at..].strip_prefix('[').and_then(|rest| rest.split_once(']'));
        match inside.filter(|(address, _)| address.parse::<Ipv6Addr>().is_ok()) {
            Some((_, behind)) => rest = behind,
            None => return true,
        }
    }
    false
}

impl Request {
    fn long<'a>(
        &mut self,
        option: &'a str,
        rest: &mut impl Iterator<Item = &'a str>,
    ) -> Option<()> {
        let (option, value) = match option.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (option, None),
        };
        let letter = match option {
            "fail" | "fail-with-body" => 'f',
            "silent" => 's',
            "show-error" => 'S',
            "location" => 'L',
            "globoff" => 'g',
            "head" => 'I',
            "request" => 'X',
            "header" => 'H',
            "data" | "data-raw" | "data-binary" | "data-ascii" => 'd',
            "max-time" => 'm',
            "output" => 'o',
            "user-agent" => 'A',
            "retry" => {
                self.retries = Some(value.or_else(|| rest.next())?.parse().ok()?);
                return Some(());
            }
            "url" => {
                let url = value.or_else(|| rest.next())?;
                return self.url.replace(url.to_owned()).is_none().then_some(());
            }
            "compressed" | "no-progress-meter" => return Some(()),
            _ => return None,
        };
        self.letter(letter, || value.or_else(|| rest.next()))
    }

    /// `-fsSL`, `-XPOST`, `-X POST`.
    fn short<'a>(
        &mut self,
        letters: &'a str,
        rest: &mut impl Iterator<Item = &'a str>,
    ) -> Option<()> {
        for (at, letter) in letters.char_indices() {
            if "XHdmoA".contains(letter) {
                let attached = &letters[at + letter.len_utf8()..];
                let value = || if attached.is_empty() { rest.next() } else { Some(attached) };
                return self.letter(letter, value);
            }
            self.letter(letter, || None)?;
        }
        Some(())
    }

    fn letter<'a>(&mut self, letter: char, value: impl FnOnce() -> Option<&'a str>) -> Option<()> {
        match letter {
            'f' => self.checks_status = true,
            's' | 'S' | 'L' => {}
            'g' => self.is_literal = true,
            'I' => self.method = Some("HEAD".to_owned()),
            'X' => self.method = Some(value()?.to_owned()),
            'A' => self.header("User-Agent", value()?)?,
            'H' => {
                let (name, content) = value()?.split_once(':')?;
                self.header(name.trim(), content.trim())?;
            }
            'd' => {
                let body = value()?.to_owned();
                // A file of this host, or a second part that curl would join.
                if body.starts_with('@') || self.body.replace(body).is_some() {
                    return None;
                }
            }
            'm' => {
                let seconds = value()?;
                let _: f64 = seconds.parse().ok()?;
                let limit = format!("{seconds}s");
                // To curl, 0 is no limit.
                let is_limit = !parse_duration(&limit).ok()?.is_zero();
                self.timeout = is_limit.then_some(limit);
            }
            'o' => return (value()? == "/dev/null").then_some(()),
            _ => return None,
        }
        Some(())
    }

    fn header(&mut self, name: &str, content: &str) -> Option<()> {
        let known = self.headers.keys().any(|known| known.eq_ignore_ascii_case(name));
        let new = !known && !content.is_empty();
        new.then(|| drop(self.headers.insert(name.to_owned(), content.into())))
    }

    /// Writes it into an entry.
    pub(super) fn set(self, entry: &mut Entry) {
        let url = self.url.unwrap_or_default();
        if !self.checks_status {
            entry.note("curl without --fail is content with any status; http_call wants a 2xx");
        }
        if let Some(host) = private(&url) {
            entry.note(format!("{host} is private: http.allow_hosts must name it"));
        }
        let secret = |name: &&String| SECRET_HEADERS.contains(&name.to_ascii_lowercase().as_str());
        for name in self.headers.keys().filter(secret) {
            entry.note(format!(
                "the header {name} shows a secret: put it under `secrets:` and write secret:NAME"
            ));
        }
        let mut payload = json!({ "url": url });
        let mut headers = self.headers;
        let default = if self.body.is_some() { "POST" } else { "GET" };
        let method = self.method.unwrap_or_else(|| default.to_owned());
        if method != "GET" {
            payload["method"] = method.into();
        }
        if let Some(body) = self.body {
            if !headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
                let form = "application/x-www-form-urlencoded";
                headers.insert("Content-Type".to_owned(), form.into());
            }
            payload["body"] = body.into();
        }
        if !headers.is_empty() {
            payload["headers"] = Value::Object(headers);
        }
        if let Some(timeout) = self.timeout {
            payload["timeout"] = timeout.into();
        }
        entry.set("task_type", "http_call");
        entry.set("payload", payload);
        if let Some(retries) = self.retries {
            let retries = at_most(MOST_RETRIES, "--retry", retries, entry);
            entry.set("max_retry", retries);
        }
    }
}

/// The host, where the guard of payload-driven calls would stop it.
fn private(url: &str) -> Option<String> {
    let url: Url = url.parse().ok()?;
    let host = url.host_str()?.to_owned();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let last = host.rsplit('.').next();
    let local = address || !host.contains('.') || last == Some("local");
    local.then_some(host)
}

#[cfg(test)]
mod tests {
    use super::super::command::words;
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let words = words(line).expect("no shell");
        let seen = request(&words).map(|request| {
            let mut entry = Entry::default();
            request.set(&mut entry);
            entry.keys.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
        });
        let seen = seen.map_or_else(|| "none".to_owned(), |keys| keys[1..].join(" "));
        assert_eq!(seen, expected, "{line}");
    }

    #[test]
    fn plain_requests_are_recognised_and_nothing_else() {
        check("curl -fsS https://a.example/x", r#"payload={"url":"https://a.example/x"}"#);
        check(
            "/usr/bin/curl -sS -XPOST -H 'X-A: b' --data '{\"n\": 1}' --max-time 10 --retry 2 -o /dev/null https://a.example",
            concat!(
                r#"payload={"body":"{\"n\": 1}","headers":{"Content-Type":"application/x-www-form-urlencoded","#,
                r#""X-A":"b"},"method":"POST","timeout":"10s","url":"https://a.example"} max_retry=2"#
            ),
        );
        check(
            "curl --request=PUT --header 'content-type: text/plain' -d x https://a.example",
            r#"payload={"body":"x","headers":{"content-type":"text/plain"},"method":"PUT","url":"https://a.example"}"#,
        );
        for line in [
            "curl -o /tmp/x https://a.example",
            "curl -u user:pass https://a.example",
            "curl https://user:pass@a.example",
            "curl -d @file https://a.example",
            "curl -d a -d b https://a.example",
            "curl https://a.example https://b.example",
            "curl a.example",
            "curl ftp://a.example",
            "curl -k https://a.example",
            "curl -X",
            "wget https://a.example",
        ] {
            check(line, "none");
        }
    }

    #[test]
    fn a_url_that_stands_for_several_is_no_plain_request() {
        for url in [
            "'https://a.example/[1-3]'",
            "'https://{a,b}.example/'",
            "--url 'https://a.example/x?{a,b}'",
        ] {
            check(&format!("curl -f {url}"), "none");
        }
        let literal = r#"payload={"url":"https://a.example/?a[]={b}"}"#;
        for option in ["-g", "-fg", "--globoff"] {
            check(&format!("curl 'https://a.example/?a[]={{b}}' {option}"), literal);
        }
        check("curl 'http://[::1]:9/x'", r#"payload={"url":"http://[::1]:9/x"}"#);
        check("curl 'http://[::1]:9/[a-c]'", "none");
    }

    #[test]
    fn a_limit_of_0_is_none() {
        let plain = r#"payload={"url":"https://a.example"}"#;
        for limit in ["-m 0", "-m0", "--max-time 0", "--max-time=0.0", "-m 10 -m 0"] {
            check(&format!("curl -f {limit} https://a.example"), plain);
        }
        let limited = r#"payload={"timeout":"0.5s","url":"https://a.example"}"#;
        check("curl -f -m 0 -m 0.5 https://a.example", limited);
        for odd in ["-m soon", "-m inf", "-m -1", "-m 5m"] {
            check(&format!("curl -f {odd} https://a.example"), "none");
        }
    }

    #[test]
    fn what_is_private_or_secret_is_said() {
        let words = words("curl http://localhost:9/ -H 'Authorization: Bearer x'").expect("none");
        let mut entry = Entry::default();
        request(&words).expect("one").set(&mut entry);
        assert_eq!(entry.said.len(), 3, "{:?}", entry.said);
    }
}

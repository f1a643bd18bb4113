//! Where a model is asked: the address that a base URL means, and the key that goes there.

use secrecy::{ExposeSecret, SecretString};
use crate::http::{HeaderName, HeaderValue, header};
use url::Url;

use super::error::LlmError;

const COMPLETIONS: &str = "/chat/completions";

/// Hosts of providers by their names in the telemetry conventions.
const PROVIDERS: [(&str, &str); 12] = [
    ("openai.azure.com", "azure.ai.openai"),
    ("openai.com", "openai"),
    ("anthropic.com", "anthropic"),
    ("deepseek.com", "deepseek"),
    ("mistral.ai", "mistral_ai"),
    ("groq.com", "groq"),
    ("x.ai", "x_ai"),
    ("moonshot.cn", "moonshot_ai"),
    ("moonshot.ai", "moonshot_ai"),
    ("perplexity.ai", "perplexity"),
    ("googleapis.com", "gcp.gemini"),
    ("openrouter.ai", "openrouter"),
];

/// A place to ask.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Full address of the chat endpoint.
    pub url: Url,
    key: Option<SecretString>,
}

impl Endpoint {
    /// From a base URL and a key of the configuration.
    pub fn new(base: &str, key: Option<&SecretString>) -> Result<Self, LlmError> {
        let mut url = chat_url(base).map_err(LlmError::Config)?;
        let key = key.filter(|key| !key.expose_secret().trim().is_empty()).cloned();
        if let Some(key) = &key {
            if key.expose_secret().trim().chars().any(|c| c.is_control() || c.is_whitespace()) {
                return Err(LlmError::Config(
                    "the model's API key contains a line break or blank; set model.api_key \
                     (MODEL_API_KEY) to the key alone"
                        .to_owned(),
                ));
            }
            // A key wins over a user in the address: two Authorization headers help nobody.
            let _ = url.set_username("");
            let _ = url.set_password(None);
        }
        Ok(Self { url, key })
    }

    /// The header that carries the key.
    pub fn auth(&self) -> Result<Option<(HeaderName, HeaderValue)>, LlmError> {
        let Some(key) = &self.key else { return Ok(None) };
        let key = key.expose_secret().trim();
        let (name, value) = match self.provider() {
            "azure.ai.openai" => (HeaderName::from_static("api-key"), key.to_owned()),
            _ => (header::AUTHORIZATION, format!("Bearer {key}")),
        };
        let mut value = HeaderValue::from_str(&value).map_err(|_| {
            LlmError::Config(
                "the model's API key contains characters that no header can".to_owned(),
            )
        })?;
        value.set_sensitive(true);
        Ok(Some((name, value)))
    }

    /// The provider's name in the telemetry conventions.
    pub fn provider(&self) -> &'static str {
        let host = self.host();
        let of = |suffix: &str| {
            host.strip_suffix(suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let known = PROVIDERS.into_iter().find(|(suffix, _)| of(suffix));
        match (known, self.url.port()) {
            (Some((_, name)), _) => name,
            (None, Some(11434)) => "ollama",
            (None, _) => "openai_compatible",
        }
    }

    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or_default()
    }

    /// `host:port`, for messages and rows.
    pub fn target(&self) -> String {
        format!("{}:{}", self.host(), self.port())
    }

    /// The address without user and query, for messages.
    pub fn shown(&self) -> String {
        let mut url = self.url.clone();
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.into()
    }

    /// Takes the key out of what the provider says: some repeat it.
    pub fn redact(&self, text: &str) -> String {
        match &self.key {
            Some(key) => text.replace(key.expose_secret().trim(), "…"),
            None => text.to_owned(),
        }
    }
}

/// The chat endpoint of a base URL: an empty path means `/v1`, a full one is taken as it is.
fn chat_url(base: &str) -> Result<Url, String> {
    let wrong = |why: &str| {
        format!(
            "model.base_url (MODEL_BASE_URL) {why}; expected something like https://api.openai.com/v1"
        )
    };
    let mut url = Url::parse(base.trim()).map_err(|error| wrong(&format!("is no URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(wrong("is not http:// or https://"));
    }
    url.set_fragment(None);
    let parts: Vec<&str> = url.path().split('/').filter(|part| !part.is_empty()).collect();
    let path = format!("/{}", parts.join("/"));
    let path = match path.as_str() {
        "/" => format!("/v1{COMPLETIONS}"),
        path if path.ends_with(COMPLETIONS) => path.to_owned(),
        path => format!("{path}{COMPLETIONS}"),
    };
    url.set_path(&path);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(base: &str, expected: &str) {
        assert_eq!(chat_url(base).expect(base).as_str(), expected, "{base}");
    }

    #[test]
    fn every_way_to_write_a_base_url_leads_to_one_endpoint() {
        for base in
            ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", " http://h:1//v1//"]
        {
            check(base, "http://h:1/v1/chat/completions");
        }
        check("http://h:1/v1/chat/completions", "http://h:1/v1/chat/completions");
        check("http://h:1/v1/chat/completions/", "http://h:1/v1/chat/completions");
        check("https://h/v1#here", "https://h/v1/chat/completions");
        check("http://[::1]:8080", "http://[::1]:8080/v1/chat/completions");
        check("http://u:p@h/v1", "http://u:p@h/v1/chat/completions");
        check(
            "https://x.openai.azure.com/openai/deployments/d?api-version=1",
            "https://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=1",
        );
        check("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1/chat/completions");
        for wrong in ["", "h:1", "api.openai.com", "ftp://h", "/v1"] {
            assert!(chat_url(wrong).expect_err(wrong).contains("MODEL_BASE_URL"), "{wrong}");
        }
    }

    fn endpoint(base: &str, key: &str) -> Result<Endpoint, LlmError> {
        Endpoint::new(base, Some(&SecretString::from(key.to_owned())))
    }

    #[test]
    fn the_key_travels_as_the_provider_wants_and_is_never_shown() {
        let azure =
            endpoint("https://x.openai.azure.com/openai/v1", " secret-key\r\n").expect("ok");
        let (name, value) = azure.auth().expect("ok").expect("a key");
        assert_eq!((name.as_str(), value.as_bytes()), ("api-key", b"secret-key".as_slice()));
        assert!(!format!("{azure:?} {value:?}").contains("secret-key"));

        let other = endpoint("http://user:pass@h/v1", "k").expect("ok");
        assert_eq!(other.auth().expect("ok").expect("a key").1, "Bearer k");
        assert!(other.url.username().is_empty());
        assert!(endpoint("http://h", "  \n").expect("ok").auth().expect("ok").is_none());

        let error = endpoint("http://h", "two\nlines").expect_err("no key");
        assert!(
            error.to_string().contains("MODEL_API_KEY") && !error.to_string().contains("lines")
        );
    }

    #[test]
    fn providers_have_their_conventional_names() {
        let of = |base| endpoint(base, "k").expect("ok").provider();
        assert_eq!(of("https://api.openai.com/v1"), "openai");
        assert_eq!(of("https://notopenai.com/v1"), "openai_compatible");
        assert_eq!(of("http://localhost:11434"), "ollama");
    }
}

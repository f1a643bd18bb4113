//! Where a model is asked: the address that a base URL means, and what is shown there at the door.

use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::error::{LlmError, Part};
use super::key::Key;
use crate::domain::clock;
use crate::http::RequestBuilder;

const COMPLETIONS: &str = "/chat/completions";

/// Hosts of providers by their names in the telemetry conventions.
const PROVIDERS: [(&str, &str); 12] = [
    ("openai.azure.com", AZURE),
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

/// The one that wants its key in a header of its own.
pub(super) const AZURE: &str = "azure.ai.openai";

/// A place to ask. Its Debug shows no key, no user and no query.
#[derive(Clone)]
pub struct Endpoint {
    /// Full address of the chat endpoint, without user and password.
    pub(super) url: Url,
    key: Option<Key>,
    settings: Settings,
}

/// What the endpoint's settings are called, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where its address is set.
    pub base_url: String,
    /// Where its key is set.
    pub api_key: String,
}

impl Settings {
    /// Of the default endpoint.
    pub fn default_endpoint() -> Self {
        Self {
            base_url: "model.base_url (MODEL_BASE_URL)".to_owned(),
            api_key: "model.api_key (MODEL_API_KEY)".to_owned(),
        }
    }

    /// Of one of `model.endpoints`.
    pub fn named(name: &str) -> Self {
        let of = |key| format!("model.endpoints.{name}.{key}");
        Self { base_url: of("base_url"), api_key: of("api_key") }
    }
}

impl Endpoint {
    /// From a base URL and a key of the configuration.
    pub fn new(
        base: &SecretString,
        key: Option<&SecretString>,
        settings: Settings,
    ) -> Result<Self, LlmError> {
        let mut url = chat_url(base.expose_secret(), &settings.base_url)
            .map_err(|message| LlmError::Config { part: Part::BaseUrl, message })?;
        let user = Key::of_user(&url);
        // It is in the header from now on, and in no message.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        let provider = provider_of(&url);
        let key = key.map_or(Ok(None), |key| Key::of(key, provider)).map_err(|what| {
            let message = format!("{} {what}", settings.api_key);
            LlmError::Config { part: Part::Key, message }
        })?;
        // A key wins over a user in the address: two Authorization headers help nobody.
        Ok(Self { url, key: key.or(user), settings })
    }

    /// A request with the key.
    pub(super) fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.key {
            Some(key) => key.on(request),
            None => request,
        }
    }

    /// The provider's name in the telemetry conventions.
    pub fn provider(&self) -> &'static str {
        provider_of(&self.url)
    }

    /// Host name or address.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Port.
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or_default()
    }

    /// `host:port`, for messages and rows.
    pub fn target(&self) -> String {
        format!("{}:{}", self.host(), self.port())
    }

    /// What its settings are called.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The end of its key, by which a person knows it; `None` without one, or where it is too short
    /// for a part to be no secret.
    pub fn key_ending(&self) -> Option<String> {
        self.key.as_ref()?.ending()
    }

    /// True when it has something to show at the door.
    pub fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// True for a key that says itself that its time is over.
    pub(super) fn key_is_over(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.is_over(clock::now()))
    }

    /// The proxy that its calls take, if any.
    pub fn proxy(&self) -> Option<String> {
        crate::http::proxy_of(&self.url)
    }

    /// The address without query, for messages.
    pub fn shown(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.into()
    }

    /// What must not be repeated of what it is shown, for some providers do: the key, and the values of
    /// the query. In an answer a word that only stands in the place of a key may well be meant.
    pub(super) fn secrets(&self, said: Said) -> impl Iterator<Item = SecretString> {
        let key = self.key.as_ref().filter(|key| said == Said::InError || !key.is_word());
        let query = self.url.query_pairs().filter(|(_, value)| value.len() >= SHORTEST_HIDDEN);
        let query = query.map(|(_, value)| SecretString::from(value.into_owned()));
        key.and_then(Key::secret).cloned().into_iter().chain(query)
    }
}

/// Where the other side says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// In an answer.
    InAnswer,
    /// In a refusal.
    InError,
}

/// Shorter values of a query are versions and flags.
const SHORTEST_HIDDEN: usize = 12;

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Endpoint").field(&self.shown()).finish()
    }
}

fn provider_of(url: &Url) -> &'static str {
    let host = url.host_str().unwrap_or_default();
    let of = |suffix: &str| {
        host.strip_suffix(suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let known = PROVIDERS.into_iter().find(|(suffix, _)| of(suffix));
    match (known, url.port()) {
        (Some((_, name)), _) => name,
        (None, Some(11434)) => "ollama",
        (None, _) => "openai_compatible",
    }
}

/// The chat endpoint of a base URL: an empty path means `/v1`, a full one is taken as it is.
fn chat_url(base: &str, setting: &str) -> Result<Url, String> {
    let wrong =
        |why: &str| format!("{setting} {why}; expected something like https://api.openai.com/v1");
    let base = base.trim().trim_matches(['"', '\'']);
    let mut url = Url::parse(base).map_err(|error| wrong(&format!("is no URL: {error}")))?;
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
        assert_eq!(chat_url(base, "s").expect(base).as_str(), expected, "{base}");
    }

    #[test]
    fn case_16_every_way_to_write_a_base_url_leads_to_one_endpoint() {
        for base in [
            "http://h:1",
            "http://h:1/",
            "http://h:1/v1",
            "http://h:1/v1/",
            " http://h:1//v1//",
            "\"http://h:1/v1\"",
        ] {
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
            let said = chat_url(wrong, "model.base_url").expect_err(wrong);
            assert!(said.contains("model.base_url"), "{wrong}");
        }
    }

    fn endpoint(base: &str, key: &str) -> Result<Endpoint, LlmError> {
        let secret = |text: &str| SecretString::from(text.to_owned());
        Endpoint::new(&secret(base), Some(&secret(key)), Settings::named("e"))
    }

    fn hidden(endpoint: &Endpoint, said: Said) -> Vec<String> {
        endpoint.secrets(said).map(|secret| secret.expose_secret().to_owned()).collect()
    }

    #[test]
    fn a_key_wins_over_a_user_and_neither_is_shown() {
        let both = endpoint("http://user:hunter2@h/v1?token=hunter2hunter2", "k").expect("ok");
        let door = |endpoint: &Endpoint| {
            let client = crate::http::trusted_client().expect("a client");
            let request = endpoint.authorized(client.post(endpoint.url.clone())).build();
            let headers = request.expect("a request").headers().clone();
            headers.get("authorization").map(|value| value.to_str().expect("text").to_owned())
        };
        assert_eq!(door(&both).as_deref(), Some("Bearer k"));
        assert!(both.url.username().is_empty());
        assert!(!format!("{both:?} {}", both.shown()).contains("hunter2"));
        assert_eq!(hidden(&both, Said::InError), ["hunter2hunter2"]);

        let user = endpoint("http://user:hunter2@h/v1", " ").expect("ok");
        assert_eq!(door(&user).as_deref(), Some("Basic dXNlcjpodW50ZXIy"));
        assert_eq!(hidden(&user, Said::InAnswer), ["hunter2"]);
        let word = endpoint("http://h", "ollama").expect("ok");
        assert_eq!(hidden(&word, Said::InError), ["ollama"]);
        assert_eq!(hidden(&word, Said::InAnswer), [""; 0]);
        assert_eq!(door(&endpoint("http://h", "  \n").expect("ok")), None);

        let error = endpoint("http://h", "two\nlines").expect_err("no key").to_string();
        assert!(error.contains("model.endpoints.e.api_key") && !error.contains("lines"), "{error}");
    }

    #[test]
    fn providers_have_their_conventional_names() {
        let of = |base| endpoint(base, "k").expect("ok").provider();
        assert_eq!(of("https://api.openai.com/v1"), "openai");
        assert_eq!(of("https://notopenai.com/v1"), "openai_compatible");
        assert_eq!(of("http://localhost:11434"), "ollama");
    }
}

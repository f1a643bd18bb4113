//! Reading an answer, whole or as a stream, inside walls of size and time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use tokio::time::Instant;

use super::answer::{ChatAnswer, Pace};
use super::assembly::{Assembly, Piece};
use super::body::{self, ErrorBody};
use super::classify::{self, Seen};
use super::client::Prepared;
use super::endpoint::Said;
use super::error::{LlmError, Part};
use super::hint::wait_hint;
use super::sse::Events;
use crate::domain::clock;
use crate::http::{self, HeaderMap, HeaderName, Pieces, Response};

/// Longest answer that is read: a megabyte of text and its frame many times over.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// Longest error body that is read.
const MAX_ERROR_BYTES: usize = 256 * 1024;
/// Longest silence within an answer. Reasoning models think for minutes between two pieces; the
/// call's own deadline is usually nearer.
const MAX_SILENCE: Duration = Duration::from_mins(5);
/// Once it is known why an answer ended, its tokens and its end are waited for so long.
const AFTER_FINISH: Duration = Duration::from_secs(5);

/// One answer being read.
pub(super) struct Reading<'a> {
    call: &'a Prepared<'a>,
    /// When the question went out.
    asked: Instant,
    deadline: Instant,
    seen: Seen<'a>,
}

impl<'a> Reading<'a> {
    /// Reads what came.
    pub async fn of(
        call: &'a Prepared<'a>,
        asked: Instant,
        deadline: Instant,
        response: Response,
    ) -> Result<ChatAnswer, LlmError> {
        let status = response.status().as_u16();
        let after = wait_hint(response.headers(), clock::now());
        let seen = Seen { endpoint: call.endpoint, model: &call.model, status, after };
        let reading = Self { call, asked, deadline, seen };
        if status >= 300 {
            return Err(reading.refusal(response).await);
        }
        let kind = media_type(response.headers());
        if kind.starts_with("text/event-stream") {
            return reading.stream(response).await;
        }
        reading.whole(response, kind.starts_with("text/html")).await
    }

    async fn refusal(&self, response: Response) -> LlmError {
        let challenge = text_of(response.headers(), &http::header::WWW_AUTHENTICATE);
        // The status says enough, should the body break off; its beginning is as good as all of it.
        let read = http::read_up_to(response, MAX_ERROR_BYTES, self.deadline).await;
        let (bytes, more) = read.unwrap_or_default();
        let mut body = if more { ErrorBody::of_part(&bytes) } else { ErrorBody::of(&bytes) };
        body.challenge = challenge;
        classify::error_of(&self.seen, &self.redacted(body))
    }

    async fn whole(&self, response: Response, is_html: bool) -> Result<ChatAnswer, LlmError> {
        let mut pieces = Pieces::of(response);
        let mut bytes = BytesMut::new();
        while let Some(piece) = self.next(&mut pieces, self.deadline).await? {
            bytes.extend_from_slice(&piece);
            self.within(bytes.len())?;
        }
        // A stream by another media type.
        if bytes.starts_with(b"data:") || bytes.starts_with(b":") {
            return self.streamed(&bytes);
        }
        let Some(value) = body::json(&bytes) else {
            let is_html = is_html || body::looks_like_html(&String::from_utf8_lossy(&bytes));
            return Err(classify::unreadable(&self.seen, is_html, self.said(&bytes)));
        };
        self.completion(&value, Pace::default()).map_err(|none| {
            none.unwrap_or_else(|| LlmError::Malformed {
                target: self.call.endpoint.target(),
                message: format!("no choices: {}", self.said(&bytes)),
            })
        })
    }

    /// A stream that was read in one piece.
    fn streamed(&self, bytes: &[u8]) -> Result<ChatAnswer, LlmError> {
        let mut events = Events::default();
        let mut found = events.push(bytes);
        found.extend(events.finish());
        let mut stream = Stream::new(self);
        for event in found {
            stream.take(&event)?;
        }
        stream.end()
    }

    async fn stream(&self, response: Response) -> Result<ChatAnswer, LlmError> {
        let mut pieces = Pieces::of(response);
        let mut events = Events::default();
        let mut stream = Stream::new(self);
        let mut read = 0;
        loop {
            let until = stream.patience();
            let piece = match self.next(&mut pieces, until).await {
                Ok(piece) => piece,
                // The answer is whole, whatever became of the connection.
                Err(_) if stream.assembly.is_complete() => return stream.end(),
                Err(error) => return Err(error),
            };
            let found = match &piece {
                Some(bytes) => {
                    read += bytes.len();
                    self.within(read.max(events.pending()))?;
                    events.push(bytes)
                }
                None => events.finish(),
            };
            for event in found {
                if stream.take(&event)? == Piece::End {
                    return stream.end();
                }
            }
            if piece.is_none() {
                return stream.end();
            }
        }
    }

    async fn next(&self, pieces: &mut Pieces, until: Instant) -> Result<Option<Bytes>, LlmError> {
        let until = until.min(Instant::now() + MAX_SILENCE);
        pieces.next(until).await.map_err(|error| network(self.call, error))
    }

    fn within(&self, bytes: usize) -> Result<(), LlmError> {
        if bytes <= MAX_ANSWER_BYTES {
            return Ok(());
        }
        Err(LlmError::TooLong { target: self.call.endpoint.target(), limit: MAX_ANSWER_BYTES })
    }

    /// The answer of a completion; `Err(None)` where there is none in it.
    fn completion(&self, value: &Value, pace: Pace) -> Result<ChatAnswer, Option<LlmError>> {
        if let Some(error) = error_inside(value) {
            return Err(Some(self.error(error)));
        }
        let answer = ChatAnswer::of(value, &self.call.model, self.call.request).ok_or(None)?;
        Ok(ChatAnswer { pace, ..answer.without(&self.call.hidden(Said::InAnswer)) })
    }

    /// The provider's error inside a 200.
    fn error(&self, value: &Value) -> LlmError {
        classify::error_in_200(&self.seen, &self.redacted(ErrorBody::of_value(value)))
    }

    fn redacted(&self, mut error: ErrorBody) -> ErrorBody {
        let secrets = self.call.hidden(Said::InError);
        let said = [&mut error.message, &mut error.param].into_iter().chain(&mut error.filtered);
        for text in said {
            *text = secrets.out_of(text);
        }
        error
    }

    fn said(&self, bytes: &[u8]) -> String {
        self.call.hidden(Said::InError).out_of(&body::quote(bytes))
    }
}

/// A stream that is being read.
struct Stream<'a> {
    reading: &'a Reading<'a>,
    assembly: Assembly,
    pace: Pace,
    /// When the last piece came that said something.
    last: Option<Instant>,
    /// When it was known why the answer ended.
    finished: Option<Instant>,
}

impl<'a> Stream<'a> {
    fn new(reading: &'a Reading<'a>) -> Self {
        Self {
            reading,
            assembly: Assembly::default(),
            pace: Pace::default(),
            last: None,
            finished: None,
        }
    }

    /// Until when the next piece is waited for.
    fn patience(&self) -> Instant {
        let deadline = self.reading.deadline;
        self.finished.map_or(deadline, |finished| deadline.min(finished + AFTER_FINISH))
    }

    fn take(&mut self, event: &[u8]) -> Result<Piece, LlmError> {
        let piece = self.assembly.take(event);
        let now = Instant::now();
        match &piece {
            Piece::Said => match self.last.replace(now) {
                None => self.pace.first = Some(now - self.reading.asked),
                Some(last) => self.pace.gaps.push(now - last),
            },
            Piece::Error(error) => return Err(self.broken(&self.reading.error(error))),
            Piece::Garbage => {
                let target = self.reading.call.endpoint.target();
                let message = format!("a stream that cannot be read: {}", self.reading.said(event));
                return Err(self.broken(&LlmError::Malformed { target, message }));
            }
            Piece::Frame | Piece::End => {}
        }
        if self.finished.is_none() && self.assembly.is_complete() {
            self.finished = Some(now);
        }
        Ok(piece)
    }

    /// An error in the middle: once a part has come, the call may be billed.
    fn broken(&self, error: &LlmError) -> LlmError {
        if !self.assembly.has_part() {
            return error.clone();
        }
        let characters = self.assembly.characters();
        LlmError::Unknown { cause: format!("after {characters} characters of the answer, {error}") }
    }

    /// The answer, if it is whole.
    fn end(self) -> Result<ChatAnswer, LlmError> {
        let target = self.reading.call.endpoint.target();
        if !self.assembly.is_complete() {
            let characters = self.assembly.characters();
            return Err(if self.assembly.has_part() {
                let cause = format!(
                    "{target} ended the stream after {characters} characters, without finish_reason and [DONE]"
                );
                LlmError::Unknown { cause }
            } else {
                LlmError::Malformed { target, message: "a stream that says nothing".to_owned() }
            });
        }
        let answer = self.reading.completion(&self.assembly.completion(), self.pace);
        answer.map_err(|none| {
            none.unwrap_or_else(|| LlmError::Malformed {
                target,
                message: "a stream without an answer".to_owned(),
            })
        })
    }
}

fn media_type(headers: &HeaderMap) -> String {
    text_of(headers, &http::header::CONTENT_TYPE).to_ascii_lowercase()
}

/// A header's text, or nothing.
fn text_of(headers: &HeaderMap, name: &HeaderName) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

/// The error of a 200 that answers nothing: at the top, or in the place of a message.
fn error_inside(value: &Value) -> Option<&Value> {
    let choice = &value["choices"][0];
    if choice["message"]["content"].is_string() {
        return None;
    }
    if value["error"].is_object() || value["error"].is_string() {
        return Some(value);
    }
    let flat = value["object"] == "error" || value["type"] == "error";
    if flat { Some(value) } else { Some(choice).filter(|choice| choice["error"].is_object()) }
}

/// From the network: was anything sent?
pub(super) fn network(call: &Prepared<'_>, error: http::Error) -> LlmError {
    // Where a redirect points may have the key in it.
    let cause = call.hidden(Said::InError).out_of(&error.to_string());
    let config = |part, cause| LlmError::Config { part, message: cause };
    let settings = call.endpoint.settings();
    match error {
        http::Error::Setup(_) => config(Part::Host, cause),
        http::Error::Url(_)
        | http::Error::Header { .. }
        | http::Error::Blocked(_)
        | http::Error::Redirect { .. } => {
            config(Part::BaseUrl, format!("{cause}; set {}", settings.base_url))
        }
        http::Error::TooLarge { target, limit } => LlmError::TooLong { target, limit },
        error if error.outcome_unknown() => LlmError::Unknown { cause },
        _ => {
            let proxy = call.endpoint.proxy();
            let check = match proxy {
                Some(_) => "the proxy variables (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY)",
                None => &settings.base_url,
            };
            LlmError::Unreachable { cause, check: check.to_owned(), proxy }
        }
    }
}

//! Which statement a client of PostgreSQL executes, read from what it sends.
//!
//! A prepared statement is sent once and then named, so that its text does not pass again; hence
//! the names are remembered. Source: PostgreSQL's documentation, "Message Formats" (version 3.0).
//! What is no such stream (AMQP, TLS) is not looked at further.

use std::collections::HashMap;

/// A client begins with this, after the length.
const VERSION_3_0: u32 = 0x0003_0000;
/// Or first asks for TLS with this, and is refused with one byte.
const TLS_WANTED: u32 = 80_877_103;
/// So much of a message is kept: our longest statement is a twentieth of it.
const KEPT: usize = 64 * 1024;
/// Longest greeting; `AMQP`, read as a length, is far above it. The server's own limit.
const LONGEST_GREETING: usize = 10_000;
/// A kind and a length.
const HEAD: usize = 5;

/// What one client has prepared.
#[derive(Debug, Default)]
pub(super) struct Statements {
    texts: HashMap<String, String>,
    stage: Stage,
    /// The message that is coming in, or its first part.
    message: Vec<u8>,
    /// Bytes of it that are still to come and not kept.
    skip: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// The client has not said yet what it speaks.
    #[default]
    Greeting,
    /// One message follows the other.
    Messages,
    /// Not PostgreSQL, or not legible.
    Other,
}

/// An execution, as it was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Executed {
    statement: Statement,
    /// Everything after the names, of long messages the beginning: the values.
    values: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Statement {
    Named(String),
    Text(String),
}

impl Statements {
    /// Takes the next bytes; answers what they begin to execute.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Vec<Executed> {
        let mut executed = Vec::new();
        while !bytes.is_empty() && self.stage != Stage::Other {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if self.is_foreign() {
                self.stage = Stage::Other;
                return executed;
            }
            let wanted = self.wanted();
            let taken = wanted.saturating_sub(self.message.len()).min(bytes.len());
            self.message.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.message.len() == self.wanted() && self.head_is_complete() {
                executed.extend(self.complete());
            }
        }
        executed
    }

    /// True when the text of the statement has the fragment, and one of its values these bytes.
    pub(super) fn has(&self, executed: &Executed, fragment: &str, value: &[u8]) -> bool {
        let text = match &executed.statement {
            Statement::Text(text) => Some(text),
            Statement::Named(name) => self.texts.get(name),
        };
        let has_value = || {
            value.is_empty() || executed.values.windows(value.len()).any(|window| window == value)
        };
        text.is_some_and(|text| text.contains(fragment)) && has_value()
    }

    fn head(&self) -> usize {
        if self.stage == Stage::Greeting { HEAD - 1 } else { HEAD }
    }

    fn head_is_complete(&self) -> bool {
        self.message.len() >= self.head()
    }

    /// The length that the head tells, without the kind that is not counted.
    fn length(&self) -> usize {
        let end = self.head();
        let digits = &self.message[end - 4..end];
        digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit))
    }

    fn is_foreign(&self) -> bool {
        self.stage == Stage::Greeting && self.head_is_complete() && self.length() > LONGEST_GREETING
    }

    /// Bytes of the message to keep, as far as is known.
    fn wanted(&self) -> usize {
        if !self.head_is_complete() {
            return self.head();
        }
        (self.head() - 4 + self.length().max(4)).min(KEPT)
    }

    fn complete(&mut self) -> Option<Executed> {
        let whole = self.head() - 4 + self.length().max(4);
        self.skip = whole.saturating_sub(KEPT);
        let message = std::mem::take(&mut self.message);
        if self.stage == Stage::Greeting {
            let code = message.get(4..8).and_then(|code| code.try_into().ok());
            self.stage = match code.map(u32::from_be_bytes) {
                Some(VERSION_3_0) => Stage::Messages,
                Some(TLS_WANTED) => Stage::Greeting,
                _ => Stage::Other,
            };
            return None;
        }
        let mut rest = &message[HEAD..];
        match message[0] {
            b'P' => {
                let (name, text) = (text(&mut rest)?, text(&mut rest)?);
                self.texts.insert(name, text);
                None
            }
            b'B' => {
                let _portal = text(&mut rest)?;
                let statement = Statement::Named(text(&mut rest)?);
                Some(Executed { statement, values: rest.to_vec() })
            }
            b'Q' => {
                let statement = Statement::Text(text(&mut rest)?);
                Some(Executed { statement, values: Vec::new() })
            }
            _ => None,
        }
    }
}

/// Takes a text, which a zero ends, off the front.
fn text(rest: &mut &[u8]) -> Option<String> {
    let end = rest.iter().position(|byte| *byte == 0)?;
    let text = String::from_utf8_lossy(&rest[..end]).into_owned();
    *rest = &rest[end + 1..];
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting() -> Vec<u8> {
        let mut sent = vec![0, 0, 0, 8];
        sent.extend(TLS_WANTED.to_be_bytes());
        sent.extend([0, 0, 0, 17]);
        sent.extend(VERSION_3_0.to_be_bytes());
        sent.extend(b"user\0me\0\0");
        sent
    }

    fn message(kind: u8, parts: &[&str]) -> Vec<u8> {
        let body: Vec<u8> =
            parts.iter().flat_map(|part| [part.as_bytes(), b"\0"].concat()).collect();
        let length = u32::try_from(body.len() + 4).expect("short");
        [&[kind][..], &length.to_be_bytes(), &body].concat()
    }

    fn story() -> Vec<u8> {
        [
            greeting(),
            message(b'P', &["s1", "SELECT 'one'"]),
            message(b'S', &[]),
            message(b'B', &["", "s1", &"x".repeat(KEPT)]),
            message(b'B', &["portal", "s2"]),
            message(b'Q', &["COMMIT"]),
        ]
        .concat()
    }

    fn executed(pieces: impl Iterator<Item = Vec<u8>>) -> (Statements, Vec<Executed>) {
        let mut statements = Statements::default();
        let executed = pieces.flat_map(|piece| statements.read(&piece)).collect();
        (statements, executed)
    }

    #[test]
    fn executions_are_seen_however_the_stream_is_cut() {
        for size in [1, 2, 7, 4096, usize::MAX] {
            let story = story();
            let (statements, executed) = executed(story.chunks(size).map(<[u8]>::to_vec));

            let [first, second, third] = &executed[..] else { panic!("{executed:?}, {size}") };
            assert!(statements.has(first, "'one'", b"xxx") && statements.has(first, "SELECT", b""));
            assert!(!statements.has(first, "'one'", b"y") && !statements.has(first, "two", b""));
            assert_eq!(second.statement, Statement::Named("s2".to_owned()));
            assert!(!statements.has(second, "'one'", b""));
            assert!(statements.has(third, "COMMIT", b""));
        }
    }

    #[test]
    fn another_protocol_is_left_alone() {
        let (statements, executed) = executed([b"AMQP\0\0\x09\x01".to_vec()].into_iter());

        assert_eq!(executed, []);
        assert_eq!(statements.stage, Stage::Other);
    }
}

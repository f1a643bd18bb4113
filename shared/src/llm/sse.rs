//! Server-sent events: bytes in any cut, data of whole events out.
//!
//! It understands what servers really send: comments to keep the line alive, all three line ends, a
//! byte order mark, events without a blank line between, and bare JSON where `data:` is forgotten.

/// Bytes of an event that has not ended.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    /// Lines of data of the event so far.
    data: Vec<Vec<u8>>,
    /// A carriage return ended the last line: a line feed after it ends none.
    after_return: bool,
    begun: bool,
}

impl Events {
    /// Takes bytes; answers the events that they end, each the data of one event.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut events = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' if self.after_return => self.after_return = false,
                b'\n' | b'\r' => {
                    self.after_return = byte == b'\r';
                    events.extend(self.end_line());
                }
                byte => {
                    self.after_return = false;
                    self.line.push(byte);
                }
            }
        }
        events
    }

    /// The end of the stream: an event that nobody ended is one.
    pub fn finish(&mut self) -> Vec<Vec<u8>> {
        let mut events: Vec<_> = self.end_line().collect();
        events.extend(self.end_event());
        events
    }

    /// Bytes that wait for their end.
    pub fn pending(&self) -> usize {
        self.line.len() + self.data.iter().map(Vec::len).sum::<usize>()
    }

    fn end_line(&mut self) -> impl Iterator<Item = Vec<u8>> + use<> {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_event().into_iter();
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            self.data.push(data.strip_prefix(b" ").unwrap_or(data).to_vec());
        } else if line.starts_with(b"{") {
            self.data.push(line.to_vec());
        }
        // Comments, and the fields event, id and retry, say nothing that the data does not.
        Vec::new().into_iter()
    }

    /// One event as the standard has it, its lines joined; but where each line is JSON by itself, a
    /// server forgot the blank lines.
    fn end_event(&mut self) -> Vec<Vec<u8>> {
        let lines = std::mem::take(&mut self.data);
        match lines.len() {
            0 => Vec::new(),
            1 => lines,
            _ if lines.iter().all(|line| is_whole(line)) => lines,
            _ => vec![lines.join(&b'\n')],
        }
    }
}

fn is_whole(line: &[u8]) -> bool {
    line.trim_ascii() == b"[DONE]" || serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a text, however it is cut.
    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        for size in [1, 2, 3, 7, text.len().max(1)] {
            let mut events = Events::default();
            let mut seen = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                seen.extend(events.push(piece));
            }
            seen.extend(events.finish());
            let seen: Vec<String> =
                seen.iter().map(|event| String::from_utf8_lossy(event).into_owned()).collect();
            assert_eq!(seen, expected, "{text:?} in pieces of {size}");
        }
    }

    #[test]
    fn events_are_found_in_every_dress() {
        check("data: a\n\ndata: b\n\n", &["a", "b"]);
        check("data:a\r\n\r\ndata: b\r\r", &["a", "b"]);
        check("\u{feff}data: a\n\n", &["a"]);
        check(": keep-alive\n\n: OPENROUTER PROCESSING\n\ndata: a\n\n", &["a"]);
        check("event: message\nid: 7\nretry: 10\ndata: a\n\n", &["a"]);
        check("data: ü\n\n", &["ü"]);
        check("data: {\ndata: \"a\":1}\n\n", &["{\n\"a\":1}"]);
        check("", &[]);
        check("\n\n\n", &[]);
    }

    #[test]
    fn what_servers_forget_is_forgiven() {
        check(
            "data: {\"a\":1}\ndata: {\"b\":1}\ndata: [DONE]\n",
            &["{\"a\":1}", "{\"b\":1}", "[DONE]"],
        );
        check("{\"error\": \"busy\"}\n", &["{\"error\": \"busy\"}"]);
        check("data: a", &["a"]);
    }
}

//! JSON that our parser refuses and that is an answer all the same: it is paid, and what is wrong is
//! seldom the part that matters. Nothing is guessed: what cannot be held is left out.

/// Deeper than this nothing is kept; the parser refuses 128.
const DEEPEST: usize = 100;

/// Replaces escapes of surrogates that have no partner: no Rust string can hold them.
pub(super) fn surrogates(text: &str) -> String {
    let mut mended = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        mended.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                mended.push_str("\\ufffd");
                rest = &rest[6..];
                continue;
            }
            (Some(_), _) => 6,
            // An escaped backslash must not be read as the start of the next escape.
            (None, _) => rest.chars().take(2).map(char::len_utf8).sum(),
        };
        mended.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    mended + rest
}

/// The code unit of a `\uXXXX` at the start.
fn unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

/// Puts `null` for what no parser of ours holds: numbers beyond every range, and what lies too deep.
pub(super) fn excesses(text: &str) -> String {
    let mut mended = String::with_capacity(text.len());
    let mut depth = 0_usize;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (token, after) = rest.split_at(match first {
            '"' => string(rest),
            '-' | '0'..='9' => number(rest),
            other => other.len_utf8(),
        });
        rest = after;
        let deeper = matches!(first, '{' | '[');
        depth += usize::from(deeper);
        let kept = if depth <= DEEPEST {
            let is_number = first == '-' || first.is_ascii_digit();
            let endless = is_number && token.parse::<f64>().is_ok_and(f64::is_infinite);
            if endless { "null" } else { token }
        } else if deeper && depth == DEEPEST + 1 {
            "null"
        } else {
            ""
        };
        mended.push_str(kept);
        if matches!(first, '}' | ']') {
            depth = depth.saturating_sub(1);
        }
    }
    mended
}

/// Bytes of the string at the start, quotes included.
fn string(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |at| at + 2)
}

/// Bytes of the number at the start.
fn number(text: &str) -> usize {
    let of_number = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    text.bytes().position(|byte| !of_number(byte)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_every_range_and_what_lies_too_deep_are_left_out() {
        for (text, mended) in [
            (r#"{"a":1e400,"b":[-1e999,2]}"#, r#"{"a":null,"b":[null,2]}"#),
            (r#"{"a":"1e400 \" 1e400","b":"\\"}"#, r#"{"a":"1e400 \" 1e400","b":"\\"}"#),
            (r#"{"ä":-0.5e-3,"b":1e308}"#, r#"{"ä":-0.5e-3,"b":1e308}"#),
        ] {
            assert_eq!(excesses(text), mended);
        }
        let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(excesses(&deep(DEEPEST)), deep(DEEPEST));
        let cut = excesses(&format!(r#"{{"a":{},"b":"]"}}"#, deep(5000)));
        assert!(cut.ends_with(r#"],"b":"]"}"#) && cut.contains("[null]"), "{cut}");
        assert!(serde_json::from_str::<serde_json::Value>(&cut).is_ok());
        for broken in ["", "\"", "-", "]]]", "{\"a\\", "[[["] {
            excesses(broken);
        }
    }
}

//! Which answer is to be lost: the one to a pattern of bytes, or to a statement of PostgreSQL.

use anyhow::ensure;

use super::statements::Statements;

/// Longest pattern, in bytes: so many are kept of what has passed, for one that comes in pieces.
pub const MAX_PATTERN: usize = 256;

/// What a client sends when its answer is to be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The execution of a statement of PostgreSQL.
    Statement {
        /// Its text has this.
        fragment: String,
        /// One of its values has these bytes; empty for any.
        value: Vec<u8>,
    },
}

impl Wanted {
    pub(super) fn bytes(pattern: &[u8]) -> anyhow::Result<Self> {
        let length = pattern.len();
        ensure!(
            (1..=MAX_PATTERN).contains(&length),
            "a pattern of {length} bytes; 1 to {MAX_PATTERN} can be watched for"
        );
        Ok(Self::Bytes(pattern.to_vec()))
    }
}

/// What a link still waits for.
#[derive(Debug, Default)]
pub(super) struct Losses(Vec<(Wanted, u64)>);

impl Losses {
    pub(super) fn add(&mut self, wanted: Wanted, times: u64) {
        self.0.push((wanted, times));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Counts one of those that `is_here` says was sent.
    fn take(&mut self, is_here: impl Fn(&Wanted) -> bool) -> bool {
        let found = self.0.iter_mut().find(|(wanted, times)| *times > 0 && is_here(wanted));
        let Some((_, times)) = found else { return false };
        *times -= 1;
        self.0.retain(|(_, times)| *times > 0);
        true
    }
}

/// Reads along what one client sends.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The end of what has passed, and for a moment what follows.
    seen: Vec<u8>,
    statements: Statements,
}

impl Watch {
    /// True when the answer to these bytes is to be lost.
    pub(super) fn finds(&mut self, bytes: &[u8], losses: &mut Losses) -> bool {
        let executed = self.statements.read(bytes);
        let passed = self.seen.len();
        self.seen.extend_from_slice(bytes);
        let found = losses.take(|wanted| match wanted {
            // Only what ends in the new bytes: the rest was looked at before.
            Wanted::Bytes(pattern) => {
                let from = passed.saturating_sub(pattern.len() - 1);
                self.seen[from..].windows(pattern.len()).any(|window| window == pattern)
            }
            Wanted::Statement { fragment, value } => {
                executed.iter().any(|statement| self.statements.has(statement, fragment, value))
            }
        });
        let keep_from = self.seen.len().saturating_sub(MAX_PATTERN - 1);
        self.seen.drain(..keep_from);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watching(pattern: &[u8], times: u64) -> (Watch, Losses) {
        let mut losses = Losses::default();
        losses.add(Wanted::bytes(pattern).expect("short"), times);
        (Watch::default(), losses)
    }

    #[test]
    fn a_pattern_is_found_in_one_piece_and_across_two() {
        let (mut watch, mut losses) = watching(b"needle", 2);

        assert!(!watch.finds(b"hay", &mut losses));
        assert!(watch.finds(b"hay needle hay", &mut losses));
        assert!(!watch.finds(b"hay nee", &mut losses));
        assert!(watch.finds(b"dle", &mut losses));
    }

    #[test]
    fn it_is_found_as_often_as_it_was_asked_for() {
        let (mut watch, mut losses) = watching(b"x", 1);

        assert!(watch.finds(b"x", &mut losses));
        assert!(!watch.finds(b"x", &mut losses));
    }

    #[test]
    fn what_was_found_once_is_not_found_again_in_the_bytes_that_follow() {
        let (mut watch, mut losses) = watching(b"needle", 2);

        assert!(watch.finds(b"needle", &mut losses));
        assert!(!watch.finds(b" and hay", &mut losses));
    }

    #[test]
    fn a_pattern_that_cannot_be_watched_for_is_refused() {
        assert!(Wanted::bytes(b"").is_err());
        assert!(Wanted::bytes(&[0; MAX_PATTERN]).is_ok());
        assert!(Wanted::bytes(&[0; MAX_PATTERN + 1]).is_err());
    }
}

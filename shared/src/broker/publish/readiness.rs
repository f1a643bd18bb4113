//! Whether the broker takes our messages, for people and probes. It never stops anybody from trying.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::State;
use crate::broker::error::Error;

/// A message that was returned or refused makes the process unready for this long: longer than the
/// relay's pause before it tries again, so that it stays so until what is wrong is mended.
pub const REFUSAL_SHOWS: Duration = Duration::from_secs(5);

/// The broker answered, and did not take a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    at: Instant,
    kind: &'static str,
}

impl Refusal {
    /// Of this answer, if it is one.
    pub(super) fn of(error: &Error) -> Option<Self> {
        let refused = matches!(error, Error::Unroutable { .. } | Error::Nacked { .. });
        refused.then(|| Self { at: Instant::now(), kind: error.kind() })
    }
}

/// Tells at any moment whether messages are taken. It does not keep the publisher alive.
#[derive(Clone, Debug)]
pub struct Readiness {
    pub(super) state: watch::Receiver<State>,
    pub(super) refused: watch::Receiver<Option<Refusal>>,
}

impl Readiness {
    /// Whether they are, and how it is in words without addresses.
    pub fn now(&self) -> (bool, String) {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> (bool, String) {
        match &*self.state.borrow() {
            State::Ready => {}
            State::Silent => return (false, "the broker does not answer".to_owned()),
            State::Blocked { .. } => return (false, "the broker blocks publishers".to_owned()),
            State::Connecting { last_error: None } => return (false, "connecting".to_owned()),
            State::Connecting { last_error: Some(error) } => {
                return (false, format!("not publishing ({})", error.kind()));
            }
        }
        match *self.refused.borrow() {
            Some(Refusal { at, kind }) if now < at + REFUSAL_SHOWS => {
                (false, format!("the broker does not take every message ({kind})"))
            }
            _ => (true, "publishing".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_shows_for_a_while_and_a_silence_as_long_as_it_lasts() {
        let (state, watched) = watch::channel(State::Ready);
        let (refused, seen) = watch::channel(None);
        let readiness = Readiness { state: watched, refused: seen };
        assert!(readiness.now().0);

        refused.send_replace(Refusal::of(&Error::Nacked { exchange: "x".to_owned() }));
        assert!(!readiness.now().0);
        assert!(readiness.at(Instant::now() + REFUSAL_SHOWS).0);

        state.send_replace(State::Silent);
        assert!(!readiness.at(Instant::now() + REFUSAL_SHOWS).0);
        assert!(Refusal::of(&Error::Closed("gone".to_owned())).is_none());
    }
}

//! The pulse of a publishing connection: a question a second that every living broker answers.
//!
//! A frozen broker keeps its sockets open and sends nothing; AMQP's own heartbeat sees that after half a
//! minute. It never closes anything: it tells that nobody answers, and for how long.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use lapin::Channel;
use lapin::options::BasicQosOptions;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{PULSE_EVERY, SILENT_AFTER, State};

/// At most one question is open at a time.
#[derive(Default)]
pub(super) struct Pulse {
    open: Option<BoxFuture<'static, ()>>,
    asked: Option<Instant>,
}

impl Pulse {
    /// Asks when it is time, and tells when the answer is late; how late it is. Blocked publishers are
    /// not read by the broker, so that nobody is asked then.
    pub(super) fn look(&mut self, channel: &Channel, state: &watch::Sender<State>) -> Duration {
        let since = self.asked.map_or(Duration::MAX, |asked| asked.elapsed());
        if state.borrow().is_blocked() {
            self.open = None;
            return Duration::ZERO;
        }
        if self.open.is_none() {
            if since >= PULSE_EVERY {
                self.asked = Some(Instant::now());
                self.open = Some(question(channel.clone()));
            }
            return Duration::ZERO;
        }
        if since >= SILENT_AFTER {
            let silent = state.send_if_modified(|state| {
                state.is_ready() && {
                    *state = State::Silent;
                    true
                }
            });
            if silent {
                tracing::warn!("the broker has not answered for {SILENT_AFTER:?}");
            }
        }
        since
    }

    /// Resolves when the open question is answered; never without one.
    pub(super) async fn answered(&mut self) {
        match &mut self.open {
            Some(answer) => answer.await,
            None => std::future::pending().await,
        }
    }

    /// The broker is there.
    pub(super) fn felt(&mut self, state: &watch::Sender<State>) {
        self.open = None;
        let back = state.send_if_modified(|state| {
            *state == State::Silent && {
                *state = State::Ready;
                true
            }
        });
        if back {
            tracing::info!("the broker answers again");
        }
    }
}

/// A prefetch means nothing to a channel without consumers, and every broker confirms it. That the
/// channel was closed is an answer too.
fn question(channel: Channel) -> BoxFuture<'static, ()> {
    async move {
        let _ = channel.basic_qos(0, BasicQosOptions::default()).await;
    }
    .boxed()
}

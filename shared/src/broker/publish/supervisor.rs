//! The loop behind a [`super::Publisher`]: connect, set up, publish until something ends, again.
//!
//! It holds nothing back while it has no connection: every request is refused at once, with the
//! reason, and its owner's row stays unpublished.

use std::pin::pin;

use lapin::Channel;
use tokio::sync::{mpsc, watch};

use super::readiness::Refusal;
use super::session::{End, Ground, Session, confirming};
use super::{Request, State};
use crate::broker::connection::{Link, Settings};
use crate::broker::declare::ensure;
use crate::broker::error::Error;
use crate::broker::topology::Topology;
use crate::retry::Pauses;
use crate::shutdown::Shutdown;

pub(super) struct Supervisor {
    pub(super) settings: Settings,
    pub(super) topology: Topology,
    pub(super) shutdown: Shutdown,
    pub(super) state: watch::Sender<State>,
    pub(super) refused: watch::Sender<Option<Refusal>>,
}

impl Supervisor {
    /// Connects again and again until nobody publishes any more.
    pub(super) async fn run(self, mut requests: mpsc::Receiver<Request>) {
        let mut pauses = Pauses::new();
        loop {
            let connecting = self.connect();
            let Some(connected) = self.while_refusing(&mut requests, connecting).await else {
                return;
            };
            let error = match connected {
                Ok((link, channel)) => {
                    tracing::info!(broker = %link.address(), "publishing");
                    pauses.reset();
                    self.state.send_replace(State::Ready);
                    match self.session(&link, channel).run(&mut requests).await {
                        End::Done => return link.close().await,
                        End::Lost(error) => error,
                    }
                }
                Err(error) => error,
            };
            self.not_ready(error);
            let pause = tokio::time::sleep(pauses.next_pause());
            if self.while_refusing(&mut requests, pause).await.is_none() {
                return;
            }
        }
    }

    fn session<'a>(&'a self, link: &'a Link, channel: Channel) -> Session<'a> {
        let Self { topology, state, refused, shutdown, .. } = self;
        Session::new(Ground { link, topology, state, refused, hard: &shutdown.hard }, channel)
    }

    async fn connect(&self) -> Result<(Link, Channel), Error> {
        let link = Link::open(&self.settings, "publish").await?;
        ensure(&link, &self.topology).await?;
        let channel = confirming(&link).await?;
        Ok((link, channel))
    }

    /// Tells the handles, and the log when the reason is a new one.
    fn not_ready(&self, error: Error) {
        let told = matches!(
            &*self.state.borrow(),
            State::Connecting { last_error: Some(last) } if *last == error
        );
        if !told {
            tracing::warn!(%error, "not publishing; trying again");
        }
        self.state.send_replace(State::Connecting { last_error: Some(error) });
    }

    /// Does something while answering every request at once with the reason why it is refused.
    /// `None` when the loop should end.
    async fn while_refusing<T>(
        &self,
        requests: &mut mpsc::Receiver<Request>,
        doing: impl Future<Output = T>,
    ) -> Option<T> {
        let mut doing = pin!(doing);
        loop {
            tokio::select! {
                biased;
                () = self.shutdown.hard.cancelled() => return None,
                done = &mut doing => return Some(done),
                request = requests.recv() => request?.refuse(self.reason()),
            }
        }
    }

    fn reason(&self) -> Error {
        match &*self.state.borrow() {
            State::Connecting { last_error: Some(error) } => error.clone(),
            _ => Error::Closed("not connected yet".to_owned()),
        }
    }
}

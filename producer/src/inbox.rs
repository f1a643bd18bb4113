//! The inbox: requests that any AMQP client, or the publish form of RabbitMQ's UI, drops on the
//! broker become tasks.
//!
//! A request passes the same door as `publish`, is committed, and only then acked: what dies in
//! between is delivered again, and its key finds the task that it has made. What cannot be read
//! goes to the dead letters with the reason. It never runs a task and never answers the sender.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::{join, join_all};
use shared::broker::{
    Consumer, Delivery, Error, Publisher, Settings, Subscription, Topology, one_line,
};
use shared::config::Config;
use shared::domain::message::BodyError;
use shared::domain::task::{Enqueued, NewTask, TaskId, TaskState};
use shared::process;
use shared::relay::Relay;
use shared::retry::Pauses;
use shared::shutdown::Shutdown;
use shared::store::{self, EnqueueError, Store};
use shared::telemetry::spans::Span;
use shared::telemetry::{metrics, spans};
use tracing::{debug, info, warn};

use crate::commands::row::Row;

/// Largest request, in bytes: a payload of 256 KiB with all that is said beside it.
pub const MAX_REQUEST_BYTES: usize = 300 * 1024;
/// Requests held at once; those that wait share a statement. Fewer than the acks that a quorum
/// queue's channel passes on at once (32): those beyond are lost when it closes.
const PREFETCH: u16 = 30;
/// What has a key goes back to the queue when the database is away for longer: another producer
/// may reach it. A commit whose answer was lost makes nothing twice then, for the key finds it.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(5);

/// Takes requests off the broker.
pub struct Inbox {
    /// Judges them.
    pub config: Arc<Config>,
    /// Keeps them.
    pub store: Store,
    /// Tells the broker of their tasks at once.
    pub relay: Relay,
    /// Puts the unreadable among the dead letters.
    pub publisher: Publisher,
}

type Answers = Vec<Result<Enqueued, EnqueueError>>;

/// A request that can become a task.
type Good = (Delivery, NewTask, Span);

/// A delivery with what was read from it.
struct Asked {
    delivery: Delivery,
    /// The span is the task's creation: it ends when the task is kept.
    task: Result<(NewTask, Span), String>,
}

impl Inbox {
    /// Begins to consume the requests.
    pub fn open(
        &self,
        settings: &Settings,
        topology: &Topology,
        shutdown: &Shutdown,
    ) -> Result<Consumer, Error> {
        let (queue, tag) = (topology.inbox(), process::tag("inbox"));
        let subscription = Subscription { queue, prefetch: PREFETCH, tag };
        Consumer::start(settings, topology, subscription, shutdown)
    }

    /// Takes requests until the soft token. What is unfinished then goes back to the queue.
    pub async fn run(&self, mut requests: Consumer, shutdown: &Shutdown) {
        while let Some(first) = requests.next().await {
            let mut asked = vec![self.read(first)];
            while asked.len() < PREFETCH.into()
                && let Some(Some(next)) = requests.next().now_or_never()
            {
                asked.push(self.read(next));
            }
            tokio::select! {
                () = self.take(asked, &mut requests) => {}
                () = shutdown.soft.cancelled() => {}
            }
        }
    }

    fn read(&self, delivery: Delivery) -> Asked {
        let task = self.task(&delivery).map(|mut task| {
            let span = spans::enqueue(&task, delivery.traceparent());
            task.traceparent = span.traceparent();
            (task, span)
        });
        Asked { delivery, task }
    }

    fn task(&self, delivery: &Delivery) -> Result<NewTask, String> {
        let body = delivery.raw();
        if body.len() > MAX_REQUEST_BYTES {
            return Err(format!(
                "the request has {} bytes; at most {MAX_REQUEST_BYTES} are read",
                body.len()
            ));
        }
        match delivery.body() {
            Ok(_) => {
                return Err("this is the message of a task, not a request; a dead letter's copy \
                            goes to the queue of its pool, or `producer dead replay` sends it"
                    .to_owned());
            }
            Err(error @ BodyError::Properties(_)) => return Err(error.to_string()),
            Err(_) => {}
        }
        // A redelivery has the same id, and so finds the task that the first delivery has made.
        let key = || delivery.message_id().filter(|id| !id.is_empty()).map(str::to_owned);
        Row::read(body).and_then(|row| row.request(key)?.task(&self.config)).map_err(invalid)
    }

    /// Turns what was asked into tasks or dead letters, and acks it.
    async fn take(&self, asked: Vec<Asked>, requests: &mut Consumer) {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for Asked { delivery, task } in asked {
            match task {
                Ok((task, span)) => good.push((delivery, task, span)),
                Err(reason) => bad.push((delivery, reason)),
            }
        }
        if !good.is_empty() {
            let (good, answers) = self.make(good, requests).await;
            let (mut kept, mut made) = (Vec::new(), Vec::new());
            for ((delivery, _, _span), answer) in good.into_iter().zip(answers) {
                match answer {
                    Ok(enqueued) => {
                        made.extend(published(&enqueued));
                        kept.push(delivery);
                    }
                    Err(error) => bad.push((delivery, told(&error))),
                }
            }
            // The commit is what counts, so that a slow broker does not hold the acks.
            join(join_all(kept.into_iter().map(Delivery::ack)), self.publish(&made)).await;
        }
        for (delivery, reason) in bad {
            self.unreadable(delivery, &reason, requests).await;
        }
    }

    /// Turns requests into tasks, and tells of each that it still has in hand what became of it.
    async fn make(&self, mut good: Vec<Good>, requests: &mut Consumer) -> (Vec<Good>, Answers) {
        let tasks = |good: &[Good]| good.iter().map(|(_, task, _)| task.clone()).collect();
        let all: Vec<NewTask> = tasks(&good);
        let begun = Instant::now();
        let is_hopeless = |e: &store::Error| e.is_away() && begun.elapsed() >= GIVE_BACK_AFTER;
        let asked = self.ask_until(is_hopeless, requests, || self.enqueue(&all)).await;
        if let Ok(answers) = asked {
            return (good, answers);
        }
        // Without a key a second delivery would be a second task: those are held until it is told.
        let keyed: Vec<Good> =
            good.extract_if(.., |(_, task, _)| task.execution_key.is_some()).collect();
        info!(given_back = keyed.len(), held = good.len(), "requests go back to the queue");
        join_all(keyed.into_iter().map(|(delivery, ..)| delivery.requeue())).await;
        let rest: Vec<NewTask> = tasks(&good);
        let ask = || async {
            self.store.ping().await?; // before more is taken, also where nothing is left to ask for
            self.enqueue(&rest).await
        };
        let answers = self.hold(requests, ask).await;
        (good, answers)
    }

    /// All at once; one by one where the database refuses a value, so that only the request with
    /// that value is refused.
    async fn enqueue(&self, tasks: &[NewTask]) -> Result<Answers, store::Error> {
        match self.store.enqueue_all(tasks).await {
            Err(error) if error.is_data() => {}
            answers => return answers,
        }
        let mut answers = Answers::with_capacity(tasks.len());
        for task in tasks {
            match self.store.enqueue(task.clone()).await {
                Err(EnqueueError::Store(error)) if !error.is_data() => return Err(error),
                answer => answers.push(answer),
            }
        }
        Ok(answers)
    }

    async fn publish(&self, made: &[TaskId]) {
        if made.is_empty() {
            return;
        }
        if let Err(error) = self.relay.publish_now(made).await {
            debug!(%error, "requests are committed; the relay publishes them");
            self.relay.poke();
        }
    }

    /// A row and a copy in the dead queue, both with the reason, then the ack.
    async fn unreadable(&self, delivery: Delivery, reason: &str, requests: &mut Consumer) {
        // It may repeat what was sent.
        let reason = one_line(reason);
        let reason = reason.as_str();
        let keep = || self.store.keep_unreadable(reason, delivery.raw());
        let letter = self.hold(requests, keep).await;
        warn!(dead_letter = letter, reason, "a request was refused");
        metrics::message_rejected("request");
        let key = delivery.routing_key().to_owned();
        let copied =
            self.publisher.publish_unreadable(delivery.raw(), reason, &key, Some(letter)).await;
        // A copy with the reason where the broker takes it, else the queue's own dead-lettering.
        match copied {
            Ok(()) => delivery.ack().await,
            Err(_) => delivery.reject().await,
        };
    }

    /// Asks the store until it answers.
    async fn hold<T, F>(&self, requests: &mut Consumer, ask: impl Fn() -> F) -> T
    where
        F: Future<Output = Result<T, store::Error>>,
    {
        loop {
            if let Ok(answer) = self.ask_until(|_| false, requests, &ask).await {
                return answer;
            }
        }
    }

    /// Asks the store until it answers or the caller gives up. What nobody has in hand meanwhile
    /// goes back to the queue.
    async fn ask_until<T, F>(
        &self,
        gives_up: impl Fn(&store::Error) -> bool,
        requests: &mut Consumer,
        ask: impl Fn() -> F,
    ) -> Result<T, store::Error>
    where
        F: Future<Output = Result<T, store::Error>>,
    {
        let mut pauses = Pauses::new();
        let mut is_down = false;
        loop {
            match ask().await {
                Ok(answer) => {
                    if is_down {
                        info!("the inbox is read again");
                    }
                    requests.resume();
                    return Ok(answer);
                }
                Err(error) if gives_up(&error) => return Err(error),
                Err(error) if !is_down => {
                    warn!(%error, "the inbox waits for the database");
                    requests.pause().await;
                    is_down = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(pauses.next_pause()).await;
        }
    }
}

fn invalid(what: impl Display) -> String {
    format!("invalid request: {what}")
}

fn told(error: &EnqueueError) -> String {
    match error {
        EnqueueError::KeyReused { .. } => error.to_string(),
        EnqueueError::Payload(_) | EnqueueError::Store(_) => invalid(error),
    }
}

/// The task, where it wants a message: one that was enqueued before may have had its own.
fn published(enqueued: &Enqueued) -> Option<TaskId> {
    let wants = !enqueued.state.is_finished() && enqueued.state != TaskState::Scheduled;
    wants.then_some(enqueued.task_id)
}

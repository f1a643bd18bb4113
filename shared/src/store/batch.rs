//! Natural batching: what waits goes out together, the next batch forms meanwhile, and a lone
//! request waits for nothing.
//!
//! It never lingers and never reorders; a batch that fails fails for each of its callers alike.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{Mutex, oneshot};

/// Most requests in one statement: more adds nothing but latency (measured on claims).
pub const MAX_BATCH: usize = 500;

/// One request with the place for its answer.
pub struct Waiting<I, O> {
    /// What is asked.
    pub input: I,
    answer: oneshot::Sender<O>,
}

/// A queue of requests; whoever finds the line free carries what waits.
pub struct Batcher<I, O> {
    waiting: Arc<std::sync::Mutex<Vec<Waiting<I, O>>>>,
    line: Arc<Mutex<()>>,
}

impl<I, O> Clone for Batcher<I, O> {
    fn clone(&self) -> Self {
        Self { waiting: self.waiting.clone(), line: self.line.clone() }
    }
}

impl<I, O> Default for Batcher<I, O> {
    fn default() -> Self {
        Self { waiting: Arc::default(), line: Arc::default() }
    }
}

impl<I, O> Batcher<I, O> {
    /// Asks for one answer; `carry` is called with a whole batch by whichever caller has the line.
    ///
    /// `carry` must answer each input, in order. A caller that is dropped while it carries leaves
    /// its batch unanswered: those callers see `None` and ask again.
    pub async fn ask<F, Fut>(&self, input: I, carry: F) -> Option<O>
    where
        F: Fn(Vec<I>) -> Fut,
        Fut: Future<Output = Vec<O>>,
    {
        let (answer, mut answered) = oneshot::channel();
        self.lock().push(Waiting { input, answer });
        loop {
            tokio::select! {
                biased;
                got = &mut answered => return got.ok(),
                _line = self.line.lock() => {
                    let batch = self.take();
                    if batch.is_empty() {
                        // Somebody else carried ours; its answer is on its way.
                        continue;
                    }
                    let (inputs, answers): (Vec<_>, Vec<_>) =
                        batch.into_iter().map(|w| (w.input, w.answer)).unzip();
                    for (answer, output) in answers.into_iter().zip(carry(inputs).await) {
                        // A caller that has gone needs no answer.
                        let _ = answer.send(output);
                    }
                }
            }
        }
    }

    fn take(&self) -> Vec<Waiting<I, O>> {
        let mut waiting = self.lock();
        let n = waiting.len().min(MAX_BATCH);
        waiting.drain(..n).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waiting<I, O>>> {
        self.waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn what_waits_goes_out_together_and_everybody_gets_their_own_answer() {
        let batcher: Batcher<usize, usize> = Batcher::default();
        let carried = AtomicUsize::new(0);
        let carry = |inputs: Vec<usize>| {
            carried.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::task::yield_now().await;
                inputs.into_iter().map(|n| n * 2).collect()
            }
        };

        let answers = futures::future::join_all((0..1000).map(|n| batcher.ask(n, carry))).await;

        assert!(answers.iter().enumerate().all(|(n, a)| *a == Some(n * 2)));
        assert!(carried.load(Ordering::SeqCst) <= 4, "batches: {carried:?}");
    }
}

//! Things that are made before a pod needs them.
//!
//! What takes long to make and depends on no pod, a network namespace or a process that is loaded, is kept ready. It is
//! made when nothing else is going on: pods that start need the processor more than those that may come.

use futures::FutureExt;
use parking_lot::Mutex;
use std::io;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How many are kept: two small Deployments start at once, and idle clusters hold little.
const KEPT: usize = 6;
/// Nothing is made before no pod has started for so long.
const QUIET: Duration = Duration::from_millis(120);
/// A look in between, for nothing that should happen.
const IDLE: Duration = Duration::from_secs(3600);
/// The pause after one could not be made.
const RETRY: Duration = Duration::from_secs(10);

/// Those that are ready.
pub struct Stock<T> {
    ready: Mutex<Vec<T>>,
    /// A pod has asked for one, whether there was any or not.
    asked: Notify,
}

impl<T> Default for Stock<T> {
    fn default() -> Self {
        Stock {
            ready: Mutex::default(),
            asked: Notify::new(),
        }
    }
}

impl<T> Stock<T> {
    /// One of them, if there is one.
    pub fn take(&self) -> Option<T> {
        self.asked.notify_one();
        self.ready.lock().pop()
    }

    pub fn put(&self, made: T) {
        self.ready.lock().push(made);
    }

    /// All of them, because nobody is left who would use them.
    pub fn clear(&self) -> Vec<T> {
        std::mem::take(&mut *self.ready.lock())
    }

    /// Makes what is missing whenever nothing else is going on, until `stop`.
    pub async fn keep<F: Future<Output = io::Result<T>>>(&self, make: impl Fn() -> F, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let pause = tokio::select! {
                () = stop.cancelled() => break,
                pause = self.fill(&make) => pause,
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.asked.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Makes all that are missing once no pod has started for a moment; says how long nothing will be missing otherwise.
    async fn fill<F: Future<Output = io::Result<T>>>(&self, make: &impl Fn() -> F) -> Duration {
        if self.missing() == 0 {
            return IDLE;
        }
        if tokio::time::timeout(QUIET, self.asked.notified()).await.is_ok() {
            return Duration::ZERO;
        }
        while self.missing() > 0 {
            match make().await {
                Ok(made) => self.put(made),
                Err(error) => {
                    tracing::debug!(%error, "what the next pods need could not be made before they come");
                    return RETRY;
                }
            }
            // A pod has come meanwhile: the rest waits until it is quiet again.
            if self.asked.notified().now_or_never().is_some() {
                return Duration::ZERO;
            }
        }
        IDLE
    }

    fn missing(&self) -> usize {
        KEPT.saturating_sub(self.ready.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn it_is_filled_when_it_is_quiet_and_again_when_something_was_taken() {
        let (stock, made, stop) = (
            Arc::new(Stock::default()),
            Arc::new(AtomicUsize::new(0)),
            CancellationToken::new(),
        );
        let keeping = tokio::spawn({
            let (stock, made, stop) = (stock.clone(), made.clone(), stop.clone());
            async move {
                let make = || std::future::ready(Ok(made.fetch_add(1, Ordering::Relaxed)));
                stock.keep(make, &stop).await;
            }
        });
        assert_eq!(stock.take(), None, "nothing is there at once");
        tokio::time::sleep(QUIET * 2).await;
        assert_eq!(made.load(Ordering::Relaxed), KEPT);
        assert!(stock.take().is_some());
        tokio::time::sleep(QUIET / 2).await;
        assert!(stock.take().is_some());
        assert_eq!(made.load(Ordering::Relaxed), KEPT, "a pod that starts is not disturbed");
        tokio::time::sleep(QUIET * 2).await;
        assert_eq!(made.load(Ordering::Relaxed), KEPT + 2);
        stop.cancel();
        keeping.await.unwrap();
        assert_eq!(stock.clear().len(), KEPT);
    }
}

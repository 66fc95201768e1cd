//! Bounds on what clients can make the server do at once.

use crate::error::{ApiError, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limits of one server. The defaults are those of kube-apiserver.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body: usize,
    /// Bytes of a stored object.
    pub object: usize,
    /// Requests that read, answered at one time.
    pub reads: usize,
    /// Requests that write, answered at one time.
    pub writes: usize,
    /// How long a request that is no watch may take.
    pub timeout: Duration,
    /// How long a list or watch waits for a resourceVersion that is not there yet.
    pub freshness: Duration,
    /// The least time a watch stays open that names none; up to twice as long.
    pub watch_timeout: Duration,
    /// Time between two bookmarks of one watch.
    pub bookmark_every: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body: 3 * 1024 * 1024,
            object: 3 * 1024 * 1024 / 2,
            reads: 400,
            writes: 200,
            timeout: Duration::from_secs(60),
            freshness: Duration::from_secs(3),
            watch_timeout: Duration::from_secs(1800),
            bookmark_every: Duration::from_secs(60),
        }
    }
}

/// How long a request waits for a place: longer than a burst of the cluster's own parts takes, shorter than any
/// client's patience.
const PLACE_PATIENCE: Duration = Duration::from_secs(3);
/// Requests that may wait for a place; more are refused at once.
const MOST_WAITING: usize = 2_000;

/// Places for requests in flight.
#[derive(Debug)]
pub struct InFlight {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    waiting: Semaphore,
}

impl InFlight {
    pub fn new(limits: &Limits) -> Self {
        InFlight {
            reads: Arc::new(Semaphore::new(limits.reads)),
            writes: Arc::new(Semaphore::new(limits.writes)),
            waiting: Semaphore::new(MOST_WAITING),
        }
    }

    /// A place for a request of this verb, held until it is dropped. Those who come when all are taken wait in line.
    pub async fn enter(&self, verb: &str) -> Result<OwnedSemaphorePermit> {
        let refused = || ApiError::too_many_requests("Too many requests, please try again later.", 1);
        let places = match verb {
            "get" | "list" => &self.reads,
            _ => &self.writes,
        };
        if let Ok(place) = places.clone().try_acquire_owned() {
            return Ok(place);
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| refused())?;
        let place = tokio::time::timeout(PLACE_PATIENCE, places.clone().acquire_owned()).await;
        place.map_err(|_| refused())?.map_err(|_| refused())
    }
}

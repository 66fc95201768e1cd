//! The gate through which every write goes.
//!
//! It is open until an instant of this process's own monotonic clock. Whoever holds the Lease moves the
//! instant forward with each renewal; if it does not, the gate closes by itself, even when the task that
//! renews hangs.

use tokio::sync::watch;
use tokio::time::Instant;

/// A write was refused because this process does not lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this process does not lead")]
pub struct NotLeader;

/// A shared handle to the gate.
#[derive(Clone)]
pub struct Fence {
    state: watch::Sender<Gate>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Gate {
    /// Nobody elects: always open.
    Open,
    OpenUntil(Instant),
    Closed,
}

impl Gate {
    fn is_open(&self) -> bool {
        match self {
            Gate::Open => true,
            Gate::OpenUntil(instant) => Instant::now() < *instant,
            Gate::Closed => false,
        }
    }
}

impl Fence {
    /// A gate that is always open: no election.
    pub fn open() -> Self {
        Fence {
            state: watch::Sender::new(Gate::Open),
        }
    }

    /// A gate that is closed until leadership is won.
    pub fn closed() -> Self {
        Fence {
            state: watch::Sender::new(Gate::Closed),
        }
    }

    /// Opens the gate until an instant; called with each renewal.
    pub fn open_until(&self, instant: Instant) {
        self.state.send_replace(Gate::OpenUntil(instant));
    }

    /// Closes the gate at once.
    pub fn close(&self) {
        self.state.send_replace(Gate::Closed);
    }

    /// Whether a write may be sent now.
    pub fn check(&self) -> Result<(), NotLeader> {
        match self.state.borrow().is_open() {
            true => Ok(()),
            false => Err(NotLeader),
        }
    }

    /// Waits until leadership is lost. Every renewal moves the end away.
    pub async fn lost(&self) {
        let mut state = self.state.subscribe();
        loop {
            let until = match *state.borrow_and_update() {
                Gate::Open => None,
                Gate::Closed => return,
                Gate::OpenUntil(instant) => Some(instant),
            };
            let expired = async {
                match until {
                    Some(instant) => tokio::time::sleep_until(instant).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = expired => return,
                changed = state.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Waits until leadership is won.
    pub async fn won(&self) {
        let mut state = self.state.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = state.wait_for(Gate::is_open).await;
    }
}

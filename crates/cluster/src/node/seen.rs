//! What the node agent knows about one pod: the observation that a plan is made from.
//!
//! It is a value without handles to processes or clients, so that the whole life of a pod (start, crash,
//! back-off, termination) can be tested by writing observations down and reading plans back.

use jiff::Timestamp;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Everything observed about one pod on this node.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub sandbox: Sandbox,
    /// By container name, init containers too. A container that was never tried has no entry. Each is in a box of its own,
    /// since a map has room for eleven from the first one on.
    pub containers: BTreeMap<String, Box<Container>>,
    /// Set once the node decides that the pod must end: it never runs again here.
    pub verdict: Option<Verdict>,
}

/// The pod's sandbox: what its containers share (address, namespaces, volumes).
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Sandbox {
    /// Nothing exists yet.
    #[default]
    Absent,
    /// Being made; an answer of the runtime will follow.
    Creating,
    /// Could not be made; tried again at the given time.
    Failed {
        message: String,
        retry_at: Timestamp,
        tries: u32,
    },
    /// Containers may start in it.
    Ready { addresses: Vec<IpAddr> },
    /// Being taken down.
    Stopping { addresses: Vec<IpAddr> },
    /// Gone, after its containers ended.
    Stopped { addresses: Vec<IpAddr> },
}

/// Why a node ends a pod that nobody deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub reason: String,
    pub message: String,
}

/// One container of the pod, through all its restarts.
#[derive(Clone, Debug)]
pub struct Container {
    pub state: State,
    /// How often it was started again.
    pub restarts: u32,
    /// How the run before this one ended.
    pub previous: Option<Exit>,
    pub backoff: Backoff,
    /// What the startup probe says (true where there is none, once it runs).
    pub started: bool,
    /// What the readiness probe says (true where there is none, once it runs).
    pub ready: bool,
    /// The image as it was resolved.
    pub image_id: String,
}

/// Where a container stands.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Never tried.
    New,
    /// The runtime was asked to start it and has not answered.
    Starting,
    /// It could not be started (image, configuration); tried again at the given time.
    Blocked {
        reason: String,
        message: String,
        since: Timestamp,
        retry_at: Timestamp,
    },
    Running {
        id: String,
        since: Timestamp,
    },
    /// The runtime was asked to end it; it may still run.
    Stopping {
        id: String,
        since: Timestamp,
        /// When it is killed if it has not ended by itself.
        kill_at: Timestamp,
    },
    Exited(Exit),
}

/// How one run of a container ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Exit {
    pub id: String,
    pub code: i32,
    pub signal: Option<i32>,
    pub reason: String,
    pub message: Option<String>,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
}

/// How long to wait before a container that ended is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Backoff {
    /// Seconds to wait after the next end; 0 means that the first restart is immediate.
    pub seconds: u32,
    /// When it was last raised.
    pub raised_at: Option<Timestamp>,
}

/// The first wait, as Kubernetes has it.
const FIRST_BACKOFF: u32 = 10;
/// The longest wait between two restarts.
const LONGEST_BACKOFF: u32 = 300;
/// A container that ran this many seconds is forgiven its earlier crashes.
const FORGIVEN_AFTER: i64 = 600;

impl Backoff {
    /// The back-off in force for a container that ended at `finished`.
    pub fn at_exit(self, finished: Timestamp) -> Backoff {
        match self.raised_at {
            Some(raised) if finished.duration_since(raised).as_secs() > FORGIVEN_AFTER => Backoff::default(),
            _ => self,
        }
    }

    /// The back-off after one more start at `now`.
    pub fn raised(self, now: Timestamp) -> Backoff {
        let seconds = match self.seconds {
            0 => FIRST_BACKOFF,
            seconds => (seconds * 2).min(LONGEST_BACKOFF),
        };
        Backoff {
            seconds,
            raised_at: Some(now),
        }
    }

    /// When a container that ended at `finished` may start again.
    pub fn until(self, finished: Timestamp) -> Timestamp {
        crate::clock::after(
            finished,
            std::time::Duration::from_secs(u64::from(self.at_exit(finished).seconds)),
        )
    }
}

impl Default for Container {
    fn default() -> Self {
        Container {
            state: State::New,
            restarts: 0,
            previous: None,
            backoff: Backoff::default(),
            started: false,
            ready: false,
            image_id: String::new(),
        }
    }
}

impl Container {
    /// How the last run ended, if it is not running now.
    pub fn exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Exited(exit) => Some(exit),
            _ => None,
        }
    }

    /// How many runs have ended, of one that does not run: what the status of its next run counts.
    pub fn runs(&self) -> u32 {
        let ran = self.previous.is_some() || self.exit().is_some();
        self.restarts + u32::from(ran)
    }

    /// True while a process may exist.
    pub fn is_alive(&self) -> bool {
        matches!(
            self.state,
            State::Starting | State::Running { .. } | State::Stopping { .. }
        )
    }
}

impl Sandbox {
    /// The pod's addresses, while it has any.
    pub fn addresses(&self) -> &[IpAddr] {
        match self {
            Sandbox::Absent | Sandbox::Creating | Sandbox::Failed { .. } => &[],
            Sandbox::Ready { addresses } | Sandbox::Stopping { addresses } | Sandbox::Stopped { addresses } => {
                addresses
            }
        }
    }

    /// The same one while it is being taken down.
    pub fn stopping(&self) -> Sandbox {
        let addresses = self.addresses().to_vec();
        Sandbox::Stopping { addresses }
    }
}

impl Seen {
    /// The container's observation, or that of one never tried.
    pub fn container(&self, name: &str) -> Container {
        self.containers
            .get(name)
            .map(|found| (**found).clone())
            .unwrap_or_default()
    }

    /// True while any container may have a process.
    pub fn anything_alive(&self) -> bool {
        self.containers.values().any(|container| container.is_alive())
    }
}

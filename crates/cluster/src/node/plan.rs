//! What to do next for one pod: the pure heart of the node agent.
//!
//! Hollow and real pods take the same decisions here: order of init containers and sidecars, restarts and their
//! back-off, deadlines, termination. The agent carries the actions out and reports what it saw; nothing here
//! does anything.

use super::seen::{Container, Exit, Sandbox, Seen, State};
use super::shape::{Shape, Whole};
use super::status::pull_shown_until;
use crate::clock::after;
use jiff::Timestamp;
use std::time::Duration;

/// One thing for the runtime to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    CreateSandbox,
    /// Start a container for the first time or again; `restarts` is what its status will count.
    Start {
        container: String,
        restarts: u32,
    },
    /// Ask a container to end, and kill it after `grace`.
    Stop {
        container: String,
        grace: Duration,
        why: Why,
    },
    /// Do not go on with starts that have not come as far as a process: nobody wants them any more.
    GiveUpStarts,
    /// Take the sandbox down; its containers have ended. Their logs stay.
    StopSandbox,
    /// Forget the pod: nothing of it is left on the node, and the API object may go.
    Release,
}

/// Why a container is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The pod was deleted, evicted, or has finished.
    PodEnds,
    /// Its liveness or startup probe failed too often.
    Unhealthy,
}

/// How the API still knows the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The object exists.
    Listed,
    /// The object was deleted without waiting for this node.
    Gone,
}

/// What the decision rests on.
pub struct Question<'a> {
    pub shape: Shape<'a>,
    pub seen: &'a Seen,
    pub presence: Presence,
    pub now: Timestamp,
}

/// What to do, and when to look again if nothing happens before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub wake: Option<Timestamp>,
}

impl Plan {
    fn wake_by(&mut self, time: Timestamp) {
        self.wake = Some(self.wake.map_or(time, |earlier| earlier.min(time)));
    }
}

/// Decides what to do next for one pod.
pub fn pod(question: &Question<'_>) -> Plan {
    match purpose(question) {
        Purpose::Run => run(question),
        Purpose::End => end(question),
    }
}

/// What is to become of the pod.
#[derive(Debug, PartialEq, Eq)]
pub enum Purpose {
    Run,
    End,
}

/// Whether the pod is to run or to end.
pub fn purpose(question: &Question<'_>) -> Purpose {
    let Question {
        shape, seen, presence, ..
    } = question;
    let over = *presence == Presence::Gone
        || shape.pod.metadata.deletion_timestamp.is_some()
        || seen.verdict.is_some()
        || shape.recorded_end().is_some()
        || outcome(shape, seen).is_some();
    if over { Purpose::End } else { Purpose::Run }
}

/// How a pod ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed,
}

/// The pod's outcome, once none of its containers will run again.
pub fn outcome(shape: &Shape<'_>, seen: &Seen) -> Option<Outcome> {
    if seen.verdict.is_some() {
        return Some(Outcome::Failed);
    }
    let failed_init = shape.plain_inits().any(|init| {
        seen.containers
            .get(&init.name)
            .and_then(|seen| seen.exit())
            .is_some_and(|exit| exit.code != 0 && !shape.restarts(init, exit))
    });
    if failed_init {
        return Some(Outcome::Failed);
    }
    let mut worst = Outcome::Succeeded;
    for container in shape.containers() {
        let seen = seen.containers.get(&container.name)?;
        let exit = seen.exit()?;
        if shape.restarts(container, exit) {
            return None;
        }
        if exit.code != 0 {
            worst = Outcome::Failed;
        }
    }
    Some(worst)
}

/// The time after which an active pod must end, by `activeDeadlineSeconds`.
pub fn active_deadline(shape: &Shape<'_>) -> Option<Timestamp> {
    let allowed = shape.spec.active_deadline_seconds?;
    let start = shape.pod.status.as_ref()?.start_time.as_ref()?.0;
    Some(after(start, Duration::from_secs(u64::try_from(allowed).unwrap_or(0))))
}

fn run(question: &Question<'_>) -> Plan {
    let Question { shape, seen, now, .. } = question;
    let mut plan = Plan::default();
    if let Some(deadline) = active_deadline(shape) {
        plan.wake_by(deadline);
    }
    match &seen.sandbox {
        Sandbox::Absent | Sandbox::Stopped { .. } => plan.actions.push(Action::CreateSandbox),
        Sandbox::Failed { retry_at, .. } if retry_at <= now => plan.actions.push(Action::CreateSandbox),
        Sandbox::Failed { retry_at, .. } => plan.wake_by(*retry_at),
        Sandbox::Creating | Sandbox::Stopping { .. } => {}
        Sandbox::Ready { .. } => start_what_is_due(question, &mut plan),
    }
    plan
}

fn start_what_is_due(question: &Question<'_>, plan: &mut Plan) {
    let Question { shape, seen, now, .. } = question;
    let past_init = shape
        .containers()
        .any(|container| seen.containers.contains_key(&container.name));
    for init in shape.inits() {
        let observed = seen.container(&init.name);
        if shape.is_sidecar(init) {
            consider(init, shape, &observed, *now, plan);
            // The next one waits until the sidecar has started, not until it ends.
            if !past_init && !observed.started {
                return;
            }
        } else if !past_init {
            let succeeded = observed.exit().is_some_and(|exit| exit.code == 0);
            if !succeeded {
                consider(init, shape, &observed, *now, plan);
                return;
            }
        }
    }
    for container in shape.containers() {
        consider(container, shape, &seen.container(&container.name), *now, plan);
    }
    for debugger in shape.debuggers() {
        if !seen.containers.contains_key(debugger) {
            plan.actions.push(Action::Start {
                container: debugger.to_owned(),
                restarts: 0,
            });
        }
    }
}

/// Starts a container if it is time to, or says when it will be.
fn consider(container: &Whole, shape: &Shape<'_>, seen: &Container, now: Timestamp, plan: &mut Plan) {
    let start = |restarts| Action::Start {
        container: container.name.clone(),
        restarts,
    };
    match &seen.state {
        State::New => plan.actions.push(start(0)),
        State::Blocked { retry_at, .. } if *retry_at <= now => plan.actions.push(start(seen.runs())),
        State::Blocked { retry_at, since, .. } => {
            plan.wake_by(*retry_at);
            let shown = pull_shown_until(*since);
            if shown > now {
                plan.wake_by(shown);
            }
        }
        State::Exited(exit) if shape.restarts(container, exit) => {
            let due = seen.backoff.until(exit.finished_at);
            if due <= now {
                plan.actions.push(start(seen.runs()));
            } else {
                plan.wake_by(due);
            }
        }
        State::Starting | State::Running { .. } | State::Stopping { .. } | State::Exited(_) => {}
    }
}

fn end(question: &Question<'_>) -> Plan {
    let Question {
        shape,
        seen,
        presence,
        now,
    } = question;
    let mut plan = Plan::default();
    let grace = shape.grace();
    let stop = |name: &str, plan: &mut Plan| match &seen.container(name).state {
        State::Running { .. } => plan.actions.push(Action::Stop {
            container: name.to_owned(),
            grace,
            why: Why::PodEnds,
        }),
        // Somebody deletes again with less patience.
        State::Stopping { kill_at, .. } if after(*now, grace) < *kill_at => plan.actions.push(Action::Stop {
            container: name.to_owned(),
            grace,
            why: Why::PodEnds,
        }),
        _ => {}
    };
    let wholes = shape.containers().chain(shape.plain_inits());
    for name in wholes.map(|container| container.name.as_str()).chain(shape.debuggers()) {
        stop(name, &mut plan);
    }
    // An image may take half an hour to come.
    if seen
        .containers
        .values()
        .any(|container| container.state == State::Starting)
    {
        plan.actions.push(Action::GiveUpStarts);
    }
    let others_alive = seen
        .containers
        .iter()
        .any(|(name, container)| container.is_alive() && !shape.sidecars().any(|sidecar| sidecar.name == *name));
    if !others_alive {
        // Sidecars go in reverse order, each after those that started later.
        let last = shape
            .sidecars()
            .rev()
            .find(|sidecar| seen.container(&sidecar.name).is_alive());
        if let Some(sidecar) = last {
            stop(&sidecar.name, &mut plan);
        }
    }
    if seen.anything_alive() {
        return plan;
    }
    match &seen.sandbox {
        Sandbox::Ready { .. } => plan.actions.push(Action::StopSandbox),
        Sandbox::Creating | Sandbox::Stopping { .. } => {}
        Sandbox::Absent | Sandbox::Failed { .. } | Sandbox::Stopped { .. } => {
            if *presence == Presence::Gone || shape.pod.metadata.deletion_timestamp.is_some() {
                plan.actions.push(Action::Release);
            }
        }
    }
    plan
}

/// What an exit code and signal are called in a status.
pub fn exit_reason(code: i32, out_of_memory: OutOfMemory) -> &'static str {
    match (code, out_of_memory) {
        (_, OutOfMemory::Yes) => "OOMKilled",
        (0, OutOfMemory::No) => "Completed",
        (_, OutOfMemory::No) => "Error",
    }
}

/// Whether the kernel killed the container for using more memory than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfMemory {
    Yes,
    No,
}

/// An exit for a container that ended without anybody seeing how (the machine or its keeper died).
pub fn lost(id: &str, started_at: Timestamp, now: Timestamp) -> Exit {
    Exit {
        id: id.to_owned(),
        code: 137,
        signal: None,
        reason: "ContainerStatusUnknown".to_owned(),
        message: Some("The container could not be located when the pod was terminated".to_owned()),
        started_at,
        finished_at: now,
    }
}

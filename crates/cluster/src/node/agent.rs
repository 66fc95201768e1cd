//! The agent: one loop that drives all pods of one or many nodes.
//!
//! The loop owns every observation, so nothing is locked and nothing races; runtime calls and API writes run as
//! tasks beside it and report back. A pod at rest costs its memory and nothing else, which is what lets one
//! process carry a hundred hollow nodes with ten thousand pods.

use super::api::{self, Written};
use super::fault::Power;
use super::follow::{Followed, Watches};
use super::plan::{self, Action, Presence, Question};
use super::registration::{LEASE_RENEWAL, NodeConfig, STATUS_RENEWAL};
use super::runtime::{Notice, Readiness, Running, Runtime, RuntimeError, What};
use super::seen::{Sandbox, Seen, State, Verdict};
use super::shape::Shape;
use super::status::{self, Host};
use super::timers::Timers;
use super::voices::Voices;
use crate::clock::{Clock, after};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use stead::{Cache, Watch};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Writes under way at once; more would only queue in the API server.
const WRITES_AT_ONCE: usize = 64;
/// The wait after a failed API write or sandbox.
const RETRY: Duration = Duration::from_secs(1);
/// The longest wait between two tries to make a sandbox.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Drives the pods of some nodes until it is told to stop.
pub struct Agent {
    pub voices: Voices,
    pub clock: Arc<dyn Clock>,
    pub runtime: Arc<dyn Runtime>,
    pub nodes: Vec<NodeConfig>,
    /// A cache of this process that has all pods, and of each as much as the runtime reads. Without one the agent
    /// watches the pods of its nodes by itself.
    pub known: Option<Cache>,
    /// What the runtime reports.
    pub notices: mpsc::UnboundedReceiver<Notice>,
    /// Where the agent's events about pods go.
    pub events: super::events::Recorder,
}

/// One pod on one of the nodes.
pub(super) struct Work {
    pub pod: Arc<Pod>,
    pub seen: Seen,
    pub presence: Presence,
    pub node: usize,
    /// A status write or the final delete is under way.
    writing: bool,
    /// After a failed write: not before this time.
    write_after: Option<Timestamp>,
    first_seen: Timestamp,
    /// A runtime call is under way, by container (empty: the sandbox).
    calls: usize,
    /// What the runtime is asked of the sandbox: two calls at once would undo each other.
    errand: Errand,
    /// How often its machine died: a start that was asked for in an earlier life is in vain.
    lives: u32,
    stage: Stage,
}

/// What the runtime is doing to a pod's sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Errand {
    Nothing,
    /// It makes it, takes it down or removes it, and will answer.
    UnderWay,
    /// The machine died since it was asked: what the answer leaves is removed.
    InVain,
}

/// How far the agent is with a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The runtime has not said yet what it has of the pod: nothing is decided before.
    Adopting,
    Driven,
    /// Nothing is left to do; the object's end will be heard.
    Released,
}

/// What a task beside the loop reports.
enum Done {
    Adopted(String, Seen),
    Sandbox(String, Result<Vec<IpAddr>, RuntimeError>),
    Started(String, Start, Result<Running, RuntimeError>),
    Stopped,
    SandboxStopped(String, Result<(), RuntimeError>),
    Removed(String),
    Written(String, Written),
    Registered(usize, Box<Result<Node, kube::Error>>),
    Renewed(usize, Result<(), kube::Error>),
}

/// What the runtime was asked to start.
struct Start {
    container: String,
    restarts: u32,
    /// How often the machine had died by then.
    lives: u32,
}

/// What a timer is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Pod(String),
    Lease(usize),
    Status(usize),
}

/// One node's own state in the loop.
struct Member {
    config: NodeConfig,
    /// The node's own client.
    client: Client,
    host: Host,
    uid: Option<String>,
    power: Power,
}

struct Loop {
    /// Says what nodes are for.
    registrar: Client,
    clock: Arc<dyn Clock>,
    runtime: Arc<dyn Runtime>,
    events: super::events::Recorder,
    members: Vec<Member>,
    by_name: HashMap<String, usize>,
    pods: HashMap<String, Work>,
    dirty: BTreeSet<String>,
    timers: Timers<Timer>,
    jobs: JoinSet<Done>,
    finished: Vec<Done>,
    writes: Arc<Semaphore>,
    /// News of runs whose start the loop has not heard of yet.
    early: Vec<Notice>,
}

impl Agent {
    /// Runs until `stop`. Pods are left as they are: a later agent adopts them.
    pub async fn run(self, stop: CancellationToken) {
        let Agent {
            voices,
            clock,
            runtime,
            nodes,
            known,
            mut notices,
            events,
        } = self;
        let watches = Watches::new(voices.reader.clone());
        let mut pods = match &known {
            Some(cache) => Followed::of(cache.store()),
            None => watches.follow(pods_of(&nodes, &runtime)),
        };
        let mut watched = watches.follow(match nodes.as_slice() {
            [only] => Watch::<Node>::all().fields(format!("metadata.name={}", only.name)),
            _ => Watch::all(),
        });
        let mut listed = std::pin::pin!(pods.store.wait_for_sync().fuse());
        let mut state = Loop::new(&voices, clock, runtime, events.clone(), nodes);
        loop {
            state.settle();
            let wake = state.next_wake();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(notice) = notices.recv() => {
                    state.notice(notice);
                    while let Ok(notice) = notices.try_recv() {
                        state.notice(notice);
                    }
                }
                Some(done) = state.jobs.join_next() => state.joined(done),
                Some(change) = pods.changes.recv() => state.pod_change(change),
                Some(change) = watched.changes.recv() => state.node_change(change),
                () = &mut listed => state.sweep(&pods.store),
                () = wake => state.fire_timers(),
            }
        }
        // Calls and writes under way end here.
        drop(state);
        events.flush().await;
    }
}

/// The pods of some nodes, without what nobody here reads.
fn pods_of(nodes: &[NodeConfig], runtime: &Arc<dyn Runtime>) -> Watch<Pod> {
    let selector = match nodes {
        [only] => format!("spec.nodeName={}", only.name),
        // One watch for all: a field selector cannot name several nodes.
        _ => "spec.nodeName!=".to_owned(),
    };
    let ours: HashSet<String> = nodes.iter().map(|node| node.name.clone()).collect();
    let runtime = runtime.clone();
    Watch::all().fields(selector).transform(move |pod: &mut Pod| {
        // They are half of a small pod.
        pod.metadata.managed_fields = None;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        match node.is_some_and(|node| ours.contains(node)) {
            true => runtime.trim(pod),
            false => (pod.spec, pod.status) = (None, None),
        }
    })
}

impl Loop {
    fn new(
        voices: &Voices,
        clock: Arc<dyn Clock>,
        runtime: Arc<dyn Runtime>,
        events: super::events::Recorder,
        nodes: Vec<NodeConfig>,
    ) -> Loop {
        let by_name = nodes
            .iter()
            .enumerate()
            .map(|(index, node)| (node.name.clone(), index))
            .collect();
        let scheme = runtime.scheme();
        let members = nodes
            .into_iter()
            .map(|config| Member {
                host: Host {
                    address: config.address,
                    runtime: scheme,
                    isolation: config.isolation.clone(),
                },
                client: voices.node(&config.name),
                config,
                uid: None,
                power: Power::On,
            })
            .collect();
        let mut state = Loop {
            registrar: voices.registrar.clone(),
            clock,
            runtime,
            events,
            members,
            by_name,
            pods: HashMap::new(),
            dirty: BTreeSet::new(),
            timers: Timers::default(),
            jobs: JoinSet::new(),
            finished: Vec::new(),
            writes: Arc::new(Semaphore::new(WRITES_AT_ONCE)),
            early: Vec::new(),
        };
        for index in 0..state.members.len() {
            state.register(index);
        }
        state
    }

    fn next_wake(&self) -> BoxFuture<'static, ()> {
        match self.timers.next() {
            Some(time) => self.clock.sleep_until(time),
            None => futures::future::pending().boxed(),
        }
    }

    fn fire_timers(&mut self) {
        for timer in self.timers.due(self.clock.now()) {
            match timer {
                Timer::Pod(uid) => {
                    self.dirty.insert(uid);
                }
                Timer::Lease(node) => self.renew(node),
                Timer::Status(node) if self.members[node].uid.is_none() => self.register(node),
                Timer::Status(node) => self.report(node),
            }
        }
    }

    /// Runs a call. One that ends at once (every call of a hollow runtime) needs no task.
    fn call(&mut self, mut call: BoxFuture<'static, Done>) {
        match call.as_mut().now_or_never() {
            Some(done) => self.finished.push(done),
            None => {
                self.jobs.spawn(call);
            }
        }
    }

    /// Runs a write beside the loop, at most so many at once.
    fn write(&mut self, write: impl Future<Output = Done> + Send + 'static) {
        let writes = self.writes.clone();
        self.jobs.spawn(async move {
            // The semaphore is never closed; without a permit the write is merely not limited.
            let _permit = writes.acquire().await.ok();
            write.await
        });
    }

    /// Runs a write that cannot wait behind others: a node that is late with its lease is taken for lost.
    fn write_now(&mut self, write: impl Future<Output = Done> + Send + 'static) {
        self.jobs.spawn(write);
    }

    /// Works until nothing is left that can be done now.
    fn settle(&mut self) {
        loop {
            for done in std::mem::take(&mut self.finished) {
                self.done(done);
            }
            let Some(uid) = self.dirty.pop_first() else {
                if self.finished.is_empty() {
                    return;
                }
                continue;
            };
            self.sync(&uid);
        }
    }

    fn joined(&mut self, done: Result<Done, tokio::task::JoinError>) {
        match done {
            Ok(done) => self.finished.push(done),
            Err(error) => tracing::error!(%error, "a task of the node agent ended without an answer"),
        }
    }

    /// Looks at one pod: decides, acts, and writes its status if it changed.
    fn sync(&mut self, uid: &str) {
        let now = self.clock.now();
        let Some(work) = self.pods.get_mut(uid) else { return };
        let member = &self.members[work.node];
        if member.power == Power::Off || work.stage != Stage::Driven {
            return;
        }
        let pod = work.pod.clone();
        let shape = Shape::of(&pod);
        if work.seen.verdict.is_none()
            && shape.recorded_end().is_none()
            && plan::active_deadline(&shape).is_some_and(|deadline| deadline <= now)
        {
            work.seen.verdict = Some(Verdict {
                reason: "DeadlineExceeded".to_owned(),
                message: "Pod was active on the node longer than the specified deadline".to_owned(),
            });
        }
        let question = Question {
            shape,
            seen: &work.seen,
            presence: work.presence,
            now,
        };
        let plan = plan::pod(&question);
        if let Some(wake) = plan.wake {
            self.timers.set(Timer::Pod(uid.to_owned()), wake);
        }
        let mut release = false;
        for action in plan.actions {
            match action {
                Action::Release => release = true,
                action => self.act(uid, &pod, action, now),
            }
        }
        // An answer that came at once changes what there is to say: look again before writing.
        if self.finished.is_empty() {
            self.publish(uid, release, now);
        } else {
            self.dirty.insert(uid.to_owned());
        }
    }

    fn act(&mut self, uid: &str, pod: &Arc<Pod>, action: Action, now: Timestamp) {
        let Some(work) = self.pods.get_mut(uid) else { return };
        if action == Action::GiveUpStarts {
            self.runtime.give_up_starts(uid);
            return;
        }
        let (runtime, pod, uid) = (self.runtime.clone(), pod.clone(), uid.to_owned());
        work.calls += 1;
        let call: BoxFuture<'static, Done> = match action {
            Action::CreateSandbox => {
                if !matches!(work.seen.sandbox, Sandbox::Failed { .. }) {
                    work.seen.sandbox = Sandbox::Creating;
                }
                work.errand = Errand::UnderWay;
                Box::pin(async move { Done::Sandbox(uid, runtime.create_sandbox(pod).await) })
            }
            Action::Start { container, restarts } => {
                let entry = work.seen.containers.entry(container.clone()).or_default();
                if let State::Exited(exit) = &entry.state {
                    entry.previous = Some(exit.clone());
                    entry.backoff = entry.backoff.at_exit(exit.finished_at).raised(now);
                }
                entry.state = State::Starting;
                entry.started = false;
                entry.ready = false;
                let lives = work.lives;
                Box::pin(async move {
                    let result = runtime.start(pod, container.clone(), restarts).await;
                    let start = Start {
                        container,
                        restarts,
                        lives,
                    };
                    Done::Started(uid, start, result)
                })
            }
            Action::Stop { container, grace, .. } => {
                let entry = work.seen.containers.entry(container.clone()).or_default();
                let (State::Running { id, since } | State::Stopping { id, since, .. }) = entry.state.clone() else {
                    work.calls -= 1;
                    return;
                };
                entry.state = State::Stopping {
                    id: id.clone(),
                    since,
                    kill_at: after(now, grace),
                };
                self.events
                    .normal(&pod, "Killing", &format!("Stopping container {container}"), now);
                Box::pin(async move {
                    runtime.stop(pod, container, id, grace).await;
                    Done::Stopped
                })
            }
            Action::StopSandbox => {
                work.seen.sandbox = work.seen.sandbox.stopping();
                work.errand = Errand::UnderWay;
                Box::pin(async move { Done::SandboxStopped(uid, runtime.stop_sandbox(pod).await) })
            }
            Action::GiveUpStarts | Action::Release => return,
        };
        self.call(call);
    }
}

mod inputs;
mod power;
mod publish;
#[cfg(test)]
mod tests;

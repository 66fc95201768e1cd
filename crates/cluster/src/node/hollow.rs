//! The hollow runtime: pods go through their life without processes.
//!
//! For scale (ten thousand pods cost only what the API costs) and for deterministic tests on a virtual clock.
//! Annotations of the pod script what happens: see [`Script`].

use super::runtime::{Notice, Notices, Readiness, Running, Runtime, RuntimeError, What};
use super::seen::{Backoff, Container, Exit, Sandbox, Seen, State};
use super::shape::Shape;
use crate::clock::{Clock, after};
use crate::controllers::trimming;
use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The prefix of the annotations that script a hollow pod.
const PREFIX: &str = "hollow.stead.dev/";

/// How long a container takes to end when it is asked to. No process ends in no time, and clients rely on that: whoever
/// deletes a pod gracefully looks at it once more.
const STOP_AFTER: Duration = Duration::from_millis(200);

/// What a hollow pod's annotations ask for. Durations are like `250ms`, `5s`, `2m`.
#[derive(Debug, Default, PartialEq)]
pub struct Script {
    /// `start-after`: how long a container takes to start.
    start_after: Duration,
    /// `ready-after`: how long it takes to become ready; `never` keeps it unready.
    ready_after: Option<Duration>,
    never_ready: bool,
    /// `exit-after`: containers end by themselves after this time.
    exit_after: Option<Duration>,
    /// `exit-code`: with which code they end by themselves (default 0).
    exit_code: i32,
    /// `stop-after`: how long they take to end when asked, at most the grace period ([`STOP_AFTER`] if it is not said).
    stop_after: Option<Duration>,
    /// `fail`: `sandbox`, `image` or `config` never get further than that.
    fail: Option<String>,
}

impl Script {
    /// Reads the script of a pod. What cannot be read counts as absent: a test sees at once that nothing happens.
    pub fn of(shape: &Shape<'_>) -> Script {
        let text = |name: &str| shape.annotation(&format!("{PREFIX}{name}"));
        if shape.pod.metadata.annotations.is_none() {
            return Script::default();
        }
        let time = |name: &str| text(name).and_then(duration);
        Script {
            start_after: time("start-after").unwrap_or_default(),
            ready_after: time("ready-after"),
            never_ready: text("ready-after") == Some("never"),
            exit_after: time("exit-after"),
            exit_code: text("exit-code").and_then(|code| code.parse().ok()).unwrap_or(0),
            stop_after: time("stop-after"),
            fail: text("fail").map(str::to_owned),
        }
    }
}

/// Reads `250ms`, `5s`, `2m` or `1h`.
fn duration(text: &str) -> Option<Duration> {
    let split = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().ok()?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.checked_mul(millis)?))
}

/// Runs nothing, and says that it does.
pub struct Hollow {
    clock: Arc<dyn Clock>,
    notices: Notices,
    next_address: AtomicU32,
    next_id: AtomicU32,
    /// Containers that were asked to end and take their time: a shorter grace ends them sooner.
    ending: Mutex<HashMap<String, tokio::task::AbortHandle>>,
}

/// The first address given to a hollow pod. The range is reserved for tests of devices: no real network has it.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([198, 19, 0, 1]);
/// How many addresses there are before they repeat.
const ADDRESSES: u32 = 65_000;

impl Hollow {
    pub fn new(clock: Arc<dyn Clock>, notices: Notices) -> Hollow {
        Hollow {
            clock,
            notices,
            next_address: AtomicU32::new(0),
            next_id: AtomicU32::new(0),
            ending: Mutex::default(),
        }
    }

    fn address(&self) -> IpAddr {
        let number = self.next_address.fetch_add(1, Ordering::Relaxed) % ADDRESSES;
        IpAddr::V4(Ipv4Addr::from_bits(FIRST_ADDRESS + number))
    }

    /// Reports an end after `delay`; at once, without a task, if there is none.
    fn end_after(&self, delay: Duration, code: i32, run: Run) -> Option<tokio::task::AbortHandle> {
        let notices = self.notices.clone();
        let clock = self.clock.clone();
        let report = move |now: Timestamp| {
            let exit = Exit {
                id: run.id.clone(),
                code,
                signal: None,
                reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
                message: None,
                started_at: run.since,
                finished_at: now,
            };
            // The receiver is gone only when the agent has ended: nobody is left to tell.
            let _ = notices.send(Notice {
                pod: run.pod,
                container: run.container,
                id: run.id,
                what: What::Exited(exit),
            });
        };
        if delay.is_zero() {
            report(clock.now());
            return None;
        }
        let deadline = after(clock.now(), delay);
        let task = tokio::spawn(async move {
            clock.sleep_until(deadline).await;
            report(clock.now());
        });
        Some(task.abort_handle())
    }
}

/// One run of a hollow container.
struct Run {
    pod: String,
    container: String,
    id: String,
    since: Timestamp,
}

#[async_trait]
impl Runtime for Hollow {
    fn scheme(&self) -> &'static str {
        "hollow"
    }

    /// As for the controllers, whose cache hollow nodes share where both are in one process.
    fn trim(&self, pod: &mut Pod) {
        trimming::pod(pod);
    }

    async fn adopt(&self, pod: &Pod) -> Seen {
        from_status(pod)
    }

    async fn known(&self) -> Vec<String> {
        Vec::new()
    }

    async fn create_sandbox(&self, pod: Arc<Pod>) -> Result<Vec<IpAddr>, RuntimeError> {
        match Script::of(&Shape::of(&pod)).fail.as_deref() {
            Some("sandbox") => Err(RuntimeError::Machine {
                reason: "FailedCreatePodSandBox",
                message: "the script says that the sandbox fails".to_owned(),
            }),
            _ => Ok(vec![self.address()]),
        }
    }

    async fn start(&self, pod: Arc<Pod>, container: String, _restarts: u32) -> Result<Running, RuntimeError> {
        let shape = Shape::of(&pod);
        let script = Script::of(&shape);
        if !script.start_after.is_zero() {
            self.clock
                .sleep_until(after(self.clock.now(), script.start_after))
                .await;
        }
        let image = shape
            .find(&container)
            .and_then(|found| found.image.clone())
            .unwrap_or_default();
        match script.fail.as_deref() {
            Some("image") => {
                return Err(RuntimeError::Image {
                    reason: "ErrImagePull",
                    message: format!("failed to pull image \"{image}\": the script says so"),
                });
            }
            Some("config") => {
                return Err(RuntimeError::Configuration {
                    reason: "CreateContainerConfigError",
                    message: "the script says that the configuration is missing".to_owned(),
                });
            }
            _ => {}
        }
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{number:08x}", shape.uid());
        let since = self.clock.now();
        let run = || Run {
            pod: shape.uid().to_owned(),
            container: container.clone(),
            id: id.clone(),
            since,
        };
        let init = shape.plain_inits().any(|init| init.name == container);
        if init {
            self.end_after(script.exit_after.unwrap_or_default(), 0, run());
        } else if let Some(delay) = script.exit_after {
            self.end_after(delay, script.exit_code, run());
        }
        let ready_at = script.ready_after.filter(|delay| !delay.is_zero());
        if let Some(delay) = ready_at {
            let (clock, notices) = (self.clock.clone(), self.notices.clone());
            let deadline = after(since, delay);
            let notice = Notice {
                pod: shape.uid().to_owned(),
                container: container.clone(),
                id: id.clone(),
                what: What::Ready(Readiness::Ready),
            };
            tokio::spawn(async move {
                clock.sleep_until(deadline).await;
                let _ = notices.send(notice);
            });
        }
        Ok(Running {
            since,
            image_id: format!("hollow://{image}"),
            id,
            started: true,
            ready: if ready_at.is_some() || script.never_ready {
                Readiness::NotReady
            } else {
                Readiness::Ready
            },
        })
    }

    async fn stop(&self, pod: Arc<Pod>, container: String, id: String, grace: Duration) {
        let shape = Shape::of(&pod);
        let wanted = Script::of(&shape).stop_after.unwrap_or(STOP_AFTER.min(grace));
        // One that would outlast its grace is killed at the end of it, and its exit code shows that.
        let code = if wanted > grace { 137 } else { 0 };
        let run = Run {
            pod: shape.uid().to_owned(),
            container,
            id: id.clone(),
            since: self.clock.now(),
        };
        let task = self.end_after(wanted.min(grace), code, run);
        let mut ending = self.ending.lock();
        let earlier = match task {
            Some(task) => ending.insert(id, task),
            None => ending.remove(&id),
        };
        if let Some(earlier) = earlier {
            earlier.abort();
        }
    }

    async fn stop_sandbox(&self, pod: Arc<Pod>) -> Result<(), RuntimeError> {
        let mut ending = self.ending.lock();
        if !ending.is_empty() {
            let prefix = format!("{}-", Shape::of(&pod).uid());
            ending.retain(|id, _| !id.starts_with(&prefix));
        }
        Ok(())
    }

    async fn remove(&self, _uid: &str) -> Result<(), RuntimeError> {
        Ok(())
    }
}

/// What a hollow node remembers of a pod is what the API has: a restarted agent goes on from there.
fn from_status(pod: &Pod) -> Seen {
    let Some(status) = &pod.status else {
        return Seen::default();
    };
    let mut seen = Seen::default();
    let addresses: Vec<IpAddr> = status
        .pod_ips
        .iter()
        .flatten()
        .filter_map(|address| address.ip.parse().ok())
        .collect();
    if !addresses.is_empty() {
        seen.sandbox = match status.phase.as_deref() {
            Some("Succeeded" | "Failed") => Sandbox::Stopped { addresses },
            _ => Sandbox::Ready { addresses },
        };
    }
    let inits = status.init_container_statuses.iter().flatten();
    for container in inits.chain(status.container_statuses.iter().flatten()) {
        if let Some(found) = container_from_status(container) {
            seen.containers.insert(container.name.clone(), Box::new(found));
        }
    }
    seen
}

fn container_from_status(status: &ContainerStatus) -> Option<Container> {
    let id = status.container_id.as_deref()?.split_once("://")?.1;
    let state = status.state.as_ref()?;
    let previous = status
        .last_state
        .as_ref()
        .and_then(|last| Some(exit_from(last.terminated.as_ref()?)));
    let state = if let Some(running) = &state.running {
        State::Running {
            id: id.to_owned(),
            since: running.started_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        }
    } else {
        let exit = state.terminated.as_ref().map(exit_from).or_else(|| previous.clone())?;
        State::Exited(exit)
    };
    Some(Container {
        state,
        restarts: u32::try_from(status.restart_count).unwrap_or(0),
        previous,
        backoff: Backoff::default(),
        started: status.started.unwrap_or(false),
        ready: status.ready,
        image_id: status.image_id.clone(),
    })
}

fn exit_from(terminated: &ContainerStateTerminated) -> Exit {
    let time = |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
        time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
    };
    let id = terminated.container_id.as_deref().unwrap_or_default();
    Exit {
        id: id.split_once("://").map_or(id, |(_, id)| id).to_owned(),
        code: terminated.exit_code,
        signal: terminated.signal,
        reason: terminated.reason.clone().unwrap_or_default(),
        message: terminated.message.clone(),
        started_at: time(&terminated.started_at),
        finished_at: time(&terminated.finished_at),
    }
}

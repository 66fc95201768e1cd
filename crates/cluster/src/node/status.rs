//! The status of a pod, as a kubelet writes it.
//!
//! Controllers, schedulers and people read these words; they are Kubernetes' own. The function is pure, so that a
//! status is written only when it differs from what the API has.

mod conditions;

use super::plan::{Outcome, Presence, Purpose, Question, outcome, purpose};
use super::registration::Isolation;
use super::seen::{Container, Exit, Sandbox, Seen, State};
use super::shape::{Shape, Whole};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, HostIP,
    PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::net::IpAddr;

/// What about the node appears in a pod's status.
#[derive(Clone, Debug)]
pub struct Host {
    pub address: IpAddr,
    /// The scheme of container identifiers: `hollow` or `process`.
    pub runtime: &'static str,
    /// What keeps its pods apart.
    pub isolation: Isolation,
}

/// A time as the API keeps it: whole seconds.
pub fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// The status that the API should have.
pub fn of(question: &Question<'_>, host: &Host) -> PodStatus {
    let Question { shape, seen, now, .. } = question;
    let old = shape.pod.status.clone().unwrap_or_default();
    let ends = purpose(question) == Purpose::End;
    let (phase, reason, message) = phase(question);
    let writer = Writer {
        shape,
        seen,
        host,
        ends,
        now: *now,
    };
    let addresses: Vec<IpAddr> = if shape.uses_host_network() && !seen.sandbox.addresses().is_empty() {
        vec![host.address]
    } else {
        seen.sandbox.addresses().to_vec()
    };
    let mut status = PodStatus {
        phase: Some(phase.to_owned()),
        reason,
        message,
        host_ip: Some(host.address.to_string()),
        host_ips: Some(vec![HostIP {
            ip: host.address.to_string(),
        }]),
        start_time: old.start_time.clone().or_else(|| Some(whole_seconds(*now))),
        observed_generation: shape.pod.metadata.generation,
        ..PodStatus::default()
    };
    if !addresses.is_empty() {
        status.pod_ip = addresses.first().map(ToString::to_string);
        status.pod_ips = Some(addresses.iter().map(|ip| PodIP { ip: ip.to_string() }).collect());
    } else {
        status.pod_ip = old.pod_ip.clone();
        status.pod_ips = old.pod_ips.clone();
    }
    let statuses = |containers: Vec<&Whole>| -> Option<Vec<ContainerStatus>> {
        (!containers.is_empty()).then(|| {
            containers
                .into_iter()
                .map(|container| match kept(question, &old, container) {
                    Some(recorded) => recorded.clone(),
                    None => writer.container(container),
                })
                .collect()
        })
    };
    status.init_container_statuses = statuses(shape.inits().collect());
    status.container_statuses = statuses(shape.containers().collect());
    let debuggers: Vec<Whole> = shape
        .debuggers()
        .filter_map(|name| Some(shape.find(name)?.into_owned()))
        .collect();
    status.ephemeral_container_statuses = statuses(debuggers.iter().collect());
    status.conditions = Some(conditions::of(question, &host.isolation, &old, &status));
    status
}

/// What the API has of a container of a pod that has ended: a later agent knows no better how that was, and mostly
/// less.
fn kept<'a>(question: &Question<'_>, old: &'a PodStatus, container: &Whole) -> Option<&'a ContainerStatus> {
    let Question { shape, seen, .. } = question;
    if shape.recorded_end().is_none() || seen.anything_alive() {
        return None;
    }
    let lists = [
        &old.container_statuses,
        &old.init_container_statuses,
        &old.ephemeral_container_statuses,
    ];
    let mut recorded = lists.into_iter().flatten().flatten();
    let recorded = recorded.find(|status| status.name == container.name)?;
    let terminated = recorded.state.as_ref().is_some_and(|state| state.terminated.is_some());
    let unknown = matches!(seen.container(&container.name).state, State::New);
    (terminated || unknown).then_some(recorded)
}

fn phase(question: &Question<'_>) -> (&'static str, Option<String>, Option<String>) {
    let Question {
        shape, seen, presence, ..
    } = question;
    if let Some(verdict) = &seen.verdict {
        return ("Failed", Some(verdict.reason.clone()), Some(verdict.message.clone()));
    }
    if let Some(recorded) = shape.recorded_end() {
        // A phase that says the end is never taken back.
        let status = shape.pod.status.as_ref();
        let phase = if recorded == "Failed" { "Failed" } else { "Succeeded" };
        return (
            phase,
            status.and_then(|status| status.reason.clone()),
            status.and_then(|status| status.message.clone()),
        );
    }
    if !seen.anything_alive()
        && let Some(outcome) = outcome(shape, seen)
    {
        let phase = match outcome {
            Outcome::Succeeded => "Succeeded",
            Outcome::Failed => "Failed",
        };
        return (phase, None, None);
    }
    let ending = *presence == Presence::Gone || shape.pod.metadata.deletion_timestamp.is_some();
    let exits: Vec<&Exit> = shape
        .containers()
        .filter_map(|container| seen.containers.get(&container.name)?.exit())
        .collect();
    if ending && !seen.anything_alive() {
        // Nothing of a pod that is being deleted will run again: say how it went before the object goes.
        let clean = exits.len() == shape.containers().count() && exits.iter().all(|exit| exit.code == 0);
        return (if clean { "Succeeded" } else { "Failed" }, None, None);
    }
    if !initialized(shape, seen) {
        return ("Pending", None, None);
    }
    let tried = |container: &Whole| {
        seen.containers.get(&container.name).is_some_and(|seen| {
            seen.previous.is_some() || !matches!(seen.state, State::New | State::Starting | State::Blocked { .. })
        })
    };
    let all_tried = shape.containers().all(tried);
    let phase = if all_tried { "Running" } else { "Pending" };
    (phase, None, None)
}

/// Whether every init container has done its part.
fn initialized(shape: &Shape<'_>, seen: &Seen) -> bool {
    let started = shape
        .containers()
        .any(|container| seen.containers.contains_key(&container.name));
    started || incomplete_inits(shape, seen).is_empty()
}

fn incomplete_inits<'a>(shape: &Shape<'a>, seen: &Seen) -> Vec<&'a str> {
    let done = |init: &Whole| {
        let observed = seen.container(&init.name);
        if shape.is_sidecar(init) {
            observed.started
        } else {
            observed.exit().is_some_and(|exit| exit.code == 0)
        }
    };
    shape
        .inits()
        .filter(|init| !done(init))
        .map(|init| init.name.as_str())
        .collect()
}

struct Writer<'a> {
    shape: &'a Shape<'a>,
    seen: &'a Seen,
    host: &'a Host,
    ends: bool,
    now: Timestamp,
}

impl Writer<'_> {
    fn container(&self, container: &Whole) -> ContainerStatus {
        let seen = self.seen.container(&container.name);
        let sidecar_or_regular = self.shape.plain_inits().all(|init| init.name != container.name);
        let running = matches!(seen.state, State::Running { .. } | State::Stopping { .. });
        let ready = if sidecar_or_regular {
            running && seen.ready
        } else {
            seen.exit().is_some_and(|exit| exit.code == 0)
        };
        let image = container.image.clone().unwrap_or_default();
        let (state, last) = self.states(container, &seen);
        let id = match &seen.state {
            State::Running { id, .. } | State::Stopping { id, .. } => Some(id),
            State::Exited(exit) => Some(&exit.id),
            _ => seen.previous.as_ref().map(|exit| &exit.id),
        };
        ContainerStatus {
            name: container.name.clone(),
            image_id: seen.image_id.clone(),
            image,
            ready,
            started: Some(if sidecar_or_regular {
                running && seen.started
            } else {
                running
            }),
            restart_count: i32::try_from(seen.restarts).unwrap_or(i32::MAX),
            container_id: id.map(|id| self.identifier(id)),
            state: Some(state),
            last_state: Some(last.unwrap_or_default()),
            resources: container.resources.clone(),
            allocated_resources: container
                .resources
                .as_ref()
                .and_then(|resources| resources.requests.clone()),
            ..ContainerStatus::default()
        }
    }

    fn identifier(&self, id: &str) -> String {
        format!("{}://{id}", self.host.runtime)
    }

    fn states(&self, container: &Whole, seen: &Container) -> (ContainerState, Option<ContainerState>) {
        let waiting = |reason: &str, message: Option<String>| ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some(reason.to_owned()),
                message,
            }),
            ..ContainerState::default()
        };
        let previous = seen.previous.as_ref().map(|exit| self.terminated(exit));
        match &seen.state {
            State::New | State::Starting => {
                let had_inits = self.shape.inits().next().is_some();
                let reason = if had_inits {
                    "PodInitializing"
                } else {
                    "ContainerCreating"
                };
                (waiting(reason, self.sandbox_trouble()), previous)
            }
            State::Blocked {
                reason, message, since, ..
            } => {
                let (reason, message) = if reason == "ErrImagePull" && self.now >= pull_shown_until(*since) {
                    let image = container.image.as_deref().unwrap_or_default();
                    (
                        "ImagePullBackOff",
                        format!("Back-off pulling image \"{image}\": ErrImagePull: {message}"),
                    )
                } else {
                    (reason.as_str(), message.clone())
                };
                (waiting(reason, Some(message)), previous)
            }
            State::Running { since, .. } | State::Stopping { since, .. } => (
                ContainerState {
                    running: Some(ContainerStateRunning {
                        started_at: Some(whole_seconds(*since)),
                    }),
                    ..ContainerState::default()
                },
                previous,
            ),
            State::Exited(exit) => {
                let backoff = seen.backoff.at_exit(exit.finished_at).seconds;
                let again = !self.ends && self.shape.restarts(container, exit);
                if again && backoff > 0 && seen.backoff.until(exit.finished_at) > self.now {
                    let message = format!(
                        "back-off {} restarting failed container={} pod={}_{}({})",
                        go_duration(backoff),
                        container.name,
                        self.shape.name(),
                        self.shape.namespace(),
                        self.shape.uid(),
                    );
                    (waiting("CrashLoopBackOff", Some(message)), Some(self.terminated(exit)))
                } else {
                    (self.terminated(exit), previous)
                }
            }
        }
    }

    fn sandbox_trouble(&self) -> Option<String> {
        match &self.seen.sandbox {
            Sandbox::Failed { message, .. } => Some(message.clone()),
            _ => None,
        }
    }

    fn terminated(&self, exit: &Exit) -> ContainerState {
        ContainerState {
            terminated: Some(ContainerStateTerminated {
                container_id: Some(self.identifier(&exit.id)),
                exit_code: exit.code,
                signal: exit.signal,
                reason: Some(exit.reason.clone()),
                message: exit.message.clone(),
                started_at: Some(whole_seconds(exit.started_at)),
                finished_at: Some(whole_seconds(exit.finished_at)),
            }),
            ..ContainerState::default()
        }
    }
}

/// Until when a failed pull shows its own error, before it shows the wait for the next try.
pub fn pull_shown_until(failed_at: Timestamp) -> Timestamp {
    crate::clock::after(failed_at, std::time::Duration::from_secs(2))
}

/// A whole number of seconds as Go prints a duration: clients know the words `10s` and `2m40s`.
fn go_duration(seconds: u32) -> String {
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

//! Why pods are not ready, in words that say what to change.
//!
//! A condition that says "3 of 5" helps nobody; the first thing that a person can do something about does.

use crate::situation::Situation;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use stead_apis::WebApp;
use stead_apis::webapp::container::Profile;

/// Reasons for which a container that is confined may fail where it would not otherwise.
const FAILED_TO_RUN: &[&str] = &[
    "CrashLoopBackOff",
    "ContainerFailed",
    "RunContainerError",
    "CreateContainerError",
];

/// A program may take this long before it answers without anybody being told.
const USUAL_START: SignedDuration = SignedDuration::from_secs(10);

/// What keeps the first pod that is not ready from being so, in a sentence.
pub fn trouble(app: &WebApp, situation: &Situation<'_>, now: Timestamp) -> Option<String> {
    let mut pods: Vec<&Pod> = situation.seen.pods.iter().map(AsRef::as_ref).collect();
    pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    pods.into_iter()
        .find_map(|pod| {
            let (reason, message) = pod_trouble(pod, now)?;
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let restricted = app
                .spec
                .security
                .as_ref()
                .is_some_and(|s| s.profile == Profile::Restricted);
            let hint = if restricted && message.contains("runAsNonRoot") {
                "; the image runs as root: set spec.security.runAsUser, or relax spec.security.profile to Default"
            } else if restricted && FAILED_TO_RUN.contains(&reason.as_str()) {
                "; if the image cannot run without root or capabilities, relax spec.security.profile to Default"
            } else {
                ""
            };
            Some(if message.is_empty() {
                format!("{name}: {reason}{hint}")
            } else {
                format!("{name}: {reason}: {message}{hint}")
            })
        })
        .or_else(|| refused_pods(situation))
}

/// Why no pod is even made: what quota, policies or the namespace's Pod Security level refuse.
fn refused_pods(situation: &Situation<'_>) -> Option<String> {
    let status = situation.seen.stable.as_ref()?.status.as_ref()?;
    let failure = status.conditions.iter().flatten();
    let failure = failure
        .into_iter()
        .find(|c| c.type_ == "ReplicaFailure" && c.status == "True")?;
    let message = failure.message.clone().unwrap_or_default();
    let hint = if message.contains("violates PodSecurity") {
        "; the namespace asks for more: set spec.security.profile to Restricted"
    } else {
        ""
    };
    Some(format!("{message}{hint}"))
}

/// Why a pod is not ready: what its containers wait for, else why it was not scheduled.
fn pod_trouble(pod: &Pod, now: Timestamp) -> Option<(String, String)> {
    let status = pod.status.as_ref()?;
    let containers = status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten());
    for container in containers {
        let Some(state) = &container.state else { continue };
        if let Some(wait) = state.waiting.as_ref().filter(|wait| {
            !matches!(
                wait.reason.as_deref(),
                Some("ContainerCreating" | "PodInitializing") | None
            )
        }) {
            return Some((
                wait.reason.clone().unwrap_or_default(),
                wait.message.clone().unwrap_or_default(),
            ));
        }
        if let Some(end) = state.terminated.as_ref().filter(|end| end.exit_code != 0) {
            return Some(("ContainerFailed".to_string(), format!("exit code {}", end.exit_code)));
        }
    }
    let unscheduled = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    if let Some(unscheduled) = unscheduled {
        return Some((
            unscheduled.reason.clone().unwrap_or_default(),
            unscheduled.message.clone().unwrap_or_default(),
        ));
    }
    let mut running = unready(pod);
    let (container, _) = running.find(|(_, since)| *since + USUAL_START <= now)?;
    unanswered(pod, container)
}

/// When a pod that only takes its usual time to start will be taken for one in trouble.
pub fn next_trouble(situation: &Situation<'_>, now: Timestamp) -> Option<Timestamp> {
    let pods = situation.seen.pods.iter();
    let times = pods.flat_map(|pod| unready(pod).map(|(_, since)| since + USUAL_START));
    times.filter(|time| *time > now).min()
}

/// The containers of a pod that run without being ready, and since when they run.
fn unready(pod: &Pod) -> impl Iterator<Item = (&str, Timestamp)> {
    let containers = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    containers.filter_map(|container| {
        let since = container.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0;
        let unready = container.started == Some(true) && !container.ready;
        unready.then_some((container.name.as_str(), since))
    })
}

/// A container that runs and does not answer often listens on another port than the spec says: name the one that was tried.
fn unanswered(pod: &Pod, container: &str) -> Option<(String, String)> {
    let containers = &pod.spec.as_ref()?.containers;
    let container = containers.iter().find(|found| found.name == container)?;
    let probe = container.readiness_probe.as_ref()?;
    let http = probe.http_get.as_ref().map(|get| &get.port);
    let port = http.or(probe.tcp_socket.as_ref().map(|socket| &socket.port));
    let number = port.and_then(|port| match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            Some(ports.find(|port| port.name.as_ref() == Some(name))?.container_port)
        }
    });
    let tried = number.map(|number| format!(" on port {number}")).unwrap_or_default();
    let message = format!("it runs, but its readiness probe{tried} has not succeeded");
    Some(("NotReady".to_string(), message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn told(probe: Value, status: Value) -> Option<String> {
        told_at("2026-01-01T00:00:10Z", probe, status)
    }

    fn told_at(now: &str, probe: Value, status: Value) -> Option<String> {
        let app = json!({"name": "app", "ports": [{"name": "http", "containerPort": 80}], "readinessProbe": probe});
        let mut container = json!({"name": "app", "image": "x", "imageID": "", "restartCount": 0, "started": true,
            "ready": false, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}});
        for (name, value) in status.as_object().expect("an object") {
            container[name] = value.clone();
        }
        let pod = json!({"spec": {"containers": [app]}, "status": {"containerStatuses": [container]}});
        let pod = serde_json::from_value(pod).expect("a pod");
        pod_trouble(&pod, now.parse().expect("a time")).map(|(reason, message)| format!("{reason}: {message}"))
    }

    #[test]
    fn a_probe_that_does_not_succeed_is_told_with_the_port_that_it_tries() {
        let on_80 = "NotReady: it runs, but its readiness probe on port 80 has not succeeded";
        let named = json!({"tcpSocket": {"port": "http"}});
        assert_eq!(told(named.clone(), json!({})).as_deref(), Some(on_80));
        let by_http = told(json!({"httpGet": {"port": 80, "path": "/"}}), json!({}));
        assert_eq!(by_http.as_deref(), Some(on_80));
        let by_command = told(json!({"exec": {"command": ["true"]}}), json!({}));
        assert_eq!(
            by_command.as_deref(),
            Some("NotReady: it runs, but its readiness probe has not succeeded")
        );
        assert_eq!(told(named.clone(), json!({"ready": true})), None);
        assert_eq!(told(named.clone(), json!({"started": false})), None);
        assert_eq!(
            told_at("2026-01-01T00:00:09Z", named, json!({})),
            None,
            "it has only just begun"
        );
    }
}

//! Why pods are not ready, in words that say what to change.
//!
//! A condition that says "3 of 5" helps nobody; the first thing that a person can do something about does.

use crate::situation::Situation;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
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
    let mut pods: Vec<&Pod> = staying(situation).collect();
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

/// The pods that are not going away: what those lack is no trouble of the application.
fn staying<'a>(situation: &'a Situation<'_>) -> impl Iterator<Item = &'a Pod> {
    let pods = situation.seen.pods.iter().map(AsRef::as_ref);
    pods.filter(|pod: &&Pod| pod.metadata.deletion_timestamp.is_none())
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
    let (container, _) = unready(pod).find(|(_, due)| *due <= now)?;
    unanswered(container)
}

/// When a pod that only takes its usual time to start will be taken for one in trouble.
pub fn next_trouble(situation: &Situation<'_>, now: Timestamp) -> Option<Timestamp> {
    let times = staying(situation).flat_map(|pod| unready(pod).map(|(_, due)| due));
    times.filter(|time| *time > now).min()
}

/// The containers of a pod that run without being ready, and when that is no usual start any more: their probe was asked
/// by then.
fn unready(pod: &Pod) -> impl Iterator<Item = (&Container, Timestamp)> {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    statuses.filter_map(|status| {
        let since = status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0;
        let mut containers = pod.spec.as_ref()?.containers.iter();
        let container = containers.find(|container| container.name == status.name)?;
        let unready = status.started == Some(true) && !status.ready;
        let probe = container.readiness_probe.as_ref().filter(|_| unready)?;
        let before = probe.initial_delay_seconds.unwrap_or(0);
        // Kubernetes asks every ten seconds unless told otherwise: within the usual start, then.
        let between = probe.period_seconds.filter(|seconds| *seconds > 10).unwrap_or(0);
        let asked = SignedDuration::from_secs(i64::from(before) + i64::from(between));
        let due = since.checked_add(USUAL_START).and_then(|due| due.checked_add(asked));
        Some((container, due.ok()?))
    })
}

/// A container that runs and does not answer often listens on another port than the spec says: name the one that was tried.
fn unanswered(container: &Container) -> Option<(String, String)> {
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
    let message = format!("it runs, but its readiness probe{tried} does not succeed");
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
        let on_80 = "NotReady: it runs, but its readiness probe on port 80 does not succeed";
        let named = json!({"tcpSocket": {"port": "http"}});
        assert_eq!(told(named.clone(), json!({})).as_deref(), Some(on_80));
        let by_http = told(json!({"httpGet": {"port": 80, "path": "/"}}), json!({}));
        assert_eq!(by_http.as_deref(), Some(on_80));
        let by_command = told(json!({"exec": {"command": ["true"]}}), json!({}));
        assert_eq!(
            by_command.as_deref(),
            Some("NotReady: it runs, but its readiness probe does not succeed")
        );
        let late = json!({"tcpSocket": {"port": 80}, "initialDelaySeconds": 60, "periodSeconds": 30});
        assert_eq!(
            told_at("2026-01-01T00:01:39Z", late.clone(), json!({})),
            None,
            "nobody has asked yet"
        );
        assert_eq!(told_at("2026-01-01T00:01:40Z", late, json!({})).as_deref(), Some(on_80));
        assert_eq!(told(named.clone(), json!({"ready": true})), None);
        assert_eq!(told(named.clone(), json!({"started": false})), None);
        assert_eq!(
            told_at("2026-01-01T00:00:09Z", named, json!({})),
            None,
            "it has only just begun"
        );
    }
}

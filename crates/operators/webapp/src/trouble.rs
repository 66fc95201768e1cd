//! Why pods are not ready, in words that say what to change.
//!
//! A condition that says "3 of 5" helps nobody; the first thing that a person can do something about does.

use crate::situation::Situation;
use k8s_openapi::api::core::v1::Pod;
use stead_apis::WebApp;
use stead_apis::webapp::container::Profile;

/// Reasons for which a container that is confined may fail where it would not otherwise.
const FAILED_TO_RUN: &[&str] = &[
    "CrashLoopBackOff",
    "ContainerFailed",
    "RunContainerError",
    "CreateContainerError",
];

/// What keeps the first pod that is not ready from being so, in a sentence.
pub fn trouble(app: &WebApp, situation: &Situation<'_>) -> Option<String> {
    let mut pods: Vec<&Pod> = situation.seen.pods.iter().map(AsRef::as_ref).collect();
    pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    pods.into_iter()
        .find_map(|pod| {
            let (reason, message) = pod_trouble(pod)?;
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
fn pod_trouble(pod: &Pod) -> Option<(String, String)> {
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
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    Some((
        unscheduled.reason.clone().unwrap_or_default(),
        unscheduled.message.clone().unwrap_or_default(),
    ))
}

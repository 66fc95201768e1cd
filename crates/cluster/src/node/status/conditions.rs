//! The conditions of a pod, as a kubelet writes them.

use super::{incomplete_inits, initialized, whole_seconds};
use crate::node::lacks::{self, Word};
use crate::node::plan::Question;
use crate::node::registration::Isolation;
use crate::node::seen::Sandbox;
use crate::node::shape::Shape;
use k8s_openapi::api::core::v1::{PodCondition, PodStatus};

/// True or false, with a reason and a message.
type Verdict = Result<(&'static str, String), (&'static str, String)>;

/// True, and nothing is to be said about it.
fn holds() -> (&'static str, String) {
    ("", String::new())
}

pub(super) fn of(
    question: &Question<'_>,
    isolation: &Isolation,
    old: &PodStatus,
    new: &PodStatus,
) -> Vec<PodCondition> {
    let Question { shape, seen, .. } = question;
    let succeeded = new.phase.as_deref() == Some("Succeeded");
    let sandbox: Verdict = match seen.sandbox {
        Sandbox::Ready { .. } => Ok(holds()),
        _ => Err(("", String::new())),
    };
    let init: Verdict = match incomplete_inits(shape, seen) {
        _ if succeeded => Ok(("PodCompleted", String::new())),
        names if names.is_empty() || initialized(shape, seen) => Ok(holds()),
        _ if shape.recorded_end().is_some() && was_initialized(old) => Ok(holds()),
        names => Err((
            "ContainersNotInitialized",
            format!("containers with incomplete status: [{}]", names.join(" ")),
        )),
    };
    let containers = containers_ready(shape, new);
    let ready = containers.clone().and_then(|()| gates(shape, old));
    let as_verdict = |result: Result<(), (&'static str, String)>| result.map(|()| holds());
    let isolated = lacks::of(shape, isolation).map(|word| match word {
        Word::Given { reason, message } => Ok((reason, message)),
        Word::Lacking { reason, message } => Err((reason, message)),
    });
    [
        ("PodReadyToStartContainers", sandbox),
        ("Initialized", init),
        ("Ready", as_verdict(ready)),
        ("ContainersReady", as_verdict(containers)),
    ]
    .into_iter()
    .chain(isolated.map(|verdict| (lacks::CONDITION, verdict)))
    .map(|(type_, verdict)| condition(question, old, type_, verdict))
    .collect()
}

fn was_initialized(old: &PodStatus) -> bool {
    let mut conditions = old.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "Initialized" && condition.status == "True")
}

fn containers_ready(shape: &Shape<'_>, new: &PodStatus) -> Result<(), (&'static str, String)> {
    match new.phase.as_deref() {
        Some("Failed") => return Err(("PodFailed", String::new())),
        Some("Succeeded") => return Err(("PodCompleted", String::new())),
        _ => {}
    }
    let statuses = new.container_statuses.iter().flatten().chain(
        new.init_container_statuses
            .iter()
            .flatten()
            .filter(|status| shape.sidecars().any(|sidecar| sidecar.name == status.name)),
    );
    let unready: Vec<&str> = statuses
        .filter(|status| !status.ready)
        .map(|status| status.name.as_str())
        .collect();
    if unready.is_empty() {
        Ok(())
    } else {
        Err((
            "ContainersNotReady",
            format!("containers with unready status: [{}]", unready.join(" ")),
        ))
    }
}

fn gates(shape: &Shape<'_>, old: &PodStatus) -> Result<(), (&'static str, String)> {
    let mut missing = Vec::new();
    for gate in shape.spec.readiness_gates.iter().flatten() {
        let kind = &gate.condition_type;
        let found = old
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == *kind);
        match found {
            None => missing.push(format!(
                "corresponding condition of pod readiness gate \"{kind}\" does not exist."
            )),
            Some(condition) if condition.status != "True" => missing.push(format!(
                "the status of pod readiness gate \"{kind}\" is not \"True\", but {}",
                condition.status
            )),
            Some(_) => {}
        }
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(("ReadinessGatesNotReady", missing.join(", ")))
    }
}

fn condition(question: &Question<'_>, old: &PodStatus, type_: &str, verdict: Verdict) -> PodCondition {
    let (status, reason, message) = match verdict {
        Ok((reason, message)) => ("True", reason, message),
        Err((reason, message)) => ("False", reason, message),
    };
    let before = old
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == type_);
    let since = match before {
        Some(before) if before.status == status => before.last_transition_time.clone(),
        _ => None,
    };
    PodCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: (!reason.is_empty()).then(|| reason.to_owned()),
        message: (!message.is_empty()).then_some(message),
        last_transition_time: since.or_else(|| Some(whole_seconds(question.now))),
        observed_generation: question.shape.pod.metadata.generation,
        ..PodCondition::default()
    }
}

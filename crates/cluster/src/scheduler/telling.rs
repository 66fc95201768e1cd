//! What a pod says of its place: why it has none, and where room is being made for it.

use crate::controllers::ownership::about;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use stead::{Context, Error, Severity};

/// Why a pod waits.
pub enum Waiting<'a> {
    /// Somebody holds it back on purpose.
    Gated,
    /// No node does; room may be on its way on one.
    Unschedulable { why: &'a str, nominated: Option<&'a str> },
}

impl Waiting<'_> {
    fn reason(&self) -> &'static str {
        match self {
            Waiting::Gated => "SchedulingGated",
            Waiting::Unschedulable { .. } => "Unschedulable",
        }
    }

    fn message(&self) -> &str {
        match self {
            Waiting::Gated => "Scheduling is blocked due to non-empty scheduling gates",
            Waiting::Unschedulable { why, .. } => why,
        }
    }
}

/// Says in the pod's conditions and events why it has no node, once for each reason.
pub async fn pending(context: &Context, pod: &Pod, waiting: &Waiting<'_>) -> Result<(), Error> {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.clone()).unwrap_or_default();
    let before = conditions.iter().find(|condition| condition.type_ == "PodScheduled");
    let known = before.is_some_and(|before| {
        before.status == "False"
            && before.message.as_deref() == Some(waiting.message())
            && before.reason.as_deref() == Some(waiting.reason())
    });
    let nominated = match waiting {
        Waiting::Unschedulable { nominated, .. } => *nominated,
        Waiting::Gated => None,
    };
    let nominated_before = status.and_then(|status| status.nominated_node_name.as_deref());
    if known && nominated_before == nominated {
        return Ok(());
    }
    let since = before
        .filter(|before| before.status == "False")
        .and_then(|before| before.last_transition_time.clone());
    let condition = PodCondition {
        type_: "PodScheduled".to_string(),
        status: "False".to_string(),
        reason: Some(waiting.reason().to_string()),
        message: Some(waiting.message().to_string()),
        last_transition_time: since.or(Some(Time(context.now()))),
        ..PodCondition::default()
    };
    let after = replaced(conditions, condition);
    let patch = json!({"status": {"conditions": after, "nominatedNodeName": nominated}});
    context.writer().patch_status(pod, patch).await?;
    if let Waiting::Unschedulable { why, .. } = waiting
        && !known
    {
        context
            .events()
            .tell(about(pod), Severity::Warning, "FailedScheduling", "Scheduling", why);
    }
    Ok(())
}

/// Conditions with one of them set.
pub fn replaced(mut conditions: Vec<PodCondition>, condition: PodCondition) -> Vec<PodCondition> {
    conditions.retain(|one| one.type_ != condition.type_);
    conditions.push(condition);
    conditions
}

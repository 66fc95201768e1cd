//! What the failure of a pod means for its Job, and which successes are enough.

use super::indexes::Indexes;
use k8s_openapi::api::batch::v1::{JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule};
use k8s_openapi::api::core::v1::Pod;

/// What to do about a failed pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It counts towards the backoff limit.
    Counts,
    /// As if it had not happened: a new pod, and no count.
    Ignored,
    /// Its index has failed for good.
    FailsIndex,
    /// The Job has failed, and why.
    FailsJob(String),
}

/// The first rule that speaks of this failure decides.
pub fn failure(spec: &JobSpec, pod: &Pod) -> Failure {
    let rules = spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
    for (index, rule) in rules.enumerate() {
        let Some(found) = matching(rule, pod) else { continue };
        return match rule.action.as_str() {
            "Ignore" => Failure::Ignored,
            "FailIndex" => Failure::FailsIndex,
            "FailJob" => Failure::FailsJob(format!("{found} matching {} rule at index {index}", rule.action)),
            _ => Failure::Counts,
        };
    }
    Failure::Counts
}

/// What in the pod the rule speaks of, in words.
fn matching(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let meta = &pod.metadata;
    let name = format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    );
    if let Some(wanted) = &rule.on_exit_codes {
        let containers = status.container_statuses.iter().flatten();
        let ended = containers
            .chain(status.init_container_statuses.iter().flatten())
            .filter_map(|container| {
                let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
                Some((&container.name, code))
            });
        for (container, code) in ended {
            if wanted.container_name.as_ref().is_none_or(|only| only == container) && fits(wanted, code) {
                return Some(format!(
                    "Container {container} for pod {name} failed with exit code {code}"
                ));
            }
        }
        return None;
    }
    let conditions = rule.on_pod_conditions.iter().flatten();
    for wanted in conditions {
        let mut found = status.conditions.iter().flatten();
        let status = wanted.status.as_deref().unwrap_or("True");
        if found.any(|condition| condition.type_ == wanted.type_ && condition.status == status) {
            return Some(format!("Pod {name} has condition {}", wanted.type_));
        }
    }
    None
}

fn fits(wanted: &PodFailurePolicyOnExitCodesRequirement, code: i32) -> bool {
    let listed = wanted.values.contains(&code);
    // Success is never a failure, whatever the list says.
    code != 0 && if wanted.operator == "NotIn" { !listed } else { listed }
}

/// Why these completed indexes are enough, if a success policy says so.
pub fn success(spec: &JobSpec, completed: &Indexes) -> Option<String> {
    let end = spec.completions.unwrap_or(0);
    let rules = spec.success_policy.iter().flat_map(|policy| &policy.rules);
    for (index, rule) in rules.enumerate() {
        let met = match (&rule.succeeded_indexes, rule.succeeded_count) {
            (Some(text), count) => {
                let wanted = Indexes::parse(text, end);
                let have = i32::try_from(wanted.0.intersection(&completed.0).count()).unwrap_or(i32::MAX);
                have >= count.unwrap_or(wanted.len())
            }
            (None, Some(count)) => completed.len() >= count,
            (None, None) => false,
        };
        if met && completed.len() > 0 {
            return Some(format!("Matched rules at index {index}"));
        }
    }
    None
}

//! The status of a ReplicaSet or a ReplicationController: both have the same fields. Pure.

use super::{Counts, Failure};
use jiff::Timestamp;
use serde_json::{Value, json};
use stead_machinery::time::rfc3339;

const FAILURE: &str = "ReplicaFailure";

/// What has to be merged into the status; `None` if it says all that already.
pub fn patch(
    before: &Value,
    generation: Option<i64>,
    counts: &Counts,
    failure: Option<&Failure>,
    now: Timestamp,
) -> Option<Value> {
    let mut after = json!({
        "replicas": counts.replicas,
        "fullyLabeledReplicas": counts.fully_labeled,
        "readyReplicas": counts.ready,
        "availableReplicas": counts.available,
        "observedGeneration": generation,
    });
    if let Some(terminating) = counts.terminating {
        after["terminatingReplicas"] = json!(terminating);
    }
    let fields = after.as_object().into_iter().flatten();
    // The server leaves zeros out.
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let same = fields
        .clone()
        .all(|(name, value)| number(&before[name]) == number(value));
    let had = before["conditions"].as_array().cloned().unwrap_or_default();
    let conditions = conditions(&had, failure, now);
    if conditions != had {
        after["conditions"] = Value::Array(conditions);
    } else if same {
        return None;
    }
    Some(after)
}

/// The conditions with the failure among them, or without it where there is none any more. A failure that is known
/// keeps its time and its words, so that the same failure again is no change.
fn conditions(had: &[Value], failure: Option<&Failure>, now: Timestamp) -> Vec<Value> {
    let known = had.iter().any(|condition| condition["type"] == FAILURE);
    let mut conditions = had.to_vec();
    match failure {
        Some(_) if known => {}
        Some(failure) => conditions.push(json!({
            "type": FAILURE, "status": "True", "reason": failure.reason, "message": failure.message,
            "lastTransitionTime": rfc3339(now),
        })),
        None => conditions.retain(|condition| condition["type"] != FAILURE),
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> Failure {
        Failure {
            reason: "FailedCreate",
            message: "pods \"web-x\" is forbidden: exceeded quota".to_string(),
        }
    }

    #[test]
    fn a_status_that_says_everything_is_left_alone() {
        let counts = Counts::default();
        let before = json!({"replicas": 0, "observedGeneration": 2});
        assert_eq!(patch(&before, Some(2), &counts, None, Timestamp::UNIX_EPOCH), None);
        assert!(patch(&before, Some(3), &counts, None, Timestamp::UNIX_EPOCH).is_some());
        assert!(patch(&json!(null), Some(1), &counts, None, Timestamp::UNIX_EPOCH).is_some());
    }

    #[test]
    fn a_failure_is_a_condition_until_it_is_over() {
        let counts = Counts::default();
        let before = json!({"replicas": 0, "observedGeneration": 1});
        let now = Timestamp::UNIX_EPOCH;
        let failed = patch(&before, Some(1), &counts, Some(&failure()), now).unwrap();
        assert_eq!(failed["conditions"][0]["reason"], "FailedCreate");
        assert_eq!(failed["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        let again = patch(&failed, Some(1), &counts, Some(&failure()), now);
        assert_eq!(again, None, "the same failure is no news");
        let over = patch(&failed, Some(1), &counts, None, now).unwrap();
        assert_eq!(over["conditions"], json!([]));
    }
}

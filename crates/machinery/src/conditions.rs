//! Status conditions, and the one rule about their times.
//!
//! `lastTransitionTime` moves when the status changes and at no other time. An operator that sets it on
//! each pass writes forever, so the rule is here once for everybody.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One condition of an object, as `metav1.Condition` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    pub r#type: String,
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(with = "crate::time::seconds")]
    pub last_transition_time: Timestamp,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    True,
    False,
    Unknown,
}

/// Whether setting a condition made a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Same,
    Changed,
}

impl Condition {
    /// A condition as it would be if its status changed now.
    pub fn new(
        r#type: impl Into<String>,
        status: Status,
        reason: impl Into<String>,
        message: impl Into<String>,
        now: Timestamp,
    ) -> Self {
        Condition {
            r#type: r#type.into(),
            status,
            observed_generation: None,
            last_transition_time: now,
            reason: reason.into(),
            message: message.into(),
        }
    }

    pub fn observed(mut self, generation: i64) -> Self {
        self.observed_generation = Some(generation);
        self
    }
}

/// The condition of this type.
pub fn get<'a>(conditions: &'a [Condition], r#type: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.r#type == r#type)
}

/// Whether the condition of this type is there and true.
pub fn is_true(conditions: &[Condition], r#type: &str) -> bool {
    get(conditions, r#type).is_some_and(|condition| condition.status == Status::True)
}

/// Adds or updates a condition. The time of the one that is there stays unless its status changes.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition) -> Change {
    let Some(current) = conditions.iter_mut().find(|condition| condition.r#type == new.r#type) else {
        conditions.push(new);
        return Change::Changed;
    };
    if current.status == new.status {
        new.last_transition_time = current.last_transition_time;
    }
    if *current == new {
        return Change::Same;
    }
    *current = new;
    Change::Changed
}

/// Takes a condition away.
pub fn remove(conditions: &mut Vec<Condition>, r#type: &str) -> Change {
    let before = conditions.len();
    conditions.retain(|condition| condition.r#type != r#type);
    match conditions.len() == before {
        true => Change::Same,
        false => Change::Changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let at = |time: &str| time.parse::<Timestamp>().unwrap();
        let mut conditions = Vec::new();
        set(
            &mut conditions,
            Condition::new("Ready", Status::False, "Starting", "", at(early)),
        );
        assert_eq!(
            set(
                &mut conditions,
                Condition::new("Ready", Status::False, "Starting", "", at(late))
            ),
            Change::Same
        );
        let reworded = Condition::new("Ready", Status::False, "Starting", "still", at(late));
        assert_eq!(set(&mut conditions, reworded), Change::Changed);
        assert_eq!(conditions[0].last_transition_time, at(early));
        set(
            &mut conditions,
            Condition::new("Ready", Status::True, "Up", "", at(late)),
        );
        assert_eq!(conditions[0].last_transition_time, at(late));
        assert!(is_true(&conditions, "Ready"));
        let json = serde_json::to_value(&conditions).unwrap();
        assert_eq!(json[0]["lastTransitionTime"], late);
        assert_eq!(serde_json::from_value::<Vec<Condition>>(json).unwrap(), conditions);
        assert_eq!(remove(&mut conditions, "Ready"), Change::Changed);
    }
}

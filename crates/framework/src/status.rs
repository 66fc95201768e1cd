//! Conditions: what an object says about itself, in a form that tools understand.
//!
//! `Ready`, `Reconciling` and `Stalled` are those of kstatus, so `kubectl wait` and deployment tools work. Each
//! condition carries the generation that it speaks about.

use crate::error::{Class, Error};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Map, Value, json};
pub use stead_machinery::conditions::Status;

/// Everything is as the spec wants it.
pub const READY: &str = "Ready";
/// The operator is at work.
pub const RECONCILING: &str = "Reconciling";
/// The operator cannot get on until a person does something.
pub const STALLED: &str = "Stalled";
/// Another manager insists on fields of a child.
pub const CONTESTED: &str = "Contested";

/// How far an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// As the spec wants it.
    Ready {
        /// One CamelCase word.
        reason: String,
        /// A sentence.
        message: String,
    },
    /// On its way there.
    Reconciling {
        /// One CamelCase word.
        reason: String,
        /// A sentence.
        message: String,
    },
    /// Not getting there until a person does something.
    Stalled {
        /// One CamelCase word.
        reason: String,
        /// A sentence.
        message: String,
    },
}

/// Conditions under construction.
///
/// ```
/// use stead::status::{Conditions, Progress};
/// let mut conditions = Conditions::new(Some(3), jiff::Timestamp::UNIX_EPOCH);
/// conditions.progress(Progress::Ready { reason: "Available".into(), message: "3 of 3".into() });
/// let list = conditions.list();
/// assert_eq!(list[0].type_, "Ready");
/// assert_eq!(list[0].observed_generation, Some(3));
/// ```
#[derive(Clone, Debug)]
pub struct Conditions {
    generation: Option<i64>,
    now: Timestamp,
    list: Vec<Condition>,
}

impl Conditions {
    /// No conditions yet, about a generation. Times of transitions are kept from the live object when the
    /// status is written, so planning needs not know them.
    pub fn new(generation: Option<i64>, now: Timestamp) -> Self {
        Conditions {
            generation,
            now,
            list: Vec::new(),
        }
    }

    /// Sets a condition.
    pub fn set(&mut self, name: &str, status: Status, reason: &str, message: &str) -> &mut Self {
        let condition = Condition {
            type_: name.to_owned(),
            status: format!("{status:?}"),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: self.generation,
            last_transition_time: Time(self.now),
        };
        self.list.retain(|other| other.type_ != name);
        self.list.push(condition);
        self
    }

    /// Sets `Ready`, and `Reconciling` or `Stalled` as kstatus wants them: present only while they hold.
    pub fn progress(&mut self, progress: Progress) -> &mut Self {
        self.list
            .retain(|other| other.type_ != RECONCILING && other.type_ != STALLED);
        match progress {
            Progress::Ready { reason, message } => self.set(READY, Status::True, &reason, &message),
            Progress::Reconciling { reason, message } => {
                self.set(READY, Status::False, &reason, &message)
                    .set(RECONCILING, Status::True, &reason, &message)
            }
            Progress::Stalled { reason, message } => {
                self.set(READY, Status::False, &reason, &message)
                    .set(STALLED, Status::True, &reason, &message)
            }
        }
    }

    /// The conditions, in the order of their names.
    pub fn list(mut self) -> Vec<Condition> {
        self.list.sort_by(|one, other| one.type_.cmp(&other.type_));
        self.list
    }
}

/// Says in a status that a reconcile failed.
pub(crate) fn report_error(status: &mut Value, error: &Error, generation: Option<i64>, now: Timestamp) {
    let (reason, message) = (error.reason().to_owned(), error.to_string());
    let mut conditions = Conditions::new(generation, now);
    conditions.progress(match error.class() {
        Class::UserMistake | Class::Bug => Progress::Stalled { reason, message },
        Class::Transient | Class::Conflict => Progress::Reconciling { reason, message },
    });
    drop_conditions(status, &[READY, RECONCILING, STALLED]);
    add_conditions(status, conditions);
}

/// Says in a status that fields of children are left to another manager, or nothing of it once none are.
pub(crate) fn report_conceded(status: &mut Value, fields: &[String], generation: Option<i64>, now: Timestamp) {
    drop_conditions(status, &[CONTESTED]);
    if fields.is_empty() {
        return;
    }
    let message = format!(
        "left to another manager, which sets them again and again: {}",
        fields.join(", ")
    );
    let mut conditions = Conditions::new(generation, now);
    conditions.set(CONTESTED, Status::True, "FieldConflict", &message);
    add_conditions(status, conditions);
}

/// Leaves fields of a status as they are on the live object.
pub(crate) fn keep_fields(status: &mut Value, live: &Value, names: &[String]) {
    let Some(fields) = status.as_object_mut() else { return };
    for name in names {
        match live.get(name) {
            Some(before) => fields.insert(name.clone(), before.clone()),
            None => fields.remove(name),
        };
    }
}

fn add_conditions(status: &mut Value, conditions: Conditions) {
    if !status.is_object() {
        *status = json!({});
    }
    let Some(fields) = status.as_object_mut() else { return };
    let list = fields.entry("conditions").or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut() {
        // Conditions are plain data; they serialise.
        list.extend(
            conditions
                .list()
                .iter()
                .filter_map(|condition| serde_json::to_value(condition).ok()),
        );
    }
}

fn drop_conditions(status: &mut Value, names: &[&str]) {
    if let Some(list) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        list.retain(|condition| !names.iter().any(|name| condition["type"] == *name));
    }
}

/// A condition whose status has not changed keeps the time of its transition.
pub(crate) fn keep_transition_times(status: &mut Value, live: &Value) {
    let before: Map<String, Value> = live["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|condition| Some((condition["type"].as_str()?.to_owned(), condition.clone())))
        .collect();
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let name = condition["type"].as_str().unwrap_or_default().to_owned();
        if let Some(old) = before.get(&name)
            && old["status"] == condition["status"]
            && !old["lastTransitionTime"].is_null()
        {
            condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
        }
    }
}

/// A status without the times of its conditions: what it says, whenever it is said.
pub(crate) fn timeless(status: &Value) -> Value {
    let mut status = status.clone();
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if let Some(fields) = condition.as_object_mut() {
            fields.remove("lastTransitionTime");
        }
    }
    status
}

/// Whether two statuses say the same; a field that is null or missing is the same.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let covered = |these: &Map<String, Value>, those: &Map<String, Value>| {
                these.iter().all(|(name, value)| match those.get(name) {
                    Some(there) => same(value, there),
                    None => is_nothing(value),
                })
            };
            covered(one, other) && covered(other, one)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        _ => one == other || (is_nothing(one) && is_nothing(other)),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_that_is_over_is_not_said_any_more_even_by_a_plan_that_copies_its_conditions() {
        let (mut status, now) = (json!({}), Timestamp::UNIX_EPOCH);
        report_conceded(&mut status, &["ConfigMap a/b /data/of".to_owned()], Some(1), now);
        assert_eq!(status["conditions"][0]["type"], CONTESTED);
        report_conceded(&mut status, &[], Some(2), now);
        assert_eq!(status["conditions"], json!([]));
    }

    #[test]
    fn a_field_that_is_kept_is_as_it_was_or_not_there_at_all() {
        let mut status = json!({"step": 2, "since": "now", "seen": 3});
        keep_fields(
            &mut status,
            &json!({"step": 1}),
            &["step".to_owned(), "since".to_owned()],
        );
        assert_eq!(status, json!({"step": 1, "seen": 3}));
    }
}

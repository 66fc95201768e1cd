//! A plan: what a reconcile wants to be true, as a value.
//!
//! Planning is pure: the same root, observation and time give the same plan. A plan prints for people, is
//! JSON for programs, and tests compare it as text. Only the framework carries it out.

use crate::key::Key;
use crate::kind::{Kind, Typed};
use crate::outcome::{Dependency, Outcome};
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// What a reconcile wants.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The children that shall exist, in the order in which they are applied.
    pub children: Vec<Child>,
    /// What happens to children that are not in the plan.
    pub prune: Prune,
    /// Objects that shall go, beyond what pruning finds.
    pub deletions: Vec<Deletion>,
    /// Things to do that are no objects: `act` of the operator does them, after the children.
    pub actions: Vec<Action>,
    /// What to tell people who look at the root's events.
    pub events: Vec<Note>,
    /// The root's status; none leaves it alone.
    pub status: Option<Value>,
    /// Fields of the status that hold only once the plan was carried out.
    pub when_done: Vec<String>,
    /// When to look again.
    #[serde(serialize_with = "as_text")]
    pub next: Outcome,
    /// Whether the cleanup of a root that is being deleted is complete.
    pub cleanup: Cleanup,
    /// What could not even be planned; such a plan is not carried out.
    pub mistakes: Vec<String>,
}

/// One object that shall exist.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Child {
    /// Its kind.
    pub kind: Kind,
    /// Its name; without a namespace it goes to the root's.
    pub key: Key,
    /// Only the fields that the operator cares about.
    pub object: Value,
    /// How it belongs to its root.
    pub ownership: Ownership,
    /// What happens when it cannot be changed as the plan wants.
    pub replace: Replace,
}

/// What happens to a child of which a field shall change that cannot be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Replace {
    /// The server's refusal is reported, and a person decides.
    #[default]
    Never,
    /// It is deleted and made anew, and an event says so. For children that hold nothing: Jobs, immutable
    /// ConfigMaps.
    WhenImmutable,
}

/// How a child belongs to its root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Ownership {
    /// By a controller owner reference: it is garbage-collected with the root.
    #[default]
    Controlled,
    /// By a label with the root's UID, for objects that cannot have an owner reference to it: in another
    /// namespace, or cluster-scoped.
    Labelled,
}

/// What happens to children of the root that are not in the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Prune {
    /// They are deleted.
    #[default]
    Absent,
    /// They stay.
    Nothing,
}

/// Whether a deleted root may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Cleanup {
    /// Something is left to do; the finalizer stays.
    #[default]
    Pending,
    /// Observation has shown that nothing is left; the finalizer may go.
    Proven,
}

/// One object that shall go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub key: Key,
    /// Only the object with this UID: one that was created again under the name is another one.
    pub uid: String,
    /// For the log, and for whoever reads the plan.
    pub why: String,
}

/// Something to do outside of the API, by name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Action {
    /// What to do, in one word.
    pub name: String,
    /// What it needs to know.
    pub input: Value,
}

/// What a person should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// How bad it is.
    pub severity: Severity,
    /// One CamelCase word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Severity {
    /// Good to know.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Default for Plan {
    fn default() -> Self {
        Plan::new()
    }
}

impl Plan {
    /// Nothing to do.
    pub fn new() -> Self {
        Plan {
            children: Vec::new(),
            prune: Prune::default(),
            deletions: Vec::new(),
            actions: Vec::new(),
            events: Vec::new(),
            status: None,
            when_done: Vec::new(),
            next: Outcome::Settled,
            cleanup: Cleanup::default(),
            mistakes: Vec::new(),
        }
    }

    /// A child that shall exist, owned by the root. Without a namespace it goes to the root's.
    pub fn child<K: Typed + Serialize>(self, object: K) -> Self {
        self.child_with(object, Ownership::Controlled)
    }

    /// A child that shall exist, belonging to the root in a given way.
    pub fn child_with<K: Typed + Serialize>(mut self, object: K, ownership: Ownership) -> Self {
        match serde_json::to_value(&object) {
            Ok(value) => self.children.push(Child {
                kind: Kind::of::<K>(),
                key: Key::of(&object),
                object: value,
                ownership,
                replace: Replace::Never,
            }),
            Err(error) => self
                .mistakes
                .push(format!("{} {}: {error}", Kind::of::<K>(), Key::of(&object))),
        }
        self
    }

    /// A child of a kind that is known at run time.
    pub fn child_dynamic(mut self, kind: Kind, key: Key, object: Value, ownership: Ownership) -> Self {
        self.children.push(Child {
            kind,
            key,
            object,
            ownership,
            replace: Replace::Never,
        });
        self
    }

    /// The child that was added last is deleted and made anew when a field of it cannot be changed.
    pub fn replaceable(mut self) -> Self {
        if let Some(child) = self.children.last_mut() {
            child.replace = Replace::WhenImmutable;
        }
        self
    }

    /// Children that left the plan stay.
    pub fn prune(mut self, prune: Prune) -> Self {
        self.prune = prune;
        self
    }

    /// An object that shall go, and why.
    pub fn delete<K: Typed>(mut self, object: &K, why: impl Into<String>) -> Self {
        self.deletions.push(Deletion {
            kind: Kind::of::<K>(),
            key: Key::of(object),
            uid: object.meta().uid.clone().unwrap_or_default(),
            why: why.into(),
        });
        self
    }

    /// Something to do outside of the API.
    pub fn action(mut self, name: impl Into<String>, input: Value) -> Self {
        self.actions.push(Action {
            name: name.into(),
            input,
        });
        self
    }

    /// Good news for people.
    pub fn event(self, reason: impl Into<String>, message: impl Into<String>) -> Self {
        self.note(Severity::Normal, reason, message)
    }

    /// Bad news for people.
    pub fn warning(self, reason: impl Into<String>, message: impl Into<String>) -> Self {
        self.note(Severity::Warning, reason, message)
    }

    fn note(mut self, severity: Severity, reason: impl Into<String>, message: impl Into<String>) -> Self {
        self.events.push(Note {
            severity,
            reason: reason.into(),
            message: message.into(),
        });
        self
    }

    /// The root's status.
    pub fn status<S: Serialize>(mut self, status: S) -> Self {
        match serde_json::to_value(status) {
            Ok(value) => self.status = Some(value),
            Err(error) => self.mistakes.push(format!("status: {error}")),
        }
        self
    }

    /// Fields of the status that tell how far something is that this plan moves on. They stay as they are where it could
    /// not be carried out; the others tell what was seen, and are written in any case.
    pub fn when_done(mut self, fields: &[&str]) -> Self {
        self.when_done.extend(fields.iter().map(|&field| field.to_owned()));
        self
    }

    /// Look again after this long.
    pub fn check_again(mut self, after: Duration) -> Self {
        self.next = Outcome::CheckAgain(after);
        self
    }

    /// Nothing more can be done until something happens.
    pub fn wait_for(mut self, on: Dependency) -> Self {
        self.next = Outcome::Waiting { on };
        self
    }

    /// The cleanup of a deleted root is complete; its finalizer may go.
    pub fn cleaned_up(mut self) -> Self {
        self.cleanup = Cleanup::Proven;
        self
    }

    /// The plan as JSON, for programs.
    pub fn to_json(&self) -> Value {
        // Every part is a tree of strings, numbers and values that are JSON already.
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// The plan for people: one line for each thing that shall be.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in &self.mistakes {
            writeln!(f, "mistake: {mistake}")?;
        }
        for child in &self.children {
            writeln!(f, "apply {} {}", child.kind, child.key)?;
        }
        for deletion in &self.deletions {
            writeln!(f, "delete {} {}: {}", deletion.kind, deletion.key, deletion.why)?;
        }
        for action in &self.actions {
            match action.input.is_null() {
                true => writeln!(f, "do {}", action.name)?,
                false => writeln!(f, "do {} {}", action.name, action.input)?,
            }
        }
        for note in &self.events {
            writeln!(f, "tell {}: {}", note.reason, note.message)?;
        }
        if let Some(status) = &self.status {
            writeln!(f, "status {status}")?;
        }
        match self.cleanup {
            Cleanup::Pending => {}
            Cleanup::Proven => writeln!(f, "release the finalizer")?,
        }
        write!(f, "then {}", self.next)
    }
}

fn as_text<S: serde::Serializer>(outcome: &Outcome, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;

    #[test]
    fn a_plan_prints_for_people_and_as_json() {
        let settings = ConfigMap {
            metadata: ObjectMeta {
                name: Some("web".to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        let plan = Plan::new()
            .child(settings)
            .action("promote", serde_json::json!({"to": "pg-1"}))
            .event("Promoted", "pg-1 leads now")
            .status(serde_json::json!({"ready": true}))
            .check_again(Duration::from_secs(30));
        assert_eq!(
            plan.to_string(),
            "apply ConfigMap web\ndo promote {\"to\":\"pg-1\"}\ntell Promoted: pg-1 leads now\n\
             status {\"ready\":true}\nthen check again in 30s"
        );
        let json = plan.to_json();
        assert_eq!(json["children"][0]["object"]["metadata"]["name"], "web");
        assert_eq!(json["next"], "check again in 30s");
    }
}

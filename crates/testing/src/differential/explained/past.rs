//! Differences that only what was answered before explains.

use super::{causes, same_but_versions, says, says_nothing, without_versions};
use crate::differential::compare::what;
use crate::differential::sequence::Step;
use crate::differential::side::Answer;
use serde_json::Value;

/// The earlier steps with our answers.
type Before<'a> = [(&'a Step, &'a Answer)];

/// A rule about a whole answer and what came before it. The servers hold different objects from there on.
pub struct Past {
    /// The first cell of its row.
    pub row: &'static str,
    pub holds: fn(&Step, &Before<'_>, &Answer, &Answer) -> bool,
}

pub const EMPTY_DATA: &str = "Empty data of an immutable ConfigMap or Secret where there is none";

pub const RULES: &[Past] = &[
    Past {
        row: EMPTY_DATA,
        holds: sends_nothing_for_nothing,
    },
    Past {
        row: "Metadata of a custom resource that is applied as null or empty",
        holds: follows_empty_metadata,
    },
    Past {
        row: "A write of a Job or claim that changes nothing",
        holds: was_written_twice,
    },
    Past {
        row: "`internalTrafficPolicy` of a Service that was an ExternalName for a while",
        holds: was_an_external_name,
    },
];

/// Whether two answers are about the same object.
fn same_object(one: &Answer, other: &Answer) -> bool {
    let named = |field: &str| one.body["metadata"][field] == other.body["metadata"][field];
    one.code < 300 && one.body["kind"] == other.body["kind"] && named("name") && named("namespace")
}

/// Whether a refusal names the object of an answer.
fn is_named(answer: &Answer, refusal: &Answer) -> bool {
    let details = &refusal.body["details"];
    let same = details["kind"] == answer.body["kind"] && details["name"] == answer.body["metadata"]["name"];
    answer.code < 300 && details["name"].is_string() && same
}

/// Whether a write that changes nothing makes a new version because an apply stored empty metadata before, which the
/// first write after it leaves out.
fn follows_empty_metadata(step: &Step, before: &Before<'_>, ours: &Answer, theirs: &Answer) -> bool {
    let write = matches!(step.method.as_str(), "PUT" | "PATCH") && what(&step.path).starts_with("things");
    let last = before.iter().rev().find(|(step, answer)| {
        let write = matches!(step.method.as_str(), "PUT" | "PATCH" | "POST");
        write && !step.path.contains("dryRun") && same_object(answer, ours)
    });
    let emptied = last.is_some_and(|(step, _)| {
        let metadata = step.body.as_ref().map_or(&Value::Null, |body| &body["metadata"]);
        let empty = ["labels", "annotations"]
            .iter()
            .any(|name| metadata[name].as_object().is_some_and(serde_json::Map::is_empty));
        step.content_type == "application/apply-patch+yaml" && (empty || says_nothing(step))
    });
    write && emptied && ours.code == 200 && theirs.code == 200 && same_but_versions(ours, theirs)
}

/// Whether a Job or claim was written more than once, and only its version differs where it is read.
fn was_written_twice(step: &Step, before: &Before<'_>, ours: &Answer, theirs: &Answer) -> bool {
    let kind = what(&step.path);
    let twice = matches!(kind.as_str(), "jobs" | "persistentvolumeclaims");
    let writes = before.iter().filter(|(step, answer)| {
        let write = matches!(step.method.as_str(), "PUT" | "PATCH" | "POST");
        write && what(&step.path).starts_with(&kind) && answer.code < 300
    });
    let without = |answer: &Answer| {
        let mut body = answer.body.clone();
        without_versions(&mut body);
        body
    };
    let read = step.method == "GET" && !step.is_watch() && ours.code == 200 && theirs.code == 200;
    twice && read && writes.count() > 1 && ours.body != theirs.body && without(ours) == without(theirs)
}

/// Whether a Service is no ExternalName any more, and only who owns its policy for traffic inside differs.
fn was_an_external_name(step: &Step, before: &Before<'_>, ours: &Answer, theirs: &Answer) -> bool {
    let was = before
        .iter()
        .any(|(_, answer)| same_object(answer, ours) && answer.body["spec"]["type"] == "ExternalName");
    let without = |answer: &Answer| {
        let mut body = answer.body.clone();
        let entries = body["metadata"]["managedFields"].as_array_mut();
        for entry in entries.into_iter().flatten() {
            if let Some(Value::Object(spec)) = entry["fieldsV1"].get_mut("f:spec") {
                spec.remove("f:internalTrafficPolicy");
            }
        }
        body
    };
    let service = what(&step.path) == "services" && ours.body["spec"]["type"] != "ExternalName";
    service && was && ours.code == theirs.code && ours.body != theirs.body && without(ours) == without(theirs)
}

/// Whether a write is refused by one side alone because it sends an empty field where the object has none. Only what
/// was answered before tells that from a write that takes data away, which nobody may accept.
fn sends_nothing_for_nothing(step: &Step, before: &Before<'_>, ours: &Answer, theirs: &Answer) -> bool {
    let stored = before
        .iter()
        .rev()
        .find(|(step, answer)| !step.path.contains("dryRun") && (same_object(answer, ours) || is_named(answer, ours)));
    let none = |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    let sealed = |cause: &Value| {
        let field = cause["field"].as_str().unwrap_or_default();
        let sent = step.body.as_ref().and_then(|body| body.get(field));
        let empty = sent.and_then(Value::as_object).is_some_and(serde_json::Map::is_empty);
        let had_none = stored.is_some_and(|(_, answer)| none(&answer.body[field]));
        let one_of = matches!(field, "data" | "binaryData" | "stringData");
        one_of && empty && had_none && says(cause, "field is immutable when `immutable` is set")
    };
    let kind = matches!(what(&step.path).as_str(), "configmaps" | "secrets");
    let (told, ours_told) = (causes(theirs), causes(ours));
    // What is wrong besides is told by both.
    let besides = told.iter().filter(|cause| !sealed(cause));
    let accepted = ours.code == 200 && ours_told.is_empty() || ours.code == 422 && !ours_told.is_empty();
    kind && accepted && theirs.code == 422 && told.iter().any(sealed) && besides.eq(ours_told.iter())
}

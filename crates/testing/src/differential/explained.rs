//! Differences that are meant to be, or not worth a change, each with its row in `docs/compatibility.md`.
//!
//! A rule here hides a difference from the search, so each is as narrow as its reason, and a test holds that its
//! row exists. What differs in the nature of two runs, such as times, is no difference and is not here.

mod past;

use super::compare::{message, what};
use super::sequence::Step;
use super::side::Answer;
use serde_json::Value;

/// A rule about a whole answer.
struct Whole {
    /// The first cell of its row.
    row: &'static str,
    then: Then,
    holds: fn(&Step, &Answer, &Answer) -> bool,
}

/// What a difference means for the steps after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Only words differ.
    GoOn,
    /// The servers may hold different objects from here on.
    Stop,
}

/// A rule about one place in answers that have the same code.
struct Place {
    row: &'static str,
    holds: fn(&Step, &str, &Value, &Value) -> bool,
}

const WHOLE: &[Whole] = &[
    Whole {
        row: "A request at which kube-apiserver 1.36.4 drops the connection",
        then: Then::Stop,
        holds: |_, ours, theirs| theirs.code == 0 && ours.code != 0,
    },
    Whole {
        row: "`PUT` or `PATCH` of a Service that is not there, or of its status",
        then: Then::Stop,
        holds: |step, ours, theirs| {
            let service = matches!(what(&step.path).as_str(), "services/status" | "services");
            let write = step.method == "PUT" || step.method == "PATCH";
            service && write && ours.code == 404 && theirs.code != 404
        },
    },
    Whole {
        row: "Apply to the `scale` of a custom resource",
        then: Then::Stop,
        holds: |step, ours, theirs| {
            let applied = what(&step.path) == "things/scale" && step.content_type == "application/apply-patch+yaml";
            let odd =
                message(&theirs.body).starts_with("failed to create manager for existing fields: failed to convert");
            applied && matches!(ours.code, 200 | 422 | 500) && theirs.code == 500 && odd && ours.body != theirs.body
        },
    },
    Whole {
        row: "A `scale` of a custom resource with a mistyped field",
        then: Then::GoOn,
        holds: |step, ours, theirs| {
            let unregistered = message(&theirs.body).starts_with("no kind is registered for the type v1.Scale");
            what(&step.path) == "things/scale" && ours.code == 400 && theirs.code == 400 && unregistered
        },
    },
    Whole {
        row: "A `deletionTimestamp` that a client sends",
        then: Then::Stop,
        holds: |_, ours, theirs| {
            let sent = |answer: &Answer| {
                let time = answer.body["metadata"]["deletionTimestamp"].as_str();
                time.filter(|time| *time != "<time>").map(str::to_string)
            };
            sent(ours).is_some() && sent(ours) == sent(theirs) && same_but_versions(ours, theirs)
        },
    },
    Whole {
        row: "A custom resource of another kind",
        then: Then::GoOn,
        holds: |step, ours, theirs| {
            let of_kind = |cause: &&Value| cause["field"] == "kind";
            let (ours_told, theirs_told) = (causes(ours), causes(theirs));
            let custom = what(&step.path) == "things" && ours.code == 422 && theirs.code == 422;
            custom
                && ours_told.len() == 1
                && ours_told
                    .iter()
                    .any(|cause| of_kind(&cause) && theirs_told.contains(cause))
        },
    },
    Whole {
        row: "Costs of rules below what is a map and an object at once",
        then: Then::GoOn,
        holds: |_, ours, theirs| {
            let both = |cause: &Value| says(cause, "additionalProperties and properties are mutual exclusive");
            let of_cost = |cause: &Value| says(cause, "estimated rule cost");
            let (ours_told, theirs_told) = (causes(ours), causes(theirs));
            let known = |cause: &Value| ours_told.contains(cause) || of_cost(cause);
            ours.code == 422
                && theirs.code == 422
                && ours_told.iter().any(both)
                && ours_told != theirs_told
                && ours_told.iter().all(|cause| theirs_told.contains(cause))
                && theirs_told.iter().all(known)
        },
    },
    Whole {
        row: "Apply to a custom resource whose definition is new",
        then: Then::GoOn,
        holds: |step, ours, theirs| {
            let applied = what(&step.path) == "things" && step.content_type == "application/apply-patch+yaml";
            let untyped = message(&ours.body).starts_with("failed to create typed patch object");
            applied && untyped && ours.code == 500 && theirs.code == 422
        },
    },
    Whole {
        row: "An empty list in a NetworkPolicy where there is none",
        then: Then::Stop,
        holds: |step, ours, theirs| {
            let sent = step.body.as_ref().map(|body| &body["spec"]).unwrap_or(&Value::Null);
            let lists = ["ingress", "egress", "policyTypes"];
            let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
            let mut patched = step.body.as_ref().and_then(Value::as_array).into_iter().flatten();
            let set = |change: &Value| {
                let path = change["path"].as_str().and_then(|path| path.strip_prefix("/spec/"));
                path.is_some_and(|name| lists.contains(&name)) && is_empty(&change["value"])
            };
            let empty = lists.iter().any(|name| is_empty(&sent[name])) || patched.any(set);
            let counted = ["managedFields", "resourceVersion", "generation"];
            what(&step.path) == "networkpolicies" && empty && same_but(ours, theirs, &counted)
        },
    },
    Whole {
        row: "Order of warnings about fields that a JSON patch moved",
        then: Then::GoOn,
        holds: |step, ours, theirs| {
            let sorted = |answer: &Answer| {
                let mut answer = answer.clone();
                answer.warnings.sort();
                answer
            };
            let patch = step.content_type == "application/json-patch+json";
            patch && ours.warnings != theirs.warnings && sorted(ours) == sorted(theirs)
        },
    },
    Whole {
        row: "A write of a Job or claim that changes nothing",
        then: Then::GoOn,
        holds: |step, ours, theirs| {
            let twice = matches!(what(&step.path).as_str(), "jobs" | "persistentvolumeclaims");
            twice && step.is_watch() && ours.body != theirs.body && seen(&ours.body) == seen(&theirs.body)
        },
    },
    Whole {
        row: "Metadata of a custom resource that is applied as null or empty",
        then: Then::Stop,
        holds: |step, ours, theirs| {
            let applied = what(&step.path) == "things" && step.content_type == "application/apply-patch+yaml";
            applied && says_nothing(step) && ours.code == theirs.code && same_but_versions(ours, theirs)
        },
    },
    Whole {
        row: "A scale beyond 32 bits",
        then: Then::Stop,
        holds: |step, ours, theirs| {
            let replicas = step.body.as_ref().and_then(|body| body["spec"]["replicas"].as_i64());
            let beyond = replicas.is_some_and(|replicas| i32::try_from(replicas).is_err());
            beyond && what(&step.path).ends_with("/scale") && ours.code >= 400 && theirs.code == 200
        },
    },
    Whole {
        row: "YAML errors",
        then: Then::GoOn,
        holds: |_, ours, theirs| {
            let yaml = |answer: &Answer| message(&answer.body).contains("error converting YAML to JSON");
            ours.code == theirs.code && yaml(ours) && yaml(theirs)
        },
    },
    Whole {
        row: "An address or port for a Service that is refused",
        then: Then::GoOn,
        holds: |step, ours, theirs| {
            let words = ["failed to allocate IP", "provided port is not in the valid range"];
            let refused = |cause: &Value| words.iter().any(|words| says(cause, words));
            let their_message = message(&theirs.body).contains(words[0]);
            let alike = ours.code == theirs.code && (400..500).contains(&ours.code);
            what(&step.path) == "services" && alike && (their_message || causes(theirs).iter().any(refused))
        },
    },
];

const PLACES: &[Place] = &[
    Place {
        row: "Several mistakes in what is applied",
        holds: |_, path, ours, theirs| {
            let (Some(ours), Some(theirs)) = (ours.as_str(), theirs.as_str()) else {
                return false;
            };
            let typed = |text: &str| text.starts_with("failed to create typed patch object");
            // Kubernetes stops at some mistakes, and comes to them by chance.
            let told = mistakes(theirs);
            let known = !told.is_empty() && told.iter().all(|one| ours.contains(*one));
            path == ".message" && typed(ours) && typed(theirs) && known
        },
    },
    Place {
        row: "Optional `oldSelf` of what is neither number nor text where it may be either",
        holds: |step, path, ours, theirs| {
            let ours = ours.as_array().map(Vec::as_slice).unwrap_or_default();
            let theirs = theirs.as_array().map(Vec::as_slice).unwrap_or_default();
            let either = step
                .body
                .as_ref()
                .is_some_and(|body| body.to_string().contains("\"x-kubernetes-int-or-string\":true"));
            let of_default = |cause: &Value| {
                let field = cause["field"].as_str().unwrap_or_default();
                field.ends_with("].default") && says(cause, "failed rule: oldSelf.orValue(self) == self")
            };
            let definition = what(&step.path) == "customresourcedefinitions" && path == ".details.causes";
            definition && either && ours.is_empty() && !theirs.is_empty() && theirs.iter().all(of_default)
        },
    },
    Place {
        row: "Rules about a list where a text belongs",
        holds: |step, path, ours, theirs| {
            let told = ours.as_array().map(Vec::as_slice).unwrap_or_default();
            let mistyped = |cause: &Value| {
                says(
                    cause,
                    "invalid data, expected string, got []interface {} evaluating rule",
                )
            };
            let definition = what(&step.path) == "customresourcedefinitions" && path == ".details.causes";
            let none = theirs.as_array().is_some_and(Vec::is_empty);
            definition && none && !told.is_empty() && told.iter().all(mistyped)
        },
    },
    Place {
        row: "Which of the rules that cost the same are named where all cost too much",
        holds: |step, path, ours, theirs| {
            let ours = ours.as_array().map(Vec::as_slice).unwrap_or_default();
            let theirs = theirs.as_array().map(Vec::as_slice).unwrap_or_default();
            let of_total = |cause: &Value| says(cause, "contributed to estimated rule cost total");
            let definition = what(&step.path) == "customresourcedefinitions" && path == ".details.causes";
            let as_many = !ours.is_empty() && ours.len() == theirs.len();
            definition && as_many && ours.iter().chain(theirs).all(of_total)
        },
    },
    Place {
        row: "Go's types of texts in errors",
        holds: |_, path, ours, theirs| {
            let (ours, theirs) = match path {
                ".message" => (ours.as_str(), theirs.as_str()),
                ".details.causes" if same_length_one(ours, theirs) => {
                    (ours[0]["message"].as_str(), theirs[0]["message"].as_str())
                }
                _ => return false,
            };
            let (Some(ours), Some(theirs)) = (ours, theirs) else {
                return false;
            };
            match (ours.rsplit_once(" of type "), theirs.rsplit_once(" of type ")) {
                (Some((our_place, "string")), Some((their_place, kind))) => {
                    let named = kind.split_once('.').is_some_and(|(package, name)| {
                        package.chars().all(|c| c.is_ascii_alphanumeric())
                            && name.starts_with(|c: char| c.is_ascii_uppercase())
                            && name.chars().all(|c| c.is_ascii_alphanumeric())
                    });
                    our_place == their_place && named
                }
                _ => false,
            }
        },
    },
    Place {
        row: "Which of several mistakes a strategic patch is refused for",
        holds: |step, path, ours, theirs| {
            let strategic = step.content_type == "application/strategic-merge-patch+json";
            // Mistakes of one sort would be told in the same words.
            let sort = |causes: &Value| {
                let words = [
                    "illegal base64 data",
                    "unrecognized type: ",
                    "cannot convert ",
                    "cannot restore ",
                ];
                let found = words.iter().position(|words| says(&causes[0], words));
                found.filter(|_| causes[0]["field"] == "patch")
            };
            path == ".details.causes"
                && strategic
                && same_length_one(ours, theirs)
                && sort(ours).is_some()
                && sort(theirs).is_some()
                && sort(ours) != sort(theirs)
        },
    },
];

/// Whether metadata is sent that is null or empty.
fn says_nothing(step: &Step) -> bool {
    let sent = step.body.as_ref().map_or(&Value::Null, |body| &body["metadata"]);
    let null = ["labels", "annotations"].iter().any(|name| {
        let entries = sent[name].as_object().into_iter().flatten();
        entries.into_iter().any(|(_, value)| value.is_null())
    });
    let empty = ["finalizers", "ownerReferences"]
        .iter()
        .any(|name| sent[name].as_array().is_some_and(Vec::is_empty));
    null || empty
}

/// Whether two answers differ in nothing but who manages an object, and its version.
fn same_but_versions(ours: &Answer, theirs: &Answer) -> bool {
    same_but(ours, theirs, &["managedFields", "resourceVersion"])
}

/// Whether two answers differ in nothing but these parts of their metadata.
fn same_but(ours: &Answer, theirs: &Answer, fields: &[&str]) -> bool {
    if !ours.body["metadata"].is_object() || !theirs.body["metadata"].is_object() {
        return false;
    }
    let mut alike = ours.clone();
    for field in fields {
        match theirs.body["metadata"].get(*field) {
            Some(value) => alike.body["metadata"][*field] = value.clone(),
            None => {
                let metadata = alike.body["metadata"].as_object_mut();
                metadata.and_then(|metadata| metadata.remove(*field));
            }
        }
    }
    ours != theirs && alike == *theirs
}

/// The events of a watch without versions, and without those that show nothing else that is new.
fn seen(events: &Value) -> Vec<Value> {
    let mut seen: Vec<Value> = Vec::new();
    for event in events.as_array().into_iter().flatten() {
        let mut event = event.clone();
        without_versions(&mut event);
        // Only the first table of a watch says what its columns are.
        let shown = |event: &Value| match event["object"]["kind"] == "Table" {
            true => event["object"]["rows"].clone(),
            false => event["object"].clone(),
        };
        let repeated = |before: &Value| event["type"] == "MODIFIED" && shown(before) == shown(&event);
        if !seen.last().is_some_and(repeated) {
            seen.push(event);
        }
    }
    seen
}

fn without_versions(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("resourceVersion");
            fields.values_mut().for_each(without_versions);
        }
        Value::Array(items) => items.iter_mut().for_each(without_versions),
        _ => {}
    }
}

fn causes(answer: &Answer) -> &[Value] {
    let causes = answer.body["details"]["causes"].as_array();
    causes.map(Vec::as_slice).unwrap_or_default()
}

fn says(cause: &Value, words: &str) -> bool {
    cause["message"].as_str().is_some_and(|message| message.contains(words))
}

/// The single mistakes that a refusal of an apply tells.
fn mistakes(message: &str) -> Vec<&str> {
    match message.split_once(": errors:\n") {
        Some((_, mistakes)) => mistakes.lines().map(str::trim).collect(),
        None => message
            .split_once("): ")
            .map(|(_, mistake)| mistake)
            .into_iter()
            .collect(),
    }
}

fn same_length_one(ours: &Value, theirs: &Value) -> bool {
    let one = |value: &Value| value.as_array().is_some_and(|all| all.len() == 1);
    one(ours) && one(theirs)
}

/// The row that explains why two answers to a step differ as a whole, and whether what follows can be compared.
/// `before` are the earlier steps with our answers.
pub fn whole_answer(
    step: &Step,
    before: &[(&Step, &Answer)],
    ours: &Answer,
    theirs: &Answer,
) -> Option<(&'static str, Then)> {
    if let Some(rule) = past::RULES.iter().find(|rule| (rule.holds)(step, before, ours, theirs)) {
        return Some((rule.row, Then::Stop));
    }
    let rule = WHOLE.iter().find(|rule| (rule.holds)(step, ours, theirs));
    rule.map(|rule| (rule.row, rule.then))
}

/// The row that explains why two answers to a step differ at this place.
pub fn value(step: &Step, path: &str, ours: &Value, theirs: &Value) -> Option<&'static str> {
    let rule = PLACES.iter().find(|rule| (rule.holds)(step, path, ours, theirs));
    rule.map(|rule| rule.row)
}

#[cfg(test)]
mod tests {
    use super::past::{self, EMPTY_DATA};
    use super::{PLACES, Then, WHOLE, whole_answer};
    use crate::differential::sequence::Step;
    use crate::differential::side::Answer;
    use serde_json::{Value, json};

    #[test]
    fn every_rule_has_its_row_in_the_documentation() {
        let documented = include_str!("../../../../docs/compatibility.md");
        let rows = WHOLE
            .iter()
            .map(|rule| rule.row)
            .chain(PLACES.iter().map(|rule| rule.row))
            .chain(past::RULES.iter().map(|rule| rule.row));
        for row in rows {
            assert!(documented.contains(&format!("\n| {row} |")), "no row for {row:?}");
        }
    }

    fn answer(code: u16, body: Value) -> Answer {
        Answer {
            code,
            warnings: Vec::new(),
            body,
        }
    }

    fn step(path: &str, body: Value) -> Step {
        Step {
            method: "PUT".to_string(),
            path: path.to_string(),
            body: Some(body),
            ..Step::default()
        }
    }

    #[test]
    fn taking_data_from_an_immutable_object_is_explained_by_nothing() {
        let sent = step("/api/v1/namespaces/{ns}/configmaps/a", json!({"data": {}}));
        let object = |data: Value| {
            answer(
                200,
                json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}),
            )
        };
        let refused = |field: &str| {
            let cause = json!({"field": field, "message": "Forbidden: field is immutable when `immutable` is set"});
            answer(422, json!({"details": {"causes": [cause]}}))
        };
        let told = |stored: Value, theirs: Answer| {
            let stored = object(stored);
            whole_answer(&sent, &[(&sent, &stored)], &object(Value::Null), &theirs)
        };
        assert_eq!(told(Value::Null, refused("data")), Some((EMPTY_DATA, Then::Stop)));
        assert_eq!(told(json!({"colour": "red"}), refused("data")), None);
        assert_eq!(told(Value::Null, refused("binaryData")), None);
        assert_eq!(told(Value::Null, answer(422, json!({}))), None);
        assert_eq!(whole_answer(&sent, &[], &object(Value::Null), &refused("data")), None);
    }

    #[test]
    fn a_refused_address_explains_a_refusal_of_a_service_alone() {
        let cause = json!({"field": "spec.ports[0].nodePort", "message": "provided port is not in the valid range"});
        let theirs = answer(422, json!({"details": {"causes": [cause]}}));
        let told = |path: &str, code: u16| whole_answer(&step(path, json!({})), &[], &answer(code, json!({})), &theirs);
        let services = "/api/v1/namespaces/{ns}/services";
        assert!(told(services, 422).is_some());
        assert_eq!(told(services, 500), None);
        assert_eq!(told("/api/v1/namespaces/{ns}/pods", 422), None);
    }
}

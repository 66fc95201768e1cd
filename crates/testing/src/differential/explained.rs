//! Differences that are meant to be, or not worth a change, each with its row in `docs/compatibility.md`.
//!
//! A rule here hides a difference from the search, so each is as narrow as its reason, and a test holds that its
//! row exists. What differs in the nature of two runs, such as times, is no difference and is not here.

use super::compare::{message, what};
use super::sequence::Step;
use super::side::Answer;
use serde_json::Value;

/// A rule about a whole answer.
struct Whole {
    /// The first cell of its row.
    row: &'static str,
    holds: fn(&Step, &Answer, &Answer) -> bool,
}

/// A rule about one place in answers that have the same code.
struct Place {
    row: &'static str,
    holds: fn(&Step, &str, &Value, &Value) -> bool,
}

const WHOLE: &[Whole] = &[
    Whole {
        row: "A request at which kube-apiserver 1.36.4 drops the connection",
        holds: |_, ours, theirs| theirs.code == 0 && ours.code != 0,
    },
    Whole {
        row: "`PUT` or `PATCH` of a Service that is not there, or of its status",
        holds: |step, ours, theirs| {
            let service = matches!(what(&step.path).as_str(), "services/status" | "services");
            let write = step.method == "PUT" || step.method == "PATCH";
            service && write && ours.code == 404 && theirs.code != 404
        },
    },
    Whole {
        row: "YAML errors",
        holds: |_, ours, theirs| {
            let yaml = |answer: &Answer| message(&answer.body).contains("error converting YAML to JSON");
            ours.code == theirs.code && yaml(ours) && yaml(theirs)
        },
    },
    Whole {
        row: "An address for a Service that is refused",
        holds: |_, ours, theirs| {
            let causes = theirs.body["details"]["causes"].as_array();
            let refused = |cause: &Value| {
                cause["message"]
                    .as_str()
                    .is_some_and(|m| m.contains("failed to allocate IP"))
            };
            let their_message = message(&theirs.body).contains("failed to allocate IP");
            ours.code >= 400 && theirs.code >= 400 && (their_message || causes.into_iter().flatten().any(refused))
        },
    },
];

const PLACES: &[Place] = &[];

/// The row that explains why two answers to a step differ as a whole.
pub fn whole_answer(step: &Step, ours: &Answer, theirs: &Answer) -> Option<&'static str> {
    let rule = WHOLE.iter().find(|rule| (rule.holds)(step, ours, theirs));
    rule.map(|rule| rule.row)
}

/// The row that explains why two answers to a step differ at this place.
pub fn value(step: &Step, path: &str, ours: &Value, theirs: &Value) -> Option<&'static str> {
    let rule = PLACES.iter().find(|rule| (rule.holds)(step, path, ours, theirs));
    rule.map(|rule| rule.row)
}

#[cfg(test)]
mod tests {
    use super::{PLACES, WHOLE};

    #[test]
    fn every_rule_has_its_row_in_the_documentation() {
        let documented = include_str!("../../../../docs/compatibility.md");
        let rows = WHOLE
            .iter()
            .map(|rule| rule.row)
            .chain(PLACES.iter().map(|rule| rule.row));
        for row in rows {
            assert!(documented.contains(&format!("\n| {row} |")), "no row for {row:?}");
        }
    }
}

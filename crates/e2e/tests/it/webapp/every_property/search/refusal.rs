//! What the API server says of a spec that it refuses, and which property it means.

use super::super::schema::{Learned, Step};

/// Why a spec is not valid: fields, and what is wrong with them.
#[derive(Debug, Default)]
pub struct Refusal {
    pub causes: Vec<(String, String)>,
}

impl From<kube::Error> for Refusal {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            panic!("the API server does not answer: {error}");
        };
        let causes = status.details.into_iter().flat_map(|details| details.causes);
        Refusal {
            causes: causes.map(|cause| (cause.field, cause.message)).collect(),
        }
    }
}

impl Refusal {
    /// Whether it may be about a property of this name: children call it by another way, and by the same name.
    pub fn is_about(&self, name: &str) -> bool {
        self.causes.is_empty() || self.causes.iter().any(|(field, _)| name_of(field) == name)
    }

    /// The words that it says would be taken, by the name of the property.
    pub fn words(&self) -> Learned {
        let mut learned = Learned::new();
        for (field, message) in &self.causes {
            if let Some((_, words)) = message.split_once("supported values: ") {
                let words = words.split('"').skip(1).step_by(2).map(String::from);
                // Of a list the server may name the whole, whichever member of an item is meant.
                learned.entry(name_of(field).to_string()).or_default().extend(words);
            }
        }
        learned.retain(|_, words| !words.is_empty());
        learned
    }
}

/// The last name of a field, be it as a whole or one item of it.
fn name_of(field: &str) -> &str {
    let last = field.rsplit('.').next().unwrap_or_default();
    last.split('[').next().unwrap_or_default()
}

/// Whether a field that was refused is the part of a way that begins at this step, or in it. Children call what holds it
/// by a name that begins alike, and Kubernetes may write its own names for fields.
pub fn names(field: &str, place: &[Step], part: usize) -> bool {
    let holder = match place[..part].iter().rev().find(|step| **step != Step::Item) {
        Some(Step::Field(name)) => name.to_lowercase(),
        Some(Step::Item) | None => String::new(),
    };
    let name = last_name(&place[..=part]);
    let names: Vec<&str> = field.split('.').map(name_of).collect();
    let mut pairs = names.windows(2);
    pairs.any(|pair| pair[0].to_lowercase().starts_with(&holder) && pair[1].eq_ignore_ascii_case(name))
}

/// The last name on a way.
pub fn last_name(place: &[Step]) -> &str {
    match place.last() {
        Some(Step::Field(name)) => name,
        Some(Step::Item) | None => "",
    }
}

/// The name of what holds the property at the end of a way.
pub fn name_above(place: &[Step]) -> &str {
    let mut names = place.iter().rev().filter_map(|step| match step {
        Step::Field(name) => Some(name.as_str()),
        Step::Item => None,
    });
    names.nth(1).unwrap_or_default()
}

//! What may be wrong with the wishes of a pod about its place: affinity, tolerations and spread.

use super::check::{Errors, Field};
use std::collections::{BTreeMap, BTreeSet};
use stead_machinery::names;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Whether the values of a node selector are judged. Kubernetes looks at those of rules, not at those of wishes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Judged,
    Free,
}

pub fn affinity(affinity: &Field<'_>, errors: &mut Errors) {
    let nodes = affinity.at("nodeAffinity");
    node_selector(&nodes.at(REQUIRED), errors);
    for wish in nodes.at(PREFERRED).items() {
        weight(&wish, errors);
        node_term(&wish.at("preference"), Values::Free, errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let rules = affinity.at(kind);
        for term in rules.at(REQUIRED).items() {
            pod_term(&term, errors);
        }
        for weighted in rules.at(PREFERRED).items() {
            weight(&weighted, errors);
            pod_term(&weighted.at("podAffinityTerm"), errors);
        }
    }
}

/// The nodes that something may be on.
pub fn node_selector(selector: &Field<'_>, errors: &mut Errors) {
    let terms = selector.at("nodeSelectorTerms");
    if selector.is_set() && terms.is_empty() {
        errors.required(&terms, "must have at least one node selector term");
    }
    for term in terms.items() {
        node_term(&term, Values::Judged, errors);
    }
}

fn weight(wish: &Field<'_>, errors: &mut Errors) {
    let weight = wish.at("weight");
    let number = weight.number().unwrap_or_default();
    if !(1..=100).contains(&number) {
        errors.invalid_value(&weight, number, "must be in the range 1-100");
    }
}

fn node_term(term: &Field<'_>, judged: Values, errors: &mut Errors) {
    for expression in term.at("matchExpressions").items() {
        let (operator, values) = (expression.at("operator"), expression.at("values"));
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.forbidden(
                &values,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            "Gt" | "Lt" if values.items().count() != 1 => errors.required(
                &values,
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.invalid_value(&operator, other, "not a valid selector operator"),
        }
        errors.label_name(&expression.at("key"));
        if judged == Values::Judged {
            for value in values.items() {
                errors.complaints(&value, names::label_value(value.text()));
            }
        }
    }
    for field in term.at("matchFields").items() {
        let (key, operator, values) = (field.at("key"), field.at("operator"), field.at("values"));
        match operator.text() {
            "In" | "NotIn" if values.items().count() != 1 => errors.required(
                &values,
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            ),
            "In" | "NotIn" => {}
            other => errors.invalid_value(&operator, other, "not a valid selector operator"),
        }
        if key.text() != "metadata.name" {
            errors.invalid_value(&key, key.text(), "not a valid field selector key");
            continue;
        }
        for value in values.items() {
            errors.complaints(&value, names::dns1123_subdomain(value.text()));
        }
    }
}

fn pod_term(term: &Field<'_>, errors: &mut Errors) {
    errors.selector(&term.at("labelSelector"));
    errors.selector(&term.at("namespaceSelector"));
    for namespace in term.at("namespaces").items() {
        let named = Field {
            value: namespace.value,
            path: term.at("namespace").path,
        };
        errors.complaints(&named, names::dns1123_label(namespace.text()));
    }
    label_keys(term, errors);
    let key = term.at("topologyKey");
    if key.is_empty() {
        errors.required(&key, "can not be empty");
    }
    errors.label_name(&key);
}

/// Keys whose values come from the pod itself, and are added to the selector.
fn label_keys(of: &Field<'_>, errors: &mut Errors) {
    let selector = of.at("labelSelector");
    for name in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = of.at(name);
        if !keys.is_empty() && !selector.is_set() {
            errors.forbidden(&keys, "must not be specified when labelSelector is not set");
            continue;
        }
        for key in keys.items() {
            errors.label_name(&key);
        }
    }
    let (wanted, unwanted) = (of.at("matchLabelKeys"), of.at("mismatchLabelKeys"));
    let chosen: BTreeSet<&str> = selector.at("matchLabels").entries().map(|(key, _)| key).collect();
    let mut seen = chosen;
    let mut places = BTreeMap::new();
    for (at, key) in wanted.items().enumerate() {
        places.entry(key.text()).or_insert(at);
    }
    for expression in selector.at("matchExpressions").items() {
        let key = expression.at("key");
        if !seen.insert(key.text())
            && let Some(at) = places.get(key.text())
        {
            let place = Field {
                value: key.value,
                path: format!("{}[{at}]", of.path),
            };
            errors.invalid(&place, "exists in both matchLabelKeys and labelSelector");
        }
    }
    let unwanted: BTreeSet<&str> = unwanted.items().map(|key| key.text()).collect();
    for key in wanted.items() {
        if unwanted.contains(key.text()) {
            errors.invalid(&key, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

pub fn tolerations(list: &Field<'_>, errors: &mut Errors) {
    for toleration in list.items() {
        let (key, operator) = (toleration.at("key"), toleration.at("operator"));
        let (value, effect) = (toleration.at("value"), toleration.at("effect"));
        errors.named_if_set(&key, names::qualified_name);
        if key.is_empty() && operator.text() != "Exists" {
            errors.invalid_value(
                &operator,
                operator.text(),
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if toleration.at("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid_value(&effect, effect.text(), why);
        }
        match operator.text() {
            "" | "Equal" => {
                let complaints = names::label_value(value.text());
                if !complaints.is_empty() {
                    errors.invalid_value(&operator, value.text(), complaints.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.invalid_value(
                    &operator,
                    value.text(),
                    "value must be empty when `operator` is 'Exists'",
                );
            }
            "Exists" => {}
            // Known, and behind a gate that is closed.
            "Lt" | "Gt" => errors.unsupported(&operator, &["Equal", "Exists", "Lt", "Gt"]),
            _ => errors.unsupported(&operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            errors.one_of(&effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
    }
}

pub fn spread(constraints: &Field<'_>, errors: &mut Errors) {
    let pair = |constraint: &Field<'_>| {
        let (key, action) = (constraint.at("topologyKey"), constraint.at("whenUnsatisfiable"));
        format!("{{{}, {}}}", key.text(), action.text())
    };
    let pairs: Vec<String> = constraints.items().map(|constraint| pair(&constraint)).collect();
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for pair in &pairs {
        *left.entry(pair).or_default() += 1;
    }
    for (constraint, pair) in constraints.items().zip(&pairs) {
        let (skew, action) = (constraint.at("maxSkew"), constraint.at("whenUnsatisfiable"));
        let number = skew.number().unwrap_or_default();
        if number <= 0 {
            errors.invalid_value(&skew, number, "must be greater than zero");
        }
        if constraint.at("topologyKey").is_empty() {
            errors.required(&constraint.at("topologyKey"), "can not be empty");
        }
        errors.one_of_shown(&action, &["DoNotSchedule", "ScheduleAnyway"]);
        // Kubernetes compares each with those behind it.
        let behind = left.entry(pair).and_modify(|count| *count -= 1).or_default();
        if *behind > 0 {
            let value = serde_json::Value::from(pair.as_str());
            errors.duplicate(&Field {
                value: &value,
                path: constraint.at("{topologyKey, whenUnsatisfiable}").path,
            });
        }
        let domains = constraint.at("minDomains");
        if domains.number().is_some_and(|number| number <= 0) {
            errors.invalid(&domains, "must be greater than zero");
        }
        if domains.is_set() && action.text() != "DoNotSchedule" {
            let why = format!(
                "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                action.text()
            );
            errors.invalid(&domains, why);
        }
        for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            errors.one_of_if_set(&constraint.at(name), &["Honor", "Ignore"]);
        }
        label_keys(&constraint, errors);
        errors.selector(&constraint.at("labelSelector"));
    }
}

pub fn gates(spec: &Field<'_>, errors: &mut Errors) {
    for gate in spec.at("readinessGates").items() {
        let kind = gate.at("conditionType");
        errors.label_name(&kind);
    }
    let mut seen = BTreeSet::new();
    for gate in spec.at("schedulingGates").items() {
        let named = Field {
            value: gate.at("name").value,
            path: gate.path.clone(),
        };
        errors.label_name(&named);
        if !seen.insert(named.text()) {
            errors.duplicate(&named);
        }
    }
}

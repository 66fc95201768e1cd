//! What a definition does not take over from Kubernetes' own types.
//!
//! Kubernetes uses one type in several places, and in some of them refuses every value of a field by a rule that no
//! schema shows. A definition that offered such a field would have `kubectl explain` promise what the Deployment is
//! then refused for; without it the API server says at once that the field is unknown.

use serde_json::{Value, json};

/// What of a type is offered.
enum Offer {
    AllBut(&'static [&'static str]),
    Only(&'static [&'static str]),
    /// A field that can have one value only.
    Always(&'static str, &'static str),
}

/// By the last names of the way to a type: what of it a WebApp can have.
const OFFERS: &[(&[&str], Offer)] = &[
    // No container ends because it is not ready.
    (&["readiness"], Offer::AllBut(&["terminationGracePeriodSeconds"])),
    (&["readinessProbe"], Offer::AllBut(&["terminationGracePeriodSeconds"])),
    // A claim is one of the pod's, and a WebApp's pods have none.
    (&["resources"], Offer::AllBut(&["claims"])),
    // The rest of a claim's metadata is given to it when it is made.
    (
        &["volumeClaimTemplate", "metadata"],
        Offer::Only(&["annotations", "labels"]),
    ),
    // A node has one field that it can be chosen by.
    (&["matchFields"], Offer::Always("key", "metadata.name")),
];

/// Takes out of a schema what it should not offer.
pub fn limit(schema: &mut Value) {
    at(schema, &mut Vec::new());
}

fn at(schema: &mut Value, way: &mut Vec<String>) {
    if let Some(items) = schema.get_mut("items") {
        at(items, way);
        return;
    }
    let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for (_, offer) in OFFERS.iter().filter(|(end, _)| ends_with(way, end)) {
        match offer {
            Offer::AllBut(names) => fields.retain(|name, _| !names.contains(&name.as_str())),
            Offer::Only(names) => fields.retain(|name, _| names.contains(&name.as_str())),
            Offer::Always(name, value) => {
                if let Some(field) = fields.get_mut(*name) {
                    field["enum"] = json!([value]);
                }
            }
        }
    }
    for (name, field) in fields {
        way.push(name.clone());
        at(field, way);
        way.pop();
    }
}

fn ends_with(way: &[String], end: &[&str]) -> bool {
    let last = way.iter().rev().map(String::as_str);
    way.len() >= end.len() && last.zip(end.iter().rev()).all(|(one, other)| one == *other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::CustomResourceExt;

    fn spec(definition: impl serde::Serialize) -> Value {
        let definition = serde_json::to_value(definition).expect("JSON");
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
    }

    /// Every property as people write its place, with its one value where it has only one.
    fn places(schema: &Value, place: &str, found: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let place = format!("{place}.{name}");
            match field["enum"].as_array().map(Vec::as_slice) {
                Some([only]) => found.push(format!("{place} = {only}")),
                _ => found.push(place.clone()),
            }
            places(field, &place, found);
        }
        if schema["items"].is_object() {
            places(&schema["items"], &format!("{place}[]"), found);
        }
    }

    #[test]
    fn a_webapp_offers_all_of_kubernetes_types_but_what_it_cannot_have() {
        let (mut all, mut offered) = (Vec::new(), Vec::new());
        places(&spec(crate::WebApp::crd()), "", &mut all);
        places(&spec(&super::super::all()[0]), "", &mut offered);
        // Whether Kubernetes really refuses them is asked of an API server by a test that has one.
        let mut left_out: Vec<&str> = all
            .iter()
            .filter(|place| !offered.contains(place))
            .map(|place| place.trim_start_matches('.'))
            .collect();
        left_out.retain(|place| !place.contains("volumeClaimTemplate.metadata."));
        let key = "matchFields[].key";
        let preferred = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[].preference";
        let required = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[]";
        assert_eq!(
            left_out,
            [
                &format!("{preferred}.{key}"),
                &format!("{required}.{key}"),
                "initContainers[].readinessProbe.terminationGracePeriodSeconds",
                "initContainers[].resources.claims",
                "initContainers[].resources.claims[].name",
                "initContainers[].resources.claims[].request",
                "probes.readiness.terminationGracePeriodSeconds",
                "resources.claims",
                "resources.claims[].name",
                "resources.claims[].request",
                "sidecars[].readinessProbe.terminationGracePeriodSeconds",
                "sidecars[].resources.claims",
                "sidecars[].resources.claims[].name",
                "sidecars[].resources.claims[].request",
            ]
        );
        let metadata = offered
            .iter()
            .filter(|place| place.contains("volumeClaimTemplate.metadata."));
        let names: Vec<&str> = metadata.filter_map(|place| place.rsplit('.').next()).collect();
        assert_eq!(names, ["annotations", "labels"]);
        let only: Vec<&String> = offered.iter().filter(|place| place.contains(" = ")).collect();
        let name = |place: &str| format!(".{place}.{key} = \"metadata.name\"");
        assert_eq!(only, [&name(preferred), &name(required)]);
    }

    #[test]
    fn nothing_is_required_that_is_not_offered() {
        fn check(schema: &Value, place: &str) {
            for name in schema["required"].as_array().into_iter().flatten() {
                let name = name.as_str().expect("a name");
                assert!(schema["properties"][name].is_object(), "{place} requires {name}");
            }
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                check(field, &format!("{place}.{name}"));
            }
            if schema["items"].is_object() {
                check(&schema["items"], place);
            }
        }
        check(&spec(&super::super::all()[0]), "spec");
    }
}

//! The custom resource definitions, as a cluster takes them.

mod offered;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

/// A description longer than this is cut to its first sentence.
///
/// `kubectl apply` keeps the whole definition in an annotation of at most 256 KiB, and Kubernetes' own
/// descriptions of volumes and containers alone would fill it.
const LONG_DESCRIPTION: usize = 160;

/// Every definition that Stead's operators need.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![prepared(crate::WebApp::crd())]
}

fn prepared(definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut value = serde_json::to_value(definition).expect("a definition is plain data");
    shorten(&mut value);
    for version in value["spec"]["versions"].as_array_mut().into_iter().flatten() {
        offered::limit(&mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]);
    }
    serde_json::from_value(value).expect("less of a definition is one still")
}

fn shorten(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                match inner {
                    Value::String(text) if key == "description" && text.len() > LONG_DESCRIPTION => {
                        *text = first_sentence(text);
                    }
                    other => shorten(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        _ => {}
    }
}

fn first_sentence(text: &str) -> String {
    match text.find(". ") {
        Some(end) => text[..=end].to_string(),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_fits_into_the_annotation_of_kubectl_apply() {
        for definition in all() {
            let size = serde_json::to_vec(&definition).unwrap().len();
            assert!(size < 200 * 1024, "{}: {size} bytes", definition.metadata.name.unwrap());
        }
    }

    #[test]
    fn every_field_of_the_spec_is_described() {
        for definition in all() {
            let value = serde_json::to_value(&definition).unwrap();
            let schema = &value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
            for part in ["spec", "status"] {
                let fields = described(part, &schema[part]);
                assert!(fields > 10, "{part} has {fields} fields");
            }
        }
    }

    /// Fails at the first field, to the ends of the schema, of which `kubectl explain` would have nothing to say; gives
    /// how many there are.
    fn described(place: &str, schema: &Value) -> usize {
        let mut fields = 0;
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let place = format!("{place}.{name}");
            let words = field["description"].as_str().unwrap_or_default();
            assert!(!words.is_empty(), "{place} has no description");
            fields += 1 + described(&place, field);
        }
        if schema["items"].is_object() {
            fields += described(place, &schema["items"]);
        }
        fields
    }

    #[test]
    fn a_webapp_shows_its_columns_and_has_status_and_scale() {
        let value = serde_json::to_value(&all()[0]).unwrap();
        let version = &value["spec"]["versions"][0];
        let columns = version["additionalPrinterColumns"].as_array().unwrap();
        let names: Vec<&str> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
        assert_eq!(names, ["Ready", "Phase", "Replicas", "Image", "URL", "Age"]);
        let parts = &version["subresources"];
        assert!(parts["status"].is_object());
        assert_eq!(parts["scale"]["specReplicasPath"], ".spec.replicas");
        assert_eq!(parts["scale"]["labelSelectorPath"], ".status.selector");
    }
}

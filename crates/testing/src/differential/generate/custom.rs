//! Custom kinds: a definition with a random schema, and objects of it.

use super::super::sequence::{Step, put};
use super::{Story, Subject, rules, schemas};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Defines a kind, and makes it the subject.
pub fn subject(story: &mut Story) -> Subject {
    let namespaced = !story.one_in(5);
    let schema = whole(story);
    let mut fields = Vec::new();
    let spec = schema["properties"]["spec"].clone();
    schemas::pool(story, &spec, "/spec", &mut fields);
    fields.push(("/unknown".to_string(), vec![json!(1), json!(null)]));
    let status = [
        ("/status/phase", json!(["Ready", "", 5, null])),
        ("/status/replicas", json!([0, 3, -1, "x", null])),
        ("/status/selector", json!(["app=web", "", null])),
        ("/status", json!([{"phase": "New"}, {}, null, {"unknown": 1}])),
    ];
    let mut definition = definition(story, schema, namespaced);
    if story.one_in(10) {
        sabotage(story, &mut definition);
    }
    let subresources = definition["spec"]["versions"][0]["subresources"]
        .as_object()
        .map(|all| all.keys().cloned().collect())
        .unwrap_or_default();
    let namespace = if namespaced { "/namespaces/{ns}" } else { "" };
    let collection = format!("/apis/{{ns}}.example.com/v1{namespace}/things");
    let mut made = Step::new("POST", DEFINITIONS).with(definition);
    if story.one_in(10) {
        made.path = format!("{DEFINITIONS}?fieldValidation=Strict");
    }
    made.ready = Some(collection.clone());
    story.step(made);
    // A watch of a new kind begins where the kind does.
    let mut first = Step::new("GET", collection.clone());
    if !namespaced {
        first.path.push_str("?labelSelector=sequence%3D{ns}");
    }
    let since = story.step(first);
    Subject {
        since,
        api_version: "{ns}.example.com/v1".to_string(),
        kind: "Thing".to_string(),
        collection,
        namespaced,
        base: json!({"spec": schemas::value(story, &spec, 30)}),
        fields,
        status: status
            .into_iter()
            .map(|(pointer, values)| (pointer.to_string(), values.as_array().cloned().unwrap_or_default()))
            .collect(),
        subresources,
        field_selectors: vec!["spec.p%3Da".to_string(), "status.phase%3DReady".to_string()],
    }
}

fn whole(story: &mut Story) -> Value {
    let spec = schemas::object(story, 2);
    let mut schema = json!({"type": "object", "properties": {"spec": spec, "status": {
        "type": "object", "properties": {
            "phase": {"type": "string", "default": "New"},
            "replicas": {"type": "integer", "minimum": 0},
            "selector": {"type": "string"},
        },
    }}});
    if story.one_in(4) {
        schema["required"] = json!(["spec"]);
    }
    if story.one_in(4) {
        rules::attach(story, &mut schema["properties"]["spec"]);
    }
    if story.one_in(6) {
        rules::attach_to_root(story, &mut schema);
    }
    if story.one_in(10) {
        let metadata = story
            .pick(&[
                json!({"type": "object", "properties": {"labels": {"type": "object"}}}),
                json!({"type": "object"}),
            ])
            .clone();
        schema["properties"]["metadata"] = metadata;
    }
    schema
}

fn definition(story: &mut Story, schema: Value, namespaced: bool) -> Value {
    let mut version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    if story.one_in(2) {
        version["subresources"]["status"] = json!({});
    }
    if story.one_in(5) {
        version["subresources"]["scale"] = json!({
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector",
        });
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["replicas"] =
            json!({"type": "integer", "minimum": 0});
    }
    if story.one_in(4) {
        version["additionalPrinterColumns"] = json!([
            {"name": "P", "type": "string", "jsonPath": ".spec.p"},
            {"name": "Q", "type": "integer", "jsonPath": ".spec.q", "priority": 1, "description": "the q"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ]);
    }
    if story.one_in(5) {
        version["selectableFields"] = json!([{"jsonPath": ".spec.p"}]);
    }
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.{ns}.example.com"},
        "spec": {
            "group": "{ns}.example.com", "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version],
        },
    });
    if story.one_in(4) {
        definition["spec"]["names"]["shortNames"] = json!(["th"]);
        definition["spec"]["names"]["categories"] = json!(["all"]);
    }
    if story.one_in(6) {
        let mut second = definition["spec"]["versions"][0].clone();
        second["name"] = "v2".into();
        second["storage"] = false.into();
        if let Some(versions) = definition["spec"]["versions"].as_array_mut() {
            versions.push(second);
        }
    }
    definition
}

/// Makes a definition wrong in one place.
fn sabotage(story: &mut Story, definition: &mut Value) {
    let root = "/spec/versions/0/schema/openAPIV3Schema";
    let changes = [
        ("/spec/group", json!("")),
        ("/spec/scope", json!("Everywhere")),
        ("/spec/scope", json!(null)),
        ("/spec/names/kind", json!(null)),
        ("/spec/names/plural", json!("Things")),
        ("/spec/names/singular", json!("Not A Name")),
        ("/spec/names/listKind", json!("Thing")),
        ("/spec/versions", json!([])),
        ("/spec/versions/0/storage", json!(false)),
        ("/spec/versions/0/name", json!("V1")),
        ("/spec/versions/0/schema", json!(null)),
        ("/metadata/name", json!("others.{ns}.example.com")),
        ("/spec/preserveUnknownFields", json!(true)),
        ("/spec/conversion", json!({"strategy": "Magic"})),
        ("/spec/conversion", json!({"strategy": "Webhook"})),
        (
            "/spec/versions/0/additionalPrinterColumns",
            json!([{"name": "X", "type": "odd", "jsonPath": "spec.p"}]),
        ),
        (
            "/spec/versions/0/selectableFields",
            json!([{"jsonPath": ".spec.nowhere"}]),
        ),
        (
            "/spec/versions/0/subresources",
            json!({"scale": {"specReplicasPath": "spec.replicas", "statusReplicasPath": ".status.replicas"}}),
        ),
        ("", json!({"type": "string"})),
        ("/type", json!(null)),
        ("/properties/spec/type", json!(null)),
        ("/properties/spec/additionalProperties", json!({"type": "string"})),
        ("/properties/spec/properties/p", json!({"type": "string", "default": 5})),
        ("/properties/spec/properties/p", json!({"type": "nonsense"})),
        ("/properties/spec/properties/p", json!({"type": "array"})),
        (
            "/properties/spec/properties/p",
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
        ),
        (
            "/properties/spec/properties/p",
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}),
        ),
        (
            "/properties/spec/properties/p",
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
        ),
        (
            "/properties/spec/properties/p",
            json!({"type": "string", "pattern": "("}),
        ),
        (
            "/properties/spec/properties/p",
            json!({"type": "string", "x-kubernetes-list-type": "odd"}),
        ),
        (
            "/properties/spec/properties/p",
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ),
        (
            "/properties/spec/properties/p",
            json!({"type": "integer", "anyOf": [{"minimum": 1}, {"maximum": -1}]}),
        ),
        (
            "/properties/spec/properties/p",
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
        ),
        (
            "/properties/spec/properties/p",
            json!({"type": "integer", "x-kubernetes-int-or-string": true}),
        ),
        ("/properties/spec/properties/p", json!({"$ref": "#/x"})),
        (
            "/properties/spec/properties/p",
            json!({"type": "string", "x-kubernetes-validations": [{"rule": ""}]}),
        ),
        (
            "/properties/spec/properties/p",
            json!({"type": "string", "x-kubernetes-validations": [{"rule": "self.size("}]}),
        ),
        (
            "/properties/spec/properties/p",
            json!({"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self.matches('a')"}]}}),
        ),
    ];
    let (pointer, value) = story.pick(&changes).clone();
    let pointer = match pointer.starts_with("/spec") || pointer.starts_with("/metadata") {
        true => pointer.to_string(),
        false => format!("{root}{pointer}"),
    };
    put(definition, &pointer, &value);
}

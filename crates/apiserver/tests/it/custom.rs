//! Custom resources, from the definition to the last object.

use super::api::Api;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition(schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": schema,
                    "status": {"type": "object", "properties": {"ready": {"type": "integer"}}},
                }}},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.ready"}},
                "selectableFields": [{"jsonPath": ".spec.color"}],
            }],
        },
    })
}

fn sizes() -> Value {
    json!({"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 1}, "replicas": {"type": "integer"},
        "color": {"type": "string", "default": "red", "enum": ["red", "blue"]},
    }})
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn post(api: &Api, path: &str, body: &Value) -> super::api::Answer {
    api.call("POST", path, "application/json", body.to_string()).await
}

async fn get(api: &Api, path: &str) -> super::api::Answer {
    api.call("GET", path, "application/json", "").await
}

#[tokio::test]
async fn a_definition_is_served_as_soon_as_it_is_written() {
    let api = Api::start().await;
    assert_eq!(get(&api, WIDGETS).await.code, 404);
    let created = post(&api, DEFINITIONS, &definition(sizes())).await.ok();
    let conditions = created["status"]["conditions"].as_array().unwrap();
    let shown: Vec<String> = conditions
        .iter()
        .map(|c| {
            format!(
                "{} {} {}: {}",
                c["type"].as_str().unwrap(),
                c["status"].as_str().unwrap(),
                c["reason"].as_str().unwrap(),
                c["message"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "NamesAccepted True NoConflicts: no conflicts found",
            "Established True InitialNamesAccepted: the initial names have been accepted"
        ]
    );
    assert_eq!(created["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(created["status"]["acceptedNames"]["singular"], "widget");
    let widget = post(&api, WIDGETS, &widget("a", json!({"size": 3}))).await.ok();
    assert_eq!(widget["spec"], json!({"size": 3, "color": "red"}));
    assert_eq!(widget["metadata"]["generation"], 1);
    let listed = get(&api, WIDGETS).await.ok();
    assert_eq!(
        (listed["kind"].as_str(), listed["items"].as_array().map(Vec::len)),
        (Some("WidgetList"), Some(1))
    );
    let discovery = get(&api, "/apis/example.com/v1").await.ok();
    assert!(
        discovery["resources"]
            .as_array()
            .unwrap()
            .iter()
            .any(|r| r["name"] == "widgets" && r["shortNames"] == json!(["wd"])),
        "{discovery}"
    );
    let document = get(&api, "/openapi/v3/apis/example.com/v1").await.ok();
    assert!(
        document["components"]["schemas"]["com.example.v1.Widget"].is_object(),
        "{document}"
    );
}

#[tokio::test]
async fn objects_are_pruned_checked_and_selected() {
    let api = Api::start().await;
    post(&api, DEFINITIONS, &definition(sizes())).await.ok();
    let pruned = post(&api, WIDGETS, &widget("a", json!({"size": 3, "shape": "round"}))).await;
    let warning = pruned.headers.get("warning").unwrap().to_str().unwrap();
    assert!(warning.contains("unknown field \\\"spec.shape\\\""), "{warning}");
    assert!(pruned.ok()["spec"].get("shape").is_none());
    let strict = format!("{WIDGETS}?fieldValidation=Strict");
    post(&api, &strict, &widget("b", json!({"size": 3, "shape": "round"}))).await.fails(
        400, "BadRequest",
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.shape\"",
    );
    post(&api, WIDGETS, &widget("b", json!({"size": 0, "color": "green"}))).await.fails(
        422, "Invalid",
        "Widget.example.com \"b\" is invalid: [spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\", spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1]",
    );
    post(&api, WIDGETS, &widget("b", json!({}))).await.fails(
        422,
        "Invalid",
        "Widget.example.com \"b\" is invalid: spec.size: Required value",
    );
    post(&api, WIDGETS, &widget("b", json!({"size": 1, "color": "blue"})))
        .await
        .ok();
    let blue = get(&api, &format!("{WIDGETS}?fieldSelector=spec.color%3Dblue"))
        .await
        .ok();
    assert_eq!(blue["items"].as_array().map(Vec::len), Some(1));
    let path = format!("{WIDGETS}/a");
    let mut sent = get(&api, &path).await.ok();
    sent["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    api.call("PUT", &path, "application/json", sent.to_string()).await.fails(
        422, "Invalid",
        "widgets.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update",
    );
}

#[tokio::test]
async fn status_and_scale_are_apart_from_the_rest() {
    let api = Api::start().await;
    post(&api, DEFINITIONS, &definition(sizes())).await.ok();
    let mut sent = widget("a", json!({"size": 3, "replicas": 2}));
    sent["status"] = json!({"ready": 5});
    let created = post(&api, WIDGETS, &sent).await.ok();
    assert!(created.get("status").is_none(), "{created}");
    let path = format!("{WIDGETS}/a");
    let patch = json!({"spec": {"size": 9}, "status": {"ready": 1}}).to_string();
    let answered = api
        .call(
            "PATCH",
            &format!("{path}/status"),
            "application/merge-patch+json",
            patch,
        )
        .await
        .ok();
    assert_eq!(
        (&answered["spec"]["size"], &answered["status"]["ready"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(answered["metadata"]["generation"], 1);
    let scale = get(&api, &format!("{path}/scale")).await.ok();
    assert_eq!(
        (&scale["spec"]["replicas"], &scale["status"]["replicas"]),
        (&json!(2), &json!(1))
    );
    let applied = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: {size: 4}}";
    let forced = format!("{path}?fieldManager=m&force=true");
    let applied = api
        .call("PATCH", &forced, "application/apply-patch+yaml", applied)
        .await
        .ok();
    assert_eq!(
        (&applied["spec"]["size"], &applied["metadata"]["generation"]),
        (&json!(4), &json!(2))
    );
}

#[tokio::test]
async fn defaults_that_come_later_show_in_objects_that_were_there() {
    let api = Api::start().await;
    let mut plain = sizes();
    plain["properties"]["color"].as_object_mut().unwrap().remove("default");
    let created = post(&api, DEFINITIONS, &definition(plain)).await.ok();
    post(&api, WIDGETS, &widget("a", json!({"size": 3}))).await.ok();
    let mut later = definition(sizes());
    later["metadata"] = created["metadata"].clone();
    api.call(
        "PUT",
        &format!("{DEFINITIONS}/widgets.example.com"),
        "application/json",
        later.to_string(),
    )
    .await
    .ok();
    assert_eq!(get(&api, &format!("{WIDGETS}/a")).await.ok()["spec"]["color"], "red");
    assert_eq!(get(&api, WIDGETS).await.ok()["items"][0]["spec"]["color"], "red");
}

#[tokio::test]
async fn fields_that_the_schema_lost_are_not_shown_and_go_with_the_next_write() {
    let api = Api::start().await;
    let mut plain = sizes();
    plain["properties"]["color"].as_object_mut().unwrap().remove("default");
    plain["properties"]["shape"] = json!({"type": "string"});
    let created = post(&api, DEFINITIONS, &definition(plain.clone())).await.ok();
    let before = post(&api, WIDGETS, &widget("a", json!({"size": 3, "shape": "round"})))
        .await
        .ok();
    assert_eq!(before["spec"]["shape"], "round");
    plain["properties"].as_object_mut().unwrap().remove("shape");
    let mut later = definition(plain);
    later["metadata"] = created["metadata"].clone();
    let path = format!("{DEFINITIONS}/widgets.example.com");
    api.call("PUT", &path, "application/json", later.to_string()).await.ok();
    let object = format!("{WIDGETS}/a");
    let shown = get(&api, &object).await.ok();
    assert_eq!(shown["spec"], json!({"size": 3}));
    assert_eq!(
        shown["metadata"]["resourceVersion"],
        before["metadata"]["resourceVersion"]
    );
    assert_eq!(get(&api, WIDGETS).await.ok()["items"][0]["spec"], json!({"size": 3}));
    // Nothing that anybody sees changes, and yet it is written: so are objects brought to a new schema.
    let written = api
        .call("PUT", &object, "application/json", shown.to_string())
        .await
        .ok();
    assert_ne!(
        written["metadata"]["resourceVersion"],
        before["metadata"]["resourceVersion"]
    );
    let again = api
        .call("PUT", &object, "application/json", written.to_string())
        .await
        .ok();
    assert_eq!(
        again["metadata"]["resourceVersion"],
        written["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn a_definition_takes_its_objects_along_and_waits_for_their_finalizers() {
    let api = Api::start().await;
    post(&api, DEFINITIONS, &definition(sizes())).await.ok();
    let mut held = widget("held", json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    post(&api, WIDGETS, &held).await.ok();
    post(&api, WIDGETS, &widget("free", json!({"size": 1}))).await.ok();
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let waiting = api.call("DELETE", &path, "application/json", "").await.ok();
    assert_eq!(
        waiting["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    assert_eq!(get(&api, WIDGETS).await.ok()["items"].as_array().map(Vec::len), Some(1));
    post(&api, WIDGETS, &widget("late", json!({"size": 1}))).await.fails(
        405,
        "MethodNotAllowed",
        "create not allowed while custom resource definition is terminating",
    );
    let release = json!({"metadata": {"finalizers": null}}).to_string();
    api.call(
        "PATCH",
        &format!("{WIDGETS}/held"),
        "application/merge-patch+json",
        release,
    )
    .await
    .ok();
    assert_eq!(get(&api, &path).await.code, 404);
    assert_eq!(get(&api, WIDGETS).await.code, 404);
}

#[tokio::test]
async fn two_definitions_cannot_have_the_same_name() {
    let api = Api::start().await;
    post(&api, DEFINITIONS, &definition(sizes())).await.ok();
    let mut other = definition(sizes());
    other["metadata"]["name"] = json!("gadgets.example.com");
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Widget"});
    let created = post(&api, DEFINITIONS, &other).await.ok();
    let accepted = &created["status"]["conditions"][0];
    assert_eq!(
        (&accepted["status"], &accepted["reason"]),
        (&json!("False"), &json!("ListKindConflict"))
    );
    assert_eq!(accepted["message"], "\"WidgetList\" is already in use");
    assert_eq!(created["status"]["conditions"][1]["reason"], "NotAccepted");
    assert_eq!(get(&api, "/apis/example.com/v1/gadgets").await.code, 404);
}

#[tokio::test]
async fn rules_in_cel_hold_for_every_write() {
    let api = Api::start().await;
    let mut schema = sizes();
    schema["x-kubernetes-validations"] = json!([
        {"rule": "!has(self.replicas) || self.size >= self.replicas", "message": "too many for its size"},
    ]);
    schema["properties"]["size"]["x-kubernetes-validations"] =
        json!([{"rule": "self >= oldSelf", "message": "must not shrink", "reason": "FieldValueForbidden"}]);
    post(&api, DEFINITIONS, &definition(schema)).await.ok();
    post(&api, WIDGETS, &widget("a", json!({"size": 1, "replicas": 2})))
        .await
        .fails(
            422,
            "Invalid",
            "Widget.example.com \"a\" is invalid: spec: Invalid value: too many for its size",
        );
    post(&api, WIDGETS, &widget("a", json!({"size": "x"}))).await.fails(
        422,
        "Invalid",
        "Widget.example.com \"a\" is invalid: [spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
    );
    let mut labelled = widget("a", json!({"size": 3}));
    labelled["metadata"]["labels"] = json!({"a": 5});
    post(&api, WIDGETS, &labelled).await.fails(
        400,
        "BadRequest",
        "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
    );
    post(&api, WIDGETS, &widget("a", json!({"size": 3}))).await.ok();
    let path = format!("{WIDGETS}/a");
    let patch = |size: i64| json!({"spec": {"size": size}}).to_string();
    api.call("PATCH", &path, "application/merge-patch+json", patch(2))
        .await
        .fails(
            422,
            "Invalid",
            "Widget.example.com \"a\" is invalid: spec.size: Forbidden: must not shrink",
        );
    api.call("PATCH", &path, "application/merge-patch+json", patch(4))
        .await
        .ok();
}

#[tokio::test]
async fn a_definition_that_is_not_structural_is_refused_in_kubernetes_words() {
    let api = Api::start().await;
    let untyped = definition(
        json!({"properties": {"a": {"type": "string"}, "b": {"anyOf": [{"type": "integer"}], "type": "integer"}}}),
    );
    post(&api, DEFINITIONS, &untyped).await.fails(
        422, "Invalid",
        "CustomResourceDefinition.apiextensions.k8s.io \"widgets.example.com\" is invalid: [spec.validation.openAPIV3Schema.properties[spec].properties[b].anyOf[0].type: Forbidden: must be empty to be structural, spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields, spec.selectableFields[0].jsonPath: Invalid value: \".spec.color\": is an invalid path: does not refer to a valid field]",
    );
    let mut named = definition(sizes());
    named["metadata"]["name"] = json!("things.example.com");
    post(&api, DEFINITIONS, &named).await.fails(
        422, "Invalid",
        "CustomResourceDefinition.apiextensions.k8s.io \"things.example.com\" is invalid: metadata.name: Invalid value: \"things.example.com\": must be spec.names.plural+\".\"+spec.group",
    );
    let mut rule = sizes();
    rule["x-kubernetes-validations"] = json!([{"rule": "self.nothing == 1"}]);
    let refused = post(&api, DEFINITIONS, &definition(rule)).await;
    assert_eq!(refused.code, 422);
    let message = refused.json()["message"].as_str().unwrap().to_string();
    assert!(
        message.contains(
            "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value"
        ),
        "{message}"
    );
    assert!(message.contains("undefined field 'nothing'"), "{message}");
}

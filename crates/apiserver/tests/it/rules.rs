//! Stories of rules in CEL: from a definition to the writes that they judge.

use super::api::Api;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const OBJECTS: &str = "/apis/stead.dev/v1/namespaces/default/tunnels";

fn definition(spec: Value) -> Value {
    json!({"metadata": {"name": "tunnels.stead.dev"}, "spec": {
        "group": "stead.dev", "scope": "Namespaced",
        "names": {"plural": "tunnels", "singular": "tunnel", "kind": "Tunnel", "listKind": "TunnelList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": spec}}}}],
    }})
}

fn tunnel(spec: Value) -> Value {
    json!({"apiVersion": "stead.dev/v1", "kind": "Tunnel", "metadata": {"name": "t"}, "spec": spec})
}

#[tokio::test]
async fn a_rule_judges_every_write() {
    let api = Api::start().await;
    let spec = json!({"type": "object", "properties": {
        "min": {"type": "integer"}, "max": {"type": "integer"},
        "owner": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [
            {"rule": "self == oldSelf", "message": "owner is immutable"}]},
    }, "x-kubernetes-validations": [
        {"rule": "self.min <= self.max", "messageExpression": "'%d is above max'.format([self.min])", "fieldPath": ".min"},
    ]});
    api.post(DEFINITIONS, definition(spec)).await.ok();
    api.post(OBJECTS, tunnel(json!({"min": 5, "max": 3, "owner": "a"})))
        .await
        .fails(
            422,
            "Invalid",
            "Tunnel.stead.dev \"t\" is invalid: spec.min: Invalid value: 5 is above max",
        );
    let mut made = api
        .post(OBJECTS, tunnel(json!({"min": 1, "max": 3, "owner": "a"})))
        .await
        .ok();
    made["spec"]["owner"] = "b".into();
    api.put(&format!("{OBJECTS}/t"), made).await.fails(
        422,
        "Invalid",
        "Tunnel.stead.dev \"t\" is invalid: spec.owner: Invalid value: \"b\": owner is immutable",
    );
}

#[tokio::test]
async fn a_definition_with_a_wrong_or_costly_rule_is_refused() {
    let api = Api::start().await;
    let spec = json!({"type": "object", "properties": {"a": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.b > 1"}]});
    let (code, _, message) = api.post(DEFINITIONS, definition(spec)).await.failure();
    assert_eq!(code, 422);
    assert!(
        message.contains(
            "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: \
             {\"Rule\":\"self.b \\u003e 1\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\
             \"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: undefined field 'b'"
        ),
        "{message}"
    );
    let list = json!({"type": "array", "items": {"type": "string"}});
    let spec = json!({"type": "object", "properties": {"l": list},
        "x-kubernetes-validations": [{"rule": "self.l.all(x, self.l.all(y, x == y))"}]});
    let (code, _, message) = api.post(DEFINITIONS, definition(spec)).await.failure();
    assert_eq!(code, 422);
    assert!(
        message.contains("estimated rule cost exceeds budget by factor of more than 100x"),
        "{message}"
    );
}

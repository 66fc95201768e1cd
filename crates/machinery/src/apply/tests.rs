//! Stories about who owns what, on a kind with every way in which parts merge.

mod properties;

use super::*;
use crate::schema::{NodeId, Schemas};
use serde_json::json;

/// A kind with every way in which a schema can say how its parts merge.
fn schema() -> (Schemas, NodeId) {
    let mut schemas = Schemas::default();
    let root = schemas.read(&json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object", "properties": {
            "name": {"type": "string"}, "namespace": {"type": "string"}, "uid": {"type": "string"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "managedFields": {"type": "array", "items": {"type": "object"}},
        }},
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "paused": {"type": "boolean"},
            "args": {"type": "array", "items": {"type": "string"}},
            "selector": {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {
                    "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"},
                }}},
            "containers": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {
                    "name": {"type": "string"}, "image": {"type": "string"},
                    "env": {"type": "object", "additionalProperties": {"type": "string"}},
                }}},
            "free": {"x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {"ready": {"type": "integer"}}},
    }}));
    (schemas, root)
}

/// A stored object, and requests to it.
struct Story {
    schemas: Schemas,
    root: NodeId,
    reset: FieldSet,
    object: Option<Value>,
    second: i64,
}

impl Story {
    fn new() -> Self {
        let (schemas, root) = schema();
        Story {
            schemas,
            root,
            reset: FieldSet::of(&["status"]),
            object: None,
            second: 0,
        }
    }

    fn apply(&mut self, manager: &str, spec: Value) -> Result<(), ApplyError> {
        self.apply_with(manager, spec, Force::No)
    }

    fn apply_with(&mut self, manager: &str, spec: Value, force: Force) -> Result<(), ApplyError> {
        let config = json!({"apiVersion": "x/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec});
        self.apply_config(manager, &config, force)
    }

    fn apply_config(&mut self, manager: &str, config: &Value, force: Force) -> Result<(), ApplyError> {
        self.second += 1;
        let (kind, writer) = (self.kind(), self.writer(manager));
        self.object = Some(apply(self.object.as_ref(), config, &kind, &writer, force)?);
        Ok(())
    }

    fn kind(&self) -> Kind<'_> {
        Kind {
            schema: self.schemas.at(self.root),
            reset: &self.reset,
            fresh: &|| json!({}),
        }
    }

    fn writer<'a>(&self, manager: &'a str) -> Writer<'a> {
        Writer {
            manager,
            subresource: "",
            api_version: "x/v1",
            now: Timestamp::from_second(self.second).unwrap(),
        }
    }

    /// Whether an apply of this would leave the object as it is, told beforehand.
    fn is_settled(&self, manager: &str, spec: &Value) -> bool {
        let config = json!({"apiVersion": "x/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec});
        let object = self.object.as_ref().unwrap();
        changes_nothing(object, &config, &self.kind(), &self.writer(manager))
    }

    fn update(&mut self, manager: &str, change: impl FnOnce(&mut Value)) {
        self.second += 1;
        let fresh = json!({"apiVersion": "x/v1", "kind": "Thing", "metadata": {"name": "a"}});
        let mut new = self.object.clone().unwrap_or(fresh);
        change(&mut new);
        track(self.object.as_ref(), &mut new, &self.kind(), &self.writer(manager));
        self.object = Some(new);
    }

    fn spec(&self) -> Value {
        self.object.as_ref().unwrap().get("spec").cloned().unwrap_or_default()
    }

    /// The entries as `manager operation fields`.
    fn owners(&self) -> Vec<String> {
        let entries = managed_fields(self.object.as_ref().unwrap())
            .as_array()
            .cloned()
            .unwrap_or_default();
        let entries = entries.iter();
        entries
            .map(|e| {
                format!(
                    "{} {} {}",
                    e["manager"].as_str().unwrap(),
                    e["operation"].as_str().unwrap(),
                    e["fieldsV1"]
                )
            })
            .collect()
    }
}

#[test]
fn an_apply_owns_what_it_says_and_removes_what_it_no_longer_says() {
    let mut thing = Story::new();
    thing
        .apply(
            "a",
            json!({"replicas": 1, "args": ["x"], "containers": [{"name": "c", "image": "1"}]}),
        )
        .unwrap();
    assert_eq!(
        thing.owners(),
        vec![
            r#"a Apply {"f:spec":{"f:args":{},"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:name":{}}},"f:replicas":{}}}"#
        ]
    );
    thing.apply("a", json!({"containers": [{"name": "c"}]})).unwrap();
    assert_eq!(thing.spec(), json!({"containers": [{"name": "c"}]}));
}

#[test]
fn an_apply_that_changes_nothing_changes_nothing_at_all() {
    let mut thing = Story::new();
    let spec = json!({"replicas": 1, "ports": [{"port": 80}], "free": {"a": [1], "b": {"c": 2}}});
    thing.apply("a", spec.clone()).unwrap();
    let before = thing.object.clone();
    assert!(thing.is_settled("a", &spec));
    thing.apply("a", spec.clone()).unwrap();
    assert_eq!(thing.object, before);
    assert!(
        !thing.is_settled("b", &spec),
        "another manager would come to own the fields"
    );
    assert!(
        !thing.is_settled("a", &json!({"replicas": 1})),
        "what is no longer said goes away"
    );
    thing.update("u", |object| object["spec"]["replicas"] = 2.into());
    assert!(!thing.is_settled("a", &spec), "a value differs");
}

#[test]
fn changing_what_another_owns_is_a_conflict_unless_forced() {
    let mut thing = Story::new();
    thing.apply("a", json!({"replicas": 1, "paused": true})).unwrap();
    thing.update("b", |object| object["spec"]["args"] = json!(["x"]));
    let error = thing.apply("c", json!({"replicas": 2})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas"
    );
    let error = thing
        .apply("c", json!({"replicas": 2, "paused": false, "args": ["y"]}))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 3 conflicts: conflicts with \"a\":\n- .spec.paused\n- .spec.replicas\nconflicts with \"b\" using x/v1:\n- .spec.args"
    );
    let ApplyError::Conflicts(conflicts) = error else {
        panic!("expected conflicts")
    };
    assert_eq!(conflicts.causes()[2].message, "conflict with \"b\" using x/v1");
    thing.apply_with("c", json!({"replicas": 2}), Force::Yes).unwrap();
    assert_eq!(thing.spec()["replicas"], 2);
    assert_eq!(
        thing.owners(),
        vec![
            r#"a Apply {"f:spec":{"f:paused":{}}}"#,
            r#"c Apply {"f:spec":{"f:replicas":{}}}"#,
            r#"b Update {"f:spec":{"f:args":{}}}"#
        ]
    );
}

#[test]
fn a_field_that_two_appliers_share_goes_when_both_let_go() {
    let mut thing = Story::new();
    thing.apply("a", json!({"replicas": 1, "paused": true})).unwrap();
    thing.apply("b", json!({"replicas": 1})).unwrap();
    thing.apply("a", json!({"paused": true})).unwrap();
    assert_eq!(thing.spec(), json!({"replicas": 1, "paused": true}));
    thing.apply("b", json!({})).unwrap();
    assert_eq!(thing.spec(), json!({"paused": true}));
}

#[test]
fn list_items_merge_by_key_with_defaults_of_keys() {
    let mut thing = Story::new();
    thing
        .apply("a", json!({"ports": [{"port": 80, "name": "web"}]}))
        .unwrap();
    thing.update("server", |object| object["spec"]["ports"][0]["protocol"] = json!("TCP"));
    thing
        .apply("b", json!({"ports": [{"port": 80, "protocol": "UDP"}]}))
        .unwrap();
    assert_eq!(
        thing.spec()["ports"],
        json!([{"port": 80, "name": "web", "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}])
    );
    thing.apply("a", json!({"ports": []})).unwrap();
    // The server owns the protocol of the first port and nobody owns the port itself any more, so it goes.
    assert_eq!(thing.spec()["ports"], json!([{"port": 80, "protocol": "UDP"}]));
    assert!(thing.owners()[0].starts_with("b Apply"), "{:?}", thing.owners());
}

#[test]
fn an_atomic_map_is_owned_as_one_piece_and_a_set_item_by_item() {
    let mut thing = Story::new();
    let config = |finalizers: Value, selector: Value| {
        json!({"apiVersion": "x/v1", "kind": "Thing", "metadata": {"name": "a", "finalizers": finalizers},
            "spec": {"selector": selector}})
    };
    thing
        .apply_config("a", &config(json!(["f"]), json!({"k": "v"})), Force::No)
        .unwrap();
    let error = thing.apply("b", json!({"selector": {"other": "v"}})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"a\": .spec.selector"
    );
    thing
        .apply_config("b", &config(json!(["g"]), json!({"k": "v"})), Force::No)
        .unwrap();
    assert_eq!(
        thing.object.as_ref().unwrap()["metadata"]["finalizers"],
        json!(["f", "g"])
    );
    assert_eq!(
        thing.owners()[1],
        r#"b Apply {"f:metadata":{"f:finalizers":{"v:\"g\"":{}}},"f:spec":{"f:selector":{}}}"#
    );
}

#[test]
fn an_update_takes_over_what_it_changes() {
    let mut thing = Story::new();
    thing.update("one", |object| {
        object["metadata"]["labels"] = json!({"a": "b"});
        object["spec"] = json!({"replicas": 1});
        object["status"] = json!({"ready": 1});
    });
    assert_eq!(
        thing.owners(),
        vec![r#"one Update {"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{".":{},"f:replicas":{}}}"#]
    );
    let before = thing.object.clone();
    thing.update("two", |_| {});
    assert_eq!(thing.object, before);
    thing.update("two", |object| object["spec"]["replicas"] = json!(2));
    assert_eq!(
        thing.owners(),
        vec![
            r#"one Update {"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{}}"#,
            r#"two Update {"f:spec":{"f:replicas":{}}}"#
        ]
    );
    thing.update("two", |object| object["metadata"]["managedFields"] = json!([]));
    assert_eq!(thing.owners(), Vec::<String>::new());
    thing.update("three", |object| object["spec"]["paused"] = json!(true));
    assert_eq!(
        thing.owners(),
        Vec::<String>::new(),
        "an untracked object stays untracked until it is applied"
    );
    thing.apply("a", json!({"replicas": 2})).unwrap();
    assert!(
        thing.owners()[1].starts_with("before-first-apply Update"),
        "{:?}",
        thing.owners()
    );
}

#[test]
fn the_oldest_updaters_are_folded_into_one_entry() {
    let mut thing = Story::new();
    for n in 0..12 {
        thing.update(&format!("m{n}"), |object| {
            object["metadata"]["labels"][format!("l{n}")] = json!("x")
        });
    }
    let owners = thing.owners();
    assert_eq!(owners.len(), 10);
    assert!(
        owners[0].starts_with("ancient-changes Update") && owners[0].contains("f:l2"),
        "{owners:?}"
    );
}

#[test]
fn kubectl_takes_over_what_client_side_apply_set() {
    let last = r#"{"apiVersion":"x/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"replicas":1,"paused":true}}"#;
    let mut thing = Story::new();
    thing.update("kubectl-client-side-apply", |object| {
        object["metadata"]["annotations"] = json!({LAST_APPLIED: last});
        object["spec"] = json!({"replicas": 1, "paused": true});
    });
    thing.apply("kubectl", json!({"replicas": 2})).unwrap();
    assert_eq!(thing.spec(), json!({"replicas": 2, "paused": true}));
    let annotation = thing.object.as_ref().unwrap()["metadata"]["annotations"][LAST_APPLIED]
        .as_str()
        .unwrap();
    assert!(
        annotation.contains(r#""replicas":2"#) && annotation.ends_with('\n'),
        "{annotation}"
    );
    thing.update("other", |object| object["spec"]["replicas"] = json!(5));
    assert!(thing.apply("kubectl", json!({"replicas": 3})).is_err());
}

#[test]
fn what_the_schema_does_not_know_is_refused_with_its_path() {
    let mut thing = Story::new();
    let refuse = |thing: &mut Story, spec: Value| thing.apply("a", spec).unwrap_err().to_string();
    assert_eq!(
        refuse(&mut thing, json!({"nope": 1})),
        "failed to create typed patch object (/a; x/v1, Kind=Thing): .spec.nope: field not declared in schema"
    );
    assert!(
        refuse(&mut thing, json!({"replicas": "x"}))
            .ends_with(".spec.replicas: expected numeric (int or float), got string")
    );
    assert!(
        refuse(&mut thing, json!({"containers": [{"name": "a"}, {"name": "a"}]}))
            .ends_with(".spec.containers: duplicate entries for key [name=\"a\"]")
    );
    assert!(refuse(&mut thing, json!({"containers": [{"image": "a"}]})).contains("omits all key fields [\"name\"]"));
}

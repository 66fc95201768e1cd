use super::*;
use crate::schema::{Format, List, Node, Object, PatchStrategy, Property, Schemas, Shape, Topology};
use proptest::prelude::*;
use serde_json::json;

fn json_patched(mut document: Value, patch: Value) -> Result<Value, String> {
    json::apply(&mut document, &patch).map_err(|e| e.to_string())?;
    Ok(document)
}

#[test]
fn json_patch_changes_objects_and_lists() {
    let document = json!({"a": {"b/c": 1, "l": [1, 2]}, "x": null});
    let patch = json!([
        {"op": "test", "path": "/a/b~1c", "value": 1},
        {"op": "replace", "path": "/a/b~1c", "value": 2},
        {"op": "add", "path": "/a/l/-", "value": 3},
        {"op": "add", "path": "/a/l/0", "value": 0},
        {"op": "remove", "path": "/a/l/-1"},
        {"op": "copy", "from": "/a/l", "path": "/m"},
        {"op": "move", "from": "/x", "path": "/y"},
        {"op": "replace", "path": "/new", "value": "added"},
    ]);
    let expected = json!({"a": {"b/c": 2, "l": [0, 1, 2]}, "m": [0, 1, 2], "y": null, "new": "added"});
    assert_eq!(json_patched(document, patch), Ok(expected));
}

#[test]
fn json_patch_fails_in_kubernetes_words() {
    let fail = |patch: Value| json_patched(json!({"a": [1], "s": "text"}), patch).unwrap_err();
    assert_eq!(
        fail(json!([{"op": "remove", "path": "/b"}])),
        "error in remove for path: '/b': Unable to remove nonexistent key: b: missing value"
    );
    assert_eq!(
        fail(json!([{"op": "add", "path": "/b/c", "value": 1}])),
        "add operation does not apply: doc is missing path: \"/b/c\": missing value"
    );
    assert_eq!(
        fail(json!([{"op": "replace", "path": "/a/1", "value": 1}])),
        "replace operation does not apply: doc is missing key: /a/1: missing value"
    );
    assert_eq!(
        fail(json!([{"op": "test", "path": "/s", "value": "x"}])),
        "testing value /s failed: test failed"
    );
    assert_eq!(
        fail(json!([{"op": "add", "path": "/a/x", "value": "x"}])),
        "error in add for path: '/a/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax"
    );
    assert_eq!(fail(json!([{"op": "grow", "path": "/a"}])), "Unexpected kind: grow");
    assert_eq!(
        fail(json!({})),
        "json: cannot unmarshal object into Go value of type jsonpatch.Patch"
    );
}

#[test]
fn copies_inside_one_patch_are_bounded() {
    let doubling: Vec<Value> = (0..40)
        .map(|_| json!({"op": "copy", "from": "", "path": "/x"}))
        .collect();
    assert!(json_patched(json!({"a": 1}), doubling.into()).is_err());
    let doubling: Vec<Value> = (0..40)
        .map(|n| json!({"op": "copy", "from": "/d", "path": format!("/d/{n}")}))
        .collect();
    assert!(
        json_patched(json!({"d": {"a": "b"}}), doubling.into())
            .unwrap_err()
            .contains("exceeding the limit")
    );
}

#[test]
fn merge_patch_merges_objects_and_removes_nulls() {
    let mut document = json!({"a": {"b": 1, "c": 2}, "l": [1, 2], "s": "x"});
    merge::apply(
        &mut document,
        json!({"a": {"b": null, "d": {"e": null, "f": 1}}, "l": [3], "s": {"g": null}}),
    )
    .unwrap();
    assert_eq!(document, json!({"a": {"c": 2, "d": {"f": 1}}, "l": [3], "s": {}}));
    assert!(merge::apply(&mut document, json!([1])).is_err());
}

/// A pod-like schema: containers merge by name, args are replaced, finalizers are a merging set.
fn pod() -> (Schemas, crate::schema::NodeId) {
    let mut schemas = Schemas::default();
    let string = schemas.add(Node::of(Shape::String(Format::Plain)));
    let strings = schemas.add(Node::of(Shape::List(List {
        items: string,
        topology: Topology::Atomic,
    })));
    let property = |node| Property {
        node,
        required: false,
        by_value: false,
        patch: PatchStrategy::default(),
    };
    let merging = |node, key: Option<&str>| Property {
        node,
        required: false,
        by_value: false,
        patch: PatchStrategy {
            merge: true,
            retain_keys: false,
            merge_key: key.map(Into::into),
        },
    };
    let container = schemas.add(Node::of(Shape::Object(Object {
        properties: [("name", string), ("image", string), ("args", strings)]
            .map(|(name, node)| (name.into(), property(node)))
            .into(),
        ..Object::default()
    })));
    let containers = schemas.add(Node::of(Shape::List(List {
        items: container,
        topology: Topology::Map(vec!["name".into()]),
    })));
    let root = schemas.add(Node::of(Shape::Object(Object {
        properties: [
            ("containers".into(), merging(containers, Some("name"))),
            ("finalizers".into(), merging(strings, None)),
            ("args".into(), property(strings)),
        ]
        .into(),
        ..Object::default()
    })));
    (schemas, root)
}

fn strategic_patched(mut object: Value, patch: Value) -> Result<Value, String> {
    let (schemas, root) = pod();
    strategic::apply(&mut object, patch, schemas.at(root)).map_err(|e| e.to_string())?;
    Ok(object)
}

#[test]
fn strategic_merge_patch_merges_lists_by_key() {
    let object = json!({"containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b"}], "args": ["1"],
        "finalizers": ["f"]});
    let patch = json!({"containers": [{"name": "c"}, {"name": "a", "image": "2", "args": ["y"]}], "args": ["2"],
        "finalizers": ["g", "f"]});
    let expected = json!({"containers": [{"name": "c"}, {"name": "a", "image": "2", "args": ["y"]}, {"name": "b"}],
        "args": ["2"], "finalizers": ["g", "f"]});
    assert_eq!(strategic_patched(object, patch), Ok(expected));
}

#[test]
fn strategic_directives_delete_replace_retain_and_order() {
    let object = json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}], "finalizers": ["f", "g", "h"]});
    let deleted = strategic_patched(
        object.clone(),
        json!({"containers": [{"name": "b", "$patch": "delete"}]}),
    );
    assert_eq!(deleted.unwrap()["containers"], json!([{"name": "a"}, {"name": "c"}]));
    let replaced = strategic_patched(
        object.clone(),
        json!({"containers": [{"name": "x"}, {"$patch": "replace"}]}),
    );
    assert_eq!(replaced.unwrap()["containers"], json!([{"name": "x"}]));
    let trimmed = strategic_patched(object.clone(), json!({"$deleteFromPrimitiveList/finalizers": ["g"]}));
    assert_eq!(trimmed.unwrap()["finalizers"], json!(["f", "h"]));
    let ordered = strategic_patched(
        object.clone(),
        json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": [{"name": "a", "image": "i"}]}),
    );
    assert_eq!(
        ordered.unwrap()["containers"],
        json!([{"name": "b"}, {"name": "c"}, {"name": "a", "image": "i"}])
    );
    let retained = strategic_patched(object.clone(), json!({"$retainKeys": ["args"], "args": ["1"]}));
    assert_eq!(retained, Ok(json!({"args": ["1"]})));
    let cleared = strategic_patched(object.clone(), json!({"$patch": "replace", "args": []}));
    assert_eq!(cleared, Ok(json!({"args": []})));
    let bad = strategic_patched(object.clone(), json!({"$retainKeys": ["x"], "args": ["1"]}));
    assert_eq!(bad, Err("invalid patch format of retainKeys".to_string()));
    let keyless = strategic_patched(object, json!({"containers": [{"image": "x"}]}));
    assert_eq!(
        keyless,
        Err("map: map[image:x] does not contain declared merge key: name".to_string())
    );
}

pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..4).prop_map(Value::from),
        prop_oneof![Just("a"), Just("name"), Just("delete"), Just("replace"), Just("")].prop_map(Value::from),
    ];
    let keys = prop_oneof![
        Just("containers"),
        Just("name"),
        Just("args"),
        Just("finalizers"),
        Just("$patch"),
        Just("$retainKeys"),
        Just("$setElementOrder/containers"),
        Just("$deleteFromPrimitiveList/finalizers"),
        Just("$setElementOrder"),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys.clone().prop_map(String::from), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_patch_panics(object in any_json(), patch in any_json(), path in "[/a~0-9-]{0,6}", from in "[/a~0-9-]{0,6}") {
        let _ = strategic_patched(object.clone(), patch.clone());
        let mut merged = object.clone();
        let _ = merge::apply(&mut merged, patch.clone());
        for op in ["add", "remove", "replace", "move", "copy", "test"] {
            let operation = json!([{"op": op, "path": path, "from": from, "value": patch}]);
            let _ = json_patched(object.clone(), operation);
        }
    }

    #[test]
    fn a_merge_patch_changes_nothing_any_more_once_it_was_applied_twice(object in any_json(), patch in any_json()) {
        // Once is not enough: a list that replaces an object keeps the null fields of its items, as Kubernetes
        // does it, and loses them when the patch meets the list that it left there.
        let mut twice = object;
        if merge::apply(&mut twice, patch.clone()).is_ok() {
            merge::apply(&mut twice, patch.clone()).unwrap();
            let mut thrice = twice.clone();
            merge::apply(&mut thrice, patch).unwrap();
            prop_assert_eq!(twice, thrice);
        }
    }
}

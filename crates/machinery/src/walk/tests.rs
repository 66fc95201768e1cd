use super::*;
use crate::patch::tests::any_json;
use crate::schema::{NodeId, Schemas};
use proptest::prelude::*;
use serde_json::json;

fn schema() -> (Schemas, NodeId) {
    let mut schemas = Schemas::default();
    let root = schemas.read(&json!({"type": "object", "properties": {
        "name": {"type": "string", "default": "n"},
        "args": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {"type": "boolean", "default": true}}}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"strict": {"type": "object", "properties": {}}}},
        "nested": {"type": "object", "default": {}, "properties": {"c": {"type": "string", "default": "d"}}},
        "nullable": {"type": "string", "nullable": true, "default": "x"},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
        "free": {"x-kubernetes-preserve-unknown-fields": true},
        "containers": {"type": "object"}, "finalizers": {"type": "string"},
    }}));
    (schemas, root)
}

#[test]
fn pruning_drops_what_the_schema_does_not_name_and_says_where() {
    let (schemas, root) = schema();
    let mut value = json!({"x": 1, "args": [{"a": 1, "y": 2}], "map": {"k": {"z": 1}},
        "open": {"any": 1, "strict": {"gone": 1}}, "free": {"kept": {"too": 1}},
        "embedded": {"kind": "K", "metadata": {"name": "n"}, "other": 1}});
    let dropped = prune(&mut value, schemas.at(root));
    assert_eq!(
        dropped,
        ["x", "args[0].y", "embedded.other", "map.k.z", "open.strict.gone"]
    );
    let kept = json!({"args": [{"a": 1}], "map": {"k": {}}, "open": {"any": 1, "strict": {}},
        "free": {"kept": {"too": 1}}, "embedded": {"kind": "K", "metadata": {"name": "n"}}});
    assert_eq!(value, kept);
}

#[test]
fn defaults_fill_what_is_absent_or_null_without_leave() {
    let (schemas, root) = schema();
    let mut value = json!({"name": null, "nullable": null, "args": [{}, {"a": 2}], "map": {"k": {}}});
    default(&mut value, schemas.at(root));
    let expected = json!({"name": "n", "nullable": null, "args": [{"a": 1}, {"a": 2}], "map": {"k": {"b": true}},
        "nested": {"c": "d"}});
    assert_eq!(value, expected);
}

#[test]
fn a_value_of_the_wrong_type_is_named_as_the_decoder_names_it() {
    let (mut schemas, root) = schema();
    schemas.name("io.example.v1.Thing", root);
    let found = mistyped(&json!({"args": [{"a": 1}], "name": 5}), schemas.at(root)).unwrap();
    assert_eq!(
        found.to_string(),
        "json: cannot unmarshal number into Go struct field Thing.name of type string"
    );
    assert_eq!(mistyped(&json!({"name": null, "args": null}), schemas.at(root)), None);
}

proptest! {
    #[test]
    fn walks_do_not_panic_and_settle_after_one_pass(value in any_json()) {
        let (schemas, root) = schema();
        let mut once = value;
        let _ = mistyped(&once, schemas.at(root));
        prune(&mut once, schemas.at(root));
        default(&mut once, schemas.at(root));
        tidy(&mut once, schemas.at(root));
        let mut twice = once.clone();
        prop_assert!(prune(&mut twice, schemas.at(root)).is_empty());
        tidy(&mut twice, schemas.at(root));
        prop_assert_eq!(once, twice);
    }
}

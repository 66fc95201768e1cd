use super::*;
use serde_json::json;
use stead_machinery::schema::{Node, Object, PatchStrategy, Property, Schemas};

fn schemas() -> (Schemas, stead_machinery::schema::NodeId) {
    let mut schemas = Schemas::default();
    let integer = schemas.add(Node::of(Shape::Integer));
    let text = schemas.add(Node::of(Shape::String(Format::Plain)));
    let property = |node| Property {
        node,
        required: false,
        patch: PatchStrategy::default(),
        by_value: false,
    };
    let spec = schemas.add(Node::of(Shape::Object(Object {
        properties: [("replicas".into(), property(integer)), ("name".into(), property(text))].into(),
        ..Object::default()
    })));
    let root = schemas.add(Node::of(Shape::Object(Object {
        properties: [("kind".into(), property(text)), ("spec".into(), property(spec))].into(),
        ..Object::default()
    })));
    (schemas, root)
}

fn check(document: &str) -> Result<Decoded, DecodeError> {
    let (schemas, root) = schemas();
    json(document.as_bytes(), Some(schemas.at(root)))
}

#[test]
fn unknown_and_duplicate_fields_are_listed_in_the_order_of_the_document() {
    let found = check(r#"{"z":1,"spec":{"replicas":1,"b":2,"replicas":3,"name":null},"a":{}}"#).unwrap();
    assert_eq!(found.value, json!({"spec": {"replicas": 3}}));
    assert_eq!(
        found.strict,
        [
            "unknown field \"z\"",
            "unknown field \"spec.b\"",
            "duplicate field \"spec.replicas\"",
            "unknown field \"a\""
        ]
    );
}

#[test]
fn a_value_of_the_wrong_type_is_named_with_its_path() {
    let error = check(r#"{"spec":{"replicas":"three"}}"#).unwrap_err();
    let DecodeError::Type(message) = error else {
        panic!("{error:?}")
    };
    assert!(
        message.starts_with("json: cannot unmarshal string into Go struct field"),
        "{message}"
    );
    assert!(message.contains("spec.replicas"), "{message}");
}

#[test]
fn syntax_errors_speak_go() {
    let DecodeError::Syntax(message) = check("{\"spec\": x}").unwrap_err() else {
        panic!()
    };
    assert!(
        message.ends_with("invalid character 'x' looking for beginning of value"),
        "{message}"
    );
    let DecodeError::Syntax(message) = check("{\"spec\":").unwrap_err() else {
        panic!()
    };
    assert!(message.ends_with("unexpected end of JSON input"), "{message}");
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    let document = "[".repeat(100_000);
    assert!(json(document.as_bytes(), None).is_err());
    assert!(yaml(document.as_bytes(), None).is_err());
}

#[test]
fn yaml_is_read_with_its_duplicates() {
    let found = yaml(b"kind: A\nspec:\n  replicas: 1\n  replicas: 2\n", None).unwrap();
    assert_eq!(found.value["spec"]["replicas"], 2);
}

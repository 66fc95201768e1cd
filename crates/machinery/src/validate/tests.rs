use super::*;
use crate::patch::tests::any_json;
use crate::schema::Schemas;
use proptest::prelude::*;
use serde_json::json;

fn errors(schema: Value, value: Value) -> Vec<String> {
    update_errors(schema, value, None)
}

fn update_errors(schema: Value, value: Value, old: Option<Value>) -> Vec<String> {
    let mut schemas = Schemas::default();
    let root = schemas.read(&json!({"type": "object", "properties": {"spec": schema}}));
    let (value, old) = (json!({"spec": value}), old.map(|old| json!({"spec": old})));
    let found = validate(&value, old.as_ref(), schemas.at(root));
    let repeated = unique_items(&value, schemas.at(root));
    found.iter().chain(&repeated).map(FieldError::to_string).collect()
}

#[test]
fn values_are_refused_in_kubernetes_words() {
    for (schema, value, message) in [
        (
            json!({"type": "integer"}),
            json!("x"),
            "spec: Invalid value: \"string\": spec in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "integer"}),
            json!([]),
            "spec: Invalid value: \"array\": spec in body must be of type integer: \"array\"",
        ),
        (
            json!({"type": "string"}),
            Value::Null,
            "spec: Invalid value: \"null\": spec in body must be of type string: \"null\"",
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            "spec: Invalid value: \"boolean\": spec in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            "spec: Invalid value: 0: spec in body should be greater than or equal to 1",
        ),
        (
            json!({"type": "number", "maximum": 1.5, "exclusiveMaximum": true}),
            json!(1.5),
            "spec: Invalid value: 1.5: spec in body should be less than 1.5",
        ),
        (
            json!({"type": "integer", "multipleOf": 3}),
            json!(4),
            "spec: Invalid value: 4: spec in body should be a multiple of 3",
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            "spec: Unsupported value: \"c\": supported values: \"a\", \"b\"",
        ),
        (
            json!({"type": "string", "pattern": "^a+$"}),
            json!("b"),
            "spec: Invalid value: \"b\": spec in body should match '^a+$'",
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("abc"),
            "spec: Too long: may not be more than 2 bytes",
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("a"),
            "spec: Invalid value: \"a\": spec in body should be at least 2 chars long",
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("a"),
            "spec: Invalid value: \"a\": spec in body must be of type date-time: \"a\"",
        ),
        (
            json!({"type": "object", "required": ["x"]}),
            json!({}),
            "spec.x: Required value",
        ),
        (
            json!({"type": "object", "maxProperties": 1}),
            json!({"a": 1, "b": 2}),
            "spec: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 2}),
            json!(["a", "b", "c"]),
            "spec: Too many: 3: must have at most 2 items",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 2}),
            json!(["a"]),
            "spec: Invalid value: 1: spec in body should have at least 2 items",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
            json!(["a", "b", "a"]),
            "spec[2]: Duplicate value: \"a\"",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}}}}),
            json!([{"k": "a"}, {"k": "a"}]),
            "spec[1]: Duplicate value: {\"k\":\"a\"}",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!([1]),
            "spec[0]: Invalid value: \"integer\": spec[0] in body must be of type string: \"integer\"",
        ),
        (
            json!({"type": "object", "not": {"required": ["a"]}}),
            json!({"a": 1}),
            "<nil>: Invalid value: \"\": \"spec\" must not validate the schema (not)",
        ),
    ] {
        assert_eq!(errors(schema, value), [message]);
    }
}

#[test]
fn one_of_and_any_of_say_which_branch_came_closest() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    assert_eq!(
        errors(schema.clone(), json!({})),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found none valid",
            "spec.a: Required value"
        ]
    );
    assert_eq!(
        errors(schema.clone(), json!({"a": 1, "b": 1})),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid alternatives"
        ]
    );
    assert!(errors(schema, json!({"a": 1})).is_empty());
    let schema = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]});
    assert!(errors(schema, json!("25%")).is_empty());
}

#[test]
fn what_did_not_change_is_not_validated_again() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "integer", "maximum": 1},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}},
    }});
    let old = json!({"a": 5, "l": [{"k": "x", "v": 5}]});
    let new = json!({"a": 5, "l": [{"k": "y", "v": 1}, {"k": "x", "v": 5}]});
    assert!(update_errors(schema.clone(), new, Some(old.clone())).is_empty());
    let worse = json!({"a": 6, "l": [{"k": "x", "v": 5}]});
    assert_eq!(
        update_errors(schema, worse, Some(old)),
        ["spec.a: Invalid value: 6: spec.a in body should be less than or equal to 1"]
    );
}

#[test]
fn formats_accept_what_they_name() {
    for (format, good, bad) in [
        ("ipv4", "10.0.0.1", "10.0.0"),
        ("ipv6", "::1", "10.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0/40"),
        ("uuid", "550e8400-e29b-41d4-a716-446655440000", "x"),
        ("date", "2026-01-31", "2026-02-31"),
        ("date-time", "2026-01-31T10:00:00Z", "2026-01-31"),
        ("duration", "1h30m", "soon"),
        ("email", "a@b.c", "a"),
        ("hostname", "a-b.example", "-a"),
        ("uri", "https://x/y", "x y"),
        ("byte", "YWJj", "%"),
        ("mac", "00:11:22:33:44:55", "00"),
        ("hexcolor", "#fff", "#ff"),
        ("isbn10", "0321751043", "0321751044"),
        ("isbn13", "978-0321751041", "978-0321751042"),
    ] {
        assert_eq!(formats::fits(format, good), Some(true), "{format} {good}");
        assert_eq!(formats::fits(format, bad), Some(false), "{format} {bad}");
    }
    assert_eq!(formats::fits("int32", "x"), None);
}

proptest! {
    #[test]
    fn no_schema_and_no_value_panic(schema in any_json(), value in any_json(), text in ".{0,12}") {
        errors(schema, value);
        for format in ["uri", "email", "hostname", "cidr", "mac", "uuid4", "isbn", "creditcard", "ssn", "rgbcolor", "duration", "date-time"] {
            formats::fits(format, &text);
        }
    }
}

#[test]
fn a_fraction_where_a_whole_number_belongs_is_told_twice_and_defaults_are_read_as_written() {
    let mut schemas = Schemas::default();
    let whole = schemas.read(&json!({"type": "object", "properties": {"n": {"type": "integer", "format": "int32"}}}));
    let told = |value: &Value| -> Vec<String> {
        let errors = validate(value, None, schemas.at(whole));
        errors.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        told(&json!({"n": 1.5})),
        [
            "n: Invalid value: \"float64\": n in body must be of type int32: \"float64\"",
            "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in n",
        ]
    );
    // A value without a fraction is an integer, whatever it is called.
    assert!(told(&json!({"n": 2.0})).is_empty());
    let mut schemas = Schemas::default();
    let either = schemas.read(&json!({"x-kubernetes-int-or-string": true}));
    assert_eq!(validate(&json!({}), None, schemas.at(either)).len(), 1);
    assert!(validate_default(&json!({}), schemas.at(either)).is_empty());
}

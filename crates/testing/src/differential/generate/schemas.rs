//! Random structural schemas, and values that fit them or just do not.

use super::Story;
use super::rules;
use rand::Rng;
use serde_json::{Map, Value, json};

const FORMATS: &[&str] = &[
    "date-time",
    "date",
    "ipv4",
    "ipv6",
    "cidr",
    "uuid",
    "email",
    "uri",
    "byte",
    "duration",
    "hostname",
    "mac",
    "password",
    "uuid4",
    "isbn",
    "creditcard",
    "hexcolor",
    "rgbcolor",
    "bsonobjectid",
    "nonsense",
    "k8s-short-name",
    "k8s-long-name",
];

/// Texts of which each format takes some.
const TEXTS: &[&str] = &[
    "",
    "a",
    "abc",
    "x-1",
    "A B",
    "é",
    "1",
    "2024-01-02T03:04:05Z",
    "2024-01-02",
    "10.0.0.1",
    "10.0.0.0/8",
    "::1",
    "11111111-2222-4333-8444-555555555555",
    "a@example.com",
    "https://example.com/x?y=1",
    "aGVsbG8=",
    "1h30m",
    "host.example.com",
    "aa:bb:cc:dd:ee:ff",
    "#ffffff",
    "not a date",
    "100m",
    "1Gi",
    "zzzzzzzzzzzzzzzz",
];

/// A schema; the deeper, the plainer.
pub fn schema(story: &mut Story, depth: u32) -> Value {
    let most = if depth == 0 { 6 } else { 12 };
    let mut schema = match story.rng.random_range(0..most) {
        0..2 => string(story),
        2..4 => integer(story),
        4 => number(story),
        5 => json!({"type": "boolean"}),
        6..8 => array(story, depth - 1),
        8..10 => object(story, depth - 1),
        10 => map(story, depth - 1),
        _ => special(story),
    };
    if story.one_in(8) {
        schema["nullable"] = true.into();
    }
    if story.one_in(4) {
        let value = value(story, &schema, 9);
        schema["default"] = value;
    }
    if story.one_in(3) {
        rules::attach(story, &mut schema);
    }
    schema
}

fn string(story: &mut Story) -> Value {
    let mut schema = json!({"type": "string"});
    match story.rng.random_range(0..8) {
        0 => schema["enum"] = json!(["a", "abc", "x-1"]),
        1 => schema["pattern"] = story.word(&["^[a-z0-9-]*$", "^.{1,3}$", "abc", "^\\d+$"]).into(),
        2..4 => schema["format"] = story.word(FORMATS).into(),
        4 => schema["minLength"] = json!(2),
        _ => {}
    }
    if !story.one_in(3) {
        schema["maxLength"] = story.pick(&[json!(3), json!(40), json!(100)]).clone();
    }
    schema
}

fn integer(story: &mut Story) -> Value {
    let mut schema = json!({"type": "integer"});
    match story.rng.random_range(0..8) {
        0 => schema["enum"] = json!([1, 2, 10]),
        1 => schema["minimum"] = json!(0),
        2 => {
            schema["maximum"] = json!(10);
            schema["exclusiveMaximum"] = story.one_in(2).into();
        }
        3 => schema["multipleOf"] = json!(2),
        4 => schema["format"] = story.word(&["int32", "int64", "int8"]).into(),
        _ => {}
    }
    schema
}

fn number(story: &mut Story) -> Value {
    let mut schema = json!({"type": "number"});
    match story.rng.random_range(0..4) {
        0 => schema["minimum"] = json!(0.5),
        1 => schema["maximum"] = json!(10),
        2 => schema["format"] = story.word(&["float", "double"]).into(),
        _ => {}
    }
    schema
}

fn array(story: &mut Story, depth: u32) -> Value {
    let mut array = json!({"type": "array"});
    match story.rng.random_range(0..6) {
        0 => {
            array["items"] = string(story);
            array["x-kubernetes-list-type"] = "set".into();
        }
        1..3 => {
            array["items"] = json!({"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "maxLength": 20},
                "port": {"type": "integer", "default": 80},
                "value": schema(story, 0),
            }});
            array["x-kubernetes-list-type"] = "map".into();
            array["x-kubernetes-list-map-keys"] = match story.one_in(3) {
                true => json!(["name", "port"]),
                false => json!(["name"]),
            };
        }
        3 => {
            array["items"] = schema(story, depth);
            array["x-kubernetes-list-type"] = "atomic".into();
        }
        _ => array["items"] = schema(story, depth),
    }
    if story.one_in(3) {
        array["minItems"] = json!(1);
    }
    if !story.one_in(3) {
        array["maxItems"] = story.pick(&[json!(2), json!(5)]).clone();
    }
    array
}

pub fn object(story: &mut Story, depth: u32) -> Value {
    let mut properties = Map::new();
    for name in ["p", "q", "r", "s"].iter().take(story.rng.random_range(1..=4)) {
        properties.insert((*name).to_string(), schema(story, depth));
    }
    let mut schema = json!({"type": "object", "properties": properties});
    if story.one_in(3) {
        schema["required"] = json!(["p"]);
    }
    if story.one_in(8) {
        schema["x-kubernetes-map-type"] = story.word(&["atomic", "granular"]).into();
    }
    if story.one_in(8) {
        schema["x-kubernetes-preserve-unknown-fields"] = true.into();
    }
    schema
}

fn map(story: &mut Story, depth: u32) -> Value {
    let mut map = json!({"type": "object", "additionalProperties": schema(story, depth)});
    if story.one_in(3) {
        map["maxProperties"] = json!(2);
    }
    if story.one_in(6) {
        map["x-kubernetes-map-type"] = "atomic".into();
    }
    map
}

fn special(story: &mut Story) -> Value {
    match story.rng.random_range(0..5) {
        0 | 1 => json!({"x-kubernetes-int-or-string": true}),
        2 => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        3 => json!({"x-kubernetes-preserve-unknown-fields": true}),
        _ => {
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true})
        }
    }
}

/// A value that fits, apart from one part in `right`.
pub fn value(story: &mut Story, schema: &Value, right: u32) -> Value {
    if story.one_in(right + 1) {
        return story
            .pick(&[
                json!(null),
                json!("wrong"),
                json!(-3),
                json!(1.5),
                json!(true),
                json!([]),
                json!({}),
                json!({"odd": 1}),
            ])
            .clone();
    }
    if let Some(Value::Array(allowed)) = schema.get("enum") {
        return story.pick(allowed).clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return story.pick(&[json!(5), json!("25%"), json!("x"), json!(0)]).clone();
    }
    if schema["x-kubernetes-embedded-resource"] == true {
        return story
            .pick(&[
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "inner"}, "data": {"a": "b"}}),
                json!({"apiVersion": "v1", "kind": "ConfigMap"}),
                json!({"kind": "ConfigMap", "metadata": {"name": "Bad Name", "odd": 1}}),
            ])
            .clone();
    }
    match schema["type"].as_str() {
        Some("string") => text(story, schema).into(),
        Some("integer") => story
            .pick(&[
                json!(0),
                json!(1),
                json!(2),
                json!(10),
                json!(11),
                json!(3_000_000_000_u64),
                json!(7),
            ])
            .clone(),
        Some("number") => story
            .pick(&[json!(0), json!(0.5), json!(2.25), json!(11), json!(1000.5)])
            .clone(),
        Some("boolean") => story.one_in(2).into(),
        Some("array") => {
            let count = story.rng.random_range(0..4);
            (0..count).map(|_| value(story, &schema["items"], right)).collect()
        }
        Some("object") => fields(story, schema, right),
        _ => story
            .pick(&[json!({"free": [1, "x", null]}), json!("free"), json!(3)])
            .clone(),
    }
}

fn text(story: &mut Story, schema: &Value) -> String {
    let fits = |text: &str| match schema["format"].as_str() {
        Some("date-time") => text.ends_with('Z'),
        Some("ipv4") => text == "10.0.0.1",
        Some("date") => text == "2024-01-02",
        _ => true,
    };
    let fitting: Vec<&str> = TEXTS.iter().copied().filter(|text| fits(text)).collect();
    match story.one_in(5) {
        true => story.word(TEXTS),
        false => story.word(&fitting),
    }
}

fn fields(story: &mut Story, schema: &Value, right: u32) -> Value {
    let mut object = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let required = schema["required"]
            .as_array()
            .is_some_and(|all| all.contains(&json!(name)));
        if required || !story.one_in(3) {
            object.insert(name.clone(), value(story, property, right));
        }
    }
    if schema["additionalProperties"].is_object() {
        for name in ["k1", "k2", "k3"].iter().take(story.rng.random_range(0..=3)) {
            object.insert(
                (*name).to_string(),
                value(story, &schema["additionalProperties"], right),
            );
        }
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true && story.one_in(2) {
        object.insert("unknown".to_string(), json!({"a": [1, {"b": null}]}));
    }
    Value::Object(object)
}

/// What may stand at each place of the objects.
pub fn pool(story: &mut Story, schema: &Value, pointer: &str, out: &mut Vec<(String, Vec<Value>)>) {
    let values: Vec<Value> = (0..5).map(|_| value(story, schema, 8)).chain([Value::Null]).collect();
    out.push((pointer.to_string(), values));
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        pool(story, property, &format!("{pointer}/{name}"), out);
    }
    if schema["additionalProperties"].is_object() {
        pool(story, &schema["additionalProperties"], &format!("{pointer}/k1"), out);
    }
    if schema["items"].is_object() {
        pool(story, &schema["items"], &format!("{pointer}/0"), out);
    }
}

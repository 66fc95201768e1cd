//! Schemas for tests, from the JSON of a definition.

use serde_json::Value as Json;
use stead_machinery::schema::{
    Constraints, Format, List, Node, NodeId, Object, Property, Rule, Schemas, Shape, Topology,
};

/// Adds a structural schema and everything in it.
pub fn add(schemas: &mut Schemas, json: &Json) -> NodeId {
    let text = |key: &str| json.get(key).and_then(Json::as_str);
    let flag = |key: &str| json.get(key).and_then(Json::as_bool).unwrap_or(false);
    let number = |key: &str| json.get(key).and_then(Json::as_u64);
    let required: Vec<&str> = json
        .get("required")
        .and_then(Json::as_array)
        .map(|names| names.iter().filter_map(Json::as_str).collect())
        .unwrap_or_default();
    let shape = match text("type") {
        _ if flag("x-kubernetes-int-or-string") => Shape::IntOrString,
        Some("object") => {
            let mut object = Object {
                preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
                embedded_resource: flag("x-kubernetes-embedded-resource"),
                ..Object::default()
            };
            for (name, inner) in json.get("properties").and_then(Json::as_object).into_iter().flatten() {
                let property = Property {
                    node: add(schemas, inner),
                    required: required.contains(&name.as_str()),
                    by_value: false,
                    patch: Default::default(),
                };
                object.properties.insert(name.as_str().into(), property);
            }
            object.additional = json.get("additionalProperties").map(|inner| add(schemas, inner));
            Shape::Object(object)
        }
        Some("array") => Shape::List(List {
            items: add(schemas, &json["items"]),
            topology: match text("x-kubernetes-list-type") {
                Some("set") => Topology::Set,
                Some("map") => Topology::Map(
                    json["x-kubernetes-list-map-keys"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(Json::as_str)
                        .map(Into::into)
                        .collect(),
                ),
                _ => Topology::Atomic,
            },
        }),
        Some("string") => Shape::String(match text("format") {
            Some("byte") => Format::Byte,
            Some("date-time") => Format::DateTime,
            Some(other) => Format::Other(other.into()),
            None => Format::Plain,
        }),
        Some("integer") => Shape::Integer,
        Some("number") => Shape::Number,
        Some("boolean") => Shape::Boolean,
        _ => Shape::Any,
    };
    let mut node = Node::of(shape);
    node.nullable = flag("nullable");
    node.default = json.get("default").map(|value| value.to_string().into());
    let rules = json["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
        .map(rule);
    node.constraints = Some(Box::new(Constraints {
        max_length: number("maxLength"),
        max_items: number("maxItems"),
        max_properties: number("maxProperties"),
        one_of_values: json["enum"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|value| value.to_string().into())
            .collect(),
        rules: rules.collect(),
        ..Constraints::default()
    }));
    schemas.add(node)
}

fn rule(json: &Json) -> Rule {
    let text = |key: &str| json.get(key).and_then(Json::as_str).map(Into::into);
    Rule {
        rule: text("rule").unwrap_or_default(),
        message: text("message"),
        message_expression: text("messageExpression"),
        reason: text("reason"),
        field_path: text("fieldPath"),
        optional_old_self: json["optionalOldSelf"].as_bool().unwrap_or(false),
    }
}

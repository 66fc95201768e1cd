//! Reading a `JSONSchemaProps` object, as custom resource definitions carry it, into nodes.
//!
//! Reading never fails: what is not structural has been refused before, and what is odd here becomes a
//! value of any type. Whether a definition is acceptable is the server's question, not this one's.

use super::{
    Constraints, Format, List, Node, NodeId, Object, PatchStrategy, Property, Rule, SchemaRef, Schemas, Shape, Topology,
};
use serde_json::Value;
use std::collections::HashMap;

/// How deep schemas nest before the rest is taken for anything; a definition is bounded by the size of a
/// request, and the stack is not that large.
const DEEPEST: usize = 200;

impl Schemas {
    /// Adds the nodes of a JSON schema and gives its root.
    pub fn read(&mut self, schema: &Value) -> NodeId {
        self.read_level(schema, DEEPEST)
    }

    /// Copies a type of another arena, with all types that it refers to.
    pub fn graft(&mut self, from: SchemaRef<'_>) -> NodeId {
        self.graft_level(from, &mut HashMap::new())
    }

    fn graft_level(&mut self, from: SchemaRef<'_>, done: &mut HashMap<NodeId, NodeId>) -> NodeId {
        if let Some(&copy) = done.get(&from.id()) {
            return copy;
        }
        let copy = self.add(Node::of(Shape::Any));
        done.insert(from.id(), copy);
        let mut node = from.node().clone();
        match &mut node.shape {
            Shape::Object(object) => {
                for property in object.properties.values_mut() {
                    property.node = self.graft_level(from.go(property.node), done);
                }
                object.additional = object.additional.map(|id| self.graft_level(from.go(id), done));
            }
            Shape::List(list) => list.items = self.graft_level(from.go(list.items), done),
            _ => {}
        }
        self.set(copy, node);
        copy
    }

    fn read_level(&mut self, schema: &Value, depth: usize) -> NodeId {
        if depth == 0 {
            return self.add(Node::of(Shape::Any));
        }
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        let shape = match schema.get("type").and_then(Value::as_str) {
            _ if flag("x-kubernetes-int-or-string") => Shape::IntOrString,
            Some("object") => Shape::Object(self.read_object(schema, depth)),
            Some("array") => Shape::List(self.read_list(schema, depth)),
            Some("string") => Shape::String(read_format(schema)),
            Some("integer") => Shape::Integer,
            Some("number") => Shape::Number,
            Some("boolean") => Shape::Boolean,
            _ if schema.get("properties").is_some() => Shape::Object(Object {
                untyped: true,
                ..self.read_object(schema, depth)
            }),
            _ if schema.get("items").is_some() => Shape::List(self.read_list(schema, depth)),
            _ if flag("x-kubernetes-preserve-unknown-fields") => Shape::Free,
            _ => Shape::Any,
        };
        let mut constraints = self.read_constraints(schema, depth);
        if let (Shape::IntOrString, Some(beside)) = (&shape, schema.get("type").and_then(Value::as_str)) {
            // Merging goes by the type that stands beside it, as by a format.
            constraints.get_or_insert_default().format = Some(beside.into());
        }
        let node = Node {
            shape,
            description: schema
                .get("description")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .into(),
            default: schema.get("default").map(|value| value.to_string().into()),
            nullable: flag("nullable"),
            constraints,
        };
        self.add(node)
    }

    fn read_object(&mut self, schema: &Value, depth: usize) -> Object {
        let required: Vec<&str> = strings(schema.get("required")).collect();
        let mut object = Object {
            atomic: schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
            preserve_unknown: schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)),
            embedded_resource: schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)),
            ..Object::default()
        };
        for (name, property) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let property = Property {
                node: self.read_level(property, depth - 1),
                required: required.contains(&name.as_str()),
                by_value: false,
                patch: PatchStrategy::default(),
            };
            object.properties.insert(name.as_str().into(), property);
        }
        object.additional = match schema.get("additionalProperties") {
            Some(additional @ Value::Object(_)) => Some(self.read_level(additional, depth - 1)),
            Some(Value::Bool(true)) => Some(self.add(Node::of(Shape::Free))),
            _ => None,
        };
        object
    }

    fn read_list(&mut self, schema: &Value, depth: usize) -> List {
        let items = self.read_level(schema.get("items").unwrap_or(&Value::Null), depth - 1);
        let topology = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => Topology::Set,
            Some("map") => Topology::Map(
                strings(schema.get("x-kubernetes-list-map-keys"))
                    .map(Into::into)
                    .collect(),
            ),
            _ => Topology::Atomic,
        };
        List { items, topology }
    }

    fn read_constraints(&mut self, schema: &Value, depth: usize) -> Option<Box<Constraints>> {
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let count = |name: &str| schema.get(name).and_then(Value::as_u64);
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        let text = |name: &str| schema.get(name).and_then(Value::as_str).map(Into::into);
        let list = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
        let mut junctor = |name: &str| -> Vec<NodeId> {
            let all = schema.get(name).and_then(Value::as_array).into_iter().flatten();
            all.map(|schema| self.read_level(schema, depth - 1)).collect()
        };
        let (all_of, any_of, one_of) = (junctor("allOf"), junctor("anyOf"), junctor("oneOf"));
        let not = schema.get("not").map(|schema| self.read_level(schema, depth - 1));
        let constraints = Constraints {
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern: text("pattern"),
            format: text("format"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            one_of_values: list("enum").map(|value| value.to_string().into()).collect(),
            all_of,
            any_of,
            one_of,
            not,
            rules: list("x-kubernetes-validations").map(read_rule).collect(),
            // A node that only constrains has no properties of its own shape; what it requires is here.
            required: strings(schema.get("required")).map(Into::into).collect(),
        };
        (constraints != Constraints::default()).then(|| Box::new(constraints))
    }
}

fn read_format(schema: &Value) -> Format {
    match schema.get("format").and_then(Value::as_str) {
        None | Some("") => Format::Plain,
        Some("byte") => Format::Byte,
        Some("date-time") => Format::DateTime,
        Some(other) => Format::Other(other.into()),
    }
}

fn read_rule(rule: &Value) -> Rule {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).map(Into::into);
    Rule {
        rule: text("rule").unwrap_or_default(),
        message: text("message"),
        message_expression: text("messageExpression"),
        reason: text("reason"),
        field_path: text("fieldPath"),
        optional_old_self: rule.get("optionalOldSelf") == Some(&Value::Bool(true)),
    }
}

fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

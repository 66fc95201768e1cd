//! Whether an applied configuration fits its schema well enough to be merged.
//!
//! Merging needs to know what each field is, so a field that the schema does not name, a scalar of the
//! wrong type or two list items with one key are refused here, in the words of the library that
//! Kubernetes merges with.

use super::element::{Element, path_text};
use super::typed::{Form, Type, Unknown};
use crate::patch::go_text;
use crate::schema::{Format, SchemaRef, Shape};
use serde_json::Value;
use std::collections::BTreeSet;

/// Checks a configuration; the error is one line, or a list of them.
pub(super) fn check(config: &Value, kind: Type<'_>) -> Result<(), String> {
    Check::of(config, kind, Repeated::Refused).told()
}

/// Checks whether fields of an object can be owned at all. Items with one key are no obstacle: they are owned together.
pub(super) fn owned(object: &Value, kind: Type<'_>) -> Result<(), String> {
    Check::of(object, kind, Repeated::Allowed).told()
}

/// What is thought of two list items with one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeated {
    Allowed,
    Refused,
}

struct Check {
    errors: Vec<String>,
    path: Vec<Element>,
    repeated: Repeated,
}

impl Check {
    fn of(value: &Value, kind: Type<'_>, repeated: Repeated) -> Self {
        let mut check = Check {
            errors: Vec::new(),
            path: Vec::new(),
            repeated,
        };
        check.value(value, kind);
        check
    }

    fn told(&self) -> Result<(), String> {
        match self.errors.as_slice() {
            [] => Ok(()),
            [only] => Err(only.clone()),
            many => Err(format!(
                "errors:\n{}",
                many.iter().map(|e| format!("  {e}")).collect::<Vec<_>>().join("\n")
            )),
        }
    }

    fn refuse(&mut self, what: impl std::fmt::Display) {
        let path = path_text(&self.path);
        self.errors.push(if path.is_empty() {
            what.to_string()
        } else {
            format!("{path}: {what}")
        });
    }

    fn value(&mut self, value: &Value, kind: Type<'_>) {
        let Type::Known { schema, unknown } = kind else {
            return;
        };
        match schema.shape() {
            _ if value.is_null() => {}
            Shape::Object(_) => self.object(value, kind, schema),
            Shape::List(_) => self.list(value, kind, schema, unknown),
            Shape::IntOrString if !fits_beside(value, schema) => {
                self.refuse(format!("expected numeric (int or float), got {}", go_type(value)));
            }
            Shape::Integer | Shape::Number if !value.is_number() => {
                self.refuse(format!("expected numeric (int or float), got {}", go_type(value)));
            }
            Shape::String(Format::Plain | Format::Byte) if !value.is_string() => self.refuse(format!(
                "expected string, got &value.valueUnstructured{{Value:{}}}",
                go_syntax(value)
            )),
            Shape::Boolean if !value.is_boolean() => {
                self.refuse(format!("expected boolean, got &{{{}}}", go_text(value)));
            }
            // A format is for validation; merging takes any scalar for such a text.
            Shape::String(_) | Shape::Quantity if value.is_object() || value.is_array() => {
                self.refuse(format!("expected any scalar, got &{{{}}}", go_text(value)));
            }
            _ => {}
        }
    }

    fn object(&mut self, value: &Value, kind: Type<'_>, schema: SchemaRef<'_>) {
        let Value::Object(fields) = value else {
            self.refuse(format!("expected map, got &{{{}}}", go_text(value)));
            return;
        };
        for (key, value) in fields {
            let element = Element::field(key);
            let below = match schema.shape() {
                // The fields of an atomic map are checked too, though nobody owns them one by one.
                Shape::Object(_) => kind.step(&element).1,
                _ => None,
            };
            self.path.push(element);
            match below {
                Some(below) => self.value(value, below),
                None => self.refuse("field not declared in schema"),
            }
            self.path.pop();
        }
    }

    fn list(&mut self, value: &Value, kind: Type<'_>, schema: SchemaRef<'_>, unknown: Unknown) {
        let Value::Array(items) = value else {
            self.refuse(format!("expected list, got &{{{}}}", go_text(value)));
            return;
        };
        let form = match kind.form(value) {
            Form::List { list } => Some(list),
            _ => None,
        };
        let below = schema
            .items()
            .map_or(Type::Opaque, |schema| Type::Known { schema, unknown });
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let element = match form.map(|list| list.element(item)) {
                None => Element::Index(index as i64),
                Some(Ok(element)) => element,
                Some(Err(e)) => {
                    self.refuse(format!("element {index}: {e}"));
                    return;
                }
            };
            if form.is_some() && !seen.insert(element.clone()) && self.repeated == Repeated::Refused {
                self.refuse(format!("duplicate entries for key {element}"));
            }
            self.path.push(element);
            self.value(item, below);
            self.path.pop();
        }
    }
}

/// Whether a value fits the type that stands beside `x-kubernetes-int-or-string`, if it is one of numbers.
fn fits_beside(value: &Value, schema: SchemaRef<'_>) -> bool {
    let beside = schema
        .node()
        .constraints
        .as_deref()
        .and_then(|all| all.format.as_deref());
    !matches!(beside, Some("integer" | "number")) || value.is_number()
}

/// A value as Go's source would write it.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_string(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{name:?}:{}", go_syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

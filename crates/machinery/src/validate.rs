//! Value validation of custom resources: everything a schema can demand, except rules in CEL.
//!
//! The messages are those of Kubernetes' OpenAPI validator, since clients and tests match on them. On an
//! update a value that did not change is not validated again, so that a definition can become stricter
//! without freezing the objects that are there.

use crate::field::{FieldError, FieldErrorKind};
use crate::schema::{Constraints, SchemaRef, Shape, Topology};
use serde_json::{Map, Value};

mod formats;
mod junctors;
mod scalars;
mod unique;

pub use formats::is_known_format;
pub use scalars::pattern_error;
pub use unique::unique_items;

/// How deep values are validated; the JSON parser does not let deeper ones in.
const DEEPEST: usize = 256;

/// Where a schema stands: the structure itself, or a branch of `allOf`, `anyOf`, `oneOf` or `not`, which
/// constrains but does not say what type a value has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Structure,
    Branch,
}

/// Validates an object; `old` is the stored one on an update.
pub fn validate(new: &Value, old: Option<&Value>, schema: SchemaRef<'_>) -> Vec<FieldError> {
    let mut walk = Walk::default();
    walk.node("", new, old, schema, Role::Structure);
    walk.errors
}

#[derive(Default)]
struct Walk {
    errors: Vec<FieldError>,
    /// Checks that went well: tells which branch of an `anyOf` came closest.
    matches: usize,
    depth: usize,
}

impl Walk {
    fn node(&mut self, path: &str, value: &Value, old: Option<&Value>, schema: SchemaRef<'_>, role: Role) {
        if old == Some(value) || self.depth >= DEEPEST {
            return;
        }
        self.depth += 1;
        let known = Constraints::default();
        let constraints = schema.node().constraints.as_deref().unwrap_or(&known);
        self.check_type(path, value, schema, role);
        if !value.is_null() {
            self.junctors(path, value, constraints, schema);
        }
        match value {
            Value::String(text) => {
                self.string(path, text, constraints);
                self.format(path, text, schema, constraints);
            }
            Value::Number(number) => self.number(path, number, schema, constraints),
            Value::Array(items) => self.list(path, items, old, schema, constraints, role),
            Value::Object(fields) => self.object(path, fields, old, schema, constraints, role),
            Value::Null | Value::Bool(_) => {}
        }
        self.allowed_values(path, value, constraints);
        self.matches += 1;
        self.depth -= 1;
    }

    fn check_type(&mut self, path: &str, value: &Value, schema: SchemaRef<'_>, role: Role) {
        let wanted = match schema.shape() {
            Shape::Object(_) | Shape::List(_) if role == Role::Branch => return,
            Shape::IntOrString => "integer,string",
            shape => match shape.type_name() {
                Some(name) => name,
                None => return,
            },
        };
        let whole = || {
            value
                .as_f64()
                .is_some_and(|number| number.fract() == 0.0 && number.abs() < 9.2e18)
        };
        let (got, fits) = match value {
            Value::Null => ("null", schema.node().nullable),
            Value::Bool(_) => ("boolean", wanted == "boolean"),
            Value::String(_) => ("string", wanted.ends_with("string")),
            Value::Array(_) => ("array", wanted == "array"),
            Value::Object(_) => ("object", wanted == "object"),
            Value::Number(number) if number.is_f64() => (
                "number",
                wanted == "number" || (wanted.starts_with("integer") && whole()),
            ),
            Value::Number(_) => ("integer", wanted == "number" || wanted.starts_with("integer")),
        };
        if fits {
            self.matches += 1;
            return;
        }
        let detail = format!("{} must be of type {wanted}: {got:?}", in_body(path));
        self.refuse(path, FieldErrorKind::TypeInvalid, got, detail);
    }

    fn list(
        &mut self,
        path: &str,
        items: &[Value],
        old: Option<&Value>,
        schema: SchemaRef<'_>,
        constraints: &Constraints,
        role: Role,
    ) {
        if let Shape::List(list) = schema.shape() {
            for (index, item) in items.iter().enumerate() {
                let before = old
                    .and_then(Value::as_array)
                    .and_then(|old| correlate(item, old, &list.topology));
                self.node(&format!("{path}[{index}]"), item, before, schema.go(list.items), role);
            }
        }
        let size = items.len() as u64;
        if let Some(least) = constraints.min_items.filter(|least| size < *least) {
            let detail = format!("{} should have at least {least} items", in_body(path));
            self.refuse(path, FieldErrorKind::Invalid, size, detail);
        }
        if let Some(most) = constraints.max_items.filter(|most| size > *most) {
            self.refuse(path, FieldErrorKind::TooMany, size, at_most(most));
        }
        let repeated = || {
            items
                .iter()
                .enumerate()
                .any(|(index, item)| items[..index].contains(item))
        };
        if constraints.unique_items && repeated() {
            let detail = format!("{} shouldn't contain duplicates", in_body(path));
            self.refuse(path, FieldErrorKind::Invalid, "", detail);
        }
    }

    fn object(
        &mut self,
        path: &str,
        fields: &Map<String, Value>,
        old: Option<&Value>,
        schema: SchemaRef<'_>,
        constraints: &Constraints,
        role: Role,
    ) {
        let size = fields.len() as u64;
        if let Some(least) = constraints.min_properties.filter(|least| size < *least) {
            let detail = format!("{} should have at least {least} properties", in_body(path));
            self.refuse(path, FieldErrorKind::Invalid, size, detail);
        }
        if let Some(most) = constraints.max_properties.filter(|most| size > *most) {
            self.refuse(path, FieldErrorKind::TooMany, size, at_most(most));
        }
        for (name, value) in fields {
            if let Some(below) = schema.field(name) {
                let before = old.and_then(|old| old.get(name));
                self.node(&child(path, name), value, before, below, role);
            }
        }
        for name in constraints
            .required
            .iter()
            .filter(|name| !fields.contains_key(&***name))
        {
            self.errors.push(FieldError::required(child(path, name), ""));
        }
    }

    fn allowed_values(&mut self, path: &str, value: &Value, constraints: &Constraints) {
        if constraints.one_of_values.is_empty() {
            return;
        }
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        if constraints
            .one_of_values
            .iter()
            .any(|allowed| same(&parse(allowed), value))
        {
            self.matches += 1;
            return;
        }
        let shown: Vec<String> = constraints
            .one_of_values
            .iter()
            .map(|allowed| {
                parse(allowed)
                    .as_str()
                    .map_or_else(|| allowed.to_string(), str::to_string)
            })
            .collect();
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        self.errors.push(FieldError::not_supported(path, value.clone(), &shown));
    }

    fn refuse(&mut self, path: &str, kind: FieldErrorKind, value: impl Into<Value>, detail: String) {
        self.errors.push(FieldError::new(path, kind, value.into(), detail));
    }
}

/// The stored item that an item of a list stands for: the one with the same keys.
fn correlate<'a>(item: &Value, old: &'a [Value], topology: &Topology) -> Option<&'a Value> {
    let Topology::Map(keys) = topology else {
        return None;
    };
    old.iter()
        .find(|other| keys.iter().all(|key| other.get(&**key) == item.get(&**key)))
}

/// Equal, where 1 and 1.0 are the same number.
fn same(left: &Value, right: &Value) -> bool {
    left == right || (left.is_number() && left.as_f64() == right.as_f64())
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_string()
    } else {
        format!("{path}.{name}")
    }
}

fn in_body(path: &str) -> String {
    format!("{path} in body")
}

fn at_most(most: u64) -> String {
    let items = if most == 1 { "item" } else { "items" };
    format!("must have at most {most} {items}")
}

#[cfg(test)]
mod tests;

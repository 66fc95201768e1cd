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

/// What is validated. The defaults of a definition are held against their schema as it is written, objects
/// against what Kubernetes makes of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Subject {
    #[default]
    Object,
    Default,
}

/// Validates an object; `old` is the stored one on an update.
pub fn validate(new: &Value, old: Option<&Value>, schema: SchemaRef<'_>) -> Vec<FieldError> {
    let mut walk = Walk::default();
    walk.node("", new, old, schema, Role::Structure);
    walk.errors
}

/// Validates a value that a schema gives to what is absent.
pub fn validate_default(value: &Value, schema: SchemaRef<'_>) -> Vec<FieldError> {
    let mut walk = Walk {
        subject: Subject::Default,
        ..Walk::default()
    };
    walk.node("", value, None, schema, Role::Structure);
    walk.errors
}

#[derive(Default)]
struct Walk {
    subject: Subject,
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
        let format = self.format_of(schema);
        let wanted = match schema.shape() {
            Shape::Object(_) | Shape::List(_) if role == Role::Branch => return,
            // Only objects are held against both types; a default is read by the rules, if there are any.
            Shape::IntOrString if self.subject == Subject::Default => return,
            Shape::IntOrString => "integer,string",
            shape => match shape.type_name() {
                Some(name) => name,
                None => return,
            },
        };
        // What Go calls the type of the value, with the format that it has by itself.
        let (got, own_format) = match value {
            Value::Null => ("null", ""),
            Value::Bool(_) => ("boolean", ""),
            Value::String(_) => ("string", ""),
            Value::Array(_) => ("array", ""),
            Value::Object(_) => ("object", ""),
            Value::Number(number) if number.is_f64() => ("number", "float64"),
            Value::Number(_) => ("integer", "int64"),
        };
        let whole = || {
            value
                .as_f64()
                .is_some_and(|number| number.fract() == 0.0 && number.abs() < 9.2e18)
        };
        let numeric = matches!(schema.shape(), Shape::Integer | Shape::Number | Shape::IntOrString);
        let fits = match got {
            "null" => schema.node().nullable,
            "number" => wanted == "number" || (wanted.starts_with("integer") && whole()),
            "integer" => wanted == "number" || wanted.starts_with("integer"),
            "string" => wanted.ends_with("string"),
            // A text with a format is looked at by its format; so is a list, which then passes.
            "array" => wanted == "array" || (format.is_some() && !numeric),
            got => wanted == got,
        };
        if fits {
            self.matches += 1;
            return;
        }
        let (wanted, got) = match format {
            Some(format) if !matches!(got, "null" | "string" | "array") => (format, own_format),
            _ => (wanted, got),
        };
        let detail = format!("{} must be of type {wanted}: {got:?}", in_body(path));
        self.refuse(path, FieldErrorKind::TypeInvalid, got, detail);
    }

    /// The format of a value, where it means something.
    fn format_of<'s>(&self, schema: SchemaRef<'s>) -> Option<&'s str> {
        let format = schema.node().constraints.as_deref()?.format.as_deref()?;
        let known = match schema.shape() {
            _ if self.subject == Subject::Default => !format.is_empty(),
            Shape::String(_) => is_known_format(format),
            Shape::Integer => matches!(format, "int32" | "int64"),
            Shape::Number => matches!(format, "float" | "double"),
            _ => false,
        };
        known.then_some(format)
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
            .any(|allowed| converts_to(value, &parse(allowed)))
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

/// Equal, once Go has converted the value to the type of what is allowed: a number loses its fraction.
fn converts_to(value: &Value, allowed: &Value) -> bool {
    match (value.as_f64(), allowed.as_f64()) {
        (Some(value), Some(allowed_number)) if allowed.is_f64() => value == allowed_number,
        (Some(value), Some(allowed_number)) => value.trunc() == allowed_number,
        _ => value == allowed,
    }
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

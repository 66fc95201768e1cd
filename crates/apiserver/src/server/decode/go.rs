//! The words of Go's decoders, which clients know and tests match.

use serde_json::Value;
use stead_machinery::schema::{Format, SchemaRef, Shape};

/// A value as Go's decoder names it in `cannot unmarshal ... into`.
pub fn json_type(value: &Value) -> String {
    match value {
        Value::Null => "null".to_string(),
        Value::Bool(_) => "bool".to_string(),
        Value::Number(number) => format!("number {number}"),
        Value::String(_) => "string".to_string(),
        Value::Array(_) => "array".to_string(),
        Value::Object(_) => "object".to_string(),
    }
}

/// `json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32`.
pub fn mismatch(found: &str, schema: Option<SchemaRef<'_>>, path: &str) -> String {
    let wanted = schema.map_or("interface {}", |schema| match schema.shape() {
        Shape::Any | Shape::Free => "interface {}",
        Shape::Object(object) if object.additional.is_some() => "map[string]string",
        Shape::Object(_) => "struct",
        Shape::List(list) => match schema.go(list.items).shape() {
            Shape::String(Format::Plain) => "[]string",
            _ => "[]struct",
        },
        Shape::String(_) => "string",
        Shape::Integer => "int32",
        Shape::Number => "float64",
        Shape::Boolean => "bool",
        Shape::IntOrString => "intstr.IntOrString",
        Shape::Quantity => "resource.Quantity",
    });
    // A number loses its digits when it goes into a string: Go names only the kind of token then.
    let found = if wanted == "string" || wanted == "bool" {
        found.split(' ').next().unwrap_or(found)
    } else {
        found
    };
    // Go drops the positions in lists from this path.
    let plain: String = strip_indices(path);
    format!("json: cannot unmarshal {found} into Go struct field .{plain} of type {wanted}")
}

fn strip_indices(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut inside = false;
    for c in path.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            c if !inside => out.push(c),
            _ => {}
        }
    }
    out
}

/// A syntax error in Go's words, as near as the position allows.
pub fn json_error(bytes: &[u8], error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let text = error.to_string();
    if text.contains("recursion limit") {
        return "exceeded max depth".to_string();
    }
    if error.classify() == Category::Eof {
        return "unexpected end of JSON input".to_string();
    }
    let offending = offset(bytes, error.line(), error.column())
        .and_then(|at| bytes.get(at))
        .map(|byte| char::from(*byte));
    let context = if text.starts_with("trailing characters") {
        "after top-level value"
    } else if text.starts_with("key must be a string") {
        "looking for beginning of object key string"
    } else if text.starts_with("expected `:`") {
        "after object key"
    } else if text.starts_with("expected `,` or `}`") {
        "after object key:value pair"
    } else if text.starts_with("expected `,` or `]`") {
        "after array element"
    } else {
        "looking for beginning of value"
    };
    match offending {
        Some(c) => format!("invalid character {} {context}", quoted(c)),
        None => text,
    }
}

fn quoted(c: char) -> String {
    match c {
        '\'' => r"'\''".to_string(),
        '"' => "'\"'".to_string(),
        '\n' => r"'\n'".to_string(),
        c => format!("'{c}'"),
    }
}

/// The byte at a line and column as serde_json counts them.
fn offset(bytes: &[u8], line: usize, column: usize) -> Option<usize> {
    let mut start = 0;
    for _ in 1..line {
        start += bytes.get(start..)?.iter().position(|b| *b == b'\n')? + 1;
    }
    (start + column).checked_sub(1)
}

//! The words of Go's decoders, which clients know and tests match.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use stead_machinery::quantity::Quantity;
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
pub fn mismatch(found: &str, schema: Option<SchemaRef<'_>>, owner: Option<SchemaRef<'_>>, path: &str) -> String {
    let wanted = schema.map_or("interface {}".to_string(), wanted);
    // A number loses its digits when it goes into a string: Go names only the kind of token then.
    let found = match wanted.starts_with("int") || wanted.starts_with("float") {
        true => found,
        false => found.split(' ').next().unwrap_or(found),
    };
    // Go's path names the struct that this field is inlined from.
    let path = path.replace("spec.rules.http", "spec.rules.IngressRuleValue.http");
    let owner = owner
        .and_then(type_name)
        .map_or(String::new(), |(_, name)| name.to_string());
    format!("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")
}

/// Go's name of the type that a schema describes.
fn wanted(schema: SchemaRef<'_>) -> String {
    match schema.shape() {
        Shape::Any | Shape::Free => "interface {}".to_string(),
        Shape::Object(object) => match (type_name(schema), object.additional) {
            (Some((package, name)), _) => format!("{package}.{name}"),
            // The one map of quantities that the API has.
            (None, Some(values)) if matches!(schema.go(values).shape(), Shape::Quantity) => {
                "v1.ResourceList".to_string()
            }
            (None, Some(values)) => format!("map[string]{}", wanted(schema.go(values))),
            (None, None) => "struct".to_string(),
        },
        Shape::List(list) => format!("[]{}", wanted(schema.go(list.items))),
        Shape::String(Format::Byte) => "[]uint8".to_string(),
        Shape::String(_) => "string".to_string(),
        Shape::Integer if is_wide(schema) => "int64".to_string(),
        Shape::Integer | Shape::IntOrString => "int32".to_string(),
        Shape::Number => "float64".to_string(),
        Shape::Boolean => "bool".to_string(),
        Shape::Quantity => "resource.Quantity".to_string(),
    }
}

/// Whether an integer has 64 bits; published descriptions of 32-bit ones do not differ otherwise.
fn is_wide(schema: SchemaRef<'_>) -> bool {
    schema.node().constraints.as_ref().and_then(|c| c.format.as_deref()) == Some("int64")
}

/// Whether an integer has 32 bits and says so.
pub fn is_narrow(schema: SchemaRef<'_>) -> bool {
    schema.node().constraints.as_ref().and_then(|c| c.format.as_deref()) == Some("int32")
}

/// Package and name of a published type: `v1` and `Container` of `io.k8s.api.core.v1.Container`.
fn type_name(schema: SchemaRef<'_>) -> Option<(&str, &str)> {
    let full = stead_machinery::walk::published_name(schema)?;
    let (rest, name) = full.rsplit_once('.')?;
    Some((rest.rsplit('.').next().unwrap_or(rest), name))
}

/// What is wrong with a text that stands for something else: a time, a quantity, bytes.
pub fn malformed(shape: &Shape, text: &str, schema: Option<SchemaRef<'_>>) -> Option<String> {
    match shape {
        Shape::Quantity => text.parse::<Quantity>().err().map(|_| {
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".to_string()
        }),
        Shape::String(Format::Byte) => {
            let broken = STANDARD.decode(text.replace(['\n', '\r'], "")).err()?;
            let at = match broken {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                // A piece at the end that is too short is named by its beginning.
                base64::DecodeError::InvalidLength(_) => text.len() / 4 * 4,
                base64::DecodeError::InvalidPadding => text.len(),
            };
            Some(format!("illegal base64 data at input byte {at}"))
        }
        Shape::String(Format::DateTime) if text.parse::<jiff::Timestamp>().is_err() => {
            let micro = schema.and_then(type_name).is_some_and(|(_, name)| name == "MicroTime");
            let fraction = if micro { ".000000" } else { "" };
            let (rest, part) = unread(text);
            Some(format!(
                "parsing time {text:?} as \"2006-01-02T15:04:05{fraction}Z07:00\": cannot parse {rest:?} as {part:?}"
            ))
        }
        _ => None,
    }
}

/// What is left of a time where reading it fails, and the part of Go's layout that it should begin with.
fn unread(text: &str) -> (&str, &'static str) {
    const LAYOUT: [&str; 12] = ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05", "Z07:00"];
    let mut rest = text;
    for part in LAYOUT {
        let number = part.bytes().all(|c| c.is_ascii_digit());
        let read = rest.get(..part.len()).filter(|read| match number {
            true => read.bytes().all(|c| c.is_ascii_digit()),
            false => *read == part,
        });
        match read {
            Some(read) => rest = &rest[read.len()..],
            None => return (rest, part),
        }
    }
    (rest, "Z07:00")
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
        c if c.is_control() => format!("'\\u{:04x}'", u32::from(c)),
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

/// The first key that stands twice in a map of a YAML document, as Go's library words it.
pub fn yaml_duplicate(bytes: &[u8]) -> Option<String> {
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::Error };
    let outcome = serde_saphyr::with_deserializer_from_slice_with_options(bytes, options, |deserializer| {
        serde_json::Value::deserialize(deserializer)
    });
    let error = outcome.err()?;
    let serde_saphyr::Error::DuplicateMappingKey { key, location } = error.without_snippet() else {
        return None;
    };
    let key = key.as_deref().unwrap_or_default();
    Some(format!("line {}: key {key:?} already set in map", location.line()))
}

/// A syntax error in YAML as Go's library words it: `yaml: line 2: what`.
pub fn yaml_error(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    // The library draws the place under the message; the first line says it all.
    let first = text.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    match first.strip_prefix("line ").and_then(|rest| rest.split_once(" column ")) {
        Some((line, rest)) => {
            let what = rest.split_once(": ").map_or(rest, |(_, what)| what);
            format!("yaml: line {line}: {what}")
        }
        None => format!("yaml: {first}"),
    }
}

//! Between JSON and values, along the declaration.

use super::{Key, List, Map, Text, Value, dynamic};
use crate::decl::{Decl, DeclShape};
use crate::error::EvalError;
use crate::times;
use base64::Engine;
use serde_json::Value as Json;
use stead_machinery::schema::Topology;

/// What is wrong with a value that is neither of the two.
pub const NO_INT_OR_STRING: &str = "invalid data, expected XIntOrString value to be either a string or integer";

/// Whether a value may be where an integer or a string belongs.
pub fn is_int_or_string(json: &Json) -> bool {
    json.is_string() || json.is_i64()
}

/// The value of a piece of JSON. Only what the expression asks for is converted, one level at a time.
pub fn from_json<'a>(json: &'a Json, decl: &'a Decl) -> Result<Value<'a>, EvalError> {
    Ok(match json {
        Json::Null => Value::Null,
        // Only a default is read here before anything else has looked at its type.
        _ if matches!(decl.shape, DeclShape::IntOrString) && !is_int_or_string(json) => {
            return Err(EvalError::invalid(NO_INT_OR_STRING));
        }
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match decl.shape {
            DeclShape::Double => Value::Double(number.as_f64().unwrap_or_default()),
            _ => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Value::Int(value),
                (None, Some(value)) => Value::Uint(value),
                (None, None) => Value::Double(number.as_f64().unwrap_or_default()),
            },
        },
        Json::String(text) => return from_text(text, decl),
        // A list is the one thing that gets here although a text belongs there.
        Json::Array(_) if is_text(decl) => {
            return Err(EvalError::invalid("invalid data, expected string, got []interface {}"));
        }
        Json::Array(items) => {
            static ATOMIC: Topology = Topology::Atomic;
            let (decl, topology) = match &decl.shape {
                DeclShape::List { items, topology } => (&**items, topology),
                _ => (dynamic(), &ATOMIC),
            };
            Value::List(List::Json { items, decl, topology })
        }
        Json::Object(map) => Value::Map(Map::Json { map, decl }),
    })
}

/// Whether values with this declaration are texts in JSON.
fn is_text(decl: &Decl) -> bool {
    use DeclShape::{Bytes, Date, DateTime, Duration, String};
    matches!(decl.shape, String | Bytes | Duration | Date | DateTime)
}

fn from_text<'a>(text: &'a str, decl: &Decl) -> Result<Value<'a>, EvalError> {
    let bad = |what: &str| EvalError::invalid(format!("Invalid {what} {text}"));
    Ok(match decl.shape {
        DeclShape::Bytes => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_err(|_| bad("byte formatted string"))?;
            Value::Bytes(bytes.into())
        }
        DeclShape::Duration => Value::Duration(times::parse_duration(text).ok_or_else(|| bad("duration"))?),
        DeclShape::Date => {
            let midnight = format!("{text}T00:00:00Z");
            Value::Timestamp(times::parse_timestamp(&midnight).ok_or_else(|| bad("date formatted string"))?)
        }
        DeclShape::DateTime => {
            Value::Timestamp(times::parse_timestamp(text).ok_or_else(|| bad("date-time formatted string"))?)
        }
        _ => Value::String(Text::Borrowed(text)),
    })
}

/// A value as JSON, for what a policy builds. `None` for values that JSON cannot hold.
pub fn to_json(value: &Value<'_>) -> Option<Json> {
    Some(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => Json::from(*value),
        Value::Uint(value) => Json::from(*value),
        Value::Double(value) => serde_json::Number::from_f64(*value).map(Json::Number)?,
        Value::String(text) => Json::String(text.to_string()),
        Value::Bytes(bytes) => Json::String(base64::engine::general_purpose::STANDARD.encode(bytes)),
        Value::Timestamp(time) => Json::String(times::show_timestamp(*time)),
        Value::Duration(nanos) => Json::String(times::show_duration(*nanos)),
        Value::Quantity(amount) => Json::String(amount.to_string()),
        Value::List(List::Json { items, .. }) => Json::Array(items.to_vec()),
        Value::List(List::Shared(items) | List::Keyed { items, .. }) => {
            Json::Array(items.iter().map(to_json).collect::<Option<_>>()?)
        }
        Value::Map(Map::Json { map, .. }) => Json::Object((*map).clone()),
        Value::Map(Map::Shared(entries)) => {
            let mut map = serde_json::Map::new();
            for (key, value) in entries.iter() {
                let key = match key {
                    Key::String(text) => text.to_string(),
                    Key::Bool(value) => value.to_string(),
                    Key::Int(value) => value.to_string(),
                    Key::Uint(value) => value.to_string(),
                };
                map.insert(key, to_json(value)?);
            }
            Json::Object(map)
        }
        Value::Optional(Some(inner)) => to_json(inner)?,
        _ => return None,
    })
}

//! From JSON to the wire, for answers to clients that ask for protobuf.

use super::decode::{form, schema_of};
use super::wire::{put_bytes, put_double, put_number};
use super::{ProtobufError, scalars};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use stead_machinery::wire::{Field, Form, Holder, Kind};

/// The bytes of a message.
pub fn message(place: u32, value: &Value) -> Result<Vec<u8>, ProtobufError> {
    let mut out = Vec::new();
    body(place, value, "", &mut out)?;
    Ok(out)
}

fn body(place: u32, value: &Value, path: &str, out: &mut Vec<u8>) -> Result<(), ProtobufError> {
    match form(place) {
        Form::Struct(fields) => {
            for field in fields {
                one(field, value, out)?;
            }
        }
        Form::List(kind) => {
            for item in value.as_array().into_iter().flatten() {
                scalar(*kind, 1, item, path, out)?;
            }
        }
        Form::Time | Form::MicroTime => {
            if let Some((seconds, nanos)) = value.as_str().and_then(scalars::parse_time) {
                put_number(out, 1, seconds as u64);
                let nanos = if *form(place) == Form::Time { 0 } else { nanos };
                put_number(out, 2, nanos as u64);
            }
        }
        Form::Duration => {
            let nanos = value.as_str().and_then(scalars::parse_duration).unwrap_or_default();
            put_number(out, 1, nanos as u64);
        }
        Form::Quantity => match value {
            Value::String(text) => put_bytes(out, 1, text.as_bytes()),
            Value::Null => put_bytes(out, 1, b"0"),
            number => put_bytes(out, 1, number.to_string().as_bytes()),
        },
        Form::IntOrString => {
            let text = value.as_str();
            put_number(out, 1, u64::from(text.is_some()));
            put_number(out, 2, value.as_i64().unwrap_or_default() as u64);
            put_bytes(out, 3, text.unwrap_or_default().as_bytes());
        }
        Form::Json => {
            if !value.is_null() {
                put_bytes(out, 1, value.to_string().as_bytes());
            }
        }
        Form::SchemaOrList | Form::SchemaOrStrings => match value {
            Value::Array(items) => {
                for item in items {
                    match (form(place), item) {
                        (Form::SchemaOrStrings, item) => {
                            put_bytes(out, 2, item.as_str().unwrap_or_default().as_bytes())
                        }
                        (_, item) => put_bytes(out, 2, &message(schema_of(place), item)?),
                    }
                }
            }
            Value::Null => {}
            schema => put_bytes(out, 1, &message(schema_of(place), schema)?),
        },
        Form::SchemaOrBool => match value {
            Value::Object(_) => {
                put_number(out, 1, 1);
                put_bytes(out, 2, &message(schema_of(place), value)?);
            }
            other => put_number(out, 1, u64::from(other.as_bool().unwrap_or_default())),
        },
    }
    Ok(())
}

fn one(field: &Field, parent: &Value, out: &mut Vec<u8>) -> Result<(), ProtobufError> {
    if field.inline {
        let Kind::Message(place) = field.kind else {
            return Ok(());
        };
        let mut inner = Vec::new();
        body(place, parent, "", &mut inner)?;
        put_bytes(out, field.number, &inner);
        return Ok(());
    }
    let value = parent.get(field.json.as_ref()).unwrap_or(&Value::Null);
    let name = field.json.as_ref();
    match (field.holder, value) {
        // Go's proto2 writes plain fields even when they are zero, and leaves out nil bytes.
        (Holder::Value, Value::Null) if field.kind == Kind::Bytes => Ok(()),
        (Holder::Value, value) => scalar(field.kind, field.number, value, name, out),
        (_, Value::Null) => Ok(()),
        (Holder::Pointer, value) => scalar(field.kind, field.number, value, name, out),
        (Holder::Slice, Value::Array(items)) => {
            for item in items {
                scalar(field.kind, field.number, item, name, out)?;
            }
            Ok(())
        }
        (Holder::Map, Value::Object(entries)) => {
            for (key, value) in entries {
                let mut entry = Vec::new();
                put_bytes(&mut entry, 1, key.as_bytes());
                scalar(field.kind, 2, value, name, &mut entry)?;
                put_bytes(out, field.number, &entry);
            }
            Ok(())
        }
        (Holder::Slice, _) => Err(wrong(name, "a list")),
        (Holder::Map, _) => Err(wrong(name, "an object")),
    }
}

fn scalar(kind: Kind, number: u32, value: &Value, name: &str, out: &mut Vec<u8>) -> Result<(), ProtobufError> {
    match kind {
        Kind::Bool => match value {
            Value::Null => put_number(out, number, 0),
            _ => put_number(
                out,
                number,
                u64::from(value.as_bool().ok_or_else(|| wrong(name, "a boolean"))?),
            ),
        },
        Kind::Int32 | Kind::Int64 => match value {
            Value::Null => put_number(out, number, 0),
            _ => put_number(
                out,
                number,
                value.as_i64().ok_or_else(|| wrong(name, "an integer"))? as u64,
            ),
        },
        Kind::Double => match value {
            Value::Null => put_double(out, number, 0.0),
            _ => put_double(out, number, value.as_f64().ok_or_else(|| wrong(name, "a number"))?),
        },
        Kind::String => match value {
            Value::Null => put_bytes(out, number, b""),
            _ => put_bytes(
                out,
                number,
                value.as_str().ok_or_else(|| wrong(name, "a string"))?.as_bytes(),
            ),
        },
        Kind::Bytes => {
            let text = value.as_str().unwrap_or_default();
            let bytes = STANDARD.decode(text).map_err(|_| wrong(name, "base64"))?;
            put_bytes(out, number, &bytes);
        }
        Kind::Message(place) => {
            let mut inner = Vec::new();
            body(place, value, name, &mut inner)?;
            put_bytes(out, number, &inner);
        }
    }
    Ok(())
}

fn wrong(field: &str, expected: &'static str) -> ProtobufError {
    ProtobufError::WrongType {
        field: field.to_string(),
        expected,
    }
}

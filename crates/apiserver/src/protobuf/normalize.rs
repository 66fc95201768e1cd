//! From any JSON of a built-in kind to the JSON that Go would write after reading it.

use super::decode::{finish, form, schema_of};
use super::scalars;
use serde_json::{Map, Value};
use stead_machinery::quantity::Quantity;
use stead_machinery::wire::{Field, Form, Holder, Kind, Omit};

/// What an object goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It was sent as JSON.
    Read,
    /// It was read, and is stored as protobuf: an empty list is none there. What was added since is completed too.
    Stored,
}

/// Rewrites an object the way Go would after that passage.
pub fn normalize(place: u32, value: &mut Value, passage: Passage) {
    match (form(place), value) {
        (Form::Struct(fields), Value::Object(map)) => {
            normalize_fields(fields, map, passage);
        }
        (Form::List(Kind::Message(inner)), Value::Array(items)) => {
            items.iter_mut().for_each(|item| normalize(*inner, item, passage));
        }
        // The rest was made what it is when it was read.
        _ if passage == Passage::Stored => {}
        (Form::SchemaOrList, Value::Array(items)) => {
            items
                .iter_mut()
                .for_each(|item| normalize(schema_of(place), item, passage));
        }
        (Form::SchemaOrList | Form::SchemaOrBool | Form::SchemaOrStrings, value @ Value::Object(_)) => {
            normalize(schema_of(place), value, passage);
        }
        (Form::Quantity, value) => {
            let text = match &*value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return,
            };
            // What is no quantity is left for validation to name.
            if let Ok(quantity) = text.parse::<Quantity>() {
                *value = Value::String(quantity.to_string());
            }
        }
        (Form::Time, Value::String(text)) => {
            if let Some(written) = scalars::parse_time(text).and_then(|(seconds, _)| scalars::time(seconds).ok()) {
                *text = written;
            }
        }
        (Form::MicroTime, Value::String(text)) => {
            let parsed = scalars::parse_time(text);
            if let Some(written) = parsed.and_then(|(s, nanos)| scalars::micro_time(s, nanos.into()).ok()) {
                *text = written;
            }
        }
        (Form::Duration, Value::String(text)) => {
            if let Some(nanos) = scalars::parse_duration(text) {
                *text = scalars::duration(nanos);
            }
        }
        _ => {}
    }
}

fn normalize_fields(fields: &[Field], map: &mut Map<String, Value>, passage: Passage) {
    for field in fields {
        if let (true, Kind::Message(place)) = (field.inline, field.kind) {
            if let Form::Struct(inner) = form(place) {
                normalize_fields(inner, map, passage);
            }
            continue;
        }
        if let Some(value) = map.get_mut(field.json.as_ref()) {
            match (value, field.holder, field.kind) {
                (Value::Null, _, _) => {
                    map.remove(field.json.as_ref());
                }
                (value, Holder::Value | Holder::Pointer, Kind::Message(place)) => normalize(place, value, passage),
                (value @ Value::Array(_), Holder::Slice, _)
                    if passage == Passage::Stored
                        && field.omit == Omit::Never
                        && *value == Value::Array(Vec::new()) =>
                {
                    *value = Value::Null;
                }
                (Value::Array(items), Holder::Slice, Kind::Message(place)) => {
                    items.iter_mut().for_each(|item| normalize(place, item, passage));
                }
                (Value::Object(entries), Holder::Map, Kind::Message(place)) => {
                    entries.values_mut().for_each(|entry| normalize(place, entry, passage));
                }
                _ => {}
            }
        }
        finish(field, map);
    }
}

//! From any JSON of a built-in kind to the JSON that Go would write after reading it.

use super::decode::{finish, form, schema_of};
use super::scalars;
use serde_json::{Map, Value};
use stead_machinery::quantity::Quantity;
use stead_machinery::wire::{Field, Form, Holder, Kind, Omit};

/// Rewrites an object that came as JSON the way Go would after reading it.
pub fn normalize(place: u32, value: &mut Value) {
    match (form(place), value) {
        (Form::Struct(fields), Value::Object(map)) => {
            normalize_fields(fields, map);
        }
        (Form::List(Kind::Message(inner)), Value::Array(items)) => {
            items.iter_mut().for_each(|item| normalize(*inner, item));
        }
        (Form::SchemaOrList, Value::Array(items)) => {
            items.iter_mut().for_each(|item| normalize(schema_of(place), item));
        }
        (Form::SchemaOrList | Form::SchemaOrBool | Form::SchemaOrStrings, value @ Value::Object(_)) => {
            normalize(schema_of(place), value);
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

fn normalize_fields(fields: &[Field], map: &mut Map<String, Value>) {
    for field in fields {
        if let (true, Kind::Message(place)) = (field.inline, field.kind) {
            if let Form::Struct(inner) = form(place) {
                normalize_fields(inner, map);
            }
            continue;
        }
        if let Some(value) = map.get_mut(field.json.as_ref()) {
            match (value, field.holder, field.kind) {
                (Value::Null, _, _) => {
                    map.remove(field.json.as_ref());
                }
                (value, Holder::Value | Holder::Pointer, Kind::Message(place)) => normalize(place, value),
                (Value::Array(items), Holder::Slice, Kind::Message(place)) => {
                    items.iter_mut().for_each(|item| normalize(place, item));
                }
                (Value::Object(entries), Holder::Map, Kind::Message(place)) => {
                    entries.values_mut().for_each(|entry| normalize(place, entry));
                }
                _ => {}
            }
        }
        finish(field, map);
    }
}

/// Makes an object what it is after being stored as protobuf, where an empty list is none. What was added to it since
/// it was read is completed too.
pub fn settle(place: u32, value: &mut Value) {
    match (form(place), value) {
        (Form::Struct(fields), Value::Object(map)) => settle_fields(fields, map),
        (Form::List(Kind::Message(inner)), Value::Array(items)) => {
            items.iter_mut().for_each(|item| settle(*inner, item));
        }
        _ => {}
    }
}

fn settle_fields(fields: &[Field], map: &mut Map<String, Value>) {
    for field in fields {
        if let (true, Kind::Message(place)) = (field.inline, field.kind) {
            if let Form::Struct(inner) = form(place) {
                settle_fields(inner, map);
            }
            continue;
        }
        finish(field, map);
        let Some(value) = map.get_mut(field.json.as_ref()) else {
            continue;
        };
        match (&mut *value, field.holder, field.kind) {
            (Value::Array(items), Holder::Slice, _) if items.is_empty() && field.omit == Omit::Never => {
                *value = Value::Null;
            }
            (Value::Array(items), Holder::Slice, Kind::Message(place)) => {
                items.iter_mut().for_each(|item| settle(place, item));
            }
            (Value::Object(entries), Holder::Map, Kind::Message(place)) => {
                entries.values_mut().for_each(|entry| settle(place, entry));
            }
            (value, Holder::Value | Holder::Pointer, Kind::Message(place)) => settle(place, value),
            _ => {}
        }
    }
}

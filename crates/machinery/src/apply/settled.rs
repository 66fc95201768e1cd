//! Whether an apply would change nothing, told without doing it.
//!
//! Controllers apply the same configuration again and again. Most of an apply is working out who owns what afterwards;
//! where the object already has every value and its manager already owns exactly these fields, that is known.

use super::managers::Operation;
use super::typed::{Form, ListForm, MapForm, Type};
use super::{KUBECTL, Kind, UNOWNED, Writer, compare, last_applied, managed_fields};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Whether applying the configuration leaves the object as it is, `managedFields` included. What cannot be told at a
/// glance is no.
pub fn changes_nothing(live: &Value, config: &Value, kind: &Kind<'_>, writer: &Writer<'_>) -> bool {
    // The annotation of client-side apply follows what kubectl applies.
    if writer.manager == KUBECTL && last_applied(live).is_some() {
        return false;
    }
    let root = Type::of(kind.schema);
    let Some(owned) = owned(live, writer) else {
        return false;
    };
    // What the object holds fits its schema, and so does what the configuration says of it.
    if !managed_fields(config).is_null() || !holds(live, config, root) {
        return false;
    }
    let mut wanted = compare::field_set(config, root);
    wanted.cut(kind.reset);
    wanted.subtract(&UNOWNED);
    wanted.is_spelled(owned)
}

/// What the writer has applied, as it is stored.
fn owned<'a>(live: &'a Value, writer: &Writer<'_>) -> Option<&'a Value> {
    let wanted = [
        ("operation", Operation::Apply.name()),
        ("manager", writer.manager),
        ("subresource", writer.subresource),
        ("apiVersion", writer.api_version),
        ("fieldsType", "FieldsV1"),
    ];
    let entries = managed_fields(live).as_array()?;
    let entry = entries.iter().find(|entry| {
        wanted
            .iter()
            .all(|(name, value)| entry.get(*name).and_then(Value::as_str).unwrap_or_default() == *value)
    })?;
    entry.get("fieldsV1")
}

/// Whether merging the configuration into the object gives the object.
fn holds(live: &Value, config: &Value, kind: Type<'_>) -> bool {
    match (kind.form(live), kind.form(config), live, config) {
        (Form::Map { .. }, Form::Map { map }, Value::Object(live), Value::Object(config)) => {
            holds_fields(live, config, map)
        }
        (Form::List { .. }, Form::List { list }, Value::Array(live), Value::Array(config)) => {
            holds_items(live, config, list)
        }
        _ => live == config,
    }
}

fn holds_fields(live: &Map<String, Value>, config: &Map<String, Value>, map: MapForm<'_>) -> bool {
    config.iter().all(|(name, wanted)| {
        live.get(name)
            .is_some_and(|live| holds(live, wanted, map.value_type(name).unwrap_or(Type::Deduced)))
    })
}

/// The items of the configuration must be in the list in their order, with others before and between them.
fn holds_items(live: &[Value], config: &[Value], list: ListForm<'_>) -> bool {
    let mut elements = BTreeSet::new();
    let mut wanted = config.iter().peekable();
    for item in live {
        let Ok(element) = list.element(item) else {
            return false;
        };
        if let Some(next) = wanted.peek()
            && list.element(next).is_ok_and(|next| next == element)
        {
            if !holds(item, next, list.items) {
                return false;
            }
            wanted.next();
        }
        // Items that are there twice are merged by rules of their own.
        if !elements.insert(element) {
            return false;
        }
    }
    wanted.next().is_none()
}

//! Merging an applied configuration into an object, and taking fields out of one.

use super::element::Element;
use super::fields::FieldSet;
use super::typed::{Form, ListForm, MapForm, Type};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The live object with everything that the configuration sets. Nothing is removed.
pub(super) fn merge(live: &Value, config: &Value, kind: Type<'_>) -> Value {
    let empty = |value: &Value| match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    };
    if empty(live) && empty(config) {
        return config.clone();
    }
    match (kind.form(live), kind.form(config)) {
        (Form::Map { .. }, Form::Map { map }) => merge_maps(live.as_object(), config.as_object(), map),
        (Form::List { .. }, Form::List { list }) => merge_lists(live.as_array(), config.as_array(), list),
        _ => config.clone(),
    }
}

fn merge_maps(live: Option<&Map<String, Value>>, config: Option<&Map<String, Value>>, map: MapForm<'_>) -> Value {
    let mut merged = live.cloned().unwrap_or_default();
    for (key, value) in config.into_iter().flatten() {
        let new = match merged.get(key) {
            Some(current) => merge(current, value, map.value_type(key).unwrap_or(Type::Deduced)),
            None => value.clone(),
        };
        merged.insert(key.clone(), new);
    }
    Value::Object(merged)
}

/// Items of the configuration keep their order; items that only the live list has stay before the shared
/// item that they stood before.
fn merge_lists(live: Option<&Vec<Value>>, config: Option<&Vec<Value>>, list: ListForm<'_>) -> Value {
    let index = |items: Option<&Vec<Value>>| -> Vec<(Element, Value)> {
        let items = items.into_iter().flatten();
        items
            .filter_map(|item| Some((list.element(item).ok()?, item.clone())))
            .collect()
    };
    let (live, config) = (index(live), index(config));
    let wanted: BTreeMap<&Element, &Value> = config.iter().map(|(element, item)| (element, item)).collect();
    let mut current: BTreeMap<&Element, Option<&Value>> = BTreeMap::new();
    for (element, item) in &live {
        // An item that is there twice is merged with neither.
        current
            .entry(element)
            .and_modify(|item| *item = None)
            .or_insert(Some(item));
    }
    let mut shared = config
        .iter()
        .map(|(element, _)| element)
        .filter(|e| current.contains_key(e))
        .peekable();
    let combined = |element: &Element| {
        let new = wanted.get(element).copied().unwrap_or(&Value::Null);
        match current.get(element).copied().flatten() {
            Some(old) => merge(old, new, list.items),
            None => new.clone(),
        }
    };
    let mut merged = Vec::with_capacity(live.len().max(config.len()));
    let mut taken: BTreeSet<&Element> = BTreeSet::new();
    let (mut l, mut c) = (0, 0);
    while l < live.len() || c < config.len() {
        if let (Some((mine, _)), Some((theirs, _))) = (live.get(l), config.get(c)) {
            if mine == theirs {
                taken.insert(mine);
                merged.push(combined(mine));
                l += 1;
                c += 1;
                shared.next();
                continue;
            }
            if wanted.contains_key(mine) && shared.peek().is_some_and(|next| *next != mine) {
                l += 1;
                continue;
            }
        }
        if let Some((mine, item)) = live.get(l) {
            if !wanted.contains_key(mine) {
                merged.push(item.clone());
                l += 1;
                continue;
            }
            if taken.contains(mine) {
                l += 1;
            }
        }
        if let Some((theirs, _)) = config.get(c) {
            taken.insert(theirs);
            merged.push(combined(theirs));
            c += 1;
            if shared.peek() == Some(&theirs) {
                shared.next();
            }
        }
    }
    Value::Array(merged)
}

/// The value without the fields and items of the set; `None` when nothing of it is left.
pub(super) fn remove(value: &Value, fields: &FieldSet, kind: Type<'_>) -> Option<Value> {
    match (kind.form(value), value) {
        (Form::Map { map }, Value::Object(old)) => {
            let kept = old.iter().filter_map(|(key, value)| {
                let kind = map.value_type(key).unwrap_or(Type::Deduced);
                Some((key.clone(), keep(value, fields.at(&Element::field(key)), kind)?))
            });
            let kept: Map<String, Value> = kept.collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        (Form::List { list }, Value::Array(items)) => {
            let kept = items.iter().filter_map(|item| match list.element(item) {
                Ok(element) => keep(item, fields.at(&element), list.items),
                Err(_) => Some(item.clone()),
            });
            let kept: Vec<Value> = kept.collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        (Form::Leaf, Value::Object(_) | Value::Array(_)) => None,
        (_, scalar) => Some(scalar.clone()),
    }
}

fn keep(value: &Value, (member, below): (bool, Option<&FieldSet>), kind: Type<'_>) -> Option<Value> {
    match below {
        _ if member => None,
        // What is emptied stays as nothing: whether its place goes too is for those who own the place.
        Some(below) => Some(remove(value, below, kind).unwrap_or(Value::Null)),
        None => Some(value.clone()),
    }
}

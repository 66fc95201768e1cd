//! How strategic merge patch merges and orders lists.

use super::{PATCH, Result, merge_map, unknown_directive};
use crate::patch::{PatchError, go_text};
use crate::schema::{PatchStrategy, SchemaRef};
use serde_json::Value;

/// Merges a list into another by its field's strategy; without one the new list replaces the old.
pub(super) fn merge(
    original: Vec<Value>,
    patch: Vec<Value>,
    schema: Option<SchemaRef<'_>>,
    strategy: &PatchStrategy,
) -> Result<Vec<Value>> {
    if !strategy.merge {
        return Ok(patch);
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let order = original.clone();
    if !are_objects(&original, &patch)? {
        let mut merged = original;
        for value in &patch {
            if !merged.contains(value) {
                merged.push(value.clone());
            }
        }
        return arrange(merged, &patch, &order, None);
    }
    let Some(key) = strategy.merge_key.as_deref() else {
        return Err(PatchError::Unexpected(
            "cannot merge lists without merge key".to_string(),
        ));
    };
    let (mut merged, patch) = handle_directives(original, patch, key)?;
    let items = schema.and_then(SchemaRef::items);
    for item in &patch {
        let wanted = key_of(item, key)?;
        let place = merged.iter().position(|other| other.get(key) == Some(wanted));
        match place {
            Some(at) => merged[at] = merge_item(merged[at].take(), item.clone(), items)?,
            None => merged.push(item.clone()),
        }
    }
    arrange(merged, &patch, &order, Some(key))
}

fn merge_item(original: Value, patch: Value, schema: Option<SchemaRef<'_>>) -> Result<Value> {
    match (original, patch) {
        (Value::Object(original), Value::Object(patch)) => Ok(Value::Object(merge_map(original, patch, schema)?)),
        (_, patch) => Ok(patch),
    }
}

/// Carries out `$patch: delete` and `$patch: replace` items; gives what is left of both lists.
fn handle_directives(mut original: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>)> {
    let mut plain = Vec::new();
    let mut replace = false;
    for item in patch {
        let Some(directive) = item.get(PATCH) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let unwanted = key_of(&item, key)?;
                original.retain(|other| other.get(key) != Some(unwanted));
            }
            Some("replace") => replace = true,
            Some("merge") => {
                let message = "merging lists cannot yet be specified in the patch".to_string();
                return Err(PatchError::Unexpected(message));
            }
            _ => {
                return Err(unknown_directive(
                    directive,
                    item.as_object().unwrap_or(&Default::default()),
                ));
            }
        }
    }
    if replace {
        return Ok((plain, Vec::new()));
    }
    Ok((original, plain))
}

/// Puts `merged` in the order of the patch; items that the patch does not name keep their place among
/// the others as the live list (`live`) had it.
pub(super) fn arrange(merged: Vec<Value>, order: &[Value], live: &[Value], key: Option<&str>) -> Result<Vec<Value>> {
    let place = |list: &[Value], item: &Value| {
        list.iter().position(|other| match key {
            Some(key) => other.get(key).is_some() && other.get(key) == item.get(key),
            None => other == item,
        })
    };
    if let Some(key) = key {
        for item in merged.iter().chain(order) {
            key_of(item, key)?;
        }
    }
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item).unwrap_or(usize::MAX));
    others.sort_by_key(|item| place(live, item).unwrap_or(usize::MAX));
    let mut all = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(one), Some(other)) = (named.peek(), others.peek()) {
        let other_first = matches!((place(live, other), place(live, one)), (Some(o), Some(n)) if o < n);
        all.extend(if other_first { others.next() } else { named.next() });
    }
    all.extend(named);
    all.extend(others);
    Ok(all)
}

/// Refuses a `$setElementOrder` list that contradicts the order of the patch's own list.
pub(super) fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<()> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut order_left = order.iter();
    for item in patch.iter().filter(|item| item.get(PATCH).is_none()) {
        let wanted = match key {
            Some(key) => key_of(item, key)?,
            None => item,
        };
        let mut found = false;
        for candidate in order_left.by_ref() {
            let candidate = match key {
                Some(key) => key_of(candidate, key)?,
                None => candidate,
            };
            if candidate == wanted {
                found = true;
                break;
            }
        }
        if !found {
            let (patch, order) = (go_text(&patch.into()), go_text(&order.into()));
            let message =
                format!("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n");
            return Err(PatchError::Unexpected(message));
        }
    }
    Ok(())
}

/// Whether the items are objects; lists of lists and mixtures are refused.
fn are_objects(original: &[Value], patch: &[Value]) -> Result<bool> {
    let mut items = original.iter().chain(patch);
    let Some(first) = items.next() else {
        return Ok(false);
    };
    if first.is_array() {
        return Err(PatchError::Inapplicable("lists of lists are not supported".to_string()));
    }
    if items.any(|item| std::mem::discriminant(item) != std::mem::discriminant(first)) {
        let lists = go_text(&Value::from(vec![Value::from(original), Value::from(patch)]));
        return Err(PatchError::Unexpected(format!(
            "list element types are not identical: {lists}"
        )));
    }
    Ok(first.is_object())
}

fn key_of<'a>(item: &'a Value, key: &str) -> Result<&'a Value> {
    item.get(key).ok_or_else(|| {
        let message = format!("map: {} does not contain declared merge key: {key}", go_text(item));
        PatchError::Unexpected(message)
    })
}

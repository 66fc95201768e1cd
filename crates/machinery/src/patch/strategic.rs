//! Strategic merge patch: a merge patch that knows which lists merge, and by which key.
//!
//! The schema says for each field whether its list merges (`x-kubernetes-patch-strategy`) and by what
//! (`x-kubernetes-patch-merge-key`). Directives in the patch (`$patch`, `$retainKeys`,
//! `$setElementOrder/<field>`, `$deleteFromPrimitiveList/<field>`) say what plain data cannot.

use super::merge::prune_nulls;
use super::{PatchError, go_text};
use crate::schema::{PatchStrategy, SchemaRef, Shape};
use serde_json::{Map, Value};

mod lists;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

type Result<T> = std::result::Result<T, PatchError>;

/// Merges a patch into an object of this schema.
pub fn apply(object: &mut Value, patch: Value, schema: SchemaRef<'_>) -> Result<()> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::Malformed("invalid JSON document".to_string()));
    };
    let original = match object.take() {
        Value::Object(original) => original,
        _ => Map::new(),
    };
    *object = Value::Object(merge_map(original, patch, Some(schema))?);
    Ok(())
}

/// What the schema says of a field: the type of its value, and how it merges.
fn lookup<'a>(schema: Option<SchemaRef<'a>>, field: &str) -> (Option<SchemaRef<'a>>, PatchStrategy) {
    let Some(schema) = schema else {
        return (None, PatchStrategy::default());
    };
    let strategy = match schema.shape() {
        Shape::Object(object) => object.properties.get(field).map(|property| property.patch.clone()),
        _ => None,
    };
    (schema.field(field), strategy.unwrap_or_default())
}

type Fields = Map<String, Value>;

fn merge_map(mut original: Fields, mut patch: Fields, schema: Option<SchemaRef<'_>>) -> Result<Fields> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    reorder_lists(&mut original, &mut patch, schema)?;
    for (key, value) in patch {
        match key.strip_prefix(DELETE_FROM_LIST) {
            Some(field) => delete_from_list(&mut original, field, value)?,
            None => merge_field(&mut original, key, value, schema)?,
        }
    }
    Ok(original)
}

fn merge_field(original: &mut Fields, key: String, mut value: Value, schema: Option<SchemaRef<'_>>) -> Result<()> {
    let current = original.remove(&key);
    let merged = match (current, value) {
        (_, Value::Null) => return Ok(()),
        (Some(Value::Object(current)), Value::Object(patch)) if !is_replaced(schema, &key) => {
            let (below, _) = lookup(schema, &key);
            Value::Object(merge_map(current, patch, below)?)
        }
        (Some(Value::Array(current)), Value::Array(patch)) => {
            let (below, strategy) = lookup(schema, &key);
            Value::Array(lists::merge(current, patch, below, &strategy)?)
        }
        (_, new) => {
            value = new;
            prune_nulls(&mut value);
            match without_directives(value) {
                Some(value) => value,
                None => return Ok(()),
            }
        }
    };
    original.insert(key, merged);
    Ok(())
}

/// Whether a field is replaced as a whole: of all published types only the selector of a budget says so.
fn is_replaced(schema: Option<SchemaRef<'_>>, key: &str) -> bool {
    const BUDGET: &str = "io.k8s.api.policy.v1.PodDisruptionBudgetSpec";
    key == "selector" && schema.is_some_and(|schema| schema.arena().name_of(schema.id()) == Some(BUDGET))
}

fn delete_from_list(original: &mut Fields, field: &str, value: Value) -> Result<()> {
    match (original.get_mut(field), value) {
        (_, Value::Null) => {
            original.remove(field);
        }
        (Some(Value::Array(items)), Value::Array(unwanted)) => items.retain(|item| !unwanted.contains(item)),
        _ => {}
    }
    Ok(())
}

/// `$retainKeys`: fields that the list does not name go away; the patch may only set fields it names.
fn retain_keys(original: &mut Fields, patch: &mut Fields) -> Result<()> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let malformed = || PatchError::Malformed("invalid patch format of retainKeys".to_string());
    let kept: Vec<&str> = directive
        .as_array()
        .ok_or_else(malformed)?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for (key, value) in patch.iter() {
        let directive = key.starts_with(DELETE_FROM_LIST) || key.starts_with(ELEMENT_ORDER);
        if !value.is_null() && !directive && !kept.contains(&key.as_str()) {
            return Err(malformed());
        }
    }
    original.retain(|key, _| kept.contains(&key.as_str()));
    Ok(())
}

/// `$setElementOrder/<field>`: merges the list it speaks of, then puts the items in that order. Items that
/// only the server has keep their place between them as well as that goes.
fn reorder_lists(original: &mut Fields, patch: &mut Fields, schema: Option<SchemaRef<'_>>) -> Result<()> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with("$setElementOrder"))
        .cloned()
        .collect();
    for directive in directives {
        let malformed = || PatchError::Malformed("invalid patch format of setElementOrder list".to_string());
        let field = directive.strip_prefix(ELEMENT_ORDER).ok_or_else(malformed)?;
        let order = expect_list(patch.remove(&directive).unwrap_or_default())?;
        let before = original.remove(field).map(expect_list).transpose()?;
        let changes = patch.remove(field).map(expect_list).transpose()?;
        let (below, strategy) = lookup(schema, field);
        let merge_key = strategy.merge_key.as_deref();
        lists::check_order(changes.as_deref().unwrap_or_default(), &order, merge_key)?;
        let merged = match (before.clone(), changes) {
            (None, None) => continue,
            (Some(before), None) => before,
            (None, Some(changes)) => changes.into_iter().filter_map(without_directives).collect(),
            (Some(before), Some(changes)) => lists::merge(before, changes, below, &strategy)?,
        };
        let arranged = lists::arrange(merged, &order, before.as_deref().unwrap_or_default(), merge_key)?;
        original.insert(field.to_string(), Value::Array(arranged));
    }
    Ok(())
}

fn expect_list(value: Value) -> Result<Vec<Value>> {
    let kind = match value {
        Value::Array(items) => return Ok(items),
        Value::Object(_) => "map[string]interface {}",
        Value::String(_) => "string",
        Value::Number(_) => "int64",
        Value::Bool(_) => "bool",
        Value::Null => return Ok(Vec::new()),
    };
    Err(PatchError::Unexpected(format!(
        "expected a []interface {{}}, but received a {kind}"
    )))
}

/// A value that is new to the object, without the directives inside it; `None` when it is one itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(PATCH) => None,
        Value::Object(fields) => {
            let kept = fields
                .into_iter()
                .filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

fn unknown_directive(directive: &Value, patch: &Fields) -> PatchError {
    let patch = go_text(&Value::Object(patch.clone()));
    PatchError::Unexpected(format!("unknown patch type: {} in map: {patch}", go_text(directive)))
}

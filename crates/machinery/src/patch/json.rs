//! JSON patch (RFC 6902) with the tolerances and error texts of the library that Kubernetes uses.
//!
//! Two of those tolerances matter to clients: `replace` of an absent field adds it, and negative list
//! indexes count from the end.

use super::PatchError;
use crate::walk::kind_of;
use serde_json::Value;

/// Operations that one patch may have.
const MOST_OPERATIONS: usize = 10_000;

/// Bytes that the `copy` operations of one patch may add; without a bound a small patch doubles an
/// object again and again.
const MOST_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Applies all operations, or leaves the error of the first that fails (the document is then half changed
/// and to be thrown away).
pub fn apply(document: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let Value::Array(operations) = patch else {
        let message = format!(
            "json: cannot unmarshal {} into Go value of type jsonpatch.Patch",
            kind_of(patch)
        );
        return Err(PatchError::Malformed(message));
    };
    if let Some(odd) = operations.iter().find(|operation| !operation.is_object()) {
        let message = format!(
            "json: cannot unmarshal {} into Go value of type jsonpatch.Operation",
            kind_of(odd)
        );
        return Err(PatchError::Malformed(message));
    }
    if operations.len() > MOST_OPERATIONS {
        let got = operations.len();
        return Err(PatchError::TooManyOperations {
            limit: MOST_OPERATIONS,
            got,
        });
    }
    let mut copied = 0;
    for operation in operations {
        step(document, operation, &mut copied).map_err(PatchError::Inapplicable)?;
    }
    Ok(())
}

fn step(document: &mut Value, operation: &Value, copied: &mut usize) -> Result<(), String> {
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match operation.get("op").and_then(Value::as_str).unwrap_or("unknown") {
        "add" => {
            let path = pointer(operation, "path").ok_or("add operation failed to decode path: missing value")?;
            let (parent, key) = find(document, path).ok_or_else(|| {
                format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
            })?;
            insert(parent, &key, value()).map_err(|e| format!("error in add for path: '{path}': {e}"))
        }
        "remove" => {
            let path = pointer(operation, "path").ok_or("remove operation failed to decode path: missing value")?;
            let (parent, key) = find(document, path).ok_or_else(|| {
                format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
            })?;
            take(parent, &key)
                .map(drop)
                .map_err(|e| format!("error in remove for path: '{path}': {e}"))
        }
        "replace" => replace(document, operation, value()),
        "move" => relocate(document, operation),
        "copy" => duplicate(document, operation, copied),
        "test" => test(document, operation),
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn replace(document: &mut Value, operation: &Value, value: Value) -> Result<(), String> {
    let path = pointer(operation, "path")
        .ok_or("replace operation failed to decode path: operation missing path field: missing value")?;
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("replace operation value must be object or array: %!w(<nil>)".to_string());
        }
        *document = value;
        return Ok(());
    }
    let (parent, key) = find(document, path)
        .ok_or_else(|| format!("replace operation does not apply: doc is missing path: {path}: missing value"))?;
    match parent {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) => {
            let at = index(&key, items.len()).ok().filter(|at| *at < items.len());
            let at = at.ok_or_else(|| {
                format!("replace operation does not apply: doc is missing key: {path}: missing value")
            })?;
            items[at] = value;
        }
        _ => {}
    }
    Ok(())
}

fn relocate(document: &mut Value, operation: &Value) -> Result<(), String> {
    let from = pointer(operation, "from")
        .ok_or("move operation failed to decode from: operation, missing from field: missing value")?;
    let (parent, key) = find(document, from)
        .ok_or_else(|| format!("move operation does not apply: doc is missing from path: {from}: missing value"))?;
    let value = take(parent, &key).map_err(|e| format!("error in move for path: '{key}': {e}"))?;
    let path = pointer(operation, "path")
        .ok_or("move operation failed to decode path: operation missing path field: missing value")?;
    let (parent, key) = find(document, path).ok_or_else(|| {
        format!("move operation does not apply: doc is missing destination path: {path}: missing value")
    })?;
    insert(parent, &key, value).map_err(|e| format!("error in move for path: '{path}': {e}"))
}

fn duplicate(document: &mut Value, operation: &Value, copied: &mut usize) -> Result<(), String> {
    let from = pointer(operation, "from")
        .ok_or("copy operation failed to decode from: operation, missing from field: missing value")?;
    let (parent, key) = find(document, from)
        .ok_or_else(|| format!("copy operation does not apply: doc is missing from path: {from}: missing value"))?;
    let value = get(parent, &key)
        .map_err(|e| format!("error in copy for from: '{from}': {e}"))?
        .cloned()
        .unwrap_or(Value::Null);
    let path = pointer(operation, "path").ok_or("copy operation failed to decode path: missing value")?;
    let (parent, key) = find(document, path).ok_or_else(|| {
        format!("copy operation does not apply: doc is missing destination path: {path}: missing value")
    })?;
    *copied += value.to_string().len();
    if *copied > MOST_COPIED_BYTES {
        return Err(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MOST_COPIED_BYTES}"
        ));
    }
    insert(parent, &key, value).map_err(|e| format!("error while adding value during copy: {e}"))
}

fn test(document: &mut Value, operation: &Value) -> Result<(), String> {
    let path = pointer(operation, "path")
        .ok_or("test operation failed to decode path: operation missing path field: missing value")?;
    let wanted = operation.get("value").unwrap_or(&Value::Null);
    let found = if path.is_empty() {
        Some(&*document)
    } else {
        let (parent, key) = find(document, path)
            .ok_or_else(|| format!("test operation does not apply: is missing path: {path}: missing value"))?;
        get(parent, &key).map_err(|e| format!("error in test for path: '{path}': {e}"))?
    };
    if found.unwrap_or(&Value::Null) == wanted {
        return Ok(());
    }
    Err(format!("testing value {path} failed: test failed"))
}

fn pointer<'a>(operation: &'a Value, name: &str) -> Option<&'a str> {
    operation.get(name).and_then(Value::as_str)
}

/// The container that holds the last step of a path, and that step.
fn find<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    // What stands before the first slash is not looked at, as in the library.
    let (_, path) = path.split_once('/')?;
    let mut steps: Vec<String> = path.split('/').map(decode).collect();
    let key = steps.pop()?;
    let mut here = document;
    for step in steps {
        here = match here {
            Value::Object(fields) => fields.get_mut(&step)?,
            Value::Array(items) => {
                let at = index(&step, items.len()).ok()?;
                items.get_mut(at)?
            }
            _ => return None,
        };
    }
    (here.is_object() || here.is_array()).then_some((here, key))
}

fn get<'a>(parent: &'a Value, key: &str) -> Result<Option<&'a Value>, String> {
    match parent {
        Value::Object(fields) => Ok(fields.get(key)),
        Value::Array(items) => {
            let at = index(key, items.len())?;
            items.get(at).map(Some).ok_or_else(|| bad_index(at as i64))
        }
        _ => Ok(None),
    }
}

fn insert(parent: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match parent {
        Value::Object(fields) => {
            fields.insert(key.to_string(), value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let places = items.len() + 1;
            let at = match atoi(key) {
                Ok(_) => index(key, places)?,
                Err(e) => return Err(format!("value was not a proper array index: '{key}': {e}")),
            };
            if at >= places {
                return Err(bad_index(at as i64));
            }
            items.insert(at, value);
        }
        _ => {}
    }
    Ok(())
}

fn take(parent: &mut Value, key: &str) -> Result<Value, String> {
    match parent {
        Value::Object(fields) => fields
            .remove(key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
        Value::Array(items) => {
            let at = index(key, items.len())?;
            if at >= items.len() {
                return Err(bad_index(at as i64));
            }
            Ok(items.remove(at))
        }
        _ => Err(format!("Unable to remove nonexistent key: {key}: missing value")),
    }
}

/// A place in a list of this length; negative ones count from the end, and too large ones pass through.
fn index(key: &str, length: usize) -> Result<usize, String> {
    let at = atoi(key)?;
    let counted = if at < 0 { at.saturating_add(length as i64) } else { at };
    usize::try_from(counted).map_err(|_| bad_index(at))
}

fn atoi(key: &str) -> Result<i64, String> {
    key.parse()
        .map_err(|_| format!("strconv.Atoi: parsing {key:?}: invalid syntax"))
}

fn bad_index(at: i64) -> String {
    format!("Unable to access invalid index: {at}: invalid index referenced")
}

/// A step of a JSON pointer with `~1` and `~0` decoded.
fn decode(step: &str) -> String {
    if !step.contains('~') {
        return step.to_string();
    }
    let mut out = String::with_capacity(step.len());
    let mut rest = step;
    while let Some(at) = rest.find('~') {
        out.push_str(&rest[..at]);
        let (text, length) = match rest.as_bytes().get(at + 1) {
            Some(b'1') => ("/", 2),
            Some(b'0') => ("~", 2),
            _ => ("~", 1),
        };
        out.push_str(text);
        rest = &rest[at + length..];
    }
    out.push_str(rest);
    out
}

//! Resources inside custom resources (`x-kubernetes-embedded-resource`).
//!
//! They are stored for somebody who will create them, so what every resource has, its type and its metadata, is read
//! and checked as strictly as that of the resource around them.

use crate::catalogue::built_in;
use crate::verbs::metadata::nested_errors;
use serde_json::{Value, json};
use stead_machinery::field::FieldError;
use stead_machinery::names::dns1035_label;
use stead_machinery::schema::{SchemaRef, Shape};
use stead_machinery::walk;

/// Brings the metadata of all embedded resources into form, and gives the paths of the fields that it dropped; an
/// error where a value has the wrong type.
pub fn coerce(value: &mut Value, schema: SchemaRef<'_>, path: &str) -> Result<Vec<String>, Box<FieldError>> {
    let mut dropped = Vec::new();
    coerce_level(value, schema, path, &mut dropped)?;
    dropped.sort();
    Ok(dropped)
}

/// What is wrong with the type and the metadata of all embedded resources.
pub fn errors(value: &Value, schema: SchemaRef<'_>, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_level(value, schema, path, &mut errors);
    errors
}

fn is_embedded(schema: SchemaRef<'_>) -> bool {
    matches!(schema.shape(), Shape::Object(object) if object.embedded_resource)
}

fn child(path: &str, name: &str) -> String {
    match path.is_empty() {
        true => name.to_string(),
        false => format!("{path}.{name}"),
    }
}

/// The schema of a field and its path: fields that are named follow a dot, keys of maps are in brackets.
fn below<'a>(schema: SchemaRef<'a>, path: &str, name: &str) -> Option<(SchemaRef<'a>, String)> {
    let Shape::Object(object) = schema.shape() else {
        return None;
    };
    match object.properties.get(name) {
        Some(property) => Some((schema.go(property.node), child(path, name))),
        None => Some((schema.go(object.additional?), format!("{path}[{name}]"))),
    }
}

fn coerce_level(
    value: &mut Value,
    schema: SchemaRef<'_>,
    path: &str,
    dropped: &mut Vec<String>,
) -> Result<(), Box<FieldError>> {
    if is_embedded(schema) && value.is_object() {
        coerce_resource(value, path, dropped)?;
    }
    match (schema.shape(), value) {
        (_, Value::Object(fields)) => {
            for (name, value) in fields {
                if let Some((schema, path)) = below(schema, path, name) {
                    coerce_level(value, schema, &path, dropped)?;
                }
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                coerce_level(item, schema.go(list.items), &format!("{path}[{index}]"), dropped)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_resource(resource: &mut Value, path: &str, dropped: &mut Vec<String>) -> Result<(), Box<FieldError>> {
    for name in ["apiVersion", "kind"] {
        if let Some(value) = resource.get(name).filter(|value| !value.is_string()) {
            let error = FieldError::invalid(child(path, name), value.clone(), "must be a string");
            return Err(Box::new(error));
        }
    }
    let schema = built_in::schemas().named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let (Some(metadata), Some(schema)) = (resource.get_mut("metadata"), schema) else {
        return Ok(());
    };
    let at = child(path, "metadata");
    if let Some(why) = mistyped(metadata, schema) {
        return Err(Box::new(FieldError::invalid(at, metadata.clone(), why)));
    }
    if metadata.is_null() {
        *metadata = json!({});
    }
    let unknown = walk::prune(metadata, schema);
    dropped.extend(unknown.into_iter().map(|name| child(&at, &name)));
    walk::tidy(metadata, schema);
    Ok(())
}

/// A value of the wrong type in the metadata, in the words of Go's decoder.
pub fn mistyped(metadata: &Value, schema: SchemaRef<'_>) -> Option<String> {
    for name in ["creationTimestamp", "deletionTimestamp"] {
        let time = metadata.get(name).and_then(Value::as_str).unwrap_or_default();
        if !time.is_empty() && time.parse::<jiff::Timestamp>().is_err() {
            return Some(format!(
                "parsing time {time:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {time:?} as \"2006\""
            ));
        }
    }
    let found = walk::mistyped(metadata, schema)?;
    Some(match found.path.is_empty() {
        true => format!(
            "json: cannot unmarshal {} into Go value of type v1.ObjectMeta",
            found.got
        ),
        false => found.to_string(),
    })
}

fn check_level(value: &Value, schema: SchemaRef<'_>, path: &str, errors: &mut Vec<FieldError>) {
    if is_embedded(schema) && value.is_object() {
        check_resource(value, path, errors);
    }
    match (schema.shape(), value) {
        (_, Value::Object(fields)) => {
            for (name, value) in fields {
                if let Some((schema, path)) = below(schema, path, name) {
                    check_level(value, schema, &path, errors);
                }
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                check_level(item, schema.go(list.items), &format!("{path}[{index}]"), errors);
            }
        }
        _ => {}
    }
}

fn check_resource(resource: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let at = child(path, name);
        match resource.get(name) {
            None => errors.push(FieldError::required(at, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(at, "", "must not be empty"));
            }
            Some(Value::String(text)) => {
                if let Some(why) = type_complaint(name, text) {
                    errors.push(FieldError::invalid(at, text.as_str(), why));
                }
            }
            Some(other) => errors.push(FieldError::invalid(at, other.clone(), "must be a string")),
        }
    }
    for mut error in nested_errors(resource) {
        error.field = child(path, &error.field);
        errors.push(error);
    }
}

fn type_complaint(name: &str, text: &str) -> Option<String> {
    if name == "apiVersion" {
        return (text.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {text}"));
    }
    let complaints = dns1035_label(&text.to_lowercase());
    (!complaints.is_empty()).then(|| {
        format!(
            "may have mixed case, but should otherwise match: {}",
            complaints.join(",")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{coerce, errors};
    use serde_json::json;
    use stead_machinery::schema::Schemas;

    #[test]
    fn embedded_resources_lose_unknown_metadata_and_are_checked_like_any_other() {
        let mut schemas = Schemas::default();
        let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true});
        let root = schemas.read(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"one": embedded, "many": {"type": "array", "items": embedded}}}}}));
        let schema = schemas.at(root);
        let mut object = json!({"spec": {
            "one": {"kind": "ConfigMap", "metadata": {"name": "a/b", "odd": 1, "labels": {}}, "data": {"a": "b"}},
            "many": [{"apiVersion": "a/b/c", "kind": "Not A Kind"}],
        }});
        let dropped = coerce(&mut object, schema, "").expect("every type is right");
        assert_eq!(dropped, ["spec.one.metadata.odd"]);
        assert_eq!(object["spec"]["one"]["metadata"], json!({"name": "a/b"}));
        let found: Vec<String> = errors(&object, schema, "").iter().map(ToString::to_string).collect();
        assert_eq!(
            found[0],
            "spec.many[0].apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"
        );
        assert!(found[1].starts_with("spec.many[0].kind: Invalid value: \"Not A Kind\": may have mixed case"));
        assert_eq!(found[2], "spec.one.apiVersion: Required value");
        assert!(found[3].starts_with("spec.one.metadata.name: Invalid value: \"a/b\": may not contain '/'"));
        let mut wrong = json!({"spec": {"one": {"kind": 3}}});
        let refused = coerce(&mut wrong, schema, "").expect_err("a kind is a text");
        assert_eq!(refused.to_string(), "spec.one.kind: Invalid value: 3: must be a string");
    }
}

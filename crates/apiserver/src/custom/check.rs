//! What makes a definition acceptable, in Kubernetes' words.

mod parts;

use super::{fallback, form, structural};
use crate::verbs::object::{self, strings};
use parts::{column_errors, conversion_errors, per_version, subresource_errors};
use serde_json::Value;
use stead_cel::rules;
use stead_machinery::field::FieldError;
use stead_machinery::names::{dns1035_label, dns1123_subdomain};
use stead_machinery::schema::Schemas;

/// What is wrong with a new definition.
pub fn create_errors(definition: &Value) -> Vec<FieldError> {
    let mut errors = name_errors(definition);
    errors.extend(spec_errors(&definition["spec"]));
    errors.extend(stored_version_errors(definition));
    errors
}

/// What is wrong with a changed definition.
pub fn update_errors(definition: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if definition["spec"] != old["spec"] {
        errors.extend(spec_errors(&definition["spec"]));
    }
    if super::definition::is_true(old, "Established") {
        let fixed = ["scope", "group"].map(|field| format!("spec.{field}"));
        let names = ["kind", "plural"].map(|field| format!("spec.names.{field}"));
        for path in fixed.into_iter().chain(names) {
            let new = object::at(definition, &path);
            if new != object::at(old, &path) {
                errors.push(FieldError::invalid(path, new.clone(), "field is immutable"));
            }
        }
    }
    errors.extend(stored_version_errors(definition));
    errors
}

fn name_errors(definition: &Value) -> Vec<FieldError> {
    let (name, spec) = (object::name(definition), &definition["spec"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let wanted = format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"]));
    match name == wanted {
        true => Vec::new(),
        false => vec![FieldError::invalid(
            "metadata.name",
            name,
            "must be spec.names.plural+\".\"+spec.group",
        )],
    }
}

fn spec_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let group = spec["group"].as_str().unwrap_or_default();
    let complaints = dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !complaints.is_empty() {
        errors.push(FieldError::invalid("spec.group", group, complaints.join(",")));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", group, detail));
    }
    match spec["scope"].as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => errors.push(FieldError::not_supported(
            "spec.scope",
            other,
            &["Cluster", "Namespaced"],
        )),
    }
    version_errors(spec, &mut errors);
    names_errors(&spec["names"], &mut errors);
    conversion_errors(&spec["conversion"], &mut errors);
    if spec["preserveUnknownFields"] == true {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, detail));
        let versions = spec["versions"].as_array().into_iter().flatten();
        let mut schemas = versions.map(|version| &version["schema"]);
        if schemas.any(|schema| super::definition::mentions(schema, "default")) {
            let detail = "must be false in order to use defaults in the schema";
            errors.push(FieldError::invalid("spec.preserveUnknownFields", true, detail));
        }
    }
    errors
}

/// Where Kubernetes keeps the schemas of all versions: those that are the same in one place, which errors name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Together,
    Apart,
}

/// What the root of a schema may say where the status is apart: no more than also holds without it.
fn root_errors(schema: &Value, at: &str, errors: &mut Vec<FieldError>) {
    const ALLOWED: &[(&str, &str)] = &[
        ("description", "Description"),
        ("type", "Type"),
        ("format", "Format"),
        ("title", "Title"),
        ("maximum", "Maximum"),
        ("exclusiveMaximum", "ExclusiveMaximum"),
        ("minimum", "Minimum"),
        ("exclusiveMinimum", "ExclusiveMinimum"),
        ("maxLength", "MaxLength"),
        ("minLength", "MinLength"),
        ("pattern", "Pattern"),
        ("maxItems", "MaxItems"),
        ("minItems", "MinItems"),
        ("uniqueItems", "UniqueItems"),
        ("multipleOf", "MultipleOf"),
        ("required", "Required"),
        ("items", "Items"),
        ("properties", "Properties"),
        ("externalDocs", "ExternalDocs"),
        ("example", "Example"),
        ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
        ("x-kubernetes-validations", "XValidations"),
    ];
    let kind = schema["type"].as_str().unwrap_or_default();
    if !kind.is_empty() && kind != "object" {
        let detail =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid(format!("{at}.openAPIV3Schema.type"), kind, detail));
        return;
    }
    let known = |name: &str| ALLOWED.iter().any(|(allowed, _)| *allowed == name);
    if schema.as_object().into_iter().flatten().any(|(name, _)| !known(name)) {
        let names: Vec<&str> = ALLOWED.iter().map(|(_, name)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        errors.push(FieldError::invalid(
            format!("{at}.openAPIV3Schema"),
            schema.clone(),
            detail,
        ));
    }
}

fn version_errors(spec: &Value, errors: &mut Vec<FieldError>) {
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let schemas: Vec<&Value> = versions
        .iter()
        .map(|version| &version["schema"]["openAPIV3Schema"])
        .collect();
    for (index, version) in versions.iter().enumerate() {
        let at = format!("spec.versions[{index}]");
        if schemas[index].is_null() {
            errors.push(FieldError::required(format!("{at}.schema.openAPIV3Schema"), ""));
        }
        let name = version["name"].as_str().unwrap_or_default();
        let complaints = dns1035_label(name);
        if !complaints.is_empty() {
            errors.push(FieldError::invalid(format!("{at}.name"), name, complaints.join(",")));
            if index == 0 && !name.is_empty() {
                // The first version is also kept where versions had their place when there was only one.
                errors.push(FieldError::invalid("spec.version", name, complaints.join(",")));
            }
        }
    }
    let kept = match schemas.iter().all(|schema| Some(schema) == schemas.first()) {
        true => Kept::Together,
        false => Kept::Apart,
    };
    let status = versions
        .iter()
        .any(|version| version["subresources"]["status"].is_object());
    for (index, schema) in schemas.iter().enumerate().filter(|(_, schema)| !schema.is_null()) {
        let at = match kept {
            Kept::Together if index > 0 => continue,
            Kept::Together => "spec.validation".to_string(),
            Kept::Apart => format!("spec.versions[{index}].schema"),
        };
        if status {
            root_errors(schema, &at, errors);
        }
        schema_errors(schema, &format!("{at}.openAPIV3Schema"), errors);
    }
    subresource_errors(versions, errors);
    column_errors(versions, errors);
    selectable_errors(versions, kept, errors);
    let names: Vec<&Value> = versions.iter().map(|version| &version["name"]).collect();
    if names
        .iter()
        .enumerate()
        .any(|(index, name)| names[..index].contains(name))
    {
        let detail = "must contain unique version names";
        errors.push(FieldError::invalid("spec.versions", spec["versions"].clone(), detail));
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", spec["versions"].clone(), detail));
    }
}

/// Selectable fields are scalars that the schema names.
fn selectable_errors(versions: &[Value], kept: Kept, errors: &mut Vec<FieldError>) {
    for (at, version) in per_version(versions, "selectableFields") {
        let fields = version["selectableFields"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let beside = match at.as_str() {
            "spec" => Kept::Together,
            _ => Kept::Apart,
        };
        let schema = &version["schema"]["openAPIV3Schema"];
        if !fields.is_empty() && (beside != kept || schema.is_null()) {
            let detail = match beside {
                Kept::Together => "may only be set when validations.schema is included",
                // Kubernetes says the opposite of what it means.
                Kept::Apart => "may only be set when `version.schema.openAPIV3Schema` is not included",
            };
            errors.push(FieldError::invalid(format!("{at}.selectableFields"), "", detail));
            continue;
        }
        for (place, field) in fields.iter().enumerate() {
            let path = field["jsonPath"].as_str().unwrap_or_default();
            let place_at = format!("{at}.selectableFields[{place}].jsonPath");
            match selectable(path, &version["schema"]["openAPIV3Schema"]) {
                Ok(()) => {}
                Err(detail) if path.is_empty() => errors.push(FieldError::required(place_at, detail)),
                Err(detail) => errors.push(FieldError::invalid(place_at, path, detail)),
            }
        }
    }
}

/// Whether a path leads to a scalar that can be selected by.
fn selectable(path: &str, schema: &Value) -> Result<(), &'static str> {
    const UNKNOWN: &str = "is an invalid path: does not refer to a valid field";
    if path.is_empty() {
        return Err("");
    }
    let mut found = schema;
    for step in path.trim_start_matches('.').split('.') {
        found = found["properties"].get(step).ok_or(UNKNOWN)?;
    }
    if path.starts_with(".metadata") {
        return Err("must not point to fields in metadata");
    }
    let scalar = matches!(found["type"].as_str(), Some("string" | "integer" | "boolean"));
    match scalar {
        true => Ok(()),
        false => Err(
            "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
        ),
    }
}

fn schema_errors(schema: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let convertible = structural::is_convertible(schema);
    let mut found = match convertible {
        true => structural::errors(schema, at),
        false => Vec::new(),
    };
    if convertible && found.is_empty() {
        found = fallback::errors(schema, at);
    }
    let sound = convertible && found.is_empty();
    errors.extend(found);
    let mut broken = form::errors(schema, at);
    let mut schemas = Schemas::default();
    let root = super::definition::root(&mut schemas, schema);
    broken.extend(rules::form_errors(schemas.at(root), at));
    if !convertible {
        // Where a path leads is only known in a schema that can be read.
        broken.retain(|error| {
            let of_path = error.field.ends_with(".fieldPath") && error.detail == "must be a valid path";
            let below = error.field.strip_prefix(at).unwrap_or_default();
            !of_path || part(schema, below).is_some_and(structural::is_convertible)
        });
    }
    // Rules are only read where the types that they are about are sound.
    let rules = match sound {
        true => rules::compile_beside(schemas.at(root), at, &broken)
            .err()
            .unwrap_or_default(),
        false => Vec::new(),
    };
    errors.extend(broken);
    errors.extend(rules);
}

/// The part of a schema that the path of an error leads to.
fn part<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    if path.starts_with(".x-kubernetes-validations") {
        return Some(schema);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(rest) = path.strip_prefix('.').and_then(|path| path.strip_prefix(name)) {
            return part(&schema[name], rest);
        }
    }
    let rest = path.strip_prefix(".properties[")?;
    let properties = schema["properties"].as_object()?;
    properties.iter().find_map(|(name, property)| {
        let rest = rest.strip_prefix(name.as_str())?.strip_prefix(']')?;
        part(property, rest)
    })
}

fn names_errors(names: &Value, errors: &mut Vec<FieldError>) {
    let text = |field: &str| names[field].as_str().unwrap_or_default();
    for field in ["plural", "singular", "kind", "listKind"] {
        let (path, name) = (format!("spec.names.{field}"), text(field));
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let mixed = field.to_lowercase().ends_with("kind");
        let complaints = match mixed {
            true => dns1035_label(&name.to_lowercase()),
            false => dns1035_label(name),
        };
        let words = if mixed {
            "may have mixed case, but should otherwise match: "
        } else {
            ""
        };
        if !complaints.is_empty() {
            errors.push(FieldError::invalid(
                path,
                name,
                format!("{words}{}", complaints.join(",")),
            ));
        }
    }
    for field in ["shortNames", "categories"] {
        for (index, name) in strings(&names[field]).iter().enumerate() {
            let complaints = dns1035_label(name);
            if !complaints.is_empty() {
                let path = format!("spec.names.{field}[{index}]");
                errors.push(FieldError::invalid(path, name.as_str(), complaints.join(",")));
            }
        }
    }
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid("spec.names.listKind", text("listKind"), detail));
    }
}

fn stored_version_errors(definition: &Value) -> Vec<FieldError> {
    let versions = definition["spec"]["versions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let stored = strings(&definition["status"]["storedVersions"]);
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        return vec![FieldError::invalid("status.storedVersions", Value::Null, detail)];
    }
    let missing = stored
        .iter()
        .enumerate()
        .filter(|(_, stored)| !versions.iter().any(|v| v["name"] == stored.as_str()));
    missing
        .map(|(index, name)| {
            FieldError::invalid(
                format!("status.storedVersions[{index}]"),
                name.as_str(),
                format!("missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"),
            )
        })
        .collect()
}

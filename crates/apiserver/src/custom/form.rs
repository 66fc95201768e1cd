//! What a schema may not say, whether it is structural or not.

use serde_json::Value;
use stead_machinery::field::FieldError;

const KINDS: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Keywords of JSON schema that have no place here.
const UNSUPPORTED: [&str; 6] = [
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
];

/// How deep a schema is followed; deeper ones are refused for that alone.
const DEEPEST: usize = 200;

/// Why defaults are forbidden here, if they are.
type Forbidden = Option<String>;

/// Everything that is wrong with a schema and what is below it.
pub fn errors(schema: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    node(schema, at, 0, &None, &mut errors);
    errors
}

fn node(schema: &Value, at: &str, depth: usize, forbidden: &Forbidden, errors: &mut Vec<FieldError>) {
    if depth > DEEPEST || !schema.is_object() {
        return;
    }
    keywords(schema, at, forbidden, errors);
    let properties = schema["properties"].as_object();
    if let Some(values) = schema.get("additionalProperties") {
        let path = format!("{at}.additionalProperties");
        if properties.is_some_and(|properties| !properties.is_empty()) && *values != Value::Bool(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(path.clone(), detail));
        }
        node(values, &path, depth + 1, forbidden, errors);
    }
    for (name, property) in properties.into_iter().flatten() {
        let meta = matches!(name.as_str(), "metadata" | "kind" | "apiVersion");
        let forbidden = match depth == 0 && meta {
            true => Some(format!(" in top-level {name}")),
            false => forbidden.clone(),
        };
        node(
            property,
            &format!("{at}.properties[{name}]"),
            depth + 1,
            &forbidden,
            errors,
        );
    }
    node(&schema["not"], &format!("{at}.not"), depth + 1, forbidden, errors);
    for junctor in ["allOf", "oneOf", "anyOf"] {
        for (index, branch) in schema[junctor].as_array().into_iter().flatten().enumerate() {
            node(
                branch,
                &format!("{at}.{junctor}[{index}]"),
                depth + 1,
                forbidden,
                errors,
            );
        }
    }
    node(&schema["items"], &format!("{at}.items"), depth + 1, forbidden, errors);
    kinds(schema, at, errors);
    map_list(schema, at, errors);
}

fn keywords(schema: &Value, at: &str, forbidden: &Forbidden, errors: &mut Vec<FieldError>) {
    let kind = schema["type"].as_str().unwrap_or_default();
    if !kind.is_empty() && !KINDS.contains(&kind) {
        errors.push(FieldError::not_supported(format!("{at}.type"), kind, &KINDS));
    }
    if let (Some(why), Some(_)) = (forbidden, schema.get("default")) {
        errors.push(FieldError::forbidden(
            format!("{at}.default"),
            format!("must not be set{why}"),
        ));
    }
    for name in UNSUPPORTED {
        if schema.get(name).is_some_and(|value| !value.is_null() && *value != "") {
            errors.push(FieldError::forbidden(
                format!("{at}.{name}"),
                format!("{name} is not supported"),
            ));
        }
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(format!("{at}.type"), detail));
    }
    if schema["items"].is_array() {
        let detail = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{at}.items"), detail));
    }
    if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{at}.uniqueItems"), detail));
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let path = format!("{at}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(path, false, "must be true or undefined"));
    }
}

/// The extensions that want a certain type.
fn kinds(schema: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let kind = schema["type"].as_str().unwrap_or_default();
    let wrong = |errors: &mut Vec<FieldError>, detail: &str| {
        let path = format!("{at}.type");
        errors.push(match kind {
            "" => FieldError::required(path, detail),
            kind => FieldError::invalid(path, kind, detail),
        });
    };
    if let Some(topology) = schema["x-kubernetes-map-type"].as_str() {
        if kind != "object" {
            wrong(errors, "must be object if x-kubernetes-map-type is specified");
        }
        if !matches!(topology, "atomic" | "granular") {
            let path = format!("{at}.x-kubernetes-map-type");
            errors.push(FieldError::not_supported(path, topology, &["atomic", "granular"]));
        }
    }
    let Some(topology) = schema["x-kubernetes-list-type"].as_str() else {
        if schema["x-kubernetes-list-map-keys"]
            .as_array()
            .is_some_and(|keys| !keys.is_empty())
        {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            errors.push(FieldError::required(format!("{at}.x-kubernetes-list-type"), detail));
        }
        return;
    };
    let items = &schema["items"];
    if kind != "array" {
        wrong(errors, "must be array if x-kubernetes-list-type is specified");
    } else if topology == "set" {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let inner = items["x-kubernetes-list-type"].as_str();
        if items["type"] == "array" && inner.is_some_and(|inner| inner != "atomic") {
            let path = format!("{at}.items.x-kubernetes-list-type");
            errors.push(FieldError::invalid(path, inner, detail));
        }
        if items["type"] == "object" && items["x-kubernetes-map-type"] != "atomic" {
            let path = format!("{at}.items.x-kubernetes-map-type");
            errors.push(FieldError::invalid(path, inner, detail));
        }
    }
    if !matches!(topology, "atomic" | "set" | "map") {
        let path = format!("{at}.x-kubernetes-list-type");
        errors.push(FieldError::not_supported(path, topology, &["atomic", "set", "map"]));
    }
    if topology != "map"
        && schema["x-kubernetes-list-map-keys"]
            .as_array()
            .is_some_and(|keys| !keys.is_empty())
    {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(FieldError::invalid(
            format!("{at}.x-kubernetes-list-type"),
            topology,
            detail,
        ));
    }
}

/// Lists whose items have an identity.
fn map_list(schema: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let topology = schema["x-kubernetes-list-type"].as_str().unwrap_or_default();
    let items = &schema["items"];
    if topology == "map" {
        map_keys(schema, at, errors);
    }
    if !matches!(topology, "map" | "set") || !items.is_object() {
        return;
    }
    if items["nullable"] == true {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {topology}");
        errors.push(FieldError::forbidden(format!("{at}.items.nullable"), detail));
    }
    if topology != "map" {
        return;
    }
    for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten() {
        let name = key.as_str().unwrap_or_default();
        let Some(property) = items["properties"].get(name) else {
            continue;
        };
        let required = items["required"].as_array().is_some_and(|all| all.contains(key));
        let path = format!("{at}.items.properties[{name}]");
        if !required && property.get("default").is_none() {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(format!("{path}.default"), detail));
        }
        if property["nullable"] == true {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(format!("{path}.nullable"), detail));
        }
    }
}

fn map_keys(schema: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let keys = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let items = &schema["items"];
    let path = format!("{at}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(path.clone(), detail));
    }
    if items.is_null() {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{at}.items"), detail));
        return;
    }
    let kind = items["type"].as_str().unwrap_or_default();
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{at}.items.type"), kind, detail));
        return;
    }
    for (index, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        match items["properties"].get(name) {
            Some(property) if matches!(property["type"].as_str(), Some("array" | "object")) => {
                let path = format!("{at}.items.properties[{name}].type");
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(path, kind, detail));
            }
            Some(_) => {}
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(path.clone(), Value::Array(keys.clone()), detail));
            }
        }
        if keys[..index].contains(key) {
            let detail = "must not contain duplicate entries";
            errors.push(FieldError::invalid(path.clone(), Value::Array(keys.clone()), detail));
        }
    }
}

/// Formats of strings and numbers that are checked.
const FORMATS: [&str; 30] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "date-time",
    "datetime",
    "double",
    "duration",
    "email",
    "float",
    "hexcolor",
    "hostname",
    "int32",
    "int64",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "k8s-long-name",
];

/// The formats of a definition's schemas that mean nothing here, in order, each once.
pub fn unknown_formats(definition: &Value) -> Vec<String> {
    let mut found = std::collections::BTreeSet::new();
    for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
        collect_formats(&version["schema"]["openAPIV3Schema"], 0, &mut found);
    }
    found.into_iter().collect()
}

fn collect_formats(schema: &Value, depth: usize, found: &mut std::collections::BTreeSet<String>) {
    if depth > DEEPEST {
        return;
    }
    if let Some(format) = schema["format"].as_str()
        && !FORMATS.contains(&format)
        && format != "k8s-short-name"
    {
        found.insert(format.to_string());
    }
    for below in ["items", "additionalProperties", "not"] {
        if schema[below].is_object() {
            collect_formats(&schema[below], depth + 1, found);
        }
    }
    for property in schema["properties"]
        .as_object()
        .into_iter()
        .flat_map(|fields| fields.values())
    {
        collect_formats(property, depth + 1, found);
    }
    for junctor in ["allOf", "anyOf", "oneOf"] {
        for branch in schema[junctor].as_array().into_iter().flatten() {
            collect_formats(branch, depth + 1, found);
        }
    }
}

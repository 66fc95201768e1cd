//! OpenAPI v2, derived from v3: the same types and paths in the older words.
//!
//! The built-in part is made once in a process, as pieces that the custom part is appended to.

use super::{custom, documents, gnostic};
use crate::catalogue::Catalogue;
use custom::Version;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The built-in part: the inside of `definitions` and of `paths`.
struct Pieces {
    definitions: Vec<u8>,
    paths: Vec<u8>,
}

static JSON: LazyLock<Pieces> = LazyLock::new(|| {
    let (definitions, paths) = built_in();
    Pieces {
        definitions: json_entries(&definitions),
        paths: json_entries(&paths),
    }
});

static PROTOBUF: LazyLock<Pieces> = LazyLock::new(|| {
    let (definitions, paths) = built_in();
    Pieces {
        definitions: gnostic::definitions(&definitions),
        paths: gnostic::paths(&paths),
    }
});

type Named = BTreeMap<String, Value>;

/// The document as JSON.
pub fn json(catalogue: &Catalogue) -> Vec<u8> {
    let (definitions, paths) = custom_part(catalogue);
    let mut out = b"{\"swagger\":\"2.0\",\"info\":".to_vec();
    out.extend_from_slice(info().to_string().as_bytes());
    for (name, built_in, custom) in [
        ("paths", &JSON.paths, &paths),
        ("definitions", &JSON.definitions, &definitions),
    ] {
        out.extend_from_slice(format!(",\"{name}\":{{").as_bytes());
        out.extend_from_slice(built_in);
        if !custom.is_empty() {
            out.push(b',');
            out.extend_from_slice(&json_entries(custom));
        }
        out.push(b'}');
    }
    out.extend_from_slice(
        b",\"securityDefinitions\":{\"BearerToken\":{\"description\":\"Bearer Token authentication\",\
          \"type\":\"apiKey\",\"name\":\"authorization\",\"in\":\"header\"}},\"security\":[{\"BearerToken\":[]}]}",
    );
    out
}

/// The document as protobuf, in the form that kubectl and client-go ask for.
pub fn protobuf(catalogue: &Catalogue) -> Vec<u8> {
    let (definitions, paths) = custom_part(catalogue);
    let definitions = [PROTOBUF.definitions.as_slice(), &gnostic::definitions(&definitions)].concat();
    let paths = [PROTOBUF.paths.as_slice(), &gnostic::paths(&paths)].concat();
    gnostic::document(&info(), &paths, &definitions)
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": crate::catalogue::built_in::release()})
}

fn json_entries(named: &Named) -> Vec<u8> {
    let text = serde_json::to_vec(named).expect("JSON values are JSON");
    text[1..text.len() - 1].to_vec()
}

fn built_in() -> (Named, Named) {
    let parsed = documents::parsed();
    let definitions = parsed.schemas.into_iter().map(|(name, schema)| {
        let schema = definition(&name, schema);
        (name, schema)
    });
    let paths = parsed.paths.into_iter().map(|(path, item)| (path, path_item(item)));
    (definitions.collect(), paths.collect())
}

fn custom_part(catalogue: &Catalogue) -> (Named, Named) {
    let (mut definitions, mut paths) = (Named::new(), Named::new());
    for (resource, kind) in custom::custom(catalogue) {
        let (item, list) = custom::schemas(resource, kind, Version::Two);
        for (kind, schema) in [(&resource.kind, item), (&resource.list_kind, list)] {
            let name = custom::model(resource, kind);
            let schema = definition(&name, schema);
            definitions.insert(name, schema);
        }
        let items = super::paths::paths(resource).into_iter();
        paths.extend(items.map(|(path, item)| (path, path_item(item))));
    }
    (definitions, paths)
}

/// A schema in the words of version 2.
fn definition(name: &str, mut schema: Value) -> Value {
    translate(&mut schema);
    if let Value::Object(map) = &mut schema
        && (name.ends_with(".IntOrString") || name.ends_with(".Quantity"))
    {
        map.remove("oneOf");
        map.insert("type".into(), "string".into());
    }
    schema
}

fn translate(schema: &mut Value) {
    let Value::Object(map) = schema else {
        return;
    };
    map.remove("default");
    map.remove("nullable");
    let single = map
        .get("allOf")
        .and_then(|all| all.as_array())
        .filter(|all| all.len() == 1);
    if let Some(reference) = single.and_then(|all| all[0].get("$ref")).cloned() {
        map.remove("allOf");
        map.insert("$ref".into(), reference);
    }
    if let Some(Value::String(reference)) = map.get_mut("$ref") {
        *reference = reference.replace(custom::REFERENCE, "#/definitions/");
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(translate);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            translate(inner);
        }
    }
}

/// Takes from a custom resource's schema what version 2 cannot say and kubectl then misreads.
pub fn simplify(schema: &mut Value) {
    let Value::Object(map) = schema else {
        return;
    };
    for junctor in ["allOf", "oneOf", "anyOf", "not"] {
        map.remove(junctor);
    }
    let is = |map: &Map<String, Value>, key: &str| map.get(key) == Some(&Value::Bool(true));
    let open = is(map, "x-kubernetes-preserve-unknown-fields");
    let nullable = is(map, "nullable");
    if nullable {
        map.remove("type");
        map.remove("nullable");
    }
    if nullable || open {
        map.remove("items");
        map.remove("properties");
    }
    if map.get("type").is_some_and(|t| t == "array") && !map.contains_key("items") {
        map.remove("type");
    }
    if open && map.get("type").is_some_and(|t| t == "object") {
        map.remove("type");
    }
    drop_nullable_required(map);
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(simplify);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            simplify(inner);
        }
    }
}

/// A nullable property has no type any more, and kubectl would call its null a missing value.
fn drop_nullable_required(map: &mut Map<String, Value>) {
    let nullable: Vec<String> = map
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(_, property)| property["nullable"] == true)
        .map(|(name, _)| name.clone())
        .collect();
    if let Some(Value::Array(required)) = map.get_mut("required") {
        required.retain(|name| !nullable.iter().any(|n| name == n));
        if required.is_empty() {
            map.remove("required");
        }
    }
}

fn path_item(mut item: Value) -> Value {
    let Value::Object(map) = &mut item else {
        return item;
    };
    for (key, value) in map.iter_mut() {
        *value = match key.as_str() {
            "parameters" => parameters(value.take()),
            _ => operation(value.take()),
        };
    }
    item
}

fn operation(mut old: Value) -> Value {
    let mut all = Vec::new();
    let mut consumes = vec![Value::from("*/*")];
    if let Value::Object(content) = old["requestBody"]["content"].take() {
        if !content.contains_key("*/*") {
            consumes = content.keys().map(|kind| kind.as_str().into()).collect();
        }
        if let Some(mut media) = content.into_iter().next().map(|(_, media)| media) {
            translate(&mut media["schema"]);
            let mut body = json!({"name": "body", "in": "body", "schema": media["schema"]});
            if old["requestBody"]["required"] == true {
                body["required"] = true.into();
            }
            all.push(body);
        }
    }
    if let Value::Array(rest) = parameters(old["parameters"].take()) {
        all.extend(rest);
    }
    let mut produces: Vec<Value> = Vec::new();
    let mut responses = Map::new();
    for (code, mut response) in old["responses"].as_object().cloned().into_iter().flatten() {
        let mut answer = json!({"description": response["description"]});
        if let Value::Object(content) = response["content"].take() {
            if produces.is_empty() {
                produces = content.keys().map(|kind| kind.as_str().into()).collect();
            }
            if let Some(mut media) = content.into_iter().next().map(|(_, media)| media) {
                translate(&mut media["schema"]);
                answer["schema"] = media["schema"].take();
            }
        }
        responses.insert(code, answer);
    }
    let mut new = json!({"responses": responses, "schemes": ["https"], "consumes": consumes});
    if !produces.is_empty() {
        new["produces"] = produces.into();
    }
    if !all.is_empty() {
        new["parameters"] = all.into();
    }
    if let (Value::Object(old), Value::Object(new)) = (old, &mut new) {
        for (key, value) in old {
            let kept = ["tags", "description", "operationId", "deprecated"].contains(&key.as_str());
            if kept || key.starts_with("x-") {
                new.insert(key, value);
            }
        }
    }
    new
}

fn parameters(old: Value) -> Value {
    let Value::Array(old) = old else {
        return Value::Null;
    };
    let flat = old.into_iter().map(|mut parameter| {
        if let (Value::Object(schema), Value::Object(map)) = (parameter["schema"].take(), &mut parameter) {
            map.remove("schema");
            map.extend(schema);
        }
        parameter
    });
    Value::Array(flat.collect())
}

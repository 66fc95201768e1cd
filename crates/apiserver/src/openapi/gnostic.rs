//! OpenAPI v2 as protobuf, in the message types that kubectl and client-go read.
//!
//! The messages mirror the JSON, so each is a table of names and numbers; what a table does not name is a
//! vendor extension if it begins with `x-`, and left out otherwise.

use crate::protobuf::wire::{put_bytes, put_double, put_number};
use serde_json::Value;
use std::collections::BTreeMap;

/// How a member of the JSON goes into its field.
#[derive(Clone, Copy)]
enum As {
    Text,
    Flag,
    Integer,
    Double,
    /// Any JSON, as text.
    Any,
    Texts,
    Anys,
    Message(&'static Table),
    Messages(fn(&Value) -> Vec<u8>),
    /// Made by a function of its own.
    Special(fn(&Value) -> Vec<u8>),
}

struct Table {
    fields: &'static [(&'static str, u32, As)],
    extensions: u32,
}

static INFO: Table = Table {
    fields: &[
        ("title", 1, As::Text),
        ("version", 2, As::Text),
        ("description", 3, As::Text),
    ],
    extensions: 7,
};

static SCHEMA: Table = Table {
    fields: &[
        ("$ref", 1, As::Text),
        ("format", 2, As::Text),
        ("title", 3, As::Text),
        ("description", 4, As::Text),
        ("default", 5, As::Any),
        ("multipleOf", 6, As::Double),
        ("maximum", 7, As::Double),
        ("exclusiveMaximum", 8, As::Flag),
        ("minimum", 9, As::Double),
        ("exclusiveMinimum", 10, As::Flag),
        ("maxLength", 11, As::Integer),
        ("minLength", 12, As::Integer),
        ("pattern", 13, As::Text),
        ("maxItems", 14, As::Integer),
        ("minItems", 15, As::Integer),
        ("uniqueItems", 16, As::Flag),
        ("maxProperties", 17, As::Integer),
        ("minProperties", 18, As::Integer),
        ("required", 19, As::Texts),
        ("enum", 20, As::Anys),
        ("additionalProperties", 21, As::Special(additional)),
        ("type", 22, As::Special(kind)),
        ("items", 23, As::Special(items)),
        ("allOf", 24, As::Messages(schema)),
        ("properties", 25, As::Special(properties)),
        ("externalDocs", 29, As::Message(&EXTERNAL_DOCS)),
        ("example", 30, As::Any),
    ],
    extensions: 31,
};

static EXTERNAL_DOCS: Table = Table {
    fields: &[("description", 1, As::Text), ("url", 2, As::Text)],
    extensions: 3,
};

static PATH_ITEM: Table = Table {
    fields: &[
        ("get", 2, As::Message(&OPERATION)),
        ("put", 3, As::Message(&OPERATION)),
        ("post", 4, As::Message(&OPERATION)),
        ("delete", 5, As::Message(&OPERATION)),
        ("options", 6, As::Message(&OPERATION)),
        ("head", 7, As::Message(&OPERATION)),
        ("patch", 8, As::Message(&OPERATION)),
        ("parameters", 9, As::Messages(parameter)),
    ],
    extensions: 10,
};

static OPERATION: Table = Table {
    fields: &[
        ("tags", 1, As::Texts),
        ("description", 3, As::Text),
        ("operationId", 5, As::Text),
        ("produces", 6, As::Texts),
        ("consumes", 7, As::Texts),
        ("parameters", 8, As::Messages(parameter)),
        ("responses", 9, As::Special(responses)),
        ("schemes", 10, As::Texts),
        ("deprecated", 11, As::Flag),
    ],
    extensions: 13,
};

static BODY: Table = Table {
    fields: &[
        ("description", 1, As::Text),
        ("name", 2, As::Text),
        ("in", 3, As::Text),
        ("required", 4, As::Flag),
        ("schema", 5, As::Message(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY: Table = Table {
    fields: &[
        ("required", 1, As::Flag),
        ("in", 2, As::Text),
        ("description", 3, As::Text),
        ("name", 4, As::Text),
        ("type", 6, As::Text),
        ("format", 7, As::Text),
        ("uniqueItems", 20, As::Flag),
    ],
    extensions: 23,
};

static PATH: Table = Table {
    fields: &[
        ("required", 1, As::Flag),
        ("in", 2, As::Text),
        ("description", 3, As::Text),
        ("name", 4, As::Text),
        ("type", 5, As::Text),
        ("format", 6, As::Text),
        ("uniqueItems", 19, As::Flag),
    ],
    extensions: 22,
};

static RESPONSE: Table = Table {
    fields: &[("description", 1, As::Text), ("schema", 2, As::Special(schema_item))],
    extensions: 5,
};

/// The whole document around its paths and definitions.
pub fn document(info: &Value, paths: &[u8], definitions: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(paths.len() + definitions.len() + 256);
    put_bytes(&mut out, 1, b"2.0");
    put_bytes(&mut out, 2, &message(&INFO, info));
    put_bytes(&mut out, 8, paths);
    put_bytes(&mut out, 9, definitions);
    let requirement = named("BearerToken", b"");
    let mut requirements = Vec::new();
    put_bytes(&mut requirements, 1, &requirement);
    put_bytes(&mut out, 12, &requirements);
    let mut key = Vec::new();
    for (number, text) in [
        (1, "apiKey"),
        (2, "authorization"),
        (3, "header"),
        (4, "Bearer Token authentication"),
    ] {
        put_bytes(&mut key, number, text.as_bytes());
    }
    let mut item = Vec::new();
    put_bytes(&mut item, 2, &key);
    let mut definitions = Vec::new();
    put_bytes(&mut definitions, 1, &named("BearerToken", &item));
    put_bytes(&mut out, 13, &definitions);
    out
}

/// The inside of `definitions`.
pub fn definitions(named_schemas: &BTreeMap<String, Value>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in named_schemas {
        put_bytes(&mut out, 1, &named(name, &schema(value)));
    }
    out
}

/// The inside of `paths`.
pub fn paths(items: &BTreeMap<String, Value>) -> Vec<u8> {
    let mut out = Vec::new();
    for (path, value) in items {
        put_bytes(&mut out, 2, &named(path, &message(&PATH_ITEM, value)));
    }
    out
}

fn message(table: &Table, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, number, how) in table.fields {
        if let Some(value) = value.get(name) {
            put(&mut out, *number, *how, value);
        }
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        if name.starts_with("x-") {
            put_bytes(&mut out, table.extensions, &named(name, &any(value)));
        }
    }
    out
}

fn put(out: &mut Vec<u8>, number: u32, how: As, value: &Value) {
    match how {
        As::Text => put_bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        As::Flag => put_number(out, number, u64::from(value.as_bool().unwrap_or_default())),
        As::Integer => put_number(out, number, value.as_i64().unwrap_or_default() as u64),
        As::Double => put_double(out, number, value.as_f64().unwrap_or_default()),
        As::Any => put_bytes(out, number, &any(value)),
        As::Message(table) => put_bytes(out, number, &message(table, value)),
        As::Special(make) => put_bytes(out, number, &make(value)),
        As::Texts => {
            for item in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
                put_bytes(out, number, item.as_bytes());
            }
        }
        As::Anys => {
            for item in value.as_array().into_iter().flatten() {
                put_bytes(out, number, &any(item));
            }
        }
        As::Messages(make) => {
            for item in value.as_array().into_iter().flatten() {
                put_bytes(out, number, &make(item));
            }
        }
    }
}

/// A name and a value, as every map is written.
fn named(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, name.as_bytes());
    put_bytes(&mut out, 2, value);
    out
}

/// Any JSON as YAML text, of which JSON is a part.
fn any(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 2, format!("{value}\n").as_bytes());
    out
}

fn schema(value: &Value) -> Vec<u8> {
    message(&SCHEMA, value)
}

fn schema_item(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, &schema(value));
    out
}

fn kind(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, value.as_str().unwrap_or_default().as_bytes());
    out
}

fn items(value: &Value) -> Vec<u8> {
    schema_item(value)
}

fn additional(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Bool(flag) => put_number(&mut out, 2, u64::from(*flag)),
        other => put_bytes(&mut out, 1, &schema(other)),
    }
    out
}

fn properties(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, property) in value.as_object().into_iter().flatten() {
        put_bytes(&mut out, 1, &named(name, &schema(property)));
    }
    out
}

fn parameter(value: &Value) -> Vec<u8> {
    let wrap = |number: u32, inner: &[u8]| {
        let mut out = Vec::new();
        put_bytes(&mut out, number, inner);
        out
    };
    let inner = match value["in"].as_str() {
        Some("body") => wrap(1, &message(&BODY, value)),
        Some("path") => wrap(2, &wrap(4, &message(&PATH, value))),
        _ => wrap(2, &wrap(3, &message(&QUERY, value))),
    };
    wrap(1, &inner)
}

fn responses(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (code, response) in value.as_object().into_iter().flatten() {
        let mut inner = Vec::new();
        put_bytes(&mut inner, 1, &message(&RESPONSE, response));
        put_bytes(&mut out, 1, &named(code, &inner));
    }
    out
}

//! The embedded OpenAPI v3 documents of Kubernetes itself.
//!
//! Everything is inflated when it is asked for and only finished documents are kept: a server that nobody
//! asks for OpenAPI holds nothing but the embedded bytes.

use super::hash;
use crate::catalogue::built_in::{self, inflate};
use crate::discovery::Page;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;
use stead_machinery::published::{Document, Documents};

static DOCUMENTS: LazyLock<Documents> = LazyLock::new(|| {
    postcard::from_bytes(include_bytes!("../../data/documents.bin")).expect("written by the same types")
});

/// Finished documents, shared by all servers of the process.
static PAGES: Mutex<BTreeMap<String, Page>> = Mutex::new(BTreeMap::new());

static HASHES: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let pieces = |document: &Document| [document.paths.as_slice(), built_in::release().as_bytes()].concat();
    let documents = DOCUMENTS.documents.iter();
    documents
        .map(|(path, document)| (path.clone(), hash(&pieces(document))))
        .collect()
});

/// Every document's path with a hash that changes with its content.
pub fn hashes() -> &'static BTreeMap<String, String> {
    &HASHES
}

/// One document.
pub fn page(path: &str) -> Option<Page> {
    if let Some(page) = PAGES.lock().get(path) {
        return Some(page.clone());
    }
    let document = DOCUMENTS.documents.get(path)?;
    let mut page = Page::new("application/json", assemble(document));
    if let Some(hash) = HASHES.get(path) {
        page.etag = format!("\"{hash}\"");
    }
    PAGES.lock().insert(path.to_string(), page.clone());
    Some(page)
}

/// Every document with its schemas and paths as values, for the forms that are derived from them.
pub fn parsed() -> Parsed {
    let texts = texts();
    let parse = |text: &[u8]| serde_json::from_slice(text).expect("the embedded documents are JSON");
    let mut parsed = Parsed::default();
    for document in DOCUMENTS.documents.values() {
        for (name, &place) in &document.schemas {
            if !parsed.schemas.contains_key(name) {
                parsed
                    .schemas
                    .insert(name.clone(), parse(texts[place as usize].as_bytes()));
            }
        }
        let paths: Value = parse(&inflate(&document.paths));
        if let Value::Object(paths) = paths {
            parsed.paths.extend(paths);
        }
    }
    parsed
}

/// Schemas by name and path items by path.
#[derive(Default)]
pub struct Parsed {
    pub schemas: BTreeMap<String, Value>,
    pub paths: BTreeMap<String, Value>,
}

/// The schemas and paths of one document.
pub fn parsed_document(path: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let Some(page) = page(path) else {
        return parsed;
    };
    let mut value: Value = serde_json::from_slice(&page.body).expect("the embedded documents are JSON");
    if let Value::Object(schemas) = value["components"]["schemas"].take() {
        parsed.schemas.extend(schemas);
    }
    if let Value::Object(paths) = value["paths"].take() {
        parsed.paths.extend(paths);
    }
    parsed
}

fn texts() -> Vec<String> {
    postcard::from_bytes(&inflate(&DOCUMENTS.schemas)).expect("written by the same types")
}

fn assemble(document: &Document) -> String {
    let texts = texts();
    let mut out = String::from("{\"components\":{");
    if !document.schemas.is_empty() {
        out.push_str("\"schemas\":{");
        for (at, (name, &place)) in document.schemas.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(out, "{comma}\"{name}\":{}", texts[place as usize]).expect("a string takes everything");
        }
        out.push_str("},");
    }
    out.push_str(
        "\"securitySchemes\":{\"BearerToken\":{\"description\":\"Bearer Token authentication\",\
         \"in\":\"header\",\"name\":\"authorization\",\"type\":\"apiKey\"}}},",
    );
    let release = built_in::release();
    write!(out, "\"info\":{{\"title\":\"Kubernetes\",\"version\":\"{release}\"}},").expect("a string takes everything");
    out.push_str("\"openapi\":\"3.0.0\",\"paths\":");
    out.push_str(&String::from_utf8_lossy(&inflate(&document.paths)));
    out.push('}');
    out
}

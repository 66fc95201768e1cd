//! The OpenAPI v3 documents with everything that `kubectl explain` shows, each schema once.

use super::openapi::{Files, schemas};
use super::{deflate, encode};
use anyhow::Result;
use std::collections::{BTreeMap, HashMap};
use stead_machinery::published::{Document, Documents};

/// Cuts documents into shared schemas and the paths of each.
pub fn cut(files: &Files) -> Result<Documents> {
    let mut texts: Vec<String> = Vec::new();
    let mut places: HashMap<String, u32> = HashMap::new();
    let mut documents = BTreeMap::new();
    for (path, file) in files {
        let mut document = Document {
            paths: deflate(file["paths"].to_string().as_bytes())?,
            ..Document::default()
        };
        for (name, schema) in schemas(file) {
            let text = schema.to_string();
            let next = texts.len() as u32;
            let place = *places.entry(text.clone()).or_insert(next);
            if place == next {
                texts.push(text);
            }
            document.schemas.insert(name.clone(), place);
        }
        documents.insert(path.clone(), document);
    }
    Ok(Documents {
        documents,
        schemas: deflate(&encode(&texts)?)?,
    })
}

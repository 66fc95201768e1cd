//! The types of kinds, from the schemas that the API server publishes.

use super::kinds::Kind;
use crate::controllers::discovery;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use stead::Error;
use stead_cel::Type;
use stead_cel::decl::{Decl, Place, type_of};
use stead_machinery::schema::Schemas;

/// Where a document has its types.
const PREFIX: &str = "#/components/schemas/";

/// The documents of one check, each read once.
pub struct Published<'a> {
    client: &'a kube::Client,
    documents: BTreeMap<String, Document>,
}

/// What is published of one version of a group.
pub struct Document(pub Value);

impl<'a> Published<'a> {
    pub fn new(client: &'a kube::Client) -> Self {
        Published {
            client,
            documents: BTreeMap::new(),
        }
    }

    /// The type of a kind, or `None` where no schema is published for it.
    pub async fn type_of(&mut self, kind: &Kind) -> Result<Option<Type>, Error> {
        let Kind { group, version, .. } = kind;
        let path = match group.as_str() {
            "" => format!("/openapi/v3/api/{version}"),
            group => format!("/openapi/v3/apis/{group}/{version}"),
        };
        if !self.documents.contains_key(&path) {
            let document = Document(discovery::get(self.client, &path).await?);
            self.documents.insert(path.clone(), document);
        }
        Ok(self.documents.get(&path).and_then(|document| document.type_of(kind)))
    }
}

impl Document {
    pub fn type_of(&self, kind: &Kind) -> Option<Type> {
        let wanted = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let schemas = self.0["components"]["schemas"].as_object()?;
        let (name, schema) = schemas.iter().find(|(_, schema)| {
            let named = schema["x-kubernetes-group-version-kind"].as_array();
            named.is_some_and(|named| named.contains(&wanted))
        })?;
        let whole = resolved(schema, schemas, &mut vec![name.clone()]);
        let mut read = Schemas::default();
        let root = read.read(&whole);
        // A published root says all of its metadata.
        let decl = Decl::of_schema(read.at(root), Place::Inside, &kind.kind);
        Some(decl.map_or(Type::Dyn, |decl| type_of(&decl)))
    }
}

/// A schema with all that it refers to in its place. What refers to itself is an object of which nothing is known.
fn resolved(schema: &Value, schemas: &Map<String, Value>, visited: &mut Vec<String>) -> Value {
    // A reference with words of its own beside it stands in a list of one.
    let alone = schema["allOf"].as_array().filter(|all| all.len() == 1);
    let reference = schema["$ref"].as_str().or_else(|| alone?[0]["$ref"].as_str());
    let Some(name) = reference.and_then(|reference| reference.strip_prefix(PREFIX)) else {
        return inner(schema, schemas, visited);
    };
    if visited.iter().any(|known| known == name) {
        return json!({"type": "object"});
    }
    let Some(found) = schemas.get(name) else {
        return json!({});
    };
    visited.push(name.to_string());
    let whole = inner(found, schemas, visited);
    visited.pop();
    whole
}

fn inner(schema: &Value, schemas: &Map<String, Value>, visited: &mut Vec<String>) -> Value {
    let mut whole = schema.clone();
    let Some(fields) = whole.as_object_mut() else {
        return whole;
    };
    // Built-in kinds say by a format what custom resources say by a mark of its own.
    if fields.get("format").is_some_and(|format| format == "int-or-string") {
        fields.insert("x-kubernetes-int-or-string".to_string(), true.into());
    }
    for (name, field) in fields {
        match (name.as_str(), field) {
            ("properties", Value::Object(properties)) => {
                for property in properties.values_mut() {
                    *property = resolved(property, schemas, visited);
                }
            }
            ("items" | "additionalProperties", field @ Value::Object(_)) => {
                *field = resolved(field, schemas, visited);
            }
            _ => {}
        }
    }
    whole
}

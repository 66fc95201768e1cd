//! From OpenAPI v3 documents to one arena of nodes.
//!
//! Leaves, lists and maps that look the same are one node: most fields of the API are plain strings, and
//! an arena without copies loads in a fraction of the time.

use super::resources::parse;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use stead_machinery::published::{Api, Group};
use stead_machinery::schema::{
    Constraints, Format, List, Node, NodeId, Object, PatchStrategy, Property, Schemas, Shape, Topology,
};

/// Path below `/openapi/v3/` to its document.
pub type Files = BTreeMap<String, Value>;

/// The documents of every served group and version, and of the paths above them.
pub fn read(folder: &Path, groups: &[Group]) -> Result<Files> {
    let mut paths: Vec<String> = ["api", "apis", "version", "openid/v1/jwks"].map(String::from).into();
    for group in groups {
        let prefix = match group.name.as_str() {
            "" => "api".to_string(),
            name => format!("apis/{name}"),
        };
        paths.extend(group.versions.iter().map(|v| format!("{prefix}/{}", v.name)));
        paths.push(prefix);
    }
    let mut files = Files::new();
    for path in paths {
        let file = folder.join(format!("{}_openapi.json", path.replace('/', "__")));
        files.insert(path, parse(&file)?);
    }
    Ok(files)
}

/// The schemas of a document by name.
pub fn schemas(document: &Value) -> impl Iterator<Item = (&String, &Value)> {
    document["components"]["schemas"].as_object().into_iter().flatten()
}

/// Puts the schemas of all documents into one arena.
pub fn convert(files: &Files, groups: Vec<Group>, release: String) -> Result<Api> {
    let mut arena = Arena::default();
    let mut kinds = BTreeMap::new();
    let mut all: BTreeMap<&String, &Value> = BTreeMap::new();
    for (name, schema) in files.values().flat_map(schemas) {
        all.insert(name, schema);
    }
    for name in all.keys() {
        let place = arena.schemas.add(Node::of(Shape::Any));
        arena.types.insert((*name).clone(), place);
        arena.schemas.name((*name).clone(), place);
    }
    // In the order of references: a type is complete before a property changes a copy of it.
    for (name, schema) in &all {
        let shape = arena.named(name, schema).with_context(|| format!("schema {name}"))?;
        arena.schemas.set(arena.types[*name], shape);
        for gvk in schema["x-kubernetes-group-version-kind"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let part = |key: &str| gvk[key].as_str().unwrap_or_default().to_string();
            let key = (part("group"), part("version"), part("kind"));
            let place = arena.types[*name];
            // Options are listed under every group; the core group's entry stands for all.
            let options = name.contains(".apimachinery.");
            if !options || key.0.is_empty() {
                kinds.insert(key, place);
            }
        }
    }
    arena.apply_overrides()?;
    for group in &groups {
        for version in &group.versions {
            for resource in version.resources.iter().filter(|r| !r.name.contains('/')) {
                let key = (group.name.clone(), version.name.clone(), resource.kind.clone());
                if !kinds.contains_key(&key) {
                    bail!("{} {key:?} has no schema", resource.name);
                }
            }
        }
    }
    Ok(Api {
        release,
        schemas: arena.schemas,
        kinds,
        groups,
    })
}

#[derive(Default)]
struct Arena {
    schemas: Schemas,
    types: HashMap<String, NodeId>,
    seen: HashMap<Vec<u8>, NodeId>,
    /// Copies of a type that differ in being atomic: the copy's place, the type, and whether it is.
    overrides: Vec<(NodeId, NodeId, bool)>,
}

impl Arena {
    fn named(&mut self, name: &str, schema: &Value) -> Result<Node> {
        let short = name.rsplit('.').next().unwrap_or(name);
        let shape = match short {
            "IntOrString" => Shape::IntOrString,
            "Quantity" => Shape::Quantity,
            "RawExtension" | "FieldsV1" | "Patch" => Shape::Any,
            _ => return self.node(schema),
        };
        Ok(Node::of(shape))
    }

    fn node(&mut self, schema: &Value) -> Result<Node> {
        let format = schema["format"].as_str();
        let shape = match schema["type"].as_str() {
            Some("object") => Shape::Object(self.object(schema)?),
            Some("array") => Shape::List(List {
                items: self.place(&schema["items"])?,
                topology: topology(schema)?,
            }),
            Some("string") => Shape::String(match format {
                None => Format::Plain,
                Some("byte") => Format::Byte,
                Some("date-time") => Format::DateTime,
                Some(other) => Format::Other(other.into()),
            }),
            Some("integer") => Shape::Integer,
            Some("number") => Shape::Number,
            Some("boolean") => Shape::Boolean,
            None => Shape::Any,
            Some(other) => bail!("type {other} is new"),
        };
        let mut node = Node::of(shape);
        if let (Shape::Integer | Shape::Number, Some(format)) = (&node.shape, format) {
            node.constraints = Some(Box::new(Constraints {
                format: Some(format.into()),
                ..Constraints::default()
            }));
        }
        node.default = real_default(&schema["default"]).map(|text| text.into());
        Ok(node)
    }

    /// The place of a schema that is used somewhere: a named type's own, or that of an equal anonymous node.
    fn place(&mut self, schema: &Value) -> Result<NodeId> {
        let reference = schema["allOf"][0]["$ref"].as_str().or(schema["$ref"].as_str());
        if let Some(reference) = reference {
            let name = reference.rsplit('/').next().unwrap_or(reference);
            let target = *self
                .types
                .get(name)
                .with_context(|| format!("{reference} is nowhere"))?;
            let Some(kind) = schema["x-kubernetes-map-type"].as_str() else {
                return Ok(target);
            };
            let copy = self.schemas.add(Node::of(Shape::Any));
            self.overrides.push((copy, target, kind == "atomic"));
            return Ok(copy);
        }
        let node = self.node(schema)?;
        let key = postcard::to_stdvec(&node)?;
        if let Some(&place) = self.seen.get(&key) {
            return Ok(place);
        }
        let place = self.schemas.add(node);
        self.seen.insert(key, place);
        Ok(place)
    }

    fn object(&mut self, schema: &Value) -> Result<Object> {
        let mut object = Object {
            atomic: schema["x-kubernetes-map-type"] == "atomic",
            ..Object::default()
        };
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let strategies: Vec<&str> = property["x-kubernetes-patch-strategy"]
                .as_str()
                .unwrap_or_default()
                .split(',')
                .collect();
            let property = Property {
                node: self.place(property).with_context(|| format!("property {name}"))?,
                required: required.contains(&name.as_str()),
                by_value: property["default"].as_object().is_some_and(serde_json::Map::is_empty),
                patch: PatchStrategy {
                    merge: strategies.contains(&"merge"),
                    retain_keys: strategies.contains(&"retainKeys"),
                    merge_key: property["x-kubernetes-patch-merge-key"].as_str().map(Into::into),
                },
            };
            object.properties.insert(name.as_str().into(), property);
        }
        let additional = &schema["additionalProperties"];
        if additional.is_object() {
            object.additional = Some(self.place(additional)?);
        }
        Ok(object)
    }

    fn apply_overrides(&mut self) -> Result<()> {
        for (copy, target, atomic) in std::mem::take(&mut self.overrides) {
            let mut node = self.schemas.at(target).node().clone();
            match &mut node.shape {
                Shape::Object(object) => object.atomic = atomic,
                other => bail!("a map type on {other:?}"),
            }
            self.schemas.set(copy, node);
        }
        Ok(())
    }
}

fn topology(schema: &Value) -> Result<Topology> {
    Ok(match schema["x-kubernetes-list-type"].as_str() {
        None | Some("atomic") => Topology::Atomic,
        Some("set") => Topology::Set,
        Some("map") => Topology::Map(
            schema["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(Into::into)
                .collect(),
        ),
        Some(other) => bail!("list type {other} is new"),
    })
}

/// The published `default`s are nearly all Go's zero values, which nobody applies.
fn real_default(value: &Value) -> Option<String> {
    let zero = match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    (!zero).then(|| value.to_string())
}

//! A stored definition as the resources that it adds.

use super::{Converter, CustomKind, GROUP, PLURAL, PrinterColumn, ScalePaths};
use crate::catalogue::{Origin, Resource, Subresource, built_in};
use crate::store::{Prefix, Record, Revision, View};
use crate::verbs::object::strings;
use serde_json::Value;
use std::sync::Arc;
use stead_cel::rules;
use stead_machinery::schema::{Node, NodeId, Object, PatchStrategy, Property, Schemas, Shape};

/// A definition and what it adds to the catalogue.
#[derive(Debug)]
pub struct Definition {
    pub name: String,
    pub group: String,
    /// All names that its resources and kinds answer to, once they are accepted.
    pub accepted: Names,
    /// One for each served version; none until the definition is established.
    pub resources: Vec<Arc<Resource>>,
}

/// The names of a definition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub kind: String,
    pub list_kind: String,
    pub categories: Vec<String>,
}

/// All definitions, parsed once each time that one changes.
pub fn definitions() -> View<Definition> {
    View::new(Prefix::resource(format!("{GROUP}/{PLURAL}")), |record: &Record| {
        Some(Definition::parse(&record.value(), record.revision))
    })
}

impl Names {
    /// Reads `spec.names` or `status.acceptedNames`.
    pub fn read(names: &Value) -> Self {
        let text = |field: &str| names[field].as_str().unwrap_or_default().to_string();
        Names {
            plural: text("plural"),
            singular: text("singular"),
            short_names: strings(&names["shortNames"]),
            kind: text("kind"),
            list_kind: text("listKind"),
            categories: strings(&names["categories"]),
        }
    }
}

impl Definition {
    pub fn parse(object: &Value, since: Revision) -> Self {
        let accepted = Names::read(&object["status"]["acceptedNames"]);
        let spec = &object["spec"];
        let mut definition = Definition {
            name: object["metadata"]["name"].as_str().unwrap_or_default().to_string(),
            group: spec["group"].as_str().unwrap_or_default().to_string(),
            accepted,
            resources: Vec::new(),
        };
        if is_true(object, "Established") {
            let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
            let storage = versions.iter().find(|version| version["storage"] == true);
            let storage = storage.map_or(&Value::Null, |version| &version["name"]);
            let storage = storage.as_str().unwrap_or_default();
            let (served, unserved): (Vec<_>, Vec<_>) = versions.iter().partition(|version| version["served"] == true);
            let all = |versions: Vec<&Value>, unserved: Arc<[Arc<Resource>]>| -> Vec<Arc<Resource>> {
                let made = versions.into_iter().map(|version| {
                    let mut kind = custom_kind(object, &definition, version, storage);
                    kind.since = since;
                    kind.unserved = unserved.clone();
                    Arc::new(resource(object, &definition, version, kind))
                });
                made.collect()
            };
            let unserved = all(unserved, Arc::default()).into();
            definition.resources = all(served, unserved);
        }
        definition
    }
}

/// Whether a condition of the definition's status holds.
pub fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|c| c["type"] == condition && c["status"] == "True")
}

/// What a version of the definition says beyond names and schema.
fn custom_kind(object: &Value, definition: &Definition, version: &Value, storage: &str) -> CustomKind {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let schema = version["schema"]["openAPIV3Schema"].clone();
    CustomKind {
        definition: definition.name.clone(),
        columns: columns(version),
        selectable_fields: strings_at(&version["selectableFields"], "jsonPath"),
        scale: ScalePaths {
            spec_replicas: text(&version["subresources"]["scale"]["specReplicasPath"]),
            status_replicas: text(&version["subresources"]["scale"]["statusReplicasPath"]),
            selector: text(&version["subresources"]["scale"]["labelSelectorPath"]),
        },
        storage_version: storage.to_string(),
        rules: None,
        terminating: is_true(object, "Terminating"),
        unserved: Arc::default(),
        deprecation: deprecation(definition, version),
        converter: Converter::of(&object["spec"]["conversion"]),
        since: Revision::default(),
        schema,
    }
}

fn resource(object: &Value, definition: &Definition, version: &Value, mut custom: CustomKind) -> Resource {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let names = &definition.accepted;
    let mut schemas = Schemas::default();
    let root = root(&mut schemas, &custom.schema);
    // What does not compile was refused when the definition was written.
    custom.rules = rules::compile(schemas.at(root), "")
        .ok()
        .filter(|rules| !rules.is_empty());
    let namespaced = object["spec"]["scope"] == "Namespaced";
    let own = |name: &str| Subresource {
        name: name.to_string(),
        group: definition.group.clone(),
        version: text(&version["name"]),
        kind: names.kind.clone(),
        verbs: ["get", "patch", "update"].map(String::from).into(),
    };
    let mut subresources = Vec::new();
    if version["subresources"]["status"].is_object() {
        subresources.push(own("status"));
    }
    if version["subresources"]["scale"].is_object() {
        let (group, version, kind) = ("autoscaling".to_string(), "v1".to_string(), "Scale".to_string());
        subresources.push(Subresource {
            group,
            version,
            kind,
            ..own("scale")
        });
    }
    Resource {
        group: definition.group.clone(),
        version: text(&version["name"]),
        plural: names.plural.clone(),
        singular: names.singular.clone(),
        kind: names.kind.clone(),
        list_kind: names.list_kind.clone(),
        short_names: names.short_names.clone(),
        categories: names.categories.clone(),
        namespaced,
        verbs: [
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch",
        ]
        .map(String::from)
        .into(),
        subresources,
        schemas: Arc::new(schemas),
        root,
        origin: Origin::Custom(Arc::new(custom)),
    }
}

/// The schema of an object: what the definition says, with the fields that every object has.
pub(super) fn root(schemas: &mut Schemas, schema: &Value) -> NodeId {
    let root = schemas.read(schema);
    let mut node = schemas.at(root).node().clone();
    if !matches!(node.shape, Shape::Object(_)) {
        // A definition without a schema, or with one that says nothing: everything is kept.
        node.shape = Shape::Object(Object {
            preserve_unknown: true,
            ..Object::default()
        });
    }
    schemas.set(root, node);
    let metadata = built_in::schemas().named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let metadata = metadata.map(|metadata| schemas.graft(metadata));
    let string = schemas.add(Node::of(Shape::String(stead_machinery::schema::Format::Plain)));
    // What is embedded is a resource too.
    for place in schemas.embedded_resources().into_iter().chain([root]) {
        let mut node = schemas.at(place).node().clone();
        if let Shape::Object(object) = &mut node.shape {
            add_identity(object, metadata, string);
        }
        schemas.set(place, node);
    }
    root
}

/// The fields that every resource has.
fn add_identity(object: &mut Object, metadata: Option<NodeId>, string: NodeId) {
    let types = [
        ("apiVersion", Some(string)),
        ("kind", Some(string)),
        ("metadata", metadata),
    ];
    for (name, place) in types {
        let required = object.properties.get(name).is_some_and(|property| property.required);
        if let Some(node) = place {
            let property = Property {
                node,
                required,
                by_value: false,
                patch: PatchStrategy::default(),
            };
            object.properties.insert(name.into(), property);
        }
    }
}

fn columns(version: &Value) -> Vec<PrinterColumn> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
    let columns: Vec<PrinterColumn> = columns
        .into_iter()
        .map(|column| PrinterColumn {
            name: text(&column["name"]),
            kind: text(&column["type"]),
            format: text(&column["format"]),
            description: text(&column["description"]),
            priority: column["priority"].as_i64().unwrap_or(0),
            json_path: text(&column["jsonPath"]),
        })
        .collect();
    if !columns.is_empty() {
        return columns;
    }
    vec![PrinterColumn {
        name: "Age".to_string(),
        kind: "date".to_string(),
        description: "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata".to_string(),
        json_path: ".metadata.creationTimestamp".to_string(),
        ..PrinterColumn::default()
    }]
}

fn deprecation(definition: &Definition, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    let (group, kind) = (&definition.group, &definition.accepted.kind);
    let name = version["name"].as_str().unwrap_or_default();
    let words = version["deprecationWarning"].as_str().map(str::to_string);
    Some(words.unwrap_or_else(|| format!("{group}/{name} {kind} is deprecated")))
}

fn strings_at(list: &Value, field: &str) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items
        .filter_map(|item| item[field].as_str().map(str::to_string))
        .collect()
}

/// Whether a schema has this keyword anywhere.
pub(super) fn mentions(schema: &Value, keyword: &str) -> bool {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| name == keyword || mentions(value, keyword)),
        Value::Array(items) => items.iter().any(|item| mentions(item, keyword)),
        _ => false,
    }
}

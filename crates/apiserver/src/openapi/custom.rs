//! OpenAPI v3 documents of custom resources, one for each group and version.

use super::paths::{META, SHARED, paths};
use crate::catalogue::{Catalogue, Origin, Resource};
use crate::custom::CustomKind;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub const REFERENCE: &str = "#/components/schemas/";

/// Path below `/openapi/v3/` to the document of that group and version.
pub fn documents(catalogue: &Catalogue) -> BTreeMap<String, Value> {
    let mut documents: BTreeMap<String, Value> = BTreeMap::new();
    for (resource, kind) in custom(catalogue) {
        let path = format!("apis/{}/{}", resource.group, resource.version);
        let document = documents.entry(path).or_insert_with(|| {
            json!({
                "components": {"schemas": SHARED.schemas},
                "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
                "openapi": "3.0.0", "paths": {},
            })
        });
        let (item, list) = schemas(resource, kind, Version::Three);
        document["components"]["schemas"][model(resource, &resource.kind)] = item;
        document["components"]["schemas"][model(resource, &resource.list_kind)] = list;
        for (path, operations) in paths(resource) {
            document["paths"][path] = operations;
        }
    }
    documents
}

/// The custom resources of a catalogue.
pub fn custom(catalogue: &Catalogue) -> impl Iterator<Item = (&Resource, &CustomKind)> {
    catalogue.iter().filter_map(|resource| match &resource.origin {
        Origin::BuiltIn => None,
        Origin::Custom(kind) => Some((resource.as_ref(), kind.as_ref())),
    })
}

/// `com.example.stable.v1.CronTab`.
pub fn model(resource: &Resource, kind: &str) -> String {
    let mut parts: Vec<&str> = resource.group.split('.').collect();
    parts.reverse();
    format!("{}.{}.{kind}", parts.join("."), resource.version)
}

/// Which OpenAPI a schema is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    Two,
    Three,
}

/// The schemas of a custom kind and of its list, with references as version 3 writes them.
pub fn schemas(resource: &Resource, kind: &CustomKind, version: Version) -> (Value, Value) {
    let gvk = |kind: &str| json!([{"group": resource.group, "version": resource.version, "kind": kind}]);
    let mut item = match &kind.schema {
        Value::Object(_) => kind.schema.clone(),
        _ => json!({"type": "object"}),
    };
    let open = item["x-kubernetes-preserve-unknown-fields"] == true;
    if kind.schema.is_null() || (version == Version::Two && open) {
        // kubectl would take named properties for all there are.
        item = json!({"type": "object"});
    } else {
        if version == Version::Two {
            super::v2::simplify(&mut item);
        }
        refine(&mut item, version);
        add_properties(&mut item, Meta::Root);
    }
    item["x-kubernetes-group-version-kind"] = gvk(&resource.kind);
    if version == Version::Three && !kind.selectable_fields.is_empty() {
        let fields = kind.selectable_fields.iter();
        let fields: Vec<Value> = fields
            .map(|f| json!({"fieldPath": f.trim_start_matches('.')}))
            .collect();
        item["x-kubernetes-selectable-fields"] = fields.into();
    }
    let mut list = json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object", "required": ["items"],
        "properties": {
            "items": {
                "description": format!(
                    "List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
                    resource.plural
                ),
                "type": "array",
                "items": {"$ref": format!("{REFERENCE}{}", model(resource, &resource.kind))},
            },
        },
        "x-kubernetes-group-version-kind": gvk(&resource.list_kind),
    });
    add_properties(&mut list, Meta::List);
    (item, list)
}

/// Adds what the server knows beside the definition: embedded objects have metadata, an int-or-string is either.
fn refine(schema: &mut Value, version: Version) {
    let Value::Object(map) = schema else {
        return;
    };
    if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) && version == Version::Three {
        let either = || json!([{"type": "integer"}, {"type": "string"}]);
        let stated = map.get("anyOf").is_some() || map.get("allOf").is_some();
        if !stated {
            map.insert("anyOf".into(), either());
        }
    }
    for key in ["properties", "patternProperties"] {
        if let Some(Value::Object(properties)) = map.get_mut(key) {
            properties.values_mut().for_each(|property| refine(property, version));
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            refine(inner, version);
        }
    }
    let open = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    let embedded = map.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    if embedded && !(open && version == Version::Two) {
        add_properties(schema, Meta::Embedded);
    }
}

/// Where the three properties of every object go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meta {
    Root,
    List,
    Embedded,
}

fn add_properties(schema: &mut Value, place: Meta) {
    const CONVENTIONS: &str =
        "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
    let Value::Object(map) = schema else {
        return;
    };
    let properties = map.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    let (api_version, kind) = match place {
        Meta::Embedded => (
            "apiVersion defines the versioned schema of this representation of an object.",
            "kind is a string value representing the type of this object. In CamelCase.",
        ),
        Meta::Root | Meta::List => (
            "APIVersion defines the versioned schema of this representation of an object. Servers should convert \
             recognized schemas to the latest internal value, and may reject unrecognized values.",
            "Kind is a string value representing the REST resource this object represents. Servers may infer this \
             from the endpoint the client submits requests to. Cannot be updated. In CamelCase.",
        ),
    };
    let (metadata, anchor, target) = match place {
        Meta::List => ("Standard list metadata.", "types-kinds", "ListMeta"),
        Meta::Root | Meta::Embedded => ("Standard object's metadata.", "metadata", "ObjectMeta"),
    };
    properties["apiVersion"] =
        json!({"description": format!("{api_version} {CONVENTIONS}#resources"), "type": "string"});
    properties["kind"] = json!({"description": format!("{kind} {CONVENTIONS}#types-kinds"), "type": "string"});
    properties["metadata"] = json!({
        "description": format!("{metadata} {CONVENTIONS}#{anchor}"),
        "allOf": [{"$ref": format!("{REFERENCE}{META}{target}")}],
    });
    if place == Meta::Embedded {
        let required = map.entry("required").or_insert_with(|| json!([]));
        for name in ["kind", "apiVersion"] {
            if let Value::Array(names) = required
                && !names.iter().any(|n| n == name)
            {
                names.push(name.into());
            }
        }
    }
}

//! The shape of an API object, for built-in kinds and custom resources alike.
//!
//! Merging, pruning, defaulting and patching all walk this one structure, so a rule is written once
//! and holds for every kind. A schema is an arena of nodes because API types refer to themselves
//! (`JSONSchemaProps` does), and because the built-in table loads as one flat value.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

mod read;

/// An arena of nodes, and the named types among them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Schemas {
    nodes: Vec<Node>,
    /// Type name (such as `io.k8s.api.core.v1.Pod`) to its node.
    names: BTreeMap<String, NodeId>,
}

/// A node's place in its arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// One type of the schema: its shape and what the API server does with values of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub shape: Shape,
    pub description: Box<str>,
    /// JSON text of the default. Built-in kinds have theirs in code; here are those of custom resources.
    pub default: Option<Box<str>>,
    pub nullable: bool,
    /// Value validation of custom resources; `None` for nearly every built-in node.
    pub constraints: Option<Box<Constraints>>,
}

/// What a value looks like, and how it merges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Shape {
    /// Anything at all; merged as one piece (a `RawExtension`, a schemaless field).
    Any,
    /// A struct or a map. Both can be present in custom resources (`properties` is then empty or `additional` is).
    Object(Object),
    List(List),
    String(Format),
    Integer,
    Number,
    Boolean,
    IntOrString,
    /// `resource.Quantity`: a string or a number on the way in, a canonical string on the way out.
    Quantity,
    /// Anything at all whose objects merge by field (`x-kubernetes-preserve-unknown-fields` without a type).
    Free,
}

impl Shape {
    /// The `type` that a schema in JSON has for this shape; `None` where it has none, or more than one.
    pub fn type_name(&self) -> Option<&'static str> {
        match self {
            Shape::Object(_) => Some("object"),
            Shape::List(_) => Some("array"),
            Shape::String(_) => Some("string"),
            Shape::Integer => Some("integer"),
            Shape::Number => Some("number"),
            Shape::Boolean => Some("boolean"),
            Shape::Any | Shape::Free | Shape::IntOrString | Shape::Quantity => None,
        }
    }
}

/// String formats that change how a value is read or written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    Plain,
    /// `[]byte`: base64 in JSON.
    Byte,
    DateTime,
    Other(Box<str>),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Object {
    pub properties: BTreeMap<Box<str>, Property>,
    /// The type of the values of a map.
    pub additional: Option<NodeId>,
    /// `x-kubernetes-map-type: atomic` (or struct type atomic): owned and replaced as one piece.
    pub atomic: bool,
    /// `x-kubernetes-preserve-unknown-fields`: what the schema does not name is kept.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`: has apiVersion, kind and metadata of its own.
    pub embedded_resource: bool,
    /// The schema names fields but does not say that it is an object, so expressions do not see it.
    #[serde(skip)]
    pub untyped: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Property {
    pub node: NodeId,
    pub required: bool,
    /// A struct that built-in kinds hold by value: it is there, if empty, before anybody sets it.
    pub by_value: bool,
    /// `x-kubernetes-patch-strategy` of this field, used by strategic merge patch.
    pub patch: PatchStrategy,
}

/// How strategic merge patch treats a field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchStrategy {
    pub merge: bool,
    pub retain_keys: bool,
    /// `x-kubernetes-patch-merge-key`.
    pub merge_key: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct List {
    pub items: NodeId,
    pub topology: Topology,
}

/// How the items of a list are identified (`x-kubernetes-list-type`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Topology {
    /// Replaced as one piece.
    Atomic,
    /// Items are their own identity.
    Set,
    /// Items are identified by these fields.
    Map(Vec<Box<str>>),
}

/// Value validation of a custom resource's node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Constraints {
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub pattern: Option<Box<str>>,
    pub format: Option<Box<str>>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    /// JSON texts of the allowed values; empty: any.
    pub one_of_values: Vec<Box<str>>,
    /// `allOf`, `anyOf`, `oneOf`, `not`: kept as nodes that constrain but do not shape.
    pub all_of: Vec<NodeId>,
    pub any_of: Vec<NodeId>,
    pub one_of: Vec<NodeId>,
    pub not: Option<NodeId>,
    /// `x-kubernetes-validations`.
    pub rules: Vec<Rule>,
    /// The fields that an object must have.
    pub required: Vec<Box<str>>,
}

/// One CEL rule of `x-kubernetes-validations`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub rule: Box<str>,
    pub message: Option<Box<str>>,
    pub message_expression: Option<Box<str>>,
    pub reason: Option<Box<str>>,
    pub field_path: Option<Box<str>>,
    pub optional_old_self: bool,
}

impl Schemas {
    /// Adds a node and tells where it is.
    pub fn add(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node);
        id
    }

    /// Puts a node in a place reserved earlier, so that recursive types can refer to themselves.
    pub fn set(&mut self, id: NodeId, node: Node) {
        self.nodes[id.0 as usize] = node;
    }

    /// The places of all resources inside other resources.
    pub fn embedded_resources(&self) -> Vec<NodeId> {
        let embedded = |node: &Node| matches!(&node.shape, Shape::Object(object) if object.embedded_resource);
        let places = self.nodes.iter().enumerate().filter(|(_, node)| embedded(node));
        places.map(|(at, _)| NodeId(at as u32)).collect()
    }

    /// Gives a node a type name.
    pub fn name(&mut self, name: impl Into<String>, id: NodeId) {
        self.names.insert(name.into(), id);
    }

    /// The type with this name.
    pub fn named(&self, name: &str) -> Option<SchemaRef<'_>> {
        self.names.get(name).map(|&id| SchemaRef { arena: self, id })
    }

    /// The name of the type at this place, if it has one.
    pub fn name_of(&self, id: NodeId) -> Option<&str> {
        self.names
            .iter()
            .find(|(_, named)| **named == id)
            .map(|(name, _)| name.as_str())
    }

    /// Every named type.
    pub fn names(&self) -> impl Iterator<Item = (&str, SchemaRef<'_>)> {
        self.names
            .iter()
            .map(|(name, &id)| (name.as_str(), SchemaRef { arena: self, id }))
    }

    /// The node at this place.
    pub fn at(&self, id: NodeId) -> SchemaRef<'_> {
        SchemaRef { arena: self, id }
    }
}

impl Node {
    /// A node of this shape with nothing else said about it.
    pub fn of(shape: Shape) -> Self {
        Node {
            shape,
            description: "".into(),
            default: None,
            nullable: false,
            constraints: None,
        }
    }
}

/// A node together with its arena: what every walk over a schema carries.
#[derive(Debug, Clone, Copy)]
pub struct SchemaRef<'a> {
    arena: &'a Schemas,
    id: NodeId,
}

impl<'a> SchemaRef<'a> {
    pub fn id(self) -> NodeId {
        self.id
    }

    pub fn arena(self) -> &'a Schemas {
        self.arena
    }

    pub fn node(self) -> &'a Node {
        &self.arena.nodes[self.id.0 as usize]
    }

    pub fn shape(self) -> &'a Shape {
        &self.node().shape
    }

    /// Another node of the same arena.
    pub fn go(self, id: NodeId) -> SchemaRef<'a> {
        SchemaRef { arena: self.arena, id }
    }

    /// The schema of a field of a struct, or of a value of a map; `None` where the schema does not say.
    pub fn field(self, name: &str) -> Option<SchemaRef<'a>> {
        match self.shape() {
            Shape::Object(object) => object
                .properties
                .get(name)
                .map(|p| p.node)
                .or(object.additional)
                .map(|id| self.go(id)),
            _ => None,
        }
    }

    /// The schema of a list's items.
    pub fn items(self) -> Option<SchemaRef<'a>> {
        match self.shape() {
            Shape::List(list) => Some(self.go(list.items)),
            _ => None,
        }
    }

    /// The default value of this node, if its schema has one.
    pub fn default(self) -> Option<Value> {
        self.node()
            .default
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok())
    }
}

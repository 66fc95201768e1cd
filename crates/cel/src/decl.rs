//! Declared types: what an expression may know of an object from its schema.
//!
//! One declaration serves three readers: the checker (which fields are there), the cost estimate (how large
//! a value can become) and evaluation (which JSON number is an int and which a double).

use crate::escape;
use crate::types::Type;
use std::collections::BTreeMap;
use std::sync::Arc;
use stead_machinery::schema::{Constraints, Format, Object, SchemaRef, Shape, Topology};

/// The largest request that Kubernetes accepts; bounds every value without a bound of its own.
pub const MAX_REQUEST_BYTES: u64 = 3 * 1024 * 1024;

/// Longest RFC 3339 time or duration with its quotation marks.
const MAX_TIME_SIZE: u64 = 32;
const DATE_SIZE: u64 = 12;

/// A type, and how large its values can be.
#[derive(Debug)]
pub struct Decl {
    pub shape: DeclShape,
    /// Characters of a string, items of a list or entries of a map, at most; zero for what has no elements.
    pub max_elements: u64,
    /// Bytes that the smallest value takes in JSON.
    pub min_size: u64,
}

#[derive(Debug)]
pub enum DeclShape {
    Dyn,
    /// Dynamic to the checker, but only these two when it is read.
    IntOrString,
    /// What no schema describes, but the checker knows.
    Typed(Type),
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Duration,
    Date,
    DateTime,
    List {
        items: Arc<Decl>,
        topology: Topology,
    },
    Map {
        values: Arc<Decl>,
    },
    Object {
        name: String,
        /// By the name that expressions use.
        fields: BTreeMap<Box<str>, Field>,
    },
}

/// A field of an object.
#[derive(Debug)]
pub struct Field {
    /// Its name in JSON, which may be no identifier.
    pub json: Box<str>,
    pub decl: Arc<Decl>,
}

/// Where a schema stands: the root of a resource always shows its name and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    ResourceRoot,
    Inside,
}

impl Place {
    /// The place of a schema inside another one.
    pub fn of(schema: SchemaRef<'_>) -> Place {
        match schema.shape() {
            Shape::Object(object) if object.embedded_resource => Place::ResourceRoot,
            _ => Place::Inside,
        }
    }
}

impl Decl {
    fn simple(shape: DeclShape, max_elements: u64, min_size: u64) -> Arc<Decl> {
        Arc::new(Decl {
            shape,
            max_elements,
            min_size,
        })
    }

    /// Anything, with nothing known about it.
    pub fn dynamic() -> Arc<Decl> {
        Decl::simple(DeclShape::Dyn, MAX_REQUEST_BYTES - 2, 1)
    }

    /// A value of this type, of which nothing else is known.
    pub fn typed(kind: Type) -> Arc<Decl> {
        Decl::simple(DeclShape::Typed(kind), MAX_REQUEST_BYTES - 2, 1)
    }

    /// An object with these fields, for variables that no schema describes.
    pub fn object(name: &str, fields: Vec<(&str, Arc<Decl>)>) -> Arc<Decl> {
        let fields = fields
            .into_iter()
            .filter_map(|(json, decl)| {
                let field = Field {
                    json: json.into(),
                    decl,
                };
                Some((escape::escape(json)?.into_boxed_str(), field))
            })
            .collect();
        let shape = DeclShape::Object {
            name: name.to_string(),
            fields,
        };
        Decl::simple(shape, 0, 2)
    }

    pub fn string() -> Arc<Decl> {
        Decl::simple(DeclShape::String, MAX_REQUEST_BYTES - 2, 2)
    }

    pub fn boolean() -> Arc<Decl> {
        Decl::simple(DeclShape::Bool, 0, 4)
    }

    pub fn integer() -> Arc<Decl> {
        Decl::simple(DeclShape::Int, 0, 1)
    }

    pub fn double() -> Arc<Decl> {
        Decl::simple(DeclShape::Double, 0, 1)
    }

    pub fn timestamp() -> Arc<Decl> {
        Decl::simple(DeclShape::DateTime, MAX_TIME_SIZE, 21)
    }

    pub fn list(items: Arc<Decl>) -> Arc<Decl> {
        let max = (MAX_REQUEST_BYTES - 2) / (items.min_size + 1);
        let shape = DeclShape::List {
            items,
            topology: Topology::Atomic,
        };
        Decl::simple(shape, max, 2)
    }

    pub fn map(values: Arc<Decl>) -> Arc<Decl> {
        let max = (MAX_REQUEST_BYTES - 2) / (values.min_size + 6);
        Decl::simple(DeclShape::Map { values }, max, 2)
    }

    /// The declaration of a schema, or `None` where expressions cannot see its values: the schema does not
    /// say what they are.
    pub fn of_schema(schema: SchemaRef<'_>, place: Place, name: &str) -> Option<Arc<Decl>> {
        let none = Constraints::default();
        let limits = schema.node().constraints.as_deref().unwrap_or(&none);
        let text_bound = limits.max_length.map(|max| max.saturating_mul(4));
        let whole = MAX_REQUEST_BYTES - 2;
        Some(match schema.shape() {
            Shape::Any | Shape::Free => return None,
            Shape::Object(object) if object.untyped => return None,
            Shape::IntOrString => Decl::simple(DeclShape::IntOrString, text_bound.unwrap_or(whole), 1),
            Shape::Quantity => Decl::simple(DeclShape::Dyn, text_bound.unwrap_or(whole), 1),
            Shape::Boolean => Decl::boolean(),
            Shape::Integer => Decl::integer(),
            Shape::Number => Decl::double(),
            Shape::String(format) => string_decl(format, limits, text_bound),
            Shape::List(list) => {
                let items = schema.go(list.items);
                let items = Decl::of_schema(items, Place::of(items), &format!("{name}.@idx"))?;
                let max = limits.max_items.unwrap_or(whole / (items.min_size + 1));
                let shape = DeclShape::List {
                    items,
                    topology: list.topology.clone(),
                };
                Decl::simple(shape, max, 2)
            }
            Shape::Object(object) => match object.additional {
                Some(values) if object.properties.is_empty() => {
                    let values = schema.go(values);
                    let values = Decl::of_schema(values, Place::of(values), &format!("{name}.@elem"))?;
                    let max = limits.max_properties.unwrap_or(whole / (values.min_size + 6));
                    Decl::simple(DeclShape::Map { values }, max, 2)
                }
                _ => object_decl(schema, object, place, name),
            },
        })
    }

    /// The name of an object type; empty for others.
    pub fn name(&self) -> &str {
        match &self.shape {
            DeclShape::Object { name, .. } => name,
            _ => "",
        }
    }

    /// The declaration of a field, a map's value or a list's item.
    pub fn field(&self, name: &str) -> Option<&Field> {
        match &self.shape {
            DeclShape::Object { fields, .. } => fields.get(name),
            _ => None,
        }
    }

    /// The declaration of the values of a map or the items of a list.
    pub fn element(&self) -> Option<&Arc<Decl>> {
        match &self.shape {
            DeclShape::List { items, .. } => Some(items),
            DeclShape::Map { values } => Some(values),
            _ => None,
        }
    }
}

/// The type of values with this declaration.
pub fn type_of(decl: &Arc<Decl>) -> Type {
    match &decl.shape {
        DeclShape::Dyn | DeclShape::IntOrString => Type::Dyn,
        DeclShape::Typed(kind) => kind.clone(),
        DeclShape::Bool => Type::Bool,
        DeclShape::Int => Type::Int,
        DeclShape::Double => Type::Double,
        DeclShape::String => Type::String,
        DeclShape::Bytes => Type::Bytes,
        DeclShape::Duration => Type::Duration,
        DeclShape::Date | DeclShape::DateTime => Type::Timestamp,
        DeclShape::List { items, .. } => Type::list(type_of(items)),
        DeclShape::Map { values } => Type::map(Type::String, type_of(values)),
        DeclShape::Object { .. } => Type::Object(decl.clone()),
    }
}

fn string_decl(format: &Format, limits: &Constraints, bound: Option<u64>) -> Arc<Decl> {
    let whole = MAX_REQUEST_BYTES - 2;
    match format {
        Format::Byte => Decl::simple(DeclShape::Bytes, limits.max_length.unwrap_or(whole), 2),
        Format::DateTime => Decl::timestamp(),
        Format::Other(name) if &**name == "duration" => Decl::simple(DeclShape::Duration, MAX_TIME_SIZE, 3),
        Format::Other(name) if &**name == "date" => Decl::simple(DeclShape::Date, DATE_SIZE, DATE_SIZE),
        _ => {
            let longest = limits
                .one_of_values
                .iter()
                .filter_map(|text| serde_json::from_str::<String>(text).ok())
                .map(|text| text.len() as u64)
                .max();
            let bound = match bound {
                Some(bound) => bound,
                None if limits.one_of_values.is_empty() => whole,
                None => longest.unwrap_or(0),
            };
            Decl::simple(DeclShape::String, bound, 2)
        }
    }
}

fn object_decl(schema: SchemaRef<'_>, object: &Object, place: Place, name: &str) -> Arc<Decl> {
    let mut fields = BTreeMap::new();
    // An object is at least `{}`, and its required fields without a default are always there.
    let mut min_size = 2;
    for (json, property) in &object.properties {
        let inner = schema.go(property.node);
        let Some(escaped) = escape::escape(json) else {
            continue;
        };
        let Some(decl) = Decl::of_schema(inner, Place::of(inner), &format!("{name}.{escaped}")) else {
            continue;
        };
        if property.required && inner.node().default.is_none() {
            min_size += json.len() as u64 + decl.min_size + 4;
        }
        let field = Field {
            json: json.clone(),
            decl,
        };
        fields.insert(escaped.into_boxed_str(), field);
    }
    // Whatever the schema says of metadata, rules see the names alone.
    if place == Place::ResourceRoot {
        let text = || Field {
            json: "".into(),
            decl: Decl::string(),
        };
        for json in ["kind", "apiVersion"] {
            fields.insert(
                json.into(),
                Field {
                    json: json.into(),
                    ..text()
                },
            );
        }
        let names = vec![("name", Decl::string()), ("generateName", Decl::string())];
        let metadata = Field {
            json: "metadata".into(),
            decl: Decl::object(&format!("{name}.metadata"), names),
        };
        fields.insert("metadata".into(), metadata);
    }
    let shape = DeclShape::Object {
        name: name.to_string(),
        fields,
    };
    Decl::simple(shape, 0, min_size)
}

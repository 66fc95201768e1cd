//! How values of a type merge: the view that structured merging takes of a schema.
//!
//! A schema says what a value may be; here it says only whether the value is a leaf, a list or a map,
//! and how the parts are identified. Values that contradict their schema are leaves.

use super::element::{Element, Literal};
use crate::schema::{List, Object, SchemaRef, Shape, Topology};
use serde_json::Value;

/// The type of a value for merging.
#[derive(Debug, Clone, Copy)]
pub(super) enum Type<'a> {
    Known {
        schema: SchemaRef<'a>,
        unknown: Unknown,
    },
    /// Told from the value: objects merge by field, lists are one piece.
    Deduced,
    /// One piece, whatever it is.
    Opaque,
}

/// What becomes of fields that the schema does not name. Preserving them is inherited by everything below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    Refused,
    Kept,
}

/// What a value is, for merging.
pub(super) enum Form<'a> {
    /// A scalar, an atomic list or an atomic map.
    Leaf,
    List {
        list: ListForm<'a>,
    },
    Map {
        map: MapForm<'a>,
    },
}

#[derive(Clone, Copy)]
pub(super) struct ListForm<'a> {
    pub items: Type<'a>,
    keys: Option<&'a [Box<str>]>,
}

#[derive(Clone, Copy)]
pub(super) enum MapForm<'a> {
    Object {
        object: &'a Object,
        of: SchemaRef<'a>,
        unknown: Unknown,
    },
    Deduced,
}

impl<'a> Type<'a> {
    pub fn of(schema: SchemaRef<'a>) -> Self {
        Type::Known {
            schema,
            unknown: Unknown::Refused,
        }
    }

    /// What this value of the type is. A null takes the form of its type.
    pub fn form(self, value: &Value) -> Form<'a> {
        match self {
            Type::Opaque => Form::Leaf,
            Type::Deduced => match value {
                Value::Object(_) => Form::Map { map: MapForm::Deduced },
                _ => Form::Leaf,
            },
            Type::Known { schema, unknown } => match schema.shape() {
                Shape::Object(object) if !object.atomic && (value.is_object() || value.is_null()) => {
                    let map = MapForm::Object {
                        object,
                        of: schema,
                        unknown: inherit(object, unknown),
                    };
                    Form::Map { map }
                }
                Shape::List(list) if value.is_array() || value.is_null() => {
                    list_form(schema, list, unknown).map_or(Form::Leaf, |list| Form::List { list })
                }
                Shape::Free => Type::Deduced.form(value),
                Shape::Any if unknown == Unknown::Kept => Type::Deduced.form(value),
                _ => Form::Leaf,
            },
        }
    }

    /// Whether the type is a list or a map that is owned as one piece.
    pub fn is_atomic(self) -> bool {
        match self {
            Type::Opaque => true,
            Type::Deduced => false,
            Type::Known { schema, unknown } => match schema.shape() {
                Shape::Object(object) => object.atomic,
                Shape::List(list) => list.topology == Topology::Atomic,
                Shape::Any => unknown == Unknown::Refused,
                _ => false,
            },
        }
    }

    /// One step down: whether it is a named field of a struct, and the type there.
    pub fn step(self, element: &Element) -> (bool, Option<Type<'a>>) {
        match (self, element) {
            (Type::Known { schema, unknown }, Element::Field(name)) => match schema.shape() {
                Shape::Object(object) => {
                    let map = MapForm::Object {
                        object,
                        of: schema,
                        unknown: inherit(object, unknown),
                    };
                    (map.is_named(name), map.value_type(name))
                }
                Shape::Free => (false, Some(Type::Deduced)),
                Shape::Any if unknown == Unknown::Kept => (false, Some(Type::Deduced)),
                _ => (false, None),
            },
            (Type::Known { schema, unknown }, Element::Key(_)) => {
                (false, schema.items().map(|schema| Type::Known { schema, unknown }))
            }
            (Type::Deduced, Element::Field(_)) => (false, Some(Type::Deduced)),
            _ => (false, None),
        }
    }
}

fn inherit(object: &Object, unknown: Unknown) -> Unknown {
    if object.preserve_unknown {
        Unknown::Kept
    } else {
        unknown
    }
}

fn list_form<'a>(schema: SchemaRef<'a>, list: &'a List, unknown: Unknown) -> Option<ListForm<'a>> {
    let items = Type::Known {
        schema: schema.go(list.items),
        unknown,
    };
    match &list.topology {
        Topology::Atomic => None,
        Topology::Set => Some(ListForm { items, keys: None }),
        Topology::Map(keys) => Some(ListForm {
            items,
            keys: Some(keys),
        }),
    }
}

impl<'a> MapForm<'a> {
    /// Whether the schema names this field; keys of maps are not named.
    pub fn is_named(self, field: &str) -> bool {
        match self {
            MapForm::Object { object, .. } => object.properties.contains_key(field),
            MapForm::Deduced => false,
        }
    }

    /// The type of this field; `None` when the schema does not know it.
    pub fn value_type(self, field: &str) -> Option<Type<'a>> {
        let (object, of, unknown) = match self {
            MapForm::Deduced => return Some(Type::Deduced),
            MapForm::Object { object, of, unknown } => (object, of, unknown),
        };
        let node = object
            .properties
            .get(field)
            .map(|property| property.node)
            .or(object.additional);
        // The metadata of an embedded resource is what metadata is everywhere.
        let unknown_below = match object.embedded_resource && field == "metadata" {
            true => Unknown::Refused,
            false => unknown,
        };
        match node {
            Some(node) => Some(Type::Known {
                schema: of.go(node),
                unknown: unknown_below,
            }),
            None if unknown == Unknown::Kept || object.properties.is_empty() => Some(Type::Deduced),
            None => None,
        }
    }
}

impl ListForm<'_> {
    /// What identifies an item, or why nothing does.
    pub fn element(&self, item: &Value) -> Result<Element, String> {
        let Some(keys) = self.keys else {
            return match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_string()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_string()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_string()),
                scalar => Ok(Element::Value(Literal(scalar.clone()))),
            };
        };
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".to_string()),
            _ => return Err("associative list with keys may not have non-map elements".to_string()),
        };
        let mut found: Vec<(Box<str>, Literal)> = Vec::with_capacity(keys.len());
        for key in keys {
            let value = fields.get(&**key).cloned().or_else(|| self.key_default(key));
            found.extend(value.map(|value| (key.clone(), Literal(value))));
        }
        if found.is_empty() {
            return Err(format!(
                "associative list with keys has an element that omits all key fields {keys:?} (and doesn't have default values for any key fields)"
            ));
        }
        found.sort();
        Ok(Element::Key(found))
    }

    /// The default of a key field, such as `TCP` for a port's protocol.
    fn key_default(&self, key: &str) -> Option<Value> {
        match self.items {
            Type::Known { schema, .. } => schema.field(key)?.default(),
            _ => None,
        }
    }
}

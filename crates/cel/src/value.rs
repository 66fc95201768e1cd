//! Values of expressions.
//!
//! A value borrows from the object that is evaluated wherever it can: selecting a field of a large object
//! copies nothing. What an expression makes itself is shared by reference count.

mod compare;
mod json;

pub use compare::{compare, concatenate, contains, equal, list_contains};
pub use json::{NO_INT_OR_STRING, from_json, is_int_or_string, to_json};

use crate::authorizer::Check;
use crate::decl::{Decl, DeclShape};
use crate::error::EvalError;
use crate::functions::formats::NamedFormat;
use crate::functions::net::Cidr;
use crate::functions::semver::Version;
use crate::functions::urls::Url;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};
use stead_machinery::quantity::Quantity;
use stead_machinery::schema::Topology;

/// A value.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    List(List<'a>),
    Map(Map<'a>),
    Timestamp(jiff::Timestamp),
    /// Nanoseconds.
    Duration(i64),
    Optional(Option<Arc<Value<'a>>>),
    /// The name of a type.
    Type(Text<'a>),
    Quantity(Quantity),
    Ip(IpAddr),
    Cidr(Cidr),
    Url(Arc<Url>),
    Semver(Arc<Version>),
    Format(&'static NamedFormat),
    Check(Arc<Check<'a>>),
}

/// A string.
#[derive(Debug, Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text<'_> {}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Text::Shared(text.into())
    }
}

/// A list: a part of the evaluated object, or made by the expression.
#[derive(Debug, Clone)]
pub enum List<'a> {
    Json {
        items: &'a [Json],
        /// Of one item.
        decl: &'a Decl,
        topology: &'a Topology,
    },
    Shared(Arc<Vec<Value<'a>>>),
    /// Made of a set or a map list, and still one.
    Keyed {
        items: Arc<Vec<Value<'a>>>,
        topology: &'a Topology,
    },
}

/// A map or an object with fields.
#[derive(Debug, Clone)]
pub enum Map<'a> {
    Json {
        map: &'a serde_json::Map<String, Json>,
        /// Of the whole map or object.
        decl: &'a Decl,
    },
    Shared(Arc<BTreeMap<Key<'a>, Value<'a>>>),
}

/// What may be a key of a map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Text<'a>),
}

static DYNAMIC: LazyLock<Arc<Decl>> = LazyLock::new(Decl::dynamic);

/// The declaration of everything that no schema describes.
pub fn dynamic() -> &'static Decl {
    &DYNAMIC
}

impl<'a> Value<'a> {
    pub fn string(text: impl Into<String>) -> Self {
        Value::String(Text::Shared(text.into().into()))
    }

    pub fn list(items: Vec<Value<'a>>) -> Self {
        Value::List(List::Shared(Arc::new(items)))
    }

    pub fn map(entries: BTreeMap<Key<'a>, Value<'a>>) -> Self {
        Value::Map(Map::Shared(Arc::new(entries)))
    }

    pub fn some(value: Value<'a>) -> Self {
        Value::Optional(Some(Arc::new(value)))
    }

    pub fn none() -> Self {
        Value::Optional(None)
    }

    /// A whole JSON object or value that no schema describes.
    pub fn dynamic(json: &'a Json) -> Self {
        from_json(json, dynamic()).unwrap_or(Value::Null)
    }

    /// The name of the value's type, as `type(x)` gives it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Optional(_) => "optional_type",
            Value::Type(_) => "type",
            Value::Quantity(_) => "kubernetes.Quantity",
            Value::Ip(_) => "net.IP",
            Value::Cidr(_) => "net.CIDR",
            Value::Url(_) => "kubernetes.URL",
            Value::Semver(_) => "kubernetes.Semver",
            Value::Format(_) => "kubernetes.NamedFormat",
            Value::Check(check) => check.type_name(),
        }
    }

    /// The size that costs are computed from: characters, items, entries, or one.
    pub fn size(&self) -> u64 {
        match self {
            Value::String(text) => text.chars().count() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::List(list) => list.len() as u64,
            Value::Map(map) => map.len() as u64,
            Value::Optional(Some(inner)) => inner.size(),
            Value::Ip(ip) => address_size(*ip),
            Value::Cidr(cidr) => address_size(cidr.address)
                .div_ceil(1)
                .min(u64::from(cidr.prefix).div_ceil(8)),
            _ => 1,
        }
    }

    /// Whether it is the zero of its type, for `optional.ofNonZeroValue`.
    pub fn is_zero(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(value) => !value,
            Value::Int(value) => *value == 0,
            Value::Uint(value) => *value == 0,
            Value::Double(value) => *value == 0.0,
            Value::Duration(value) => *value == 0,
            Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) => self.size() == 0,
            Value::Optional(inner) => inner.is_none(),
            _ => false,
        }
    }
}

fn address_size(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(_) => 4,
        IpAddr::V6(_) => 16,
    }
}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        match self {
            List::Json { items, .. } => items.len(),
            List::Shared(items) | List::Keyed { items, .. } => items.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How its items are identified.
    pub fn topology(&self) -> Option<&'a Topology> {
        match self {
            List::Json { topology, .. } | List::Keyed { topology, .. } => Some(topology),
            List::Shared(_) => None,
        }
    }

    /// Whether a schema says what its items are.
    pub fn has_schema(&self) -> bool {
        match self {
            List::Json { decl, .. } => !std::ptr::eq(*decl, dynamic()),
            List::Keyed { .. } => true,
            List::Shared(_) => false,
        }
    }

    pub fn get(&self, index: usize) -> Option<Result<Value<'a>, EvalError>> {
        match self {
            List::Json { items, decl, .. } => items.get(index).map(|item| from_json(item, decl)),
            List::Shared(items) | List::Keyed { items, .. } => items.get(index).cloned().map(Ok),
        }
    }

    /// Every item in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'a>, EvalError>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    pub fn values(&self) -> Result<Vec<Value<'a>>, EvalError> {
        self.iter().collect()
    }
}

impl<'a> Map<'a> {
    pub fn len(&self) -> usize {
        match self {
            Map::Json { map, .. } => map.len(),
            Map::Shared(entries) => entries.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a schema says what its fields or values are.
    pub fn has_schema(&self) -> bool {
        match self {
            Map::Json { decl, .. } => !matches!(decl.shape, DeclShape::Dyn | DeclShape::Typed(_)),
            Map::Shared(_) => false,
        }
    }

    /// A field by the name that expressions use.
    pub fn field(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        match self {
            Map::Json { map, decl } => match &decl.shape {
                DeclShape::Object { fields, .. } => {
                    let field = match fields.get(name) {
                        Some(field) => field,
                        None => fields.get(format!("__{name}__").as_str())?,
                    };
                    // A field that is null is as good as absent; an entry of a map is not.
                    let value = map.get(&*field.json).filter(|value| !value.is_null())?;
                    Some(from_json(value, &field.decl))
                }
                DeclShape::Map { values } => map.get(name).map(|value| from_json(value, values)),
                _ => map.get(name).map(|value| from_json(value, dynamic())),
            },
            Map::Shared(entries) => entries.get(&Key::String(Text::Borrowed(name))).cloned().map(Ok),
        }
    }

    /// The value of a key; numbers of different types may be equal.
    pub fn get(&self, key: &Value<'_>) -> Option<Result<Value<'a>, EvalError>> {
        match self {
            Map::Json { .. } => match key {
                Value::String(name) => self.field(name),
                _ => None,
            },
            Map::Shared(entries) => {
                let found = match key {
                    Value::Bool(value) => entries.get(&Key::Bool(*value)),
                    Value::String(text) => entries.get(&Key::String(Text::Borrowed(text))),
                    number => {
                        let (int, uint) = whole_number(number)?;
                        int.and_then(|int| entries.get(&Key::Int(int)))
                            .or_else(|| uint.and_then(|uint| entries.get(&Key::Uint(uint))))
                    }
                };
                found.cloned().map(Ok)
            }
        }
    }

    /// The members of an object that its schema does not name.
    fn unseen(&self) -> impl Iterator<Item = (&'a str, &'a Json)> {
        let members = match self {
            Map::Json { map, decl } => Some((*map, *decl)),
            Map::Shared(_) => None,
        };
        members.into_iter().flat_map(|(map, decl)| {
            let hidden = map.iter().filter(|(name, _)| shown_name(decl, name).is_none());
            hidden.map(|(name, value)| (name.as_str(), value))
        })
    }

    /// Every key, in order.
    pub fn keys(&self) -> Vec<Key<'a>> {
        match self {
            Map::Json { map, decl } => map
                .iter()
                .filter_map(|(json, _)| shown_name(decl, json))
                .map(Key::String)
                .collect(),
            Map::Shared(entries) => entries.keys().cloned().collect(),
        }
    }
}

/// The name by which expressions know a JSON member; `None` if they cannot see it.
fn shown_name<'a>(decl: &Decl, json: &'a str) -> Option<Text<'a>> {
    match &decl.shape {
        DeclShape::Object { fields, .. } => {
            if fields.get(json).is_some_and(|field| &*field.json == json) {
                return Some(Text::Borrowed(json));
            }
            let escaped = crate::escape::escape(json)?;
            fields.contains_key(escaped.as_str()).then(|| escaped.into())
        }
        _ => Some(Text::Borrowed(json)),
    }
}

fn whole_number(value: &Value<'_>) -> Option<(Option<i64>, Option<u64>)> {
    match value {
        Value::Int(int) => Some((Some(*int), u64::try_from(*int).ok())),
        Value::Uint(uint) => Some((i64::try_from(*uint).ok(), Some(*uint))),
        Value::Double(double) if double.fract() == 0.0 && double.abs() < 9.0e18 => {
            let int = *double as i64;
            Some((Some(int), u64::try_from(int).ok()))
        }
        _ => None,
    }
}

impl<'a> Key<'a> {
    /// The value as a key, if it may be one.
    pub fn of(value: &Value<'a>) -> Result<Key<'a>, EvalError> {
        match value {
            Value::Bool(value) => Ok(Key::Bool(*value)),
            Value::Int(value) => Ok(Key::Int(*value)),
            Value::Uint(value) => Ok(Key::Uint(*value)),
            Value::String(text) => Ok(Key::String(text.clone())),
            _ => Err(EvalError::invalid(format!(
                "unsupported key type: {}",
                value.type_name()
            ))),
        }
    }

    pub fn value(&self) -> Value<'a> {
        match self {
            Key::Bool(value) => Value::Bool(*value),
            Key::Int(value) => Value::Int(*value),
            Key::Uint(value) => Value::Uint(*value),
            Key::String(text) => Value::String(text.clone()),
        }
    }
}

//! One step of a field's path, and its spelling in `FieldsV1`.

use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::fmt;

/// A step from an object, map or list to a part of it. The order is the canonical one of field sets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// `f:name`: a field of an object or a key of a map.
    Field(Box<str>),
    /// `k:{...}`: the item of a list with these values in its key fields, sorted by name.
    Key(Vec<(Box<str>, Literal)>),
    /// `v:...`: the item of a set that has this value.
    Value(Literal),
    /// `i:0`: the item of a list at this place.
    Index(i64),
}

/// A JSON value with a total order, so that it can be a part of a path.
#[derive(Debug, Clone)]
pub struct Literal(pub Value);

/// Why a step could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElementError {
    #[error("key must be 2 characters long:")]
    TooShort,
    #[error("missing colon: {0}")]
    NoColon(String),
    #[error("{0}")]
    Malformed(String),
    /// A kind of step that a newer version may know; it is skipped.
    #[error("unknown path element type")]
    Unknown,
}

impl Element {
    pub fn field(name: &str) -> Self {
        Element::Field(name.into())
    }

    /// The spelling in `FieldsV1`.
    pub fn encode(&self) -> String {
        match self {
            // Nearly all of them are fields, and formatting takes longer than joining.
            Element::Field(name) => ["f:", name].concat(),
            Element::Key(keys) => {
                let object: Map<String, Value> = keys
                    .iter()
                    .map(|(name, value)| (name.to_string(), value.0.clone()))
                    .collect();
                format!("k:{}", Value::Object(object))
            }
            Element::Value(value) => format!("v:{}", value.0),
            Element::Index(index) => format!("i:{index}"),
        }
    }

    pub fn decode(text: &str) -> Result<Self, ElementError> {
        let malformed = |e: &dyn fmt::Display| ElementError::Malformed(e.to_string());
        if text.len() < 2 {
            return Err(ElementError::TooShort);
        }
        let Some((kind, rest)) = text.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
            return Err(ElementError::NoColon(text.to_string()));
        };
        match kind {
            "f" => Ok(Element::field(rest)),
            "k" => {
                let keys: Map<String, Value> = serde_json::from_str(rest).map_err(|e| malformed(&e))?;
                let keys = keys.into_iter().map(|(name, value)| (name.into(), Literal(value)));
                Ok(Element::Key(keys.collect()))
            }
            "v" => serde_json::from_str(rest)
                .map(|value| Element::Value(Literal(value)))
                .map_err(|e| malformed(&e)),
            "i" => rest.parse().map(Element::Index).map_err(|e| malformed(&e)),
            _ => Err(ElementError::Unknown),
        }
    }
}

/// The step as messages show it: `.spec`, `[name="a"]`, `[="a"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(keys) => {
                let keys: Vec<String> = keys
                    .iter()
                    .map(|(name, value)| format!("{name}={}", shown(&value.0)))
                    .collect();
                write!(f, "[{}]", keys.join(","))
            }
            Element::Value(value) => write!(f, "[={}]", shown(&value.0)),
            Element::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A value as messages show it. Objects are no keys, and lose their braces where they stand for one.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| format!("{name}={}", shown(value)))
            .collect(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(shown).collect();
            format!("[{}]", items.join(","))
        }
        scalar => scalar.to_string(),
    }
}

/// The path as messages show it: `.spec.containers[name="a"].image`.
pub fn path_text(path: &[Element]) -> String {
    path.iter().map(Element::to_string).collect()
}

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Literal {}

impl PartialOrd for Literal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Literal {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => {
                let (left, right) = (left.as_f64().unwrap_or_default(), right.as_f64().unwrap_or_default());
                left.total_cmp(&right)
            }
        },
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => sequence(left.iter(), right.iter(), compare),
        (Value::Object(left), Value::Object(right)) => sequence(left.iter(), right.iter(), |a, b| {
            a.0.cmp(b.0).then_with(|| compare(a.1, b.1))
        }),
        _ => rank(left).cmp(&rank(right)),
    }
}

fn sequence<T>(
    mut left: impl Iterator<Item = T>,
    mut right: impl Iterator<Item = T>,
    compare: impl Fn(T, T) -> Ordering,
) -> Ordering {
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(left), Some(right)) => match compare(left, right) {
                Ordering::Equal => {}
                unequal => return unequal,
            },
        }
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

//! Equality and order of values.

use super::{List, Map, Value};
use crate::decl::DeclShape;
use crate::error::EvalError;
use std::cmp::Ordering;
use std::sync::Arc;
use stead_machinery::schema::Topology;

/// Whether two values are equal. Numbers are equal across types, and nothing but null is null. Values of other
/// different types are not equal, or, where Kubernetes' own types say so, cannot be compared.
pub fn equal(a: &Value<'_>, b: &Value<'_>) -> Result<bool, EvalError> {
    match (a, b) {
        (Value::Null, Value::Null) => Ok(true),
        (Value::Null, _) | (_, Value::Null) => Ok(false),
        _ => equals(a, b),
    }
}

/// What `a` says of being equal to `b`, as those ask that leave null to it.
fn equals(a: &Value<'_>, b: &Value<'_>) -> Result<bool, EvalError> {
    Ok(match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::String(a), Value::String(b)) | (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::List(a), Value::List(b)) => lists_equal(a, b)?,
        (Value::Map(a), Value::Map(b)) => maps_equal(a, b)?,
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => equals(a, b)?,
        (Value::Quantity(a), Value::Quantity(b)) => a == b,
        (Value::Ip(a), Value::Ip(b)) => a == b,
        (Value::Cidr(a), Value::Cidr(b)) => a == b,
        (Value::Url(a), Value::Url(b)) => a == b,
        (Value::Semver(a), Value::Semver(b)) => a.precedence(b) == Ordering::Equal,
        (Value::Format(a), Value::Format(b)) => a.name == b.name,
        (a, _) if knows_only_its_own(a) => return Err(EvalError::NoSuchOverload),
        _ => numbers(a, b) == Some(Ordering::Equal),
    })
}

/// Whether a value refuses to be compared with one of another type, instead of being different.
fn knows_only_its_own(value: &Value<'_>) -> bool {
    match value {
        Value::List(list) => list.has_schema(),
        Value::Map(map) => map.has_schema(),
        Value::Quantity(_) | Value::Ip(_) | Value::Cidr(_) | Value::Url(_) | Value::Semver(_) | Value::Format(_) => {
            true
        }
        _ => false,
    }
}

fn lists_equal(a: &List<'_>, b: &List<'_>) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    match a.topology() {
        Some(Topology::Set) => {
            let others = b.values()?;
            for item in a.iter() {
                if !contains(&others, &item?) {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Some(Topology::Map(keys)) => {
            let others = b.values()?;
            for item in a.iter() {
                let item = item?;
                match same_keys(&others, &item, keys)? {
                    Some(other) if equals(&item, other)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        _ => {
            for (x, y) in a.iter().zip(b.iter()) {
                if !elements_equal(a.has_schema(), &x?, &y?)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

/// Whether elements at the same place are equal. Where no schema describes what they are in, elements that cannot be
/// compared count as equal: so it is in Kubernetes, and expressions written there rely on verdicts, not on sense.
fn elements_equal(has_schema: bool, a: &Value<'_>, b: &Value<'_>) -> Result<bool, EvalError> {
    match has_schema {
        true => equals(a, b),
        false => Ok(equal(a, b).unwrap_or(true)),
    }
}

/// Whether one of the values equals this one. Those that it cannot be compared with do not.
pub fn contains(values: &[Value<'_>], wanted: &Value<'_>) -> bool {
    values.iter().any(|value| equals(wanted, value).unwrap_or(false))
}

/// The item of a map list with the same keys.
pub fn same_keys<'v, 'a>(
    values: &'v [Value<'a>],
    item: &Value<'_>,
    keys: &[Box<str>],
) -> Result<Option<&'v Value<'a>>, EvalError> {
    'values: for value in values {
        for key in keys {
            let (Value::Map(a), Value::Map(b)) = (value, item) else {
                continue 'values;
            };
            let escaped = crate::escape::escape(key).unwrap_or_else(|| key.to_string());
            match (a.field(&escaped).transpose()?, b.field(&escaped).transpose()?) {
                (Some(x), Some(y)) if equal(&x, &y)? => {}
                (None, None) => {}
                _ => continue 'values,
            }
        }
        return Ok(Some(value));
    }
    Ok(None)
}

fn maps_equal(a: &Map<'_>, b: &Map<'_>) -> Result<bool, EvalError> {
    if let (Map::Json { map: x, decl }, Map::Json { map: y, decl: other }) = (a, b)
        && std::ptr::eq(*x, *y)
        && std::ptr::eq(*decl, *other)
    {
        return Ok(true);
    }
    if a.len() != b.len() {
        return Ok(false);
    }
    for (name, value) in a.unseen() {
        // Fields that no expression sees are compared all the same, with an object that has such fields.
        match b {
            Map::Json { map, decl } if matches!(decl.shape, DeclShape::Object { .. }) => {
                if map.get(name).is_some_and(|other| other != value) {
                    return Ok(false);
                }
            }
            _ => return Err(EvalError::NoSuchOverload),
        }
    }
    for key in a.keys() {
        let key = key.value();
        match (a.get(&key).transpose()?, b.get(&key).transpose()?) {
            (Some(x), Some(y)) if elements_equal(a.has_schema(), &x, &y)? => {}
            (None, None) => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// The order of two numbers of any types; `None` if one is no number, or not a number at all.
pub fn numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), Value::Int(b)) => double_to_int(*a, i128::from(*b)),
        (Value::Double(a), Value::Uint(b)) => double_to_int(*a, i128::from(*b)),
        (Value::Int(a), Value::Double(b)) => double_to_int(*b, i128::from(*a)).map(Ordering::reverse),
        (Value::Uint(a), Value::Double(b)) => double_to_int(*b, i128::from(*a)).map(Ordering::reverse),
        _ => None,
    }
}

/// Compares without losing digits of either.
fn double_to_int(a: f64, b: i128) -> Option<Ordering> {
    if a.is_nan() {
        return None;
    }
    if a >= 1.0e20 {
        return Some(Ordering::Greater);
    }
    if a <= -1.0e20 {
        return Some(Ordering::Less);
    }
    let whole = a.trunc() as i128;
    Some(whole.cmp(&b).then(a.fract().partial_cmp(&0.0)?))
}

/// The order of two values of one ordered type.
pub fn compare(a: &Value<'_>, b: &Value<'_>) -> Result<Ordering, EvalError> {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
        (Value::String(a), Value::String(b)) => Ok(a.cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Ok(a.cmp(b)),
        (Value::Duration(a), Value::Duration(b)) => Ok(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) if a.is_nan() || b.is_nan() => {
            Err(EvalError::invalid("NaN values cannot be ordered"))
        }
        _ => numbers(a, b).ok_or(EvalError::NoSuchOverload),
    }
}

/// Two lists one after the other. Sets take only what they do not have, and map lists replace what has the same
/// keys, as these lists do everywhere in Kubernetes.
pub fn concatenate<'a>(a: &List<'a>, b: &List<'a>) -> Result<Value<'a>, EvalError> {
    let mut items = a.values()?;
    match a.topology() {
        Some(Topology::Set) => {
            for item in b.iter() {
                let item = item?;
                if !contains(&items, &item) {
                    items.push(item);
                }
            }
        }
        Some(Topology::Map(keys)) => {
            for item in b.iter() {
                let item = item?;
                let place = match same_keys(&items, &item, keys)? {
                    Some(found) => items.iter().position(|value| std::ptr::eq(value, found)),
                    None => None,
                };
                match place {
                    Some(place) => items[place] = item,
                    None => items.push(item),
                }
            }
        }
        _ => items.extend(b.values()?),
    }
    if let Some(topology @ (Topology::Set | Topology::Map(_))) = a.topology() {
        let items = Arc::new(items);
        return Ok(Value::List(List::Keyed { items, topology }));
    }
    Ok(Value::list(items))
}

/// Whether a value is in a list; used by `in`. A list that a schema describes says so when it cannot be compared with
/// one of its items and equals no other.
pub fn list_contains(list: &List<'_>, wanted: &Value<'_>) -> Result<bool, EvalError> {
    if !list.has_schema() {
        return Ok(contains(&list.values()?, wanted));
    }
    let mut trouble = None;
    for item in list.iter() {
        match item.and_then(|item| equals(&item, wanted)) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) => trouble = trouble.or(Some(error)),
        }
    }
    trouble.map_or(Ok(false), Err)
}

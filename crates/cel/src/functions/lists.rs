//! Functions of lists and sets, and of maps that loops build.

use super::{Call, strings};
use crate::error::{Budget, EvalError};
use crate::value::{List, Value, compare, contains, equal, list_contains};
use std::cmp::Ordering;

pub fn implementation(name: &str) -> Option<Call> {
    Some(match name {
        "isSorted" => |args| {
            let items = comparable(args, "isSorted(list)")?;
            for pair in items.windows(2) {
                // Two that cannot be compared are in no wrong order.
                if compare(&pair[0], &pair[1]).is_ok_and(Ordering::is_gt) {
                    return Ok(Value::Bool(false));
                }
            }
            Ok(Value::Bool(true))
        },
        "sum" => sum,
        "min" => |args| extreme(comparable(args, "min(list)")?, "min", Ordering::Less),
        "max" => |args| extreme(comparable(args, "max(list)")?, "max", Ordering::Greater),
        "indexOf" => index_of,
        "lastIndexOf" => last_index_of,
        "slice" => slice,
        "flatten" => flatten,
        "lists.range" => range,
        "reverse" => |args| {
            let mut items = items(args)?;
            items.reverse();
            Ok(Value::list(items))
        },
        "distinct" => |args| {
            let mut kept: Vec<Value<'_>> = Vec::new();
            for item in items(args)? {
                if !contains(&kept, &item) {
                    kept.push(item);
                }
            }
            Ok(Value::list(kept))
        },
        "sort" => |args| {
            let items = items(args)?;
            let keys = items.clone();
            sorted(items, &keys)
        },
        "@sortByAssociatedKeys" => |args| match args {
            [Value::List(list), Value::List(keys)] => sorted(list.values()?, &keys.values()?),
            _ => Err(EvalError::NoSuchOverload),
        },
        "first" => |args| {
            let list = list(args)?;
            Ok(Value::Optional(list.get(0).transpose()?.map(Into::into)))
        },
        "last" => |args| {
            let list = list(args)?;
            let last = list.len().checked_sub(1).and_then(|last| list.get(last));
            Ok(Value::Optional(last.transpose()?.map(Into::into)))
        },
        "unwrapOpt" | "optional.unwrap" => |args| {
            let mut kept = Vec::new();
            for item in items(args)? {
                match item {
                    Value::Optional(Some(value)) => kept.push((*value).clone()),
                    Value::Optional(None) => {}
                    _ => return Err(EvalError::NoSuchOverload),
                }
            }
            Ok(Value::list(kept))
        },
        "sets.contains" => |args| {
            let (a, b) = sets(args)?;
            Ok(Value::Bool(subset(b, a)?))
        },
        "sets.equivalent" => |args| {
            let (a, b) = sets(args)?;
            Ok(Value::Bool(subset(b, a)? && subset(a, b)?))
        },
        "sets.intersects" => |args| {
            let (a, b) = sets(args)?;
            for item in a.iter() {
                // What cannot be compared is in no set, and says so here alone.
                if list_contains(b, &item?).unwrap_or(false) {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        },
        _ => return None,
    })
}

fn list<'v, 'a>(args: &'v [Value<'a>]) -> Result<&'v List<'a>, EvalError> {
    match args {
        [Value::List(list)] => Ok(list),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn items<'a>(args: &[Value<'a>]) -> Result<Vec<Value<'a>>, EvalError> {
    list(args)?.values()
}

fn sets<'v, 'a>(args: &'v [Value<'a>]) -> Result<(&'v List<'a>, &'v List<'a>), EvalError> {
    match args {
        [Value::List(a), Value::List(b)] => Ok((a, b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// Whether a list has every item of another; an item that a list cannot say that of is an error, as with `in`.
fn subset(inner: &List<'_>, outer: &List<'_>) -> Result<bool, EvalError> {
    for item in inner.iter() {
        if !list_contains(outer, &item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The items of a list for which there is a function. Where the checker does not know the items, the first one decides.
fn fitting<'a>(
    args: &[Value<'a>],
    fits: fn(&Value<'_>) -> bool,
    call: &'static str,
) -> Result<Vec<Value<'a>>, EvalError> {
    let items = items(args)?;
    match items.first().is_none_or(fits) {
        true => Ok(items),
        false => Err(EvalError::NoSuchOverloadOf(call)),
    }
}

fn comparable<'a>(args: &[Value<'a>], call: &'static str) -> Result<Vec<Value<'a>>, EvalError> {
    let fits = |value: &Value<'_>| {
        use Value::{Bool, Bytes, String, Timestamp};
        is_summable(value) || matches!(value, Bool(_) | Timestamp(_) | String(_) | Bytes(_))
    };
    fitting(args, fits, call)
}

fn is_summable(value: &Value<'_>) -> bool {
    use Value::{Double, Duration, Int, Uint};
    matches!(value, Int(_) | Uint(_) | Double(_) | Duration(_))
}

fn sum<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let items = fitting(args, is_summable, "sum(list)")?;
    let add = super::implementation("_+_").ok_or(EvalError::NoSuchOverload)?;
    let mut items = items.into_iter();
    // An empty list of unknown type sums to the integer zero.
    let Some(mut total) = items.next() else {
        return Ok(Value::Int(0));
    };
    for item in items {
        total = add(&[total, item])?;
    }
    Ok(total)
}

fn extreme<'a>(items: Vec<Value<'a>>, name: &str, wanted: Ordering) -> Result<Value<'a>, EvalError> {
    let mut best: Option<Value<'a>> = None;
    for item in items {
        let better = match &best {
            None => true,
            // One that cannot be compared is no better.
            Some(best) => compare(&item, best).is_ok_and(|order| order == wanted),
        };
        if better {
            best = Some(item);
        }
    }
    best.ok_or_else(|| EvalError::invalid(format!("{name} called on empty list")))
}

fn index_of<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(Value::Int(match args {
        [Value::List(list), wanted] => {
            for (place, item) in list.iter().enumerate() {
                if equal(&item?, wanted).unwrap_or(false) {
                    return Ok(Value::Int(place as i64));
                }
            }
            -1
        }
        [Value::String(text), Value::String(part)] => strings::index_of(text, part, 0)?,
        [Value::String(text), Value::String(part), Value::Int(from)] => strings::index_of(text, part, *from)?,
        _ => return Err(EvalError::NoSuchOverload),
    }))
}

fn last_index_of<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(Value::Int(match args {
        [Value::List(list), wanted] => {
            let items = list.values()?;
            for (place, item) in items.iter().enumerate().rev() {
                if equal(item, wanted).unwrap_or(false) {
                    return Ok(Value::Int(place as i64));
                }
            }
            -1
        }
        [Value::String(text), Value::String(part)] => strings::last_index_of(text, part, None)?,
        [Value::String(text), Value::String(part), Value::Int(from)] => {
            strings::last_index_of(text, part, Some(*from))?
        }
        _ => return Err(EvalError::NoSuchOverload),
    }))
}

fn slice<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return Err(EvalError::NoSuchOverload);
    };
    let because = |why: String| EvalError::invalid(format!("cannot slice({start}, {end}), {why}"));
    if *start < 0 || *end < 0 {
        return Err(because("negative indexes not supported".to_string()));
    }
    if start > end {
        return Err(because(
            "start index must be less than or equal to end index".to_string(),
        ));
    }
    if list.len() < *end as usize {
        return Err(because(format!("list is length {}", list.len())));
    }
    let items = list.iter().skip(*start as usize).take((end - start) as usize);
    Ok(Value::list(items.collect::<Result<_, _>>()?))
}

fn flatten<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return Err(EvalError::NoSuchOverload),
    };
    if depth < 0 {
        return Err(EvalError::invalid("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(list, depth, &mut flat)?;
    Ok(Value::list(flat))
}

fn flatten_into<'a>(list: &List<'a>, depth: i64, flat: &mut Vec<Value<'a>>) -> Result<(), EvalError> {
    for item in list.iter() {
        match item? {
            Value::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, flat)?,
            other => flat.push(other),
        }
    }
    Ok(())
}

fn range<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::Int(count)] = args else {
        return Err(EvalError::NoSuchOverload);
    };
    // The cost is the number of items, so a longer list could not be paid for; it is not even made.
    if *count > Budget::PER_CALL as i64 {
        return Err(EvalError::CostLimit);
    }
    Ok(Value::list((0..*count).map(Value::Int).collect()))
}

/// The items in the order of their keys; equal keys keep their order.
fn sorted<'a>(items: Vec<Value<'a>>, keys: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    if items.len() != keys.len() {
        return Err(EvalError::invalid("sort keys do not match the list"));
    }
    let mut order: Vec<usize> = (0..items.len()).collect();
    let mut failed = None;
    order.sort_by(|a, b| {
        compare(&keys[*a], &keys[*b]).unwrap_or_else(|error| {
            failed.get_or_insert(error);
            Ordering::Equal
        })
    });
    match failed {
        Some(_) => Err(EvalError::invalid("list elements must be comparable")),
        None => Ok(Value::list(
            order.into_iter().map(|place| items[place].clone()).collect(),
        )),
    }
}

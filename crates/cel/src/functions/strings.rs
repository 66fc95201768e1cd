//! Functions of strings, and regular expressions on them.

use super::{Call, RESULT_LIMIT, printf};
use crate::error::EvalError;
use crate::regexes;
use crate::value::Value;

pub fn implementation(name: &str) -> Option<Call> {
    Some(match name {
        "matches" => |args| match args {
            [Value::String(text), Value::String(pattern)] => {
                let regex = regexes::compile(pattern).map_err(EvalError::Invalid)?;
                Ok(Value::Bool(regex.is_match(text)))
            }
            _ => Err(EvalError::NoSuchOverload),
        },
        "contains" => |args| with_text(args, |text, part| text.contains(part)),
        "startsWith" => |args| with_text(args, |text, part| text.starts_with(part)),
        "endsWith" => |args| with_text(args, |text, part| text.ends_with(part)),
        "charAt" => char_at,
        "lowerAscii" => |args| changed(args, |text| text.to_ascii_lowercase()),
        "upperAscii" => |args| changed(args, |text| text.to_ascii_uppercase()),
        "trim" => |args| changed(args, |text| text.trim().to_string()),
        "replace" => replace,
        "split" => split,
        "substring" => substring,
        "format" => printf::format,
        "strings.quote" => |args| changed(args, quote),
        "join" => join,
        "find" => |args| match args {
            [Value::String(text), Value::String(pattern)] => {
                let found = illegal(pattern)?.find(text).map_or("", |found| found.as_str());
                Ok(Value::string(found))
            }
            _ => Err(EvalError::NoSuchOverload),
        },
        "findAll" => find_all,
        "jsonpatch.escapeKey" => |args| changed(args, |text| text.replace('~', "~0").replace('/', "~1")),
        _ => return None,
    })
}

fn with_text<'a>(args: &[Value<'a>], test: fn(&str, &str) -> bool) -> Result<Value<'a>, EvalError> {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(test(text, part))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn changed<'a>(args: &[Value<'a>], change: fn(&str) -> String) -> Result<Value<'a>, EvalError> {
    match args {
        [Value::String(text)] => Ok(Value::string(change(text))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn illegal(pattern: &str) -> Result<regex::Regex, EvalError> {
    regexes::compile(pattern).map_err(|error| EvalError::invalid(format!("Illegal regex: {error}")))
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::invalid(format!("index out of range: {index}"))
}

fn char_at<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(text), Value::Int(index)] = args else {
        return Err(EvalError::NoSuchOverload);
    };
    let place = usize::try_from(*index).map_err(|_| out_of_range(*index))?;
    match text.chars().nth(place) {
        Some(c) => Ok(Value::string(c.to_string())),
        None if place == text.chars().count() => Ok(Value::string("")),
        None => Err(out_of_range(*index)),
    }
}

/// The place of a part of a text, in characters, or -1.
pub fn index_of(text: &str, part: &str, from: i64) -> Result<i64, EvalError> {
    if part.is_empty() {
        return Ok(from);
    }
    let skip = usize::try_from(from).map_err(|_| out_of_range(from))?;
    let Some((start, _)) = text.char_indices().nth(skip) else {
        return Ok(-1);
    };
    Ok(match text[start..].find(part) {
        Some(found) => (skip + text[start..start + found].chars().count()) as i64,
        None => -1,
    })
}

/// The last place of a part of a text that begins at `from` or before it.
pub fn last_index_of(text: &str, part: &str, from: Option<i64>) -> Result<i64, EvalError> {
    let length = text.chars().count();
    if part.is_empty() {
        return Ok(from.unwrap_or(length as i64));
    }
    let bound = match from {
        None => length,
        Some(from) => usize::try_from(from).map_err(|_| out_of_range(from))?,
    };
    // Without a bound the last occurrence counts; with one, it must begin within the text.
    if from.is_some() && bound >= length {
        return Ok(-1);
    }
    let limit = text
        .char_indices()
        .nth(bound)
        .map_or(text.len(), |(place, _)| (place + part.len()).min(text.len()));
    let mut limit = limit;
    while !text.is_char_boundary(limit) {
        limit -= 1;
    }
    Ok(match text[..limit].rfind(part) {
        Some(found) => text[..found].chars().count() as i64,
        None => -1,
    })
}

fn replace<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, from, to, count) = match args {
        [Value::String(text), Value::String(from), Value::String(to)] => (text, from, to, -1),
        [
            Value::String(text),
            Value::String(from),
            Value::String(to),
            Value::Int(count),
        ] => (text, from, to, *count),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let occurrences = if from.is_empty() {
        text.chars().count() + 1
    } else {
        text.len() / from.len()
    };
    if occurrences.saturating_mul(to.len()) > RESULT_LIMIT {
        return Err(EvalError::CostLimit);
    }
    Ok(Value::string(match usize::try_from(count) {
        Ok(count) => text.replacen(&**from, to, count),
        Err(_) => text.replace(&**from, to),
    }))
}

fn split<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, separator, limit) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => (text, separator, *limit),
        _ => return Err(EvalError::NoSuchOverload),
    };
    if limit == 0 {
        return Ok(Value::list(Vec::new()));
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts: Vec<Value<'a>> = if separator.is_empty() {
        let mut parts: Vec<Value<'a>> = Vec::new();
        let mut rest: &str = text;
        while let Some(c) = rest.chars().next() {
            if parts.len() + 1 == limit {
                parts.push(Value::string(rest));
                break;
            }
            parts.push(Value::string(c.to_string()));
            rest = &rest[c.len_utf8()..];
        }
        parts
    } else {
        text.splitn(limit, &**separator).map(Value::string).collect()
    };
    Ok(Value::list(parts))
}

fn substring<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, start, end) = match args {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let length = text.chars().count() as i64;
    let last = end.unwrap_or(length);
    if end.is_some() && start > last {
        let message = format!("invalid substring range. start: {start}, end: {last}");
        return Err(EvalError::Invalid(message));
    }
    if start < 0 || start > length {
        return Err(out_of_range(start));
    }
    if last < 0 || last > length {
        return Err(out_of_range(last));
    }
    let part: String = text
        .chars()
        .skip(start as usize)
        .take((last - start) as usize)
        .collect();
    Ok(Value::string(part))
}

fn join<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let mut joined = String::new();
    for (place, item) in list.iter().enumerate() {
        let Value::String(text) = item? else {
            return Err(EvalError::NoSuchOverload);
        };
        if place > 0 {
            joined.push_str(separator);
        }
        joined.push_str(&text);
        if joined.len() > RESULT_LIMIT {
            return Err(EvalError::CostLimit);
        }
    }
    Ok(Value::string(joined))
}

fn find_all<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, pattern, limit) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => (text, pattern, *limit),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let regex = illegal(pattern)?;
    let found = regex
        .find_iter(text)
        .take(limit)
        .map(|found| Value::string(found.as_str()));
    Ok(Value::list(found.collect()))
}

fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

//! `"%s and %d".format([...])`.

use super::{RESULT_LIMIT, convert};
use crate::error::EvalError;
use crate::times;
use crate::types::Type;
use crate::value::{Key, Map, Value};

/// Digits after the point that may be asked for; more cannot be meant.
const PRECISION_LIMIT: usize = 1000;

pub fn format<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(template), Value::List(values)] = args else {
        return Err(EvalError::NoSuchOverload);
    };
    let mut out = String::with_capacity(template.len() + 16);
    let mut next = 0;
    for piece in pieces(template)? {
        match piece {
            Piece::Text(c) => out.push(c),
            Piece::Clause { verb, precision } => {
                let value = values
                    .get(next)
                    .ok_or_else(|| EvalError::invalid(format!("index {next} out of range")))??;
                next += 1;
                out.push_str(&clause(verb, precision, &value)?);
            }
        }
        if out.len() > RESULT_LIMIT {
            return Err(EvalError::CostLimit);
        }
    }
    Ok(Value::string(out))
}

/// A part of a template.
enum Piece {
    Text(char),
    Clause { verb: char, precision: Option<usize> },
}

fn pieces(template: &str) -> Result<Vec<Piece>, EvalError> {
    let mut pieces = Vec::new();
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            pieces.push(Piece::Text(c));
            continue;
        }
        if chars.peek() == Some(&'%') {
            chars.next();
            pieces.push(Piece::Text('%'));
            continue;
        }
        let mut precision = None;
        if chars.peek() == Some(&'.') {
            chars.next();
            let mut digits = String::new();
            while let Some(digit) = chars.peek().filter(|c| c.is_ascii_digit()) {
                digits.push(*digit);
                chars.next();
            }
            let parsed = digits.parse::<usize>().ok().filter(|digits| *digits <= PRECISION_LIMIT);
            precision = Some(parsed.ok_or_else(|| EvalError::invalid("error while parsing precision"))?);
        }
        let verb = chars
            .next()
            .ok_or_else(|| EvalError::invalid("unexpected end of string"))?;
        if !matches!(verb, 's' | 'd' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o') {
            return Err(EvalError::invalid(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{verb}\""
            )));
        }
        pieces.push(Piece::Clause { verb, precision });
    }
    Ok(pieces)
}

/// The letters of a template's clauses, in order.
pub fn clauses(template: &str) -> Result<Vec<char>, EvalError> {
    let verbs = pieces(template)?.into_iter().filter_map(|piece| match piece {
        Piece::Clause { verb, .. } => Some(verb),
        Piece::Text(_) => None,
    });
    Ok(verbs.collect())
}

/// Whether a clause can show values of this type.
pub fn accepts(verb: char, kind: &Type) -> bool {
    match (verb, kind) {
        (_, Type::Dyn | Type::Error | Type::Param(_)) => true,
        ('s', kind) => !matches!(kind, Type::Opaque(_) | Type::Object(_) | Type::Optional(_)),
        ('d' | 'o', kind) => matches!(kind, Type::Int | Type::Uint),
        ('f' | 'e', kind) => matches!(kind, Type::Double | Type::Int | Type::Uint),
        ('b', kind) => matches!(kind, Type::Int | Type::Uint | Type::Bool),
        (_, kind) => matches!(kind, Type::Int | Type::Uint | Type::String | Type::Bytes),
    }
}

/// Why a clause cannot show a value.
pub fn refusal(verb: char, kind: &str) -> String {
    let why = match verb {
        'b' => "only integers and bools can be formatted as binary",
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'o' => "octal clause can only be used on integers",
        's' => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
             and timestamps"
        }
        _ => "only integers, byte buffers, and strings can be formatted as hex",
    };
    format!("error during formatting: {why}, was given {kind}")
}

fn clause(verb: char, precision: Option<usize>, value: &Value<'_>) -> Result<String, EvalError> {
    let wrong = || {
        let kind = value.type_name();
        EvalError::invalid(format!(
            "error during formatting: %{verb} clause cannot be applied to {kind}"
        ))
    };
    Ok(match (verb, value) {
        ('s', value) => shown(value)?,
        ('d', Value::Int(number)) => number.to_string(),
        ('d', Value::Uint(number)) => number.to_string(),
        ('d', Value::Double(number)) if !number.is_finite() => special(*number),
        ('f', Value::Double(number)) if !number.is_finite() => special(*number),
        ('e', Value::Double(number)) if !number.is_finite() => special(*number),
        ('f', value) => format!("{:.*}", precision.unwrap_or(6), number(value).ok_or_else(wrong)?),
        ('e', value) => {
            let number = number(value).ok_or_else(wrong)?;
            let text = format!("{number:.*e}", precision.unwrap_or(6));
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let exponent: i32 = exponent.parse().unwrap_or(0);
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        ('b', Value::Bool(value)) => if *value { "1" } else { "0" }.to_string(),
        ('b', Value::Int(number)) => signed(*number, format!("{:b}", number.unsigned_abs())),
        ('b', Value::Uint(number)) => format!("{number:b}"),
        ('o', Value::Int(number)) => signed(*number, format!("{:o}", number.unsigned_abs())),
        ('o', Value::Uint(number)) => format!("{number:o}"),
        ('x', Value::Int(number)) => signed(*number, format!("{:x}", number.unsigned_abs())),
        ('x', Value::Uint(number)) => format!("{number:x}"),
        ('X', Value::Int(number)) => signed(*number, format!("{:X}", number.unsigned_abs())),
        ('X', Value::Uint(number)) => format!("{number:X}"),
        ('x', Value::String(text)) => hex(text.as_bytes()),
        ('x', Value::Bytes(bytes)) => hex(bytes),
        ('X', Value::String(text)) => hex(text.as_bytes()).to_ascii_uppercase(),
        ('X', Value::Bytes(bytes)) => hex(bytes).to_ascii_uppercase(),
        _ => return Err(wrong()),
    })
}

fn signed(number: i64, digits: String) -> String {
    if number < 0 { format!("-{digits}") } else { digits }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn special(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_string()
    } else if number > 0.0 {
        "Infinity".to_string()
    } else {
        "-Infinity".to_string()
    }
}

fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::Int(number) => Some(*number as f64),
        Value::Uint(number) => Some(*number as f64),
        _ => None,
    }
}

/// A value as `%s` shows it.
fn shown(value: &Value<'_>) -> Result<String, EvalError> {
    Ok(match value {
        Value::Null => "null".to_string(),
        Value::Double(number) if !number.is_finite() => special(*number),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Type(name) => name.to_string(),
        Value::List(list) => {
            let items = list.iter().map(|item| quoted(&item?)).collect::<Result<Vec<_>, _>>()?;
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => shown_map(map)?,
        other => convert::shown(other)
            .ok_or_else(|| EvalError::invalid(format!("no formatting function for {}", other.type_name())))?,
    })
}

/// A value inside a list or a map: strings and times are quoted there.
fn quoted(value: &Value<'_>) -> Result<String, EvalError> {
    Ok(match value {
        Value::String(text) => format!("\"{}\"", &**text),
        Value::Bytes(bytes) => format!("b\"{}\"", String::from_utf8_lossy(bytes)),
        Value::Timestamp(time) => format!("timestamp(\"{}\")", times::show_timestamp(*time)),
        Value::Duration(nanos) => format!("duration(\"{}\")", times::show_duration(*nanos)),
        Value::Double(number) if number.is_finite() => format!("{number:.6}"),
        other => shown(other)?,
    })
}

fn shown_map(map: &Map<'_>) -> Result<String, EvalError> {
    let mut entries = Vec::new();
    for key in map.keys() {
        let value = map.get(&key.value()).transpose()?.unwrap_or(Value::Null);
        let key = match &key {
            Key::String(text) => format!("\"{}\"", &**text),
            Key::Bool(value) => value.to_string(),
            Key::Int(value) => value.to_string(),
            Key::Uint(value) => value.to_string(),
        };
        entries.push(format!("{key}:{}", quoted(&value)?));
    }
    entries.sort();
    Ok(format!("{{{}}}", entries.join(", ")))
}

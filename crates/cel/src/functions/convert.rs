//! Conversions between types, sizes, and the functions of optionals.

use super::Call;
use crate::error::EvalError;
use crate::times;
use crate::value::{Text, Value};
use jiff::Timestamp;

pub fn implementation(name: &str) -> Option<Call> {
    Some(match name {
        "size" => |args| match args {
            [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
                Ok(Value::Int(value.size() as i64))
            }
            _ => Err(EvalError::NoSuchOverloadOf("size")),
        },
        "type" => |args| Ok(Value::Type(Text::Borrowed(args[0].type_name()))),
        "dyn" => |args| Ok(args[0].clone()),
        "bool" => to_bool,
        "bytes" => |args| match args {
            [Value::Bytes(bytes)] => Ok(Value::Bytes(bytes.clone())),
            [Value::String(text)] => Ok(Value::Bytes(text.as_bytes().into())),
            _ => Err(EvalError::NoSuchOverload),
        },
        "double" => to_double,
        "int" => to_int,
        "uint" => to_uint,
        "string" => to_string,
        "duration" => to_duration,
        "timestamp" => to_timestamp,
        "optional.of" => |args| Ok(Value::some(args[0].clone())),
        "optional.ofNonZeroValue" => |args| {
            let value = &args[0];
            Ok(if value.is_zero() {
                Value::none()
            } else {
                Value::some(value.clone())
            })
        },
        "optional.none" => |_| Ok(Value::none()),
        "value" => |args| match args {
            [Value::Optional(Some(value))] => Ok((**value).clone()),
            [Value::Optional(None)] => Err(EvalError::invalid("optional.none() dereference")),
            _ => Err(EvalError::NoSuchOverload),
        },
        "hasValue" => |args| match args {
            [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
            _ => Err(EvalError::NoSuchOverload),
        },
        _ => return None,
    })
}

fn unreadable(from: &str, to: &str) -> EvalError {
    EvalError::invalid(format!("type conversion error from '{from}' to '{to}'"))
}

fn to_bool<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        [Value::String(text)] => match &**text {
            "true" | "1" | "t" | "TRUE" | "True" | "T" => Ok(Value::Bool(true)),
            "false" | "0" | "f" | "FALSE" | "False" | "F" => Ok(Value::Bool(false)),
            _ => Err(unreadable("string", "bool")),
        },
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn to_double<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(Value::Double(match args {
        [Value::Double(value)] => *value,
        [Value::Int(value)] => *value as f64,
        [Value::Uint(value)] => *value as f64,
        [Value::String(text)] => text.parse().map_err(|_| unreadable("string", "double"))?,
        _ => return Err(EvalError::NoSuchOverload),
    }))
}

/// Doubles beyond these are no integers, whatever rounding would make of them.
const DOUBLE_LIMIT: f64 = 9_223_372_036_854_775_808.0;

fn to_int<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(Value::Int(match args {
        [Value::Int(value)] => *value,
        [Value::Uint(value)] => i64::try_from(*value).map_err(|_| EvalError::IntegerOverflow)?,
        [Value::Double(value)] if value.abs() < DOUBLE_LIMIT => *value as i64,
        [Value::Double(_)] => return Err(EvalError::IntegerOverflow),
        [Value::String(text)] => text.parse().map_err(|_| unreadable("string", "int"))?,
        [Value::Timestamp(time)] => time.as_second(),
        [Value::Duration(nanos)] => *nanos,
        _ => return Err(EvalError::NoSuchOverload),
    }))
}

fn to_uint<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(Value::Uint(match args {
        [Value::Uint(value)] => *value,
        [Value::Int(value)] => u64::try_from(*value).map_err(|_| EvalError::UnsignedOverflow)?,
        [Value::Double(value)] if *value > -1.0 && *value < 2.0 * DOUBLE_LIMIT => *value as u64,
        [Value::Double(_)] => return Err(EvalError::UnsignedOverflow),
        [Value::String(text)] => text.parse().map_err(|_| unreadable("string", "uint"))?,
        _ => return Err(EvalError::NoSuchOverload),
    }))
}

fn to_string<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [value] = args else {
        return Err(EvalError::NoSuchOverload);
    };
    if let Value::String(text) = value {
        return Ok(Value::String(text.clone()));
    }
    if let Value::Bytes(bytes) = value {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| EvalError::invalid("invalid UTF-8 in bytes, cannot convert to string"))?;
        return Ok(Value::string(text));
    }
    shown(value).map(Value::string).ok_or(EvalError::NoSuchOverload)
}

/// A scalar as `string(x)` shows it.
pub fn shown(value: &Value<'_>) -> Option<String> {
    Some(match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => show_double(*value),
        Value::String(text) => text.to_string(),
        Value::Timestamp(time) => times::show_timestamp(*time),
        Value::Duration(nanos) => times::show_duration(*nanos),
        Value::Ip(ip) => ip.to_string(),
        Value::Cidr(cidr) => cidr.to_string(),
        _ => return None,
    })
}

/// The shortest form that reads back the same, with an exponent where Go writes one.
pub fn show_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_string();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_string();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // Go writes an exponent below 1e-4 and from 1e6 on.
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{value}")
}

fn to_duration<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(Value::Duration(match args {
        [Value::Duration(nanos)] => *nanos,
        [Value::Int(nanos)] => *nanos,
        [Value::String(text)] => {
            times::parse_duration(text).ok_or_else(|| unreadable("string", "google.protobuf.Duration"))?
        }
        _ => return Err(EvalError::NoSuchOverload),
    }))
}

fn to_timestamp<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(Value::Timestamp(match args {
        [Value::Timestamp(time)] => *time,
        [Value::Int(seconds)] => Timestamp::from_second(*seconds)
            .ok()
            .and_then(times::in_range)
            .ok_or_else(|| EvalError::invalid("timestamp overflow"))?,
        [Value::String(text)] => {
            times::parse_timestamp(text).ok_or_else(|| unreadable("string", "google.protobuf.Timestamp"))?
        }
        _ => return Err(EvalError::NoSuchOverload),
    }))
}

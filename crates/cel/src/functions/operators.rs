//! Arithmetic, order, equality and membership.

use super::Call;
use crate::error::EvalError;
use crate::times;
use crate::value::{Value, compare, equal};

pub fn implementation(name: &str) -> Option<Call> {
    Some(match name {
        "_+_" => add,
        "_-_" => subtract,
        "_*_" => multiply,
        "_/_" => divide,
        "_%_" => modulo,
        "-_" => negate,
        "!_" => |args| match args {
            [Value::Bool(value)] => Ok(Value::Bool(!value)),
            _ => Err(EvalError::NoSuchOverload),
        },
        "_==_" => |args| Ok(Value::Bool(equal(&args[0], &args[1])?)),
        // What cannot be compared is not equal.
        "_!=_" => |args| Ok(Value::Bool(!equal(&args[0], &args[1]).unwrap_or(false))),
        "_<_" => |args| Ok(Value::Bool(compare(&args[0], &args[1])?.is_lt())),
        "_<=_" => |args| Ok(Value::Bool(compare(&args[0], &args[1])?.is_le())),
        "_>_" => |args| Ok(Value::Bool(compare(&args[0], &args[1])?.is_gt())),
        "_>=_" => |args| Ok(Value::Bool(compare(&args[0], &args[1])?.is_ge())),
        "@in" => |args| match args {
            [wanted, Value::List(list)] => Ok(Value::Bool(crate::value::list_contains(list, wanted)?)),
            [key, Value::Map(map)] => Ok(Value::Bool(map.get(key).is_some())),
            _ => Err(EvalError::NoSuchOverload),
        },
        _ => return None,
    })
}

fn duration_overflow() -> EvalError {
    EvalError::invalid("duration overflow")
}

fn timestamp_overflow() -> EvalError {
    EvalError::invalid("timestamp overflow")
}

fn add<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_add(*b).ok_or(EvalError::IntegerOverflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_add(*b).ok_or(EvalError::UnsignedOverflow)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a + b),
        [Value::String(a), Value::String(b)] => {
            let mut text = String::with_capacity(a.len() + b.len());
            text.push_str(a);
            text.push_str(b);
            Value::string(text)
        }
        [Value::Bytes(a), Value::Bytes(b)] => Value::Bytes([&**a, &**b].concat().into()),
        [Value::List(a), Value::List(b)] => crate::value::concatenate(a, b)?,
        [Value::Duration(a), Value::Duration(b)] => Value::Duration(a.checked_add(*b).ok_or_else(duration_overflow)?),
        [Value::Duration(nanos), Value::Timestamp(time)] | [Value::Timestamp(time), Value::Duration(nanos)] => {
            Value::Timestamp(times::later(*time, *nanos).ok_or_else(timestamp_overflow)?)
        }
        _ => return Err(EvalError::NoSuchOverload),
    })
}

fn subtract<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_sub(*b).ok_or(EvalError::IntegerOverflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_sub(*b).ok_or(EvalError::UnsignedOverflow)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a - b),
        [Value::Duration(a), Value::Duration(b)] => Value::Duration(a.checked_sub(*b).ok_or_else(duration_overflow)?),
        [Value::Timestamp(time), Value::Duration(nanos)] => {
            let back = nanos.checked_neg().ok_or_else(duration_overflow)?;
            Value::Timestamp(times::later(*time, back).ok_or_else(timestamp_overflow)?)
        }
        [Value::Timestamp(a), Value::Timestamp(b)] => {
            let nanos = a.as_nanosecond() - b.as_nanosecond();
            Value::Duration(i64::try_from(nanos).map_err(|_| duration_overflow())?)
        }
        _ => return Err(EvalError::NoSuchOverload),
    })
}

fn multiply<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_mul(*b).ok_or(EvalError::IntegerOverflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_mul(*b).ok_or(EvalError::UnsignedOverflow)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a * b),
        _ => return Err(EvalError::NoSuchOverload),
    })
}

fn divide<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => return Err(EvalError::DivisionByZero),
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_div(*b).ok_or(EvalError::IntegerOverflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a / b),
        [Value::Double(a), Value::Double(b)] => Value::Double(a / b),
        _ => return Err(EvalError::NoSuchOverload),
    })
}

fn modulo<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => return Err(EvalError::ModulusByZero),
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_rem(*b).ok_or(EvalError::IntegerOverflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a % b),
        _ => return Err(EvalError::NoSuchOverload),
    })
}

fn negate<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(match args {
        [Value::Int(value)] => Value::Int(value.checked_neg().ok_or(EvalError::IntegerOverflow)?),
        [Value::Double(value)] => Value::Double(-value),
        [Value::Duration(value)] => Value::Duration(value.checked_neg().ok_or_else(duration_overflow)?),
        _ => return Err(EvalError::NoSuchOverload),
    })
}

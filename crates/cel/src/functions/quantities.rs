//! Amounts such as `1.5Gi`.

use super::Call;
use crate::error::EvalError;
use crate::value::Value;
use stead_machinery::quantity::Quantity;

pub fn implementation(name: &str) -> Option<Call> {
    Some(match name {
        "quantity" => |args| match args {
            [Value::String(text)] => parse(text).map(Value::Quantity),
            _ => Err(EvalError::NoSuchOverload),
        },
        "isQuantity" => |args| match args {
            [Value::String(text)] => Ok(Value::Bool(parse(text).is_ok())),
            _ => Err(EvalError::NoSuchOverload),
        },
        "sign" => |args| {
            let amount = amount(args)?;
            Ok(Value::Int(if amount.is_zero() {
                0
            } else if amount.is_negative() {
                -1
            } else {
                1
            }))
        },
        "asApproximateFloat" => |args| Ok(Value::Double(amount(args)?.as_f64())),
        "isInteger" => |args| Ok(Value::Bool(amount(args)?.is_whole())),
        "asInteger" => |args| {
            let amount = amount(args)?;
            if amount.is_whole() {
                Ok(Value::Int(amount.value()))
            } else {
                Err(EvalError::invalid("cannot convert value to integer"))
            }
        },
        "add" => |args| match args {
            [Value::Quantity(a), Value::Quantity(b)] => Ok(Value::Quantity(a.clone() + b)),
            [Value::Quantity(a), Value::Int(b)] => Ok(Value::Quantity(a.clone() + &Quantity::whole(*b))),
            _ => Err(EvalError::NoSuchOverload),
        },
        "sub" => |args| match args {
            [Value::Quantity(a), Value::Quantity(b)] => Ok(Value::Quantity(a.clone() - b)),
            [Value::Quantity(a), Value::Int(b)] => Ok(Value::Quantity(a.clone() - &Quantity::whole(*b))),
            _ => Err(EvalError::NoSuchOverload),
        },
        _ => return None,
    })
}

fn parse(text: &str) -> Result<Quantity, EvalError> {
    text.parse().map_err(|_| {
        EvalError::invalid(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        )
    })
}

fn amount<'v>(args: &'v [Value<'_>]) -> Result<&'v Quantity, EvalError> {
    match args {
        [Value::Quantity(amount)] => Ok(amount),
        _ => Err(EvalError::NoSuchOverload),
    }
}

//! What the functions do. Their types are in [`crate::signatures`]; each implementation looks at the values it
//! is given, because an argument of type `dyn` shows what it is only then.

pub mod convert;
pub mod formats;
pub mod lists;
pub mod net;
pub mod operators;
pub mod printf;
pub mod quantities;
pub mod semver;
pub mod strings;
pub mod timing;
pub mod urls;

use crate::error::EvalError;
use crate::value::Value;

/// An implementation: the receiver of a method is the first argument.
pub type Call = for<'a> fn(&[Value<'a>]) -> Result<Value<'a>, EvalError>;

/// Bounds the text and lists that one call may make, whatever its arguments are.
pub(crate) const RESULT_LIMIT: usize = 64 << 20;

/// The implementation of a function; `None` for those that evaluation handles itself.
pub fn implementation(name: &str) -> Option<Call> {
    operators::implementation(name)
        .or_else(|| convert::implementation(name))
        .or_else(|| strings::implementation(name))
        .or_else(|| lists::implementation(name))
        .or_else(|| timing::implementation(name))
        .or_else(|| kubernetes(name))
        .or_else(|| authorization(name))
}

fn kubernetes(name: &str) -> Option<Call> {
    quantities::implementation(name)
        .or_else(|| net::implementation(name))
        .or_else(|| urls::implementation(name))
        .or_else(|| semver::implementation(name))
        .or_else(|| formats::implementation(name))
        .or_else(|| shared(name))
}

/// Methods that both quantities and versions have.
fn shared(name: &str) -> Option<Call> {
    Some(match name {
        "isGreaterThan" => |args| ordered(args).map(|order| Value::Bool(order.is_gt())),
        "isLessThan" => |args| ordered(args).map(|order| Value::Bool(order.is_lt())),
        "compareTo" => |args| ordered(args).map(|order| Value::Int(order as i64)),
        _ => return None,
    })
}

fn ordered(args: &[Value<'_>]) -> Result<std::cmp::Ordering, EvalError> {
    match args {
        [Value::Quantity(a), Value::Quantity(b)] => Ok(a.cmp(b)),
        [Value::Semver(a), Value::Semver(b)] => Ok(a.precedence(b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn authorization(name: &str) -> Option<Call> {
    // A function pointer knows no name of its own, so each method is its own closure.
    macro_rules! methods {
        ($($method:literal),*) => {
            match name {
                $($method => Some(|args| authorize($method, args)),)*
                _ => None,
            }
        };
    }
    methods!(
        "path",
        "group",
        "serviceAccount",
        "resource",
        "subresource",
        "namespace",
        "name",
        "fieldSelector",
        "labelSelector",
        "check",
        "errored",
        "error",
        "allowed",
        "reason"
    )
}

fn authorize<'a>(method: &str, args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::Check(check), rest @ ..] = args else {
        return Err(EvalError::NoSuchOverload);
    };
    let texts: Vec<&str> = rest
        .iter()
        .map(|arg| match arg {
            Value::String(text) => Ok(&**text),
            _ => Err(EvalError::NoSuchOverload),
        })
        .collect::<Result<_, _>>()?;
    check.call(method, &texts)
}

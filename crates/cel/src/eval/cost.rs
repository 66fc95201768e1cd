//! What a call costs at run time, as Kubernetes counts it.

use crate::value::Value;

/// Units for one character that is looked at.
pub const TEXT_FACTOR: f64 = 0.1;
/// How many units one character of a regular expression stands for.
pub const REGEX_FACTOR: f64 = 0.25;
/// Kubernetes prices authorisation checks so that an expression can afford two.
pub const CHECK_COST: u64 = 350_000;

/// Which of Kubernetes' formulas a function has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallCost {
    One,
    Check,
    Selector,
    /// A walk over all of the first argument.
    Traversal,
    /// Reading the first argument, this many tenths for each character.
    Reading(u8),
    Joining,
    Searching,
    Matching,
    Containing,
    Membership,
    Comparison,
    Addition,
    ContainsIp,
    ContainsCidr,
    Validating,
    OutputList,
    Flattening,
    /// Every item of this argument with every other.
    SelfCompare(u8),
    /// Every item of one set with every item of the other, this many times.
    Sets(u8),
}

impl CallCost {
    pub fn of(function: &str) -> CallCost {
        match function {
            "check" => CallCost::Check,
            "fieldSelector" | "labelSelector" => CallCost::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => CallCost::Traversal,
            "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "ip"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver"
            | "startsWith"
            | "endsWith"
            | "bytes"
            | "strings.quote"
            | "format" => CallCost::Reading(1),
            "replace" | "split" | "ip.isCanonical" => CallCost::Reading(2),
            "join" => CallCost::Joining,
            "find" | "findAll" => CallCost::Searching,
            "matches" => CallCost::Matching,
            "contains" => CallCost::Containing,
            "@in" => CallCost::Membership,
            "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => CallCost::Comparison,
            "_+_" => CallCost::Addition,
            "containsIP" => CallCost::ContainsIp,
            "containsCIDR" => CallCost::ContainsCidr,
            "validate" => CallCost::Validating,
            "slice" | "lists.range" | "reverse" => CallCost::OutputList,
            "flatten" => CallCost::Flattening,
            "distinct" | "sort" => CallCost::SelfCompare(0),
            "@sortByAssociatedKeys" => CallCost::SelfCompare(1),
            "sets.contains" | "sets.intersects" => CallCost::Sets(1),
            "sets.equivalent" => CallCost::Sets(2),
            _ => CallCost::One,
        }
    }

    /// What is known before the call.
    pub fn before(self, args: &[Value<'_>]) -> u64 {
        let size = |place: usize| args.get(place).map_or(1, Value::size);
        match self {
            CallCost::One => 1,
            CallCost::Check => CHECK_COST,
            CallCost::Selector => {
                let length = size(1);
                10 + text(length) + (length as f64 * 0.5).ceil() as u64 * 50
            }
            CallCost::Traversal => args.first().map_or(0, traversal),
            CallCost::Reading(tenths) => match args.first() {
                // The conversions of other types than strings read nothing.
                Some(Value::String(_) | Value::Bytes(_)) => {
                    (size(0) as f64 * f64::from(tenths) * TEXT_FACTOR).ceil() as u64
                }
                _ => 1,
            },
            CallCost::Searching | CallCost::Matching => regex(size(0), size(1)),
            CallCost::Containing => text(size(0)).saturating_mul(text(size(1))),
            CallCost::Membership => match args.get(1) {
                Some(Value::List(list)) => list.len() as u64,
                _ => 1,
            },
            CallCost::Comparison => comparison(args),
            CallCost::Addition => match args {
                [Value::String(_), _] | [Value::Bytes(_), _] => text(size(0).saturating_add(size(1))),
                _ => 1,
            },
            CallCost::ContainsIp => text(2 * size(0)) + argument_text(args),
            CallCost::ContainsCidr => text(2 * size(0)) + text(size(0)) + 1 + argument_text(args),
            CallCost::Validating => match args {
                [Value::Format(format), value] => regex(value.size(), format.regex_size),
                _ => 1,
            },
            CallCost::Flattening => {
                let depth = match args.get(1) {
                    Some(Value::Int(depth)) => *depth as f64,
                    _ => 1.0,
                };
                (size(0) as f64 * depth) as u64 + 11
            }
            CallCost::SelfCompare(place) => {
                let place = usize::from(place);
                let first = match args.get(place) {
                    Some(Value::List(list)) => list.get(0).and_then(Result::ok),
                    _ => None,
                };
                let texts = matches!(first, Some(Value::String(_) | Value::Bytes(_)));
                let factor = if texts { 2.0 + TEXT_FACTOR } else { 2.0 };
                let pairs = size(place).saturating_mul(size(place));
                (pairs as f64 * factor) as u64 + 11
            }
            CallCost::Sets(times) => size(0).saturating_mul(size(1)).saturating_mul(u64::from(times)) + 1,
            CallCost::Joining | CallCost::OutputList => 0,
        }
    }

    /// What only the result tells.
    pub fn after(self, _args: &[Value<'_>], result: &Value<'_>) -> u64 {
        match self {
            CallCost::Joining => (result.size() as f64 * 2.0 * TEXT_FACTOR).ceil() as u64,
            CallCost::OutputList => result.size() + 11,
            _ => 0,
        }
    }
}

/// Characters looked at once.
pub fn text(length: u64) -> u64 {
    (length as f64 * TEXT_FACTOR).ceil() as u64
}

/// A regular expression of this length on a text of this length.
pub fn regex(length: u64, pattern: u64) -> u64 {
    let text = ((1.0 + length as f64) * TEXT_FACTOR).ceil() as u64;
    text.saturating_mul((pattern as f64 * REGEX_FACTOR).ceil() as u64)
}

fn comparison(args: &[Value<'_>]) -> u64 {
    let [a, b] = args else {
        return 1;
    };
    match a {
        Value::Quantity(_)
        | Value::Ip(_)
        | Value::Cidr(_)
        | Value::Format(_)
        | Value::Url(_)
        | Value::Semver(_)
        | Value::Check(_) => 1,
        _ => text(a.size().min(b.size())),
    }
}

/// A string argument has to be read first.
fn argument_text(args: &[Value<'_>]) -> u64 {
    match args.get(1) {
        Some(value @ Value::String(_)) => text(value.size()),
        _ => 0,
    }
}

/// A walk over everything inside a value.
fn traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * TEXT_FACTOR) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * TEXT_FACTOR) as u64,
        Value::List(list) => list
            .iter()
            .filter_map(Result::ok)
            .fold(0, |sum: u64, item| sum.saturating_add(traversal(&item))),
        Value::Map(map) => map.keys().into_iter().fold(0, |sum: u64, key| {
            let key = key.value();
            let value = map.get(&key).and_then(Result::ok);
            sum.saturating_add(traversal(&key))
                .saturating_add(value.map_or(0, |value| traversal(&value)))
        }),
        _ => 1,
    }
}

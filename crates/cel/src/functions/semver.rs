//! Semantic versions.

use super::Call;
use crate::error::EvalError;
use crate::value::Value;
use std::cmp::Ordering;
use std::sync::Arc;

/// `major.minor.patch-prerelease+build`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub numbers: [u64; 3],
    prerelease: Vec<Identifier>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl Version {
    /// The order of the specification: build metadata does not count.
    pub fn precedence(&self, other: &Version) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
                (true, true) => Ordering::Equal,
                // A version without a prerelease comes after all its prereleases.
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => {
                    let pairs = self.prerelease.iter().zip(&other.prerelease);
                    pairs
                        .map(|(a, b)| identifier_order(a, b))
                        .find(|order| order.is_ne())
                        .unwrap_or_else(|| self.prerelease.len().cmp(&other.prerelease.len()))
                }
            }
        })
    }
}

fn identifier_order(a: &Identifier, b: &Identifier) -> Ordering {
    match (a, b) {
        (Identifier::Number(a), Identifier::Number(b)) => a.cmp(b),
        (Identifier::Number(_), Identifier::Text(_)) => Ordering::Less,
        (Identifier::Text(_), Identifier::Number(_)) => Ordering::Greater,
        (Identifier::Text(a), Identifier::Text(b)) => a.cmp(b),
    }
}

pub fn implementation(name: &str) -> Option<Call> {
    Some(match name {
        "semver" => |args| parse_args(args).map(|version| Value::Semver(Arc::new(version))),
        "isSemver" => |args| match parse_args(args) {
            Err(EvalError::NoSuchOverload) => Err(EvalError::NoSuchOverload),
            other => Ok(Value::Bool(other.is_ok())),
        },
        "major" => |args| number(args, 0),
        "minor" => |args| number(args, 1),
        "patch" => |args| number(args, 2),
        _ => return None,
    })
}

fn number<'a>(args: &[Value<'a>], place: usize) -> Result<Value<'a>, EvalError> {
    match args {
        [Value::Semver(version)] => Ok(Value::Int(version.numbers[place] as i64)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn parse_args(args: &[Value<'_>]) -> Result<Version, EvalError> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => parse(text),
        [Value::String(text), Value::Bool(true)] => parse(&normalized(text)?),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// Takes a leading `v` and leading zeros away and fills up to three numbers.
fn normalized(text: &str) -> Result<String, EvalError> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text
        .splitn(3, '.')
        .map(|part| {
            if part.len() <= 1 {
                return part.to_string();
            }
            let trimmed = part.trim_start_matches('0');
            if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                trimmed.to_string()
            } else {
                format!("0{trimmed}")
            }
        })
        .collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            let message = "short version cannot contain PreRelease/Build meta data";
            return Err(EvalError::invalid(message));
        }
        parts.resize(3, "0".to_string());
    }
    Ok(parts.join("."))
}

fn parse(text: &str) -> Result<Version, EvalError> {
    if text.is_empty() {
        return Err(EvalError::invalid("Version string empty"));
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, rest] = parts.as_slice() else {
        return Err(EvalError::invalid("No Major.Minor.Patch elements found"));
    };
    let (rest, build) = match rest.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (*rest, None),
    };
    let (patch, prerelease) = match rest.split_once('-') {
        Some((patch, prerelease)) => (patch, Some(prerelease)),
        None => (rest, None),
    };
    let numbers = [
        component(major, "major")?,
        component(minor, "minor")?,
        component(patch, "patch")?,
    ];
    let mut identifiers = Vec::new();
    for part in prerelease.into_iter().flat_map(|text| text.split('.')) {
        identifiers.push(identifier(part)?);
    }
    for part in build.into_iter().flat_map(|text| text.split('.')) {
        if part.is_empty() {
            return Err(EvalError::invalid("Build meta data is empty"));
        }
        if !is_word(part) {
            let message = format!("Invalid character(s) found in build meta data {part:?}");
            return Err(EvalError::Invalid(message));
        }
    }
    Ok(Version {
        numbers,
        prerelease: identifiers,
    })
}

fn component(text: &str, name: &str) -> Result<u64, EvalError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let message = format!("Invalid character(s) found in {name} number {text:?}");
        return Err(EvalError::Invalid(message));
    }
    if text.len() > 1 && text.starts_with('0') {
        let capital = name[..1].to_uppercase() + &name[1..];
        let message = format!("{capital} number must not contain leading zeroes {text:?}");
        return Err(EvalError::Invalid(message));
    }
    text.parse()
        .map_err(|_| EvalError::invalid(format!("strconv.ParseUint: parsing {text:?}: value out of range")))
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn identifier(text: &str) -> Result<Identifier, EvalError> {
    if text.is_empty() {
        return Err(EvalError::invalid("Prerelease is empty"));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            let message = format!("Numeric PreRelease version must not contain leading zeroes {text:?}");
            return Err(EvalError::Invalid(message));
        }
        return text
            .parse()
            .map(Identifier::Number)
            .map_err(|_| EvalError::invalid(format!("strconv.ParseUint: parsing {text:?}: value out of range")));
    }
    if !is_word(text) {
        let message = format!("Invalid character(s) found in prerelease {text:?}");
        return Err(EvalError::Invalid(message));
    }
    Ok(Identifier::Text(text.to_string()))
}

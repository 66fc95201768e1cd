//! Field selectors: `metadata.name=x,status.phase!=Running`.
//!
//! Which fields a kind offers is the server's business; here is only the syntax and the comparison.

use super::SelectorError;
use std::fmt;

/// Requirements on fields that all have to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    pub requirements: Vec<FieldRequirement>,
}

/// One requirement on the value of one field; an absent field has the empty value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldRequirement {
    Equals { field: String, value: String },
    NotEquals { field: String, value: String },
}

impl FieldRequirement {
    pub fn field(&self) -> &str {
        match self {
            FieldRequirement::Equals { field, .. } | FieldRequirement::NotEquals { field, .. } => field,
        }
    }
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            requirements.push(requirement(text, term)?);
        }
        Ok(FieldSelector { requirements })
    }

    /// Whether the fields, looked up by `value_of`, satisfy every requirement.
    pub fn matches<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| match requirement {
            FieldRequirement::Equals { field, value } => value_of(field).unwrap_or_default() == value,
            FieldRequirement::NotEquals { field, value } => value_of(field).unwrap_or_default() != value,
        })
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The one value that a field must have, when the selector says so.
    pub fn exact(&self, wanted: &str) -> Option<&str> {
        self.requirements.iter().find_map(|requirement| match requirement {
            FieldRequirement::Equals { field, value } if field == wanted => Some(value.as_str()),
            _ => None,
        })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            match requirement {
                FieldRequirement::Equals { field, value } => write!(f, "{separator}{field}={}", escape(value))?,
                FieldRequirement::NotEquals { field, value } => write!(f, "{separator}{field}!={}", escape(value))?,
            }
        }
        Ok(())
    }
}

fn requirement(selector: &str, term: &str) -> Result<FieldRequirement, SelectorError> {
    let Some(at) = term.find(['=', '!']).and_then(|start| operator_from(term, start)) else {
        let message = format!("invalid selector: '{selector}'; can't understand '{term}'");
        return Err(SelectorError(message));
    };
    let (field, rest) = term.split_at(at);
    let field = field.to_string();
    if let Some(value) = rest.strip_prefix("!=") {
        let value = unescape(value)?;
        return Ok(FieldRequirement::NotEquals { field, value });
    }
    let value = rest
        .strip_prefix("==")
        .or_else(|| rest.strip_prefix('='))
        .unwrap_or(rest);
    let value = unescape(value)?;
    Ok(FieldRequirement::Equals { field, value })
}

/// Where the first operator begins; a `!` without `=` is none.
fn operator_from(term: &str, start: usize) -> Option<usize> {
    let equals = start + term[start..].find('=')?;
    let before = term[..equals].strip_suffix('!');
    Some(before.map_or(equals, str::len))
}

/// Splits at commas that no backslash escapes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=")
}

fn unescape(text: &str) -> Result<String, SelectorError> {
    let bad_escape =
        |sequence: &str| SelectorError(format!("invalid field selector: invalid escape sequence: {sequence}"));
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => value.push(c),
                Some(c) => return Err(bad_escape(&format!("\\{c}"))),
                None => return Err(bad_escape("\\")),
            },
            ',' | '=' => {
                let message = format!("invalid field selector: unescaped character in value: {}", u32::from(c));
                return Err(SelectorError(message));
            }
            _ => value.push(c),
        }
    }
    Ok(value)
}

//! Label and field selectors: how a list, a watch or a controller picks objects.
//!
//! Both the query-string form and the `LabelSelector` object become one list of requirements, so
//! matching is written once. Parse errors carry Kubernetes' wording because clients show them.

use crate::field::FieldError;
use crate::names;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

mod fields;
mod parse;

pub use fields::{FieldRequirement, FieldSelector};

/// Why a selector was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);

/// Requirements that all have to hold for a set of labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelSelector {
    /// What an absent `LabelSelector` object selects.
    Nothing,
    /// Matches when each requirement does; none at all matches everything.
    All(Vec<Requirement>),
}

/// One requirement on the value of one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

/// How a label's value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// Where labels are looked up.
pub trait Labels {
    fn label(&self, key: &str) -> Option<&str>;
}

impl Labels for BTreeMap<String, String> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

impl Labels for serde_json::Map<String, Value> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Value::as_str)
    }
}

/// The labels of an object, or the label map itself being absent (`Null`).
impl Labels for Value {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Value::as_str)
    }
}

impl LabelSelector {
    /// The selector that every object matches.
    pub fn everything() -> Self {
        LabelSelector::All(Vec::new())
    }

    /// Parses `a=b,c in (d,e),!f`, the form of a query string.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        parse::requirements(text).map(LabelSelector::All)
    }

    /// Reads a `LabelSelector` object; an absent one (`Null`) selects nothing, an empty one everything.
    pub fn from_object(selector: &Value) -> Result<Self, SelectorError> {
        if selector.is_null() {
            return Ok(LabelSelector::Nothing);
        }
        let mut requirements = Vec::new();
        for (key, value) in selector
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let value = value.as_str().unwrap_or_default().to_string();
            requirements.push(Requirement::checked(key, Operator::Equals, vec![value])?);
        }
        for expression in selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
            let operator = match text("operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(SelectorError(format!(
                        "{other:?} is not a valid label selector operator"
                    )));
                }
            };
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            let values = values
                .map(|value| value.as_str().unwrap_or_default().to_string())
                .collect();
            requirements.push(Requirement::checked(text("key"), operator, values)?);
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(LabelSelector::All(requirements))
    }

    pub fn matches(&self, labels: &impl Labels) -> bool {
        match self {
            LabelSelector::Nothing => false,
            LabelSelector::All(requirements) => requirements.iter().all(|r| r.matches(labels)),
        }
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        matches!(self, LabelSelector::All(requirements) if requirements.is_empty())
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LabelSelector::All(requirements) = self else {
            return Ok(());
        };
        let texts: Vec<String> = requirements.iter().map(Requirement::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

impl Requirement {
    /// A requirement whose key, values and number of values fit its operator.
    pub fn checked(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, SelectorError> {
        let mut errors = Vec::new();
        let complaints = names::qualified_name(key);
        if !complaints.is_empty() {
            errors.push(FieldError::invalid("key", key, complaints.join("; ")));
        }
        let expectation = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        if let Some(expectation) = expectation {
            errors.push(FieldError::invalid("values", values.clone(), expectation));
        }
        for (index, value) in values.iter().enumerate() {
            let ordered = matches!(operator, Operator::GreaterThan | Operator::LessThan);
            if ordered && value.parse::<i64>().is_err() {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(FieldError::invalid(format!("values[{index}]"), value.as_str(), detail));
            }
            let complaints = names::label_value(value);
            if !complaints.is_empty() {
                let field = format!("values[{index}][{key}]");
                errors.push(FieldError::invalid(field, value.as_str(), complaints.join("; ")));
            }
        }
        if errors.is_empty() {
            let key = key.to_string();
            return Ok(Requirement { key, operator, values });
        }
        Err(SelectorError(aggregate(&errors)))
    }

    pub fn matches(&self, labels: &impl Labels) -> bool {
        let value = labels.label(&self.key);
        let listed = |value: &str| self.values.iter().any(|wanted| wanted == value);
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => value.is_some_and(listed),
            Operator::NotEquals | Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let bound = self.values.first().and_then(|bound| bound.parse::<i64>().ok());
                match (value.and_then(|value| value.parse::<i64>().ok()), bound) {
                    (Some(value), Some(bound)) if self.operator == Operator::GreaterThan => value > bound,
                    (Some(value), Some(bound)) => value < bound,
                    _ => false,
                }
            }
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let mut values = self.values.clone();
        values.sort();
        let values = values.join(",");
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// Several complaints in the brackets that Kubernetes puts around more than one.
fn aggregate(errors: &[FieldError]) -> String {
    let texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
    match texts.as_slice() {
        [only] => only.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests;

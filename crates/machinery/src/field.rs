//! What is wrong with a field of an object, in the words that Kubernetes uses.

use serde_json::Value;
use std::fmt;

/// One mistake in one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// `spec.template.spec.containers[0].name`.
    pub field: String,
    pub kind: FieldErrorKind,
    /// The value that was refused, where the message shows it.
    pub value: Value,
    pub detail: String,
}

/// The classes of mistakes, each with the reason that goes into a Status cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    NotFound,
    Required,
    Duplicate,
    /// As [`FieldErrorKind::Duplicate`], of a value that is not repeated in the message.
    DuplicateUnshown,
    Invalid,
    /// As [`FieldErrorKind::Invalid`], of a value that is not repeated in the message.
    InvalidUnshown,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Internal,
    TypeInvalid,
}

impl FieldErrorKind {
    /// `FieldValueInvalid` and its kin.
    pub fn reason(self) -> &'static str {
        match self {
            FieldErrorKind::NotFound => "FieldValueNotFound",
            FieldErrorKind::Required => "FieldValueRequired",
            FieldErrorKind::Duplicate | FieldErrorKind::DuplicateUnshown => "FieldValueDuplicate",
            FieldErrorKind::Invalid | FieldErrorKind::InvalidUnshown => "FieldValueInvalid",
            FieldErrorKind::NotSupported => "FieldValueNotSupported",
            FieldErrorKind::Forbidden => "FieldValueForbidden",
            FieldErrorKind::TooLong => "FieldValueTooLong",
            FieldErrorKind::TooMany => "FieldValueTooMany",
            FieldErrorKind::Internal => "InternalError",
            FieldErrorKind::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    fn words(self) -> &'static str {
        match self {
            FieldErrorKind::NotFound => "Not found",
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Duplicate | FieldErrorKind::DuplicateUnshown => "Duplicate value",
            FieldErrorKind::Invalid | FieldErrorKind::InvalidUnshown | FieldErrorKind::TypeInvalid => "Invalid value",
            FieldErrorKind::NotSupported => "Unsupported value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::TooLong => "Too long",
            FieldErrorKind::TooMany => "Too many",
            FieldErrorKind::Internal => "Internal error",
        }
    }
}

impl FieldError {
    pub fn new(field: impl Into<String>, kind: FieldErrorKind, value: Value, detail: impl Into<String>) -> Self {
        FieldError {
            field: field.into(),
            kind,
            value,
            detail: detail.into(),
        }
    }

    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::Required, Value::Null, detail)
    }

    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::Invalid, value.into(), detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, FieldErrorKind::Forbidden, Value::Null, detail)
    }

    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(field, FieldErrorKind::Duplicate, value.into(), "")
    }

    /// `Unsupported value: "x": supported values: "a", "b"`.
    pub fn not_supported(field: impl Into<String>, value: impl Into<Value>, allowed: &[&str]) -> Self {
        let quoted: Vec<String> = allowed.iter().map(|value| format!("{value:?}")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new(field, FieldErrorKind::NotSupported, value.into(), detail)
    }

    /// The message without the field: `Invalid value: "x": must be ...`.
    pub fn body(&self) -> String {
        let words = self.kind.words();
        let shown = match self.kind {
            FieldErrorKind::Required
            | FieldErrorKind::DuplicateUnshown
            | FieldErrorKind::InvalidUnshown
            | FieldErrorKind::Forbidden
            | FieldErrorKind::TooLong
            | FieldErrorKind::Internal => String::new(),
            FieldErrorKind::TooMany if self.value.is_null() => String::new(),
            _ => format!(": {}", shown(&self.value)),
        };
        if self.detail.is_empty() {
            format!("{words}{shown}")
        } else {
            format!("{words}{shown}: {}", self.detail)
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// A refused value as Kubernetes prints it: strings quoted, objects as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_string(),
        // Go has a letter for the bell, JSON has not.
        Value::String(_) => value.to_string().replace("\\u0007", "\\a"),
        other => other.to_string(),
    }
}

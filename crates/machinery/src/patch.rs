//! The three kinds of patches that change a part of an object.
//!
//! JSON patch and JSON merge patch follow their RFCs as Kubernetes' library reads them, error texts
//! included; strategic merge patch merges lists by the keys that the schema names. Server-side apply is
//! not a patch in this sense and lives in `apply`.

use serde_json::Value;

pub mod json;
pub mod merge;
pub mod strategic;

/// Why a patch was not applied; the variant decides how the server answers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is malformed: 400 BadRequest.
    #[error("{0}")]
    Malformed(String),
    /// The patch is well-formed and does not fit the object: 422.
    #[error("{0}")]
    Inapplicable(String),
    /// More operations than one patch may have: 413.
    #[error("The allowed maximum operations in a JSON patch is {limit}, got {got}")]
    TooManyOperations { limit: usize, got: usize },
    /// What Kubernetes reports as an internal error (500), such as a list item without its merge key.
    #[error("{0}")]
    Unexpected(String),
}

/// A value as Go's `%v` prints it, which some error texts contain: `map[a:1 b:[x y]]`.
pub fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_text).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{key}:{}", go_text(value)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
pub(crate) mod tests;

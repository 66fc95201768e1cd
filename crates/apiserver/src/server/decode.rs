//! Bodies to objects, checked against the schema in the same pass.
//!
//! Go's decoder drops fields that a type does not have, and in strict mode lists them and every key that
//! came twice, in the order of the document. Doing that while the document is read is the only time when
//! that order and those duplicates can still be seen.

mod go;
mod seed;

pub use go::yaml_duplicate;
pub use go::{json_error, json_type};
pub use seed::{Mistakes, decode_value};

use super::negotiate::BodyEncoding;
use crate::error::{ApiError, Result};
use serde_json::Value;
use stead_machinery::schema::SchemaRef;

/// A decoded document and what strict decoding has against it.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// `unknown field "spec.x"`, `duplicate field "spec.y"`, in the order of the document.
    pub strict: Vec<String>,
}

/// Why a document could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is no document of its encoding.
    #[error("{0}")]
    Syntax(String),
    /// A value does not fit its field, in Go's words.
    #[error("{0}")]
    Type(String),
}

/// Decodes a body. Without a schema everything is kept, and only duplicates are noted.
pub fn decode(bytes: &[u8], encoding: BodyEncoding, schema: Option<SchemaRef<'_>>) -> Result<Decoded, DecodeError> {
    match encoding {
        BodyEncoding::Json => seed::json(bytes, schema),
        BodyEncoding::Yaml => seed::yaml(bytes, schema),
        BodyEncoding::Protobuf => seed::protobuf(bytes),
    }
}

/// What a client did about unknown fields: `fieldValidation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    /// Reads the option; the default is to warn.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Warn" => Some(FieldValidation::Warn),
            "Ignore" => Some(FieldValidation::Ignore),
            "Strict" => Some(FieldValidation::Strict),
            _ => None,
        }
    }
}

/// A strict decoding error for a body of this kind.
pub fn strict_error(version: &str, kind: &str, strict: &[String]) -> ApiError {
    ApiError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
        strict.join(", ")
    ))
}

/// The error for a body that could not be decoded as this kind.
pub fn decode_error(version: &str, kind: &str, bytes: &[u8], error: &DecodeError) -> ApiError {
    ApiError::bad_request(match error {
        DecodeError::Type(why) => format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"),
        DecodeError::Syntax(why) => format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({})",
            summary(bytes)
        ),
    })
}

/// The error for a body that is well-formed and no object.
pub fn not_an_object(version: &str, kind: &str, bytes: &[u8], value: &Value) -> ApiError {
    decode_error(version, kind, bytes, &DecodeError::Syntax(no_kind(value)))
}

/// Why a well-formed body that is no object says nothing of its kind.
pub fn no_kind(value: &Value) -> String {
    const WANTED: &str =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let found = go::json_type(value);
    let found = found.split(' ').next().unwrap_or_default();
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type {WANTED}"
    )
}

/// What Kubernetes says of a kind that it does not know.
pub fn unregistered(kind: &str, api_version: &str) -> String {
    format!("no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\"")
}

/// The beginning of a body that nobody understood, for its sender to recognise.
fn summary(bytes: &[u8]) -> String {
    const SHOWN: usize = 30;
    if bytes.is_empty() {
        return "<empty>".to_string();
    }
    let cut = &bytes[..bytes.len().min(SHOWN)];
    let more = if bytes.len() > SHOWN { " ..." } else { "" };
    if bytes.first() == Some(&b'{') {
        return format!("{}{more}", String::from_utf8_lossy(cut));
    }
    let hex: String = cut.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}{more}")
}

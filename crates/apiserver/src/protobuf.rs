//! Protobuf bodies: between the wire format of Kubernetes' clients and the JSON that the server works on.
//!
//! kubectl and every typed Go client send nothing else for built-in kinds. One transcoder walks tables that
//! `cargo xtask schemas` wrote from the published definitions, so there is no code per kind to fall behind.

mod decode;
mod encode;
mod normalize;
mod scalars;
pub(crate) mod wire;

use flate2::read::DeflateDecoder;
use serde_json::Value;
use std::io::Read;
use std::sync::LazyLock;
use stead_machinery::wire::Messages;

use normalize::Passage;
pub use wire::WireError;

/// What every protobuf body of Kubernetes begins with.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// The media type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

static MESSAGES: LazyLock<Messages> = LazyLock::new(|| {
    let mut bytes = Vec::new();
    DeflateDecoder::new(&include_bytes!("../data/messages.bin")[..])
        .read_to_end(&mut bytes)
        .expect("the embedded data was deflated by the chore that wrote it");
    postcard::from_bytes(&bytes).expect("the embedded data was written by the same types")
});

/// Why a body cannot be transcoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\"")]
    UnknownKind { api_version: String, kind: String },
    #[error("Object 'Kind' is missing")]
    NoKind,
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("a raw extension is not JSON: {0}")]
    NotJson(String),
    #[error("the body is encoded as {0:?}, which this server does not read")]
    Encoding(String),
    #[error("field {field} should be {expected}")]
    WrongType { field: String, expected: &'static str },
}

/// A body (`k8s\0` and an envelope with apiVersion, kind and the object) as JSON with apiVersion and kind.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    decode_as(body, "", "")
}

/// As [`decode`], with an apiVersion and kind for envelopes that name none.
pub fn decode_as(body: &[u8], api_version: &str, kind: &str) -> Result<Value, ProtobufError> {
    let envelope = wire::Envelope::parse(body.strip_prefix(MAGIC).ok_or(ProtobufError::NoPrefix)?)?;
    let or = |own: &str, given: &str| {
        if own.is_empty() {
            given.to_string()
        } else {
            own.to_string()
        }
    };
    let (api_version, kind) = (or(&envelope.api_version, api_version), or(&envelope.kind, kind));
    if !envelope.content_encoding.is_empty() {
        return Err(ProtobufError::Encoding(envelope.content_encoding));
    }
    if envelope.content_type == "application/json" {
        return serde_json::from_slice(envelope.raw).map_err(|e| ProtobufError::NotJson(e.to_string()));
    }
    if kind.is_empty() {
        return Err(ProtobufError::NoKind);
    }
    let Some(message) = message_of(&api_version, &kind) else {
        return Err(ProtobufError::UnknownKind { api_version, kind });
    };
    let mut value = decode::message(message, envelope.raw)?;
    if let Value::Object(map) = &mut value {
        map.insert("apiVersion".into(), api_version.into());
        map.insert("kind".into(), kind.into());
    }
    Ok(value)
}

/// The JSON of an object of a built-in kind as a protobuf body; `None` where the kind has no protobuf form.
pub fn encode(object: &Value) -> Option<Result<Vec<u8>, ProtobufError>> {
    let api_version = object["apiVersion"].as_str()?;
    let kind = object["kind"].as_str()?;
    let message = message_of(api_version, kind)?;
    Some(encode::message(message, object).map(|raw| wire::envelope(api_version, kind, &raw)))
}

/// Writes an object as Go would after reading it: zero values that Go leaves out go, those it always writes come, and
/// so do the nulls of lists and times that it writes where there are none.
///
/// A JSON body of a built-in kind passes through Go's types in Kubernetes; without this, the same object
/// would be stored differently depending on who sent it.
pub fn normalize(api_version: &str, kind: &str, object: &mut Value) {
    if let Some(message) = message_of(api_version, kind) {
        normalize::normalize(message, object, Passage::Read);
    }
}

/// What an object becomes by being stored: Kubernetes' encoding does not tell an empty list from none.
pub fn settle(api_version: &str, kind: &str, object: &mut Value) {
    if let Some(message) = message_of(api_version, kind) {
        normalize::normalize(message, object, Passage::Stored);
    }
}

/// An object of a kind of which nothing is said: what Go writes all the same. `None` where the kind has no such form.
pub fn fresh(api_version: &str, kind: &str) -> Option<Value> {
    message_of(api_version, kind).map(decode::zero_message)
}

/// The message of a kind. Options and `Status` belong to every group and version.
fn message_of(api_version: &str, kind: &str) -> Option<u32> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let find = |group: &str, version: &str| {
        let key = (group.to_string(), version.to_string(), kind.to_string());
        MESSAGES.kinds.get(&key).copied()
    };
    find(group, version).or_else(|| find("meta.k8s.io", "v1"))
}

#[cfg(test)]
mod tests;

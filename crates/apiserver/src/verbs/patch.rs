//! Patch: JSON patch, merge patch, strategic merge patch and apply.

use super::Call;
use super::managed::Ownership;
use super::update::{Desired, update_object};
use super::write_options::{OptionsKind, WriteOptions};
use crate::catalogue::Origin;
use crate::error::{ApiError, Result};
use crate::server::body::{self, Body};
use crate::server::decode::{self, Mistakes};
use crate::server::negotiate::{BodyEncoding, unsupported_media_type};
use http::Response;
use serde_json::Value;
use stead_machinery::field::FieldError;
use stead_machinery::patch::{self, PatchError};
use stead_machinery::schema::SchemaRef;

/// What custom resources can be patched with.
const CUSTOM_PATCHES: &str = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

/// The kinds of patches, by their content types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply(BodyEncoding),
}

/// A patch that is no apply, ready to be made on any state of its object.
pub struct Patch {
    kind: PatchKind,
    /// What was sent, or what is wrong with it: that matters only if there is an object to patch.
    document: Result<Value>,
    pub options: WriteOptions,
}

pub async fn patch(call: &Call, body: Body) -> Result<Response<Body>> {
    if let Some(encoding) = applies(call)? {
        let bytes = body::read(body, call.shared.limits.body).await?;
        let options = WriteOptions::parse(&call.query, &call.headers, OptionsKind::Apply)?;
        return super::apply::apply(call, &bytes, encoding, &options).await;
    }
    let patch = Patch::read(call, body).await?;
    let outcome = update_object(call, &patch.options, |old| {
        let patched = patch.apply(old, Some(call.resource.schema()))?;
        let mut object = patch.fit(call, patched)?;
        super::apply::match_path(call, &mut object)?;
        Ok(Desired {
            object,
            ownership: Ownership::Update,
        })
    })
    .await?;
    outcome.answer(call, 200).await
}

impl Patch {
    pub async fn read(call: &Call, body: Body) -> Result<Self> {
        let kind = patch_kind(call)?;
        let bytes = body::read(body, call.shared.limits.body).await?;
        let options = WriteOptions::parse(&call.query, &call.headers, OptionsKind::Patch)?;
        Ok(Patch {
            kind,
            document: Self::document(kind, &bytes),
            options,
        })
    }

    fn document(kind: PatchKind, bytes: &[u8]) -> Result<Value> {
        let document: Value = serde_json::from_slice(bytes).map_err(|error| {
            ApiError::bad_request(format!("error decoding patch: {}", decode::json_error(bytes, &error)))
        })?;
        let wanted = match (kind, &document) {
            (PatchKind::Json, Value::Array(_)) | (_, Value::Object(_)) if kind != PatchKind::Json => None,
            (PatchKind::Json, Value::Array(_)) => None,
            (PatchKind::Json, _) => Some("[]handlers.jsonPatchOp"),
            _ => Some("map[string]interface {}"),
        };
        if let Some(wanted) = wanted {
            let found = decode::json_type(&document);
            let found = found.split(' ').next().unwrap_or_default().to_string();
            return Err(ApiError::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}"
            )));
        }
        Ok(document)
    }

    /// Fits what the patch has made to the kind. A strategic patch is no JSON any more when it is read, so its
    /// errors are worded otherwise.
    fn fit(&self, call: &Call, patched: Value) -> Result<Value> {
        if self.kind != PatchKind::Strategic {
            return call.fit(patched, self.options.validation);
        }
        call.fit_or(patched, self.options.validation, Mistakes::End, |shown, why| {
            let error = FieldError::invalid("patch", shown, converted_words(&why));
            ApiError::invalid("", "", "", &[error])
        })
    }

    /// The object as the patch makes it.
    pub fn apply(&self, old: &Value, schema: Option<SchemaRef<'_>>) -> Result<Value> {
        let mut patched = old.clone();
        let document = self.document.as_ref().map_err(Clone::clone)?;
        let outcome = match (self.kind, schema) {
            (PatchKind::Json, _) => patch::json::apply(&mut patched, document),
            (PatchKind::Strategic, Some(schema)) => patch::strategic::apply(&mut patched, document.clone(), schema),
            _ => patch::merge::apply(&mut patched, document.clone()),
        };
        outcome.map(|()| patched).map_err(|error| match error {
            PatchError::Malformed(why) => ApiError::bad_request(why),
            PatchError::Inapplicable(_) => ApiError::new(
                422,
                "Invalid",
                "the server rejected our request due to an error in our request",
            )
            .with_details(serde_json::json!({})),
            PatchError::TooManyOperations { .. } => ApiError::new(
                413,
                "RequestEntityTooLarge",
                format!("Request entity too large: {error}"),
            ),
            PatchError::Unexpected(why) => ApiError::new(500, "", why),
        })
    }
}

/// What Go's converter says where its decoder says `cannot unmarshal`.
fn converted_words(why: &str) -> String {
    let Some((found, wanted)) = why.strip_prefix("json: cannot unmarshal ").and_then(|rest| {
        let (found, rest) = rest.split_once(" into ")?;
        Some((found, rest.rsplit_once(" of type ")?.1))
    }) else {
        return match why.starts_with("illegal base64") {
            true => format!("error decoding from json: {why}"),
            false => why.to_string(),
        };
    };
    let found = match found.split(' ').next().unwrap_or_default() {
        "object" => "map",
        "array" => "slice",
        "number" => "int64",
        other => other,
    };
    if wanted.starts_with("[]") {
        format!("cannot restore slice from {found}")
    } else if wanted.starts_with("map[") {
        format!("cannot restore map from {found}")
    } else if wanted.contains('.') {
        format!("cannot restore struct from: {found}")
    } else {
        match (found, wanted) {
            ("string" | "bool", wanted) => format!("unrecognized type: {wanted}"),
            _ => format!("cannot convert {found} to {wanted}"),
        }
    }
}

/// Whether the request is an apply, and in which encoding.
pub fn applies(call: &Call) -> Result<Option<BodyEncoding>> {
    Ok(match patch_kind(call)? {
        PatchKind::Apply(encoding) => Some(encoding),
        PatchKind::Json | PatchKind::Merge | PatchKind::Strategic => None,
    })
}

fn patch_kind(call: &Call) -> Result<PatchKind> {
    let header = call
        .headers
        .get("content-type")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let media = header.split(';').next().unwrap_or_default().trim();
    match media {
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/strategic-merge-patch+json" => match call.resource.origin {
            Origin::BuiltIn => Ok(PatchKind::Strategic),
            Origin::Custom(_) => Err(unsupported_media_type(CUSTOM_PATCHES)),
        },
        "application/apply-patch+yaml" => Ok(PatchKind::Apply(BodyEncoding::Yaml)),
        _ if matches!(call.resource.origin, Origin::Custom(_)) => Err(unsupported_media_type(CUSTOM_PATCHES)),
        _ => Err(
            ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
                .with_details(serde_json::json!({})),
        ),
    }
}

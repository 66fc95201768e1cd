//! Patch: JSON patch, merge patch, strategic merge patch and apply.

use super::Call;
use super::managed::Ownership;
use super::update::{Desired, update_object};
use super::write_options::{OptionsKind, WriteOptions};
use crate::catalogue::Origin;
use crate::error::{ApiError, Result};
use crate::server::body::{self, Body};
use crate::server::decode;
use crate::server::negotiate::{BodyEncoding, unsupported_media_type};
use http::Response;
use serde_json::Value;
use stead_machinery::patch::{self, PatchError};
use stead_machinery::schema::SchemaRef;

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
    document: Value,
    pub options: WriteOptions,
}

pub async fn patch(call: &Call, body: Body) -> Result<Response<Body>> {
    if let PatchKind::Apply(encoding) = patch_kind(call)? {
        let bytes = body::read(body, call.shared.limits.body).await?;
        let options = WriteOptions::parse(&call.query, &call.headers, OptionsKind::Apply)?;
        return super::apply::apply(call, &bytes, encoding, &options).await;
    }
    let patch = Patch::read(call, body).await?;
    let outcome = update_object(call, &patch.options, |old| {
        let patched = patch.apply(old, Some(call.resource.schema()))?;
        Ok(Desired {
            object: call.fit(patched, patch.options.validation)?,
            ownership: Ownership::Update,
        })
    })
    .await?;
    outcome.answer(call, 200)
}

impl Patch {
    pub async fn read(call: &Call, body: Body) -> Result<Self> {
        let kind = patch_kind(call)?;
        let bytes = body::read(body, call.shared.limits.body).await?;
        let options = WriteOptions::parse(&call.query, &call.headers, OptionsKind::Patch)?;
        let document: Value = serde_json::from_slice(&bytes).map_err(|error| {
            ApiError::bad_request(format!("error decoding patch: {}", decode::json_error(&bytes, &error)))
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
        Ok(Patch {
            kind,
            document,
            options,
        })
    }

    /// The object as the patch makes it.
    pub fn apply(&self, old: &Value, schema: Option<SchemaRef<'_>>) -> Result<Value> {
        let mut patched = old.clone();
        let document = &self.document;
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
            Origin::Custom(_) => Err(unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
        },
        "application/apply-patch+yaml" => Ok(PatchKind::Apply(BodyEncoding::Yaml)),
        _ => Err(
            ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
                .with_details(serde_json::json!({})),
        ),
    }
}

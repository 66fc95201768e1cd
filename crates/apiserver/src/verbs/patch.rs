//! Patch: JSON patch, merge patch, strategic merge patch and apply.

use super::Call;
use super::update::{Desired, Ownership, update_object};
use super::write_options::{OptionsKind, WriteOptions};
use crate::catalogue::Origin;
use crate::error::{ApiError, Result};
use crate::server::body::{self, Body};
use crate::server::decode;
use crate::server::negotiate::{BodyEncoding, unsupported_media_type};
use http::Response;
use serde_json::Value;
use stead_machinery::patch::{self, PatchError};

/// The kinds of patches, by their content types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply(BodyEncoding),
}

pub async fn patch(call: &Call, body: Body) -> Result<Response<Body>> {
    let kind = patch_kind(call)?;
    let options_kind = match kind {
        PatchKind::Apply(_) => OptionsKind::Apply,
        _ => OptionsKind::Patch,
    };
    let bytes = body::read(body, call.shared.limits.body).await?;
    let options = WriteOptions::parse(&call.query, &call.headers, options_kind)?;
    if let PatchKind::Apply(encoding) = kind {
        return super::apply::apply(call, &bytes, encoding, &options).await;
    }
    let document: Value = serde_json::from_slice(&bytes).map_err(|error| {
        ApiError::bad_request(format!("error decoding patch: {}", decode::json_error(&bytes, &error)))
    })?;
    let outcome = update_object(call, &options, |old| {
        let patched = apply_patch(call, kind, old, &document)?;
        let schema = match call.resource.origin {
            Origin::BuiltIn => Some(call.resource.schema()),
            Origin::Custom(_) => None,
        };
        let decoded = decode::decode_value(patched, schema).map_err(|error| unprocessable(call, &error.to_string()))?;
        call.heed(
            options.validation,
            &call.resource.version,
            &call.resource.kind,
            decoded.strict,
        )?;
        Ok(Desired {
            object: decoded.value,
            ownership: Ownership::Update,
        })
    })
    .await?;
    outcome.answer(call, 200)
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
        _ => Err(unsupported_media_type(match call.resource.origin {
            Origin::BuiltIn => {
                "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml"
            }
            Origin::Custom(_) => {
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
            }
        })),
    }
}

fn apply_patch(call: &Call, kind: PatchKind, old: &Value, document: &Value) -> Result<Value> {
    let mut patched = old.clone();
    let outcome = match kind {
        PatchKind::Json => patch::json::apply(&mut patched, document),
        PatchKind::Merge => patch::merge::apply(&mut patched, document.clone()),
        PatchKind::Strategic => patch::strategic::apply(&mut patched, document.clone(), call.resource.schema()),
        PatchKind::Apply(_) => Ok(()),
    };
    outcome.map(|()| patched).map_err(|error| match error {
        PatchError::Malformed(why) => ApiError::bad_request(why),
        PatchError::Inapplicable(why) => ApiError::new(422, "Invalid", why).with_details(serde_json::json!({})),
        PatchError::TooManyOperations { .. } => ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: {error}"),
        ),
        PatchError::Unexpected(why) => ApiError::new(500, "", why),
    })
}

/// A patch that makes an object that cannot be one.
fn unprocessable(call: &Call, why: &str) -> ApiError {
    ApiError::new(
        422,
        "Invalid",
        format!(
            "{} \"{}\" is invalid: patch: Invalid value: {why}",
            match call.resource.group.as_str() {
                "" => call.resource.kind.clone(),
                group => format!("{}.{group}", call.resource.kind),
            },
            call.path.name
        ),
    )
}

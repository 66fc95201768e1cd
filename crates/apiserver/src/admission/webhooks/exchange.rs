//! The conversation with a webhook: an AdmissionReview there, an AdmissionReview back.

use super::configuration::Webhook;
use crate::admission::Review;
use crate::admission::expressions;
use crate::admission::views::Phase;
use crate::error::ApiError;
use crate::hooks;
use crate::verbs::Call;
use base64::Engine;
use serde_json::{Value, json};

/// What a webhook said.
#[derive(Debug, Default)]
pub struct Answer {
    pub allowed: bool,
    /// `status` of the response: why not.
    status: Value,
    pub patch: Option<Value>,
    pub warnings: Vec<String>,
    pub annotations: Vec<(String, String)>,
}

impl Answer {
    /// The refusal, with the code and the words that the webhook chose.
    pub fn refusal(&self, webhook: &str) -> Option<ApiError> {
        if self.allowed {
            return None;
        }
        let denied = format!("admission webhook {webhook:?} denied the request");
        let text = |field: &str| self.status[field].as_str().unwrap_or_default();
        let message = match (text("message"), text("reason")) {
            ("", "") => format!("{denied} without explanation"),
            ("", reason) => format!("{denied}: {reason}"),
            (message, _) => format!("{denied}: {message}"),
        };
        let code = self.status["code"]
            .as_u64()
            .and_then(|code| u16::try_from(code).ok())
            .unwrap_or(0);
        // A refusal is never a success, whatever the webhook's code says.
        let code = if code < 400 { 400 } else { code };
        let mut error = ApiError::new(code, known_reason(text("reason")), message);
        if self.status["details"].is_object() {
            error.details = self.status["details"].clone();
        }
        Some(error)
    }
}

/// Reasons are a fixed set here; a webhook's own ones are left out.
fn known_reason(reason: &str) -> &'static str {
    const REASONS: &[&str] = &[
        "Unauthorized",
        "Forbidden",
        "NotFound",
        "AlreadyExists",
        "Conflict",
        "Gone",
        "Invalid",
        "ServerTimeout",
        "Timeout",
        "TooManyRequests",
        "BadRequest",
        "MethodNotAllowed",
        "NotAcceptable",
        "RequestEntityTooLarge",
        "UnsupportedMediaType",
        "InternalError",
        "Expired",
        "ServiceUnavailable",
    ];
    REASONS.iter().find(|known| **known == reason).copied().unwrap_or("")
}

/// Asks a webhook.
pub async fn exchange(
    call: &Call,
    review: &Review,
    webhook: &Webhook,
    uid: &str,
    phase: Phase,
) -> Result<Answer, String> {
    if !webhook.accepts_v1 {
        return Err(
            "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)"
                .to_string(),
        );
    }
    let seen = webhook.matcher.seen_as(call, review);
    let mut request = expressions::request(review, &seen);
    request["uid"] = uid.into();
    let old = review.old.as_deref().cloned();
    for (field, object) in [("object", review.object.clone()), ("oldObject", old)] {
        let mut object = object.unwrap_or_default();
        let converted = call.convert(&mut object, &review.resource, &seen).await;
        converted.map_err(|error| format!("failed to call webhook: {}", error.message))?;
        request[field] = object;
    }
    let body = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request});
    let answer = hooks::post(&call.shared, &webhook.endpoint, &body)
        .await
        .map_err(|why| format!("failed to call webhook: {why}"))?;
    parse(&answer, uid, phase).map_err(|why| format!("received invalid webhook response: {why}"))
}

fn parse(answer: &Value, uid: &str, phase: Phase) -> Result<Answer, String> {
    let response = &answer["response"];
    if !response.is_object() {
        return Err("webhook response was absent".to_string());
    }
    if response["uid"] != uid {
        let got = response["uid"].as_str().unwrap_or_default();
        return Err(format!("expected response.uid={uid:?}, got {got:?}"));
    }
    let (version, kind) = (&answer["apiVersion"], &answer["kind"]);
    if version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
        let (group, version) = version.as_str().unwrap_or_default().split_once('/').unwrap_or_default();
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{version}, Kind={}",
            kind.as_str().unwrap_or_default()
        ));
    }
    let patch = response["patch"].as_str().filter(|patch| !patch.is_empty());
    let kind = response["patchType"].as_str().unwrap_or_default();
    let patch = match (phase, patch, kind) {
        (Phase::Validating, Some(_), _) => return Err("validating webhook may not return response.patch".to_string()),
        (Phase::Validating, None, "") => None,
        (Phase::Validating, None, _) => return Err("validating webhook may not return response.patchType".to_string()),
        (Phase::Mutating, Some(_), "") => {
            return Err("webhook returned response.patch but not response.patchType".to_string());
        }
        (Phase::Mutating, None, "") => None,
        (Phase::Mutating, None, _) => {
            return Err("webhook returned response.patchType but not response.patch".to_string());
        }
        (Phase::Mutating, Some(patch), "JSONPatch") => Some(decode_patch(patch)?),
        (Phase::Mutating, Some(_), other) => {
            return Err(format!("webhook returned invalid response.patchType of {other:?}"));
        }
    };
    let strings = |field: &str| crate::verbs::object::strings(&response[field]);
    let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
    Ok(Answer {
        allowed: response["allowed"] == true,
        status: response["status"].clone(),
        patch,
        warnings: strings("warnings"),
        annotations: annotations
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_string())))
            .collect(),
    })
}

fn decode_patch(text: &str) -> Result<Value, String> {
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

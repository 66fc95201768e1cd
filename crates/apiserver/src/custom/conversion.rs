//! Conversion of custom objects between the versions of their definition, by a webhook.
//!
//! The webhook sees every object that is not in the wanted version, all of a list at once. What comes back is not
//! trusted: it must be the same object in the wanted version, and of its metadata only labels and annotations may
//! have changed.

use crate::catalogue::Origin;
use crate::error::{ApiError, Result};
use crate::hooks::{self, Endpoint, Purpose};
use crate::verbs::{Call, metadata, object};
use serde_json::{Value, json};
use std::time::Duration;

/// As long as Kubernetes waits.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The reviews that this server can write, by preference of the definition.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// The webhook that a definition names.
#[derive(Debug)]
pub struct Converter {
    endpoint: Endpoint,
    /// The version of the review that both understand.
    review: Option<String>,
}

impl Converter {
    /// The converter of a definition; `None` if only the version in the object changes.
    pub fn of(conversion: &Value) -> Option<Self> {
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        let reviews = object::strings(&webhook["conversionReviewVersions"]);
        Some(Converter {
            endpoint: Endpoint::of(&webhook["clientConfig"], TIMEOUT, Purpose::Conversion),
            review: reviews.into_iter().find(|review| REVIEWS.contains(&review.as_str())),
        })
    }
}

/// Converts those objects that are not in this version. Of kinds without a webhook nothing changes here.
pub async fn convert(call: &Call, objects: &mut [Value], api_version: &str) -> Result<()> {
    let Origin::Custom(kind) = &call.resource.origin else {
        return Ok(());
    };
    let Some(converter) = &kind.converter else {
        return Ok(());
    };
    let mut others: Vec<&mut Value> = objects
        .iter_mut()
        .filter(|object| object["apiVersion"] != api_version)
        .collect();
    let Some(first) = others.first() else { return Ok(()) };
    let from = first["apiVersion"].as_str().unwrap_or_default();
    let subject = format!("conversion webhook for {from}, Kind={}", call.resource.kind);
    let sent: Vec<Value> = others.iter().map(|object| (**object).clone()).collect();
    let converted = ask(call, converter, sent, api_version)
        .await
        .map_err(|why| ApiError::new(500, "", format!("{subject} failed: {why}")))?;
    if converted.len() != others.len() {
        let counts = format!("returned {} objects, expected {}", converted.len(), others.len());
        return Err(ApiError::new(500, "", format!("{subject} {counts}")));
    }
    for (index, (original, converted)) in others.iter_mut().zip(converted).enumerate() {
        **original = accepted(original, converted, api_version).map_err(|why| {
            let why = format!("{subject} returned invalid converted object at index {index}: {why}");
            ApiError::new(500, "", why)
        })?;
    }
    Ok(())
}

async fn ask(call: &Call, converter: &Converter, objects: Vec<Value>, wanted: &str) -> Result<Vec<Value>, String> {
    let Some(review) = &converter.review else {
        return Err("no supported conversion review versions".to_string());
    };
    let uid = call.shared.environment.uid();
    let version = format!("apiextensions.k8s.io/{review}");
    let body = json!({
        "kind": "ConversionReview", "apiVersion": version,
        "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": objects},
        "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
    });
    let answer = hooks::post(&call.shared, &converter.endpoint, &body).await?;
    if answer["apiVersion"] != version.as_str() || answer["kind"] != "ConversionReview" {
        let text = |field: &str| answer[field].as_str().unwrap_or_default().to_string();
        return Err(format!(
            "expected webhook response of {version}, Kind=ConversionReview, got {}, Kind={}",
            text("apiVersion"),
            text("kind")
        ));
    }
    let response = &answer["response"];
    if !response.is_object() {
        return Err("no response provided".to_string());
    }
    if response["uid"] != uid && review == "v1" {
        let got = response["uid"].as_str().unwrap_or_default();
        return Err(format!("expected response.uid={uid:?}, got {got:?}"));
    }
    let result = &response["result"];
    if result["status"] != "Success" {
        let status = result["status"].as_str().unwrap_or_default();
        return Err(match result["message"].as_str().unwrap_or_default() {
            "" => format!("response.result.status was '{status}', not 'Success'"),
            message => message.to_string(),
        });
    }
    Ok(response["convertedObjects"].as_array().cloned().unwrap_or_default())
}

/// What the webhook made of an object, if it is still that object.
fn accepted(original: &Value, mut converted: Value, wanted: &str) -> Result<Value, String> {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_string();
    let (got, kind) = (text(&converted, "apiVersion"), text(&converted, "kind"));
    if got != wanted {
        return Err(format!("invalid groupVersion (expected {wanted}, received {got})"));
    }
    if kind != text(original, "kind") {
        let expected = text(original, "kind");
        return Err(format!("invalid kind (expected {expected}, received {kind})"));
    }
    for (field, word) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (before, after) = (object::meta(original, field), object::meta(&converted, field));
        if before != after {
            return Err(format!("must have the same {word}: {before} != {after}"));
        }
    }
    let sent = converted["metadata"].clone();
    if !sent.is_object() {
        return Err("missing metadata in converted object".to_string());
    }
    converted["metadata"] = original["metadata"].clone();
    for field in ["labels", "annotations"] {
        keep_changes(&mut converted["metadata"], &sent[field], field)?;
    }
    Ok(converted)
}

/// Labels and annotations are what the webhook says, if they may be that.
fn keep_changes(metadata: &mut Value, sent: &Value, field: &str) -> Result<(), String> {
    let Value::Object(kept) = metadata else { return Ok(()) };
    let Some(entries) = sent.as_object() else {
        kept.remove(field);
        return match sent {
            Value::Null => Ok(()),
            _ => Err(format!("invalid metadata.{field} in converted object")),
        };
    };
    if let Some((key, _)) = entries.iter().find(|(_, value)| !value.is_string()) {
        return Err(format!("metadata.{field}[{key}] must be a string in converted object"));
    }
    if kept.get(field) != Some(sent) {
        let mut errors = Vec::new();
        match field {
            "labels" => metadata::labels(sent, "metadata.labels", &mut errors),
            _ => metadata::annotations(sent, "metadata.annotations", &mut errors),
        }
        if let Some(error) = errors.first() {
            return Err(error.to_string());
        }
    }
    kept.insert(field.to_string(), sent.clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str, labels: Value) -> Value {
        json!({"apiVersion": version, "kind": "Thing", "metadata": {
            "name": "a", "namespace": "n", "uid": "1", "resourceVersion": "7", "labels": labels,
        }, "spec": {}})
    }

    #[test]
    fn a_webhook_may_change_labels_but_no_other_metadata() {
        let mut converted = object("g/v2", json!({"new": "label"}));
        converted["metadata"]["resourceVersion"] = "99".into();
        converted["spec"] = json!({"x": 1});
        let kept = accepted(&object("g/v1", json!({"old": "label"})), converted, "g/v2").unwrap();
        assert_eq!(kept["metadata"]["labels"], json!({"new": "label"}));
        assert_eq!(kept["metadata"]["resourceVersion"], "7");
        assert_eq!(kept["spec"], json!({"x": 1}));
    }

    #[test]
    fn a_webhook_that_returns_another_object_is_refused() {
        let original = object("g/v1", json!({}));
        let mut renamed = object("g/v2", json!({}));
        renamed["metadata"]["name"] = "b".into();
        assert_eq!(
            accepted(&original, renamed, "g/v2").unwrap_err(),
            "must have the same name: a != b"
        );
        assert_eq!(
            accepted(&original, original.clone(), "g/v2").unwrap_err(),
            "invalid groupVersion (expected g/v2, received g/v1)"
        );
        let bad = object("g/v2", json!({"bad key!": "x"}));
        assert!(
            accepted(&original, bad, "g/v2")
                .unwrap_err()
                .contains("name part must consist")
        );
    }
}

//! The options of a delete, from its body or its query.

use crate::error::{ApiError, Result};
use crate::server::Body;
use crate::server::body;
use crate::server::decode::{self, FieldValidation};
use crate::server::negotiate;
use crate::verbs::Call;
use crate::verbs::object::strings;
use crate::verbs::write_options::{Commit, WriteOptions, commit, dry_run_errors};
use serde_json::{Value, json};
use stead_machinery::field::{FieldError, FieldErrorKind};

/// How an object is to be deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct DeleteOptions {
    pub commit: Commit,
    pub grace_period_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    /// `Orphan`, `Background` or `Foreground`.
    pub propagation: Option<String>,
    /// As sent, for admission.
    pub sent: Value,
}

impl DeleteOptions {
    /// Reads the options of a request: those of its body, or, without one, those of its query.
    pub async fn read(call: &Call, body: Body) -> Result<Self> {
        let bytes = body::read(body, call.shared.limits.body).await?;
        let sent = match bytes.is_empty() {
            true => from_query(call)?,
            false => {
                let encoding = negotiate::body_encoding(&call.headers)?;
                let decoded = decode::decode(
                    &bytes,
                    encoding,
                    crate::catalogue::built_in::kind("", "v1", "DeleteOptions"),
                )
                .map_err(|error| match error {
                    decode::DecodeError::Syntax(why) => ApiError::bad_request(why),
                    error => decode::decode_error("v1", "DeleteOptions", &bytes, &error),
                })?;
                if !decoded.value.is_object() {
                    return Err(ApiError::bad_request(decode::no_kind(&decoded.value)));
                }
                let kind = decoded.value["kind"].as_str().unwrap_or("DeleteOptions");
                if kind != "DeleteOptions" {
                    let version = decoded.value["apiVersion"].as_str().unwrap_or_default();
                    let why = match crate::catalogue::built_in::kind("", version, kind).is_some() {
                        true => format!("converting ({version}.{kind}) to (v1.DeleteOptions): unknown conversion"),
                        false => decode::unregistered(kind, version),
                    };
                    return Err(ApiError::bad_request(why));
                }
                decoded.value
            }
        };
        Self::parse(sent)
    }

    pub fn parse(sent: Value) -> Result<Self> {
        let mut errors = Vec::new();
        let propagation = sent["propagationPolicy"].as_str().map(str::to_string);
        let orphan = sent["orphanDependents"].as_bool();
        if let (Some(policy), Some(_)) = (&propagation, orphan) {
            errors.push(FieldError::invalid(
                "propagationPolicy",
                policy.as_str(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        if let Some(policy) = &propagation
            && !matches!(policy.as_str(), "Orphan" | "Background" | "Foreground")
        {
            errors.push(FieldError::new(
                "propagationPolicy",
                FieldErrorKind::NotSupported,
                policy.as_str().into(),
                "supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
            ));
        }
        let dry_run = strings(&sent["dryRun"]);
        errors.extend(dry_run_errors(dry_run.iter().map(String::as_str)));
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
        }
        let text = |value: &Value| value.as_str().map(str::to_string);
        Ok(DeleteOptions {
            commit: commit(dry_run.iter().map(String::as_str)),
            grace_period_seconds: sent["gracePeriodSeconds"].as_i64(),
            uid: text(&sent["preconditions"]["uid"]),
            resource_version: text(&sent["preconditions"]["resourceVersion"]),
            propagation: propagation.or(orphan.map(|orphan| match orphan {
                true => "Orphan".to_string(),
                false => "Background".to_string(),
            })),
            sent,
        })
    }

    pub fn as_write_options(&self) -> WriteOptions {
        WriteOptions {
            commit: self.commit,
            field_manager: String::new(),
            validation: FieldValidation::Ignore,
            force: false,
        }
    }
}

fn from_query(call: &Call) -> Result<Value> {
    let mut sent = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
    if let Some(seconds) = call.query.integer("gracePeriodSeconds")? {
        sent["gracePeriodSeconds"] = seconds.into();
    }
    if let Some(policy) = call.query.get("propagationPolicy") {
        sent["propagationPolicy"] = policy.into();
    }
    if let Some(orphan) = call.query.flag("orphanDependents") {
        sent["orphanDependents"] = orphan.into();
    }
    let dry_run: Vec<&str> = call.query.all("dryRun").collect();
    if !dry_run.is_empty() {
        sent["dryRun"] = json!(dry_run);
    }
    Ok(sent)
}

//! What the server refuses of built-in kinds.
//!
//! Validation is written by hand, kind by kind, in Kubernetes' words: clients match on them and people
//! search for them. Metadata is checked for all kinds elsewhere; custom resources by their schemas.

use crate::catalogue::Resource;
use serde_json::Value;
use stead_machinery::field::FieldError;

/// What is wrong with a new object.
pub fn create(_resource: &Resource, _object: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// What is wrong with a changed object, or with the change.
pub fn update(_resource: &Resource, _object: &Value, _old: &Value) -> Vec<FieldError> {
    Vec::new()
}

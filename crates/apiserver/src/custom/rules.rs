//! Rules in CEL that a definition puts on its objects.

use crate::catalogue::Resource;
use serde_json::Value;
use stead_machinery::field::FieldError;

/// What the rules of the schema have against an object.
pub fn errors(_resource: &Resource, _new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    Vec::new()
}

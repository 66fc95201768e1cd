//! `managedFields`: who owns which field after a write.

use super::Call;
use super::write_options::WriteOptions;
use serde_json::Value;

/// Gives all fields of a new object to its creator.
pub fn created(_call: &Call, _object: &mut Value, _options: &WriteOptions) {}

/// Gives the fields that an update changed to who made it.
pub fn updated(_call: &Call, _new: &mut Value, _old: &Value, _options: &WriteOptions) {}

//! From a JSON value to an object.
//!
//! serde compiles a type's decoder once for each source that it is read from, and an object with a pod in it has
//! hundreds of types. Everything here is read from text, as the cache reads it, so that there is one decoder.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads an object from a value. Where objects come by the thousand, they are read from their bytes instead.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// let map: ConfigMap = stead::decode(&serde_json::json!({"metadata": {"name": "settings"}})).unwrap();
/// assert_eq!(map.metadata.name.as_deref(), Some("settings"));
/// ```
pub fn decode<T: DeserializeOwned>(value: &Value) -> serde_json::Result<T> {
    serde_json::from_str(&value.to_string())
}

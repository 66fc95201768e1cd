//! Between the version that is stored and the version that a request speaks.
//!
//! Only GA versions are served, so two built-in kinds have more than one: events, which are one kind in two
//! groups, and horizontal pod autoscalers.

use crate::catalogue::{Origin, Resource};
use serde_json::Value;

/// Turns a stored object into one of this resource.
pub fn to(resource: &Resource, object: &mut Value) {
    if object.is_object() {
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.as_str().into();
    }
    if let Origin::Custom(kind) = &resource.origin
        && kind.has_defaults
    {
        // The object may have been stored before its schema had these defaults.
        stead_machinery::walk::default(object, resource.schema());
    }
}

/// Turns an object of this resource into the form that is stored.
pub fn to_storage(resource: &Resource, object: &mut Value) {
    if let (Origin::Custom(kind), true) = (&resource.origin, object.is_object()) {
        object["apiVersion"] = format!("{}/{}", resource.group, kind.storage_version).into();
    }
}

//! `managedFields`: who owns which field after a write.

use super::Call;
use super::write_options::WriteOptions;
use crate::catalogue::Origin;
use crate::kinds::strategy;
use serde_json::Value;
use stead_machinery::apply::{self, FieldSet, Kind, Writer};

/// The requests to sign a certificate, of which nothing but the metadata can be changed as a whole.
const SIGNING_REQUESTS: (&str, &str) = ("certificates.k8s.io", "certificatesigningrequests");

/// Who owns the fields of a new state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Still to be worked out: what the writer changes becomes theirs.
    Update,
    /// Worked out already, by apply.
    Applied,
}

/// Gives the fields that a create or update sets to who made it.
pub fn track(call: &Call, new: &mut Value, old: Option<&Value>, options: &WriteOptions) {
    crate::kinds::before_tracking(&call.resource, new);
    with_kind(call, |kind| {
        apply::track(old, new, kind, &writer(call, options));
    });
}

/// Leaves the fields of a new state to nobody.
pub fn forget(new: &mut Value) {
    super::object::metadata_mut(new).remove("managedFields");
}

/// Whether the fields of both states can be owned; those of built-in kinds always can.
pub fn can_be_owned(call: &Call, new: &Value, old: Option<&Value>) -> bool {
    let schema = call.resource.schema();
    let fits = |object: &Value| apply::can_be_owned(object, schema);
    call.resource.origin_is_built_in() || (fits(new) && old.is_none_or(fits))
}

/// Runs something with the kind as the rules of ownership see it.
pub fn with_kind<T>(call: &Call, run: impl FnOnce(&Kind<'_>) -> T) -> T {
    let reset = FieldSet::of(reset_fields(call));
    let fresh = || match call.resource.origin {
        Origin::BuiltIn => crate::protobuf::fresh(&call.api_version, &call.resource.kind).unwrap_or_default(),
        Origin::Custom(_) => Value::Object(serde_json::Map::new()),
    };
    run(&Kind {
        schema: call.resource.schema(),
        reset: &reset,
        fresh: &fresh,
    })
}

pub fn writer<'a>(call: &'a Call, options: &'a WriteOptions) -> Writer<'a> {
    Writer {
        manager: &options.field_manager,
        subresource: &call.path.subresource,
        api_version: &call.api_version,
        now: call.now,
    }
}

/// What the path does not let anybody set, and so nobody comes to own through it. A path may put back more than it names
/// here: that is owned by whoever sent it.
fn reset_fields(call: &Call) -> &'static [&'static str] {
    let resource = &call.resource;
    let request = (resource.group.as_str(), resource.plural.as_str()) == SIGNING_REQUESTS;
    match (call.path.subresource.as_str(), &resource.origin) {
        ("status", _) if strategy::status_keeps_metadata(resource) => &["spec", "metadata"],
        ("status", Origin::BuiltIn) if resource.plural == "deployments" => &["spec", "metadata.labels"],
        ("status", Origin::BuiltIn) if resource.plural == "pods" => {
            &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]
        }
        ("status", Origin::BuiltIn) if request => &["spec", "status.conditions"],
        ("status", _) => &["spec"],
        ("approval", _) => &["spec", "status.certificate"],
        ("finalize", _) => &["status"],
        ("", Origin::BuiltIn) if request => &["spec", "status"],
        ("", _) if resource.has_status() => &["status"],
        _ => &[],
    }
}

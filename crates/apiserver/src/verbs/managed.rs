//! `managedFields`: who owns which field after a write.

use super::Call;
use super::write_options::WriteOptions;
use crate::catalogue::Origin;
use serde_json::Value;
use stead_machinery::apply::{self, Family, FieldSet, Kind, Writer};

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
    with_kind(call, |kind| {
        apply::track(old, new, kind, &writer(call, options));
    });
}

/// Runs something with the kind as the rules of ownership see it.
pub fn with_kind<T>(call: &Call, run: impl FnOnce(&Kind<'_>) -> T) -> T {
    let reset = FieldSet::of(reset_fields(call));
    run(&Kind {
        schema: call.resource.schema(),
        reset: &reset,
        family: match call.resource.origin {
            Origin::BuiltIn => Family::BuiltIn,
            Origin::Custom(_) => Family::Custom,
        },
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

/// What the path does not let anybody set, and so nobody comes to own through it.
fn reset_fields(call: &Call) -> &'static [&'static str] {
    match (call.path.subresource.as_str(), &call.resource.origin) {
        ("status", Origin::Custom(_)) => &["spec", "metadata"],
        ("status", Origin::BuiltIn) => &["spec"],
        ("", _) if call.resource.has_status() => &["status"],
        _ => &[],
    }
}

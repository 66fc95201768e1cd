//! What some kinds do differently.
//!
//! The verbs are the same for all kinds. Each function here is a point where Kubernetes itself treats a kind
//! in a special way; a kind that is not named takes the generic path.

pub mod access;
pub mod admission;
mod allocation;
mod binding;
pub mod bootstrap;
pub mod claim;
mod connect;
pub mod convert;
mod daemon_set;
mod eviction;
pub mod fields;
mod job;
pub mod names;
pub mod namespace;
mod pod;
pub mod scale;
pub mod service;
mod status;
pub mod strategy;
pub mod usage;

pub use allocation::Allocation;
pub use bootstrap::bootstrap;
pub use pod::qos_class;

use crate::catalogue::{Origin, Resource};
use crate::custom;
use crate::error::{ApiError, Result};
use crate::server::{Body, generic};
use crate::store::Record;
use crate::table::Include;
use crate::verbs::Call;
use crate::verbs::write_options::Commit;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use stead_machinery::field::FieldError;

/// Group and plural, as the functions here tell kinds apart.
fn id(resource: &Resource) -> (&str, &str) {
    (&resource.group, &resource.plural)
}

/// Fills in the values that a kind has by default.
pub fn default(resource: &Resource, object: &mut Value) {
    match resource.origin {
        Origin::BuiltIn => crate::defaults::apply(resource, object),
        Origin::Custom(_) => custom::default(resource, object),
    }
    match id(resource) {
        ("", "secrets") => encode_strings(object),
        ("", "nodes") => one_range(object),
        ("", "pods") => pod::default(object),
        _ => {}
    }
}

fn drop_fields(object: &mut Value, names: &[&str]) {
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        spec.retain(|name, _| !names.contains(&name.as_str()));
    }
}

/// The range of a node that is named once is named in both fields; where they differ the single one counts.
fn one_range(node: &mut Value) {
    let Some(Value::Object(spec)) = node.get_mut("spec") else {
        return;
    };
    let single = spec.get("podCIDR").and_then(Value::as_str).unwrap_or_default();
    let first = spec.get("podCIDRs").and_then(|ranges| ranges[0].as_str());
    match first {
        Some(first) if single.is_empty() => {
            let first = Value::from(first);
            spec.insert("podCIDR".to_string(), first);
        }
        first if !single.is_empty() && first != Some(single) => {
            let ranges = json!([single]);
            spec.insert("podCIDRs".to_string(), ranges);
        }
        _ => {}
    }
}

/// `stringData` of a secret is only a way to write `data`.
fn encode_strings(secret: &mut Value) {
    let Value::Object(map) = secret else { return };
    let Some(Value::Object(texts)) = map.remove("stringData") else {
        return;
    };
    let data = map.entry("data").or_insert_with(|| json!({}));
    for (name, text) in texts {
        if let (Value::Object(data), Some(text)) = (&mut *data, text.as_str()) {
            data.insert(name, STANDARD.encode(text).into());
        }
    }
}

/// What a kind always shows, and so belongs to whoever updates the object.
pub fn before_tracking(resource: &Resource, object: &mut Value) {
    if id(resource) == ("apps", "daemonsets") {
        daemon_set::annotate(object);
    }
}

/// Makes an object what it is once it is stored.
pub fn settle(resource: &Resource, object: &mut Value) {
    if resource.origin_is_built_in() {
        crate::protobuf::settle(&resource.api_version(), &resource.kind, object);
    }
}

/// What only an optional feature knows is dropped without it, though it was somebody's.
fn drop_disabled(resource: &Resource, object: &mut Value) {
    if id(resource) == ("coordination.k8s.io", "leases") {
        drop_fields(object, &["strategy", "preferredHolder"]);
    }
}

/// What a delete of a kind should be warned of.
pub fn delete_warning(call: &Call, propagation: Option<&str>) -> Option<&'static str> {
    (id(&call.resource) == ("batch", "jobs") && propagation.is_none()).then_some(job::ORPHAN_WARNING)
}

/// Sets and clears what a client may not choose for a new object.
pub async fn prepare_create(call: &Call, object: &mut Value) -> Result<()> {
    access::check_grant(call, object, None)?;
    if let Origin::Custom(kind) = &call.resource.origin
        && kind.terminating
    {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(ApiError::new(405, "MethodNotAllowed", why));
    }
    drop_disabled(&call.resource, object);
    status::initial(&call.resource, object, call.now);
    strategy::start_generation(&call.resource, object);
    match id(&call.resource) {
        ("", "namespaces") => namespace::prepare_create(object),
        ("", "pods") => pod::prepare_create(object, call.now),
        ("", "services") => service::prepare_create(object),
        ("", "persistentvolumeclaims") => claim::prepare(object, None),
        ("apps", "daemonsets") => daemon_set::prepare_create(object),
        ("", "limitranges") if crate::verbs::object::name(object).is_empty() => {
            let name = call.shared.environment.uid();
            crate::verbs::object::set_meta(object, "name", &name);
        }
        (custom::GROUP, custom::PLURAL) => custom::prepare_create(call, object),
        ("batch", "jobs") => job::prepare_create(object),
        ("certificates.k8s.io", "certificatesigningrequests") => access::name_requester(call, object),
        _ => {}
    }
    Ok(())
}

/// What is wrong with a new object.
pub fn create_errors(call: &Call, object: &Value) -> Vec<FieldError> {
    match &call.resource.origin {
        Origin::Custom(_) => custom::create_errors(call, object),
        Origin::BuiltIn => {
            let mut errors = crate::validation::create(&call.resource, object);
            if id(&call.resource) == (custom::GROUP, custom::PLURAL) {
                errors.extend(custom::definition_errors(object));
            }
            errors
        }
    }
}

/// Carries over what an update may not change silently.
pub async fn prepare_update(call: &Call, object: &mut Value, old: &Value) -> Result<()> {
    access::check_grant(call, object, Some(old))?;
    drop_disabled(&call.resource, object);
    match id(&call.resource) {
        ("", "namespaces") => namespace::prepare_update(object, old, &call.path.subresource),
        ("", "services") if call.path.subresource.is_empty() => service::prepare_update(object, old),
        ("", "persistentvolumeclaims") if call.path.subresource.is_empty() => claim::prepare(object, Some(old)),
        ("", "persistentvolumes") if call.path.subresource == "status" => status::note_phase(object, old, call.now),
        ("apps", "daemonsets") => daemon_set::prepare_update(object, old),
        ("", "pods") => pod::keep_priority(object, old),
        (custom::GROUP, custom::PLURAL) => custom::prepare_update(call, object),
        _ => {}
    }
    Ok(())
}

/// What an update may not do.
pub fn update_errors(call: &Call, object: &Value, old: &Value) -> Vec<FieldError> {
    match (&call.resource.origin, call.path.subresource.as_str()) {
        (Origin::Custom(_), _) => custom::update_errors(call, object, old),
        (Origin::BuiltIn, "") => {
            let mut errors = crate::validation::update(&call.resource, object, old);
            if id(&call.resource) == (custom::GROUP, custom::PLURAL) {
                errors.extend(custom::definition_update_errors(object, old));
            }
            errors
        }
        (Origin::BuiltIn, "status") => crate::validation::status(&call.resource, object, old),
        (Origin::BuiltIn, part) => crate::validation::part(&call.resource, part, object, old),
    }
}

/// The last step before a create is stored: what has to be taken from a pool.
pub async fn begin_create(call: &Call, object: &mut Value, commit: Commit) -> Result<Allocation> {
    match id(&call.resource) {
        ("", "services") => service::begin_create(call, object, commit).await,
        _ => Ok(Allocation::default()),
    }
}

/// The same for an update.
pub async fn begin_update(call: &Call, object: &mut Value, old: &Value, commit: Commit) -> Result<Allocation> {
    match id(&call.resource) {
        ("", "services") => service::begin_update(call, object, old, commit).await,
        _ => Ok(Allocation::default()),
    }
}

/// An object is gone.
pub async fn deleted(call: &Call, record: &Record) {
    match (&call.resource.origin, id(&call.resource)) {
        (Origin::Custom(_), _) => custom::instance_gone(call).await,
        (Origin::BuiltIn, ("", "services")) => service::deleted(call, &record.value()).await,
        _ => {}
    }
}

/// Whether an object may be deleted at all.
pub fn check_delete(call: &Call, old: &Value) -> Result<()> {
    match id(&call.resource) {
        ("", "namespaces") => namespace::check_delete(call, old),
        _ => Ok(()),
    }
}

/// The first step of a delete: what an object takes along.
pub async fn begin_delete(call: &Call, object: &mut Value, commit: Commit) -> Result<()> {
    match (id(&call.resource), commit) {
        ((custom::GROUP, custom::PLURAL), Commit::Store) => custom::begin_cleanup(call, object).await,
        _ => Ok(()),
    }
}

/// Marks what a kind shows while its deletion waits; tells whether it waits for more than its finalizers.
pub fn hold_delete(call: &Call, object: &mut Value) -> bool {
    match id(&call.resource) {
        ("", "namespaces") => namespace::hold_delete(object),
        _ => false,
    }
}

/// The grace period of a delete, for kinds that have one.
pub fn grace_period(call: &Call, object: &Value, wanted: Option<i64>) -> Option<i64> {
    match id(&call.resource) {
        ("", "pods") => Some(pod::grace_period(object, wanted)),
        _ => None,
    }
}

/// Objects as a Table.
pub fn render_table(call: &Call, objects: &[Value]) -> Value {
    let include = Include::parse(call.query.text("includeObject")).unwrap_or_default();
    crate::table::render(&call.resource, objects, call.now, include)
}

/// Answers a request on a resource or one of its subresources; `None` if there is no such thing.
pub async fn subresource(call: &Arc<Call>, body: Body) -> Result<Option<Response<Body>>> {
    if access::is_question(call) {
        return access::answer(call, body).await.map(Some);
    }
    if call.resource.group == usage::GROUP && call.resource.origin_is_built_in() {
        return usage::answer(call).await.map(Some);
    }
    let answer = match (call.resource.plural.as_str(), call.path.subresource.as_str()) {
        ("bindings", "") | ("pods", "binding") => binding::bind(call, body).await,
        (_, "" | "status" | "approval" | "ephemeralcontainers" | "resize" | "finalize") => generic(call, body).await,
        (_, "scale") => scale::scale(call, body).await,
        ("pods", "eviction") => eviction::evict(call, body).await,
        ("pods", "log") => connect::log(call).await,
        ("pods", "exec" | "attach" | "portforward") => connect::session(call, body).await,
        ("pods" | "services" | "nodes", "proxy") => connect::proxy(call, body).await,
        _ => return Ok(None),
    };
    answer.map(Some)
}

//! Delete: at once, or as far as finalizers and grace allow.

mod options;

pub use options::DeleteOptions;

use super::create::Outcome;
use super::object;
use super::write_options::Commit;
use super::{Call, admit, encode};
use crate::admission::{Operation, Review};
use crate::error::{ApiError, Result};
use crate::kinds::{self, strategy};
use crate::server::{Body, respond};
use crate::store::{Record, StoreError, Write};
use http::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// How often a delete is tried again when another write came between.
const ATTEMPTS: usize = 100;

/// What a delete led to.
pub enum Deleted {
    /// It is gone; this was its final state.
    Gone(Value),
    /// It waits for finalizers or its grace period.
    Waiting(Outcome),
}

pub async fn delete(call: &Call, body: Body) -> Result<Response<Body>> {
    let options = DeleteOptions::read(call, body).await?;
    if let Some(warning) = kinds::delete_warning(call, options.propagation.as_deref()) {
        call.warn(warning);
    }
    let deleted = delete_object(call, &call.path.name, &options).await?;
    answer(call, &deleted).await
}

pub async fn answer(call: &Call, deleted: &Deleted) -> Result<Response<Body>> {
    match deleted {
        Deleted::Waiting(outcome) => outcome.answer(call, 200).await,
        Deleted::Gone(object) if strategy::of(&call.resource).returns_deleted => call.answer(200, object),
        Deleted::Gone(object) => respond::object(200, &success(call, object), call.accepted),
    }
}

/// The `Status` that says what is gone.
fn success(call: &Call, object: &Value) -> Value {
    let mut details =
        json!({"name": object::name(object), "kind": call.resource.plural, "uid": object::meta(object, "uid")});
    if !call.resource.group.is_empty() {
        details["group"] = call.resource.group.as_str().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

pub async fn delete_object(call: &Call, name: &str, options: &DeleteOptions) -> Result<Deleted> {
    for _ in 0..ATTEMPTS {
        let record = call
            .find(name)
            .await?
            .ok_or_else(|| ApiError::not_found(&call.group_resource(), name))?;
        if let Some(deleted) = delete_once(call, &record, options).await? {
            return Ok(deleted);
        }
    }
    Err(ApiError::modified(&call.group_resource(), name))
}

/// One attempt; `None` if another write came between.
async fn delete_once(call: &Call, record: &Arc<Record>, options: &DeleteOptions) -> Result<Option<Deleted>> {
    let old = Arc::new(call.in_version(&record.value()).await?);
    let name = object::name(&old);
    check_preconditions(call, &old, options)?;
    let mut review = Review {
        name: name.to_string(),
        object: None,
        ..admit::review(
            call,
            Operation::Delete,
            (*old).clone(),
            Some(old.clone()),
            &options.as_write_options(),
        )
    };
    review.object = None;
    review.options = options.sent.clone();
    admit::mutate(call, &mut review).await?;
    kinds::check_delete(call, &old)?;
    admit::validate(call, &mut review).await?;

    let mut object = (*old).clone();
    kinds::begin_delete(call, &mut object, options.commit).await?;
    let mut options = options.clone();
    let grace = begin_grace(call, &mut object, &mut options);
    if grace == Grace::Pending {
        return Ok(Some(Deleted::Waiting(Outcome::Stored(record.clone()))));
    }
    set_policy_finalizers(call, &mut object, &options);
    let kind_holds = kinds::hold_delete(call, &mut object);
    let held = kind_holds || !object::finalizers(&object).is_empty();
    let waits = held || (grace == Grace::Begun && options.grace_period_seconds.unwrap_or(0) > 0);
    if held && grace == Grace::None {
        mark_deleting(call, &mut object);
    }
    if waits && object == *old {
        return Ok(Some(Deleted::Waiting(Outcome::Stored(record.clone()))));
    }
    if options.commit == Commit::DryRun {
        return Ok(Some(match waits {
            true => Deleted::Waiting(Outcome::Tried(object)),
            false => Deleted::Gone(object),
        }));
    }
    if grace == Grace::Begun && !waits {
        // Who watches sees that it ends before it is gone.
        return commit_ending(call, record, object).await;
    }
    if !waits {
        // Who watches sees an object that goes at once with the finalizers that it had.
        object::copy_meta(&old, &mut object, "finalizers");
    }
    commit(call, record, object, waits).await
}

/// Marks an object, then removes it: two changes, as a graceful deletion without grace makes them.
async fn commit_ending(call: &Call, record: &Arc<Record>, object: Value) -> Result<Option<Deleted>> {
    let marked = match commit(call, record, object.clone(), true).await? {
        Some(Deleted::Waiting(Outcome::Stored(marked))) => marked,
        other => return Ok(other),
    };
    match commit(call, &marked, object.clone(), false).await {
        Ok(None) | Err(_) if !is_still_there(call, &marked).await? => {
            // A node that saw the mark was faster: it is gone, which is what was asked for.
            Ok(Some(Deleted::Gone(object)))
        }
        other => other,
    }
}

/// Whether an object that was read is there still, changed or not.
async fn is_still_there(call: &Call, record: &Record) -> Result<bool> {
    let found = call.find(&record.key.name).await?;
    Ok(found.is_some_and(|found| found.metadata().uid == record.metadata().uid))
}

async fn commit(call: &Call, record: &Arc<Record>, mut object: Value, waits: bool) -> Result<Option<Deleted>> {
    call.to_storage(&mut object).await?;
    let draft = encode::draft(&object);
    let (key, expect) = (record.key.as_ref().clone(), record.revision);
    let write = match waits {
        true => Write::Update { key, draft, expect },
        false => Write::Delete { key, draft, expect },
    };
    match call.shared.store.write(write).await {
        Ok(written) if waits => Ok(Some(Deleted::Waiting(Outcome::Stored(written)))),
        Ok(written) => {
            kinds::deleted(call, &written).await;
            Ok(Some(Deleted::Gone(call.in_version(&written.value()).await?)))
        }
        Err(StoreError::Conflict { .. }) => Ok(None),
        Err(error) => Err(call.store_error(error, &record.key.name)),
    }
}

fn check_preconditions(call: &Call, old: &Value, options: &DeleteOptions) -> Result<()> {
    let (name, uid, version) = (
        object::name(old),
        object::meta(old, "uid"),
        object::meta(old, "resourceVersion"),
    );
    // A namespace is deleted by its own storage, which compares in other words.
    let own = call.resource.group.is_empty() && call.resource.plural == "namespaces";
    // Kubernetes names the kind here, not the resource.
    let subject = crate::error::GroupResource {
        group: call.resource.group.clone(),
        resource: call.resource.kind.clone(),
    };
    match &options.uid {
        Some(wanted) if wanted != uid => {
            if own {
                let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}");
                return Err(ApiError::conflict(&call.group_resource(), name, why));
            }
            let why = format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(&subject, name, why));
        }
        _ => {}
    }
    match &options.resource_version {
        Some(wanted) if wanted != version => {
            if own {
                let why = format!(
                    "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {version}"
                );
                return Err(ApiError::conflict(&call.group_resource(), name, why));
            }
            let why = format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
            );
            Err(ApiError::conflict(&subject, name, why))
        }
        _ => Ok(()),
    }
}

/// Where a graceful deletion stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grace {
    /// The kind has none, or its time is over.
    None,
    /// It begins now, or is shortened.
    Begun,
    /// It is under way, and this request does not shorten it.
    Pending,
}

fn begin_grace(call: &Call, object: &mut Value, options: &mut DeleteOptions) -> Grace {
    if options.grace_period_seconds.is_some_and(|seconds| seconds < 0) {
        options.grace_period_seconds = Some(1);
    }
    let Some(default) = kinds::grace_period(call, object, options.grace_period_seconds) else {
        return Grace::None;
    };
    if object::is_deleting(object) {
        let current = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        if current == 0 {
            return Grace::None;
        }
        return match options.grace_period_seconds {
            Some(seconds) if seconds < current => {
                shorten(call, object, current, seconds);
                options.grace_period_seconds = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
                Grace::Begun
            }
            _ => Grace::Pending,
        };
    }
    options.grace_period_seconds = Some(default);
    let at = later(call.now, default).unwrap_or(jiff::Timestamp::MAX);
    object::set_meta(object, "deletionTimestamp", &object::time(at));
    object::metadata_mut(object).insert("deletionGracePeriodSeconds".to_string(), default.into());
    if object::generation(object) > 0 {
        object::set_generation(object, object::generation(object) + 1);
    }
    Grace::Begun
}

/// So many seconds later; `None` beyond all calendars, where a pod may well ask to be left.
fn later(at: jiff::Timestamp, seconds: i64) -> Option<jiff::Timestamp> {
    at.checked_add(jiff::SignedDuration::from_secs(seconds)).ok()
}

/// A running grace period may only become shorter, and its end never lies in the past.
fn shorten(call: &Call, object: &mut Value, current: i64, wanted: i64) {
    let end: Option<jiff::Timestamp> = object::meta(object, "deletionTimestamp").parse().ok();
    let shifted = end.and_then(|end| later(end, wanted.saturating_sub(current)));
    let (at, seconds) = match shifted {
        Some(at) if at >= call.now => (at, wanted),
        _ if wanted == 0 => (call.now, 0),
        _ => (call.now, 1),
    };
    object::set_meta(object, "deletionTimestamp", &object::time(at));
    object::metadata_mut(object).insert("deletionGracePeriodSeconds".to_string(), seconds.into());
}

/// Foreground and orphan deletion are finalizers that the garbage collector takes away.
fn set_policy_finalizers(call: &Call, object: &mut Value, options: &DeleteOptions) {
    const ORPHAN: &str = "orphan";
    const FOREGROUND: &str = "foregroundDeletion";
    // A namespace that is going hears of its children once.
    let going = call.resource.plural == "namespaces" && call.resource.group.is_empty() && object::is_deleting(object);
    if going || !strategy::of(&call.resource).collects_garbage {
        return;
    }
    let current = object::finalizers(object);
    let has = |name: &str| current.iter().any(|finalizer| finalizer == name);
    let wanted = match options.propagation.as_deref() {
        Some("Orphan") => Some(ORPHAN),
        Some("Foreground") => Some(FOREGROUND),
        Some(_) => None,
        None if has(ORPHAN) => Some(ORPHAN),
        None if has(FOREGROUND) => Some(FOREGROUND),
        None if strategy::of(&call.resource).orphans_by_default => Some(ORPHAN),
        None => None,
    };
    let mut finalizers: Vec<String> = current.into_iter().filter(|f| f != ORPHAN && f != FOREGROUND).collect();
    finalizers.extend(wanted.map(str::to_string));
    object::set_finalizers(object, &finalizers);
}

/// Marks an object that finalizers hold.
fn mark_deleting(call: &Call, object: &mut Value) {
    let first = !object::is_deleting(object);
    // A namespace shows its end in its phase: it has no grace period, and its spec stays as it is.
    let is_namespace = call.resource.plural == "namespaces" && call.resource.group.is_empty();
    if first && !is_namespace && object::generation(object) > 0 {
        object::set_generation(object, object::generation(object) + 1);
    }
    if first {
        object::set_meta(object, "deletionTimestamp", &object::time(call.now));
    }
    if !is_namespace {
        object::metadata_mut(object).insert("deletionGracePeriodSeconds".to_string(), 0.into());
    }
}

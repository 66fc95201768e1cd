//! Update: a new state for an object that is there.
//!
//! Put and every kind of patch end here; they differ only in how the new state is made from the old one.

mod parts;

use super::create::{Outcome, create_object, match_namespace, to_draft};
use super::managed::{self, Ownership};
use super::object;
use super::write_options::{Commit, OptionsKind, WriteOptions};
use super::{Call, admit, metadata};
use crate::admission::Operation;
use crate::error::{ApiError, Result};
use crate::kinds::{self, strategy};
use crate::server::Body;
use crate::store::{Draft, Record, StoreError, Write};
use http::Response;
use serde_json::Value;
use std::sync::Arc;
use stead_machinery::field::FieldError;

/// How often a change that names no version is tried again when another write came between.
const ATTEMPTS: usize = 100;

/// A new state made from the old one.
pub struct Desired {
    pub object: Value,
    pub ownership: Ownership,
}

pub async fn update(call: &Call, body: Body) -> Result<Response<Body>> {
    let options = WriteOptions::parse(&call.query, &call.headers, OptionsKind::Update)?;
    let mut object = call.read_object(body, options.validation).await?;
    match_name(call, &object)?;
    match_namespace(call, &mut object)?;
    let strategy = strategy::of(&call.resource);
    if strategy.create_on_update && call.find(&call.path.name).await?.is_none() {
        check_uid(call, &object, &Value::Null)?;
        sent_version(&object)?;
        if call.path.subresource.is_empty() {
            // There is nothing to compare a version with.
            object::metadata_mut(&mut object).remove("resourceVersion");
            return create_object(call, object, Ownership::Update, &options)
                .await?
                .answer(call, 201)
                .await;
        }
    }
    let outcome = update_object(call, &options, |_| {
        Ok(Desired {
            object: object.clone(),
            ownership: Ownership::Update,
        })
    })
    .await?;
    outcome.answer(call, 200).await
}

pub fn match_name(call: &Call, object: &Value) -> Result<()> {
    match object::name(object) {
        "" => Err(ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.path.name
        ))),
        name if name != call.path.name => Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.path.name
        ))),
        _ => Ok(()),
    }
}

/// Changes the object of the path. `make` may be called several times, each time with a newer state.
pub async fn update_object(
    call: &Call,
    options: &WriteOptions,
    make: impl Fn(&Value) -> Result<Desired>,
) -> Result<Outcome> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let record = call.existing().await?;
        match update_once(call, &record, options, &make).await {
            Err(Failed::Raced) if attempts < ATTEMPTS => {}
            Err(Failed::Raced) => return Err(ApiError::modified(&call.group_resource(), &call.path.name)),
            Err(Failed::Refused(error)) => return Err(error),
            Ok(outcome) => return Ok(outcome),
        }
    }
}

enum Failed {
    /// Another write came between, and this one did not insist on a version.
    Raced,
    Refused(ApiError),
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Failed::Refused(error)
    }
}

async fn update_once(
    call: &Call,
    record: &Arc<Record>,
    options: &WriteOptions,
    make: impl Fn(&Value) -> Result<Desired>,
) -> Result<Outcome, Failed> {
    let old = match call.serves_as_stored(record) {
        true => record.value(),
        false => Arc::new(call.in_version(&record.value()).await?),
    };
    let Desired { mut object, ownership } = make(&old)?;
    let conditional = check_version(call, &object, &old)?;
    // A scale brings a number and no object: Kubernetes reads nothing then that defaults would be filled in of.
    if call.path.subresource != "scale" {
        kinds::default(&call.resource, &mut object);
    }
    // Whoever sends something owns it, also where it does not come to be: what stays as it is, is put back afterwards.
    match ownership {
        Ownership::Update if managed::can_be_owned(call, &object, Some(&old)) => {
            managed::track(call, &mut object, Some(&old), options);
        }
        Ownership::Update => managed::forget(&mut object),
        Ownership::Applied => {}
    }
    let mut review = admit::review(call, Operation::Update, object, Some(old.clone()), options);
    admit::mutate(call, &mut review).await?;
    let mut object = review.object.take().unwrap_or_default();
    // Nor may whoever is asked change more than this path does.
    parts::keep_other(call, &mut object, &old);
    keep_system_metadata(&mut object, &old);
    kinds::prepare_update(call, &mut object, &old).await?;
    kinds::settle(&call.resource, &mut object);
    strategy::bump_generation(call, &mut object, &old);
    let mut errors = metadata::errors(&call.resource, &object);
    if strategy::judges_prefix_once(&call.resource) {
        errors.retain(|error| error.field != "metadata.generateName");
    }
    // Every kind is asked whether a name with this prefix could stand in a path, some also whether it could be a name of theirs.
    errors.splice(0..0, metadata::prefix_errors(&object));
    errors.extend(metadata::update_errors(&object, &old));
    errors.extend(kinds::update_errors(call, &object, &old));
    if !errors.is_empty() {
        let Call { resource, path, .. } = call;
        return Err(ApiError::invalid(&resource.group, &resource.kind, &path.name, &errors).into());
    }
    if matches!(call.path.subresource.as_str(), "" | "scale") {
        for warning in crate::validation::warnings(&call.resource, &object, Some(&old)) {
            call.warn(warning);
        }
    }
    review.object = Some(object);
    admit::validate(call, &mut review).await?;
    let object = review.object.take().unwrap_or_default();
    commit(call, record, &old, object, options, conditional).await
}

/// Whether the client insists on a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Conditional {
    No,
    Yes,
}

fn check_version(call: &Call, object: &Value, old: &Value) -> Result<Conditional> {
    check_uid(call, object, old)?;
    let Some(sent) = sent_version(object)? else {
        // A scale is a part of the object that is there, and so names no version of its own.
        let part = call.path.subresource == "scale";
        if strategy::of(&call.resource).unconditional_update || part {
            return Ok(Conditional::No);
        }
        let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        // Kubernetes names the resource here, not the kind.
        return Err(ApiError::invalid(
            &call.resource.group,
            &call.resource.plural,
            &call.path.name,
            &[error],
        ));
    };
    if sent != object::meta(old, "resourceVersion") {
        return Err(ApiError::modified(&call.group_resource(), &call.path.name));
    }
    // A patch is made anew from the newer state; it fails there if it named a version itself.
    Ok(match call.verb {
        "patch" => Conditional::No,
        _ => Conditional::Yes,
    })
}

/// The version that the client insists on, if it names one.
fn sent_version(object: &Value) -> Result<Option<&str>> {
    match object::meta(object, "resourceVersion") {
        "" | "0" => Ok(None),
        sent if sent.parse::<u64>().is_err() => Err(ApiError::new(
            500,
            "",
            format!("strconv.ParseUint: parsing {sent:?}: invalid syntax"),
        )),
        sent => Ok(Some(sent)),
    }
}

/// The object must be the one that the client means, if it says so.
fn check_uid(call: &Call, object: &Value, old: &Value) -> Result<()> {
    let uid = object::meta(object, "uid");
    // What a patch does to the identity is for validation to refuse.
    let compared = call.verb != "patch";
    if compared && !uid.is_empty() && uid != object::meta(old, "uid") {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            call.resource.plural,
            [call.namespace(), &call.path.name]
                .iter()
                .filter(|part| !part.is_empty())
                .copied()
                .collect::<Vec<_>>()
                .join("/"),
            object::meta(old, "uid"),
        );
        return Err(ApiError::conflict(&call.group_resource(), &call.path.name, why));
    }
    Ok(())
}

/// Metadata that only the server sets stays as it is.
fn keep_system_metadata(object: &mut Value, old: &Value) {
    for field in ["generation", "creationTimestamp"] {
        object::copy_meta(old, object, field);
    }
    // Once set it stays; that it is set by a client is for validation to refuse.
    if object::is_deleting(old) {
        object::copy_meta(old, object, "deletionTimestamp");
    }
    for field in ["uid", "deletionGracePeriodSeconds"] {
        if object["metadata"].get(field).is_none() {
            object::copy_meta(old, object, field);
        }
    }
}

async fn commit(
    call: &Call,
    record: &Arc<Record>,
    old: &Value,
    mut object: Value,
    options: &WriteOptions,
    conditional: Conditional,
) -> Result<Outcome, Failed> {
    object::copy_meta(old, &mut object, "resourceVersion");
    stead_machinery::apply::keep_times_of_unchanged(old, &mut object);
    let gone = released(&object, old);
    if !gone && options.commit == Commit::Store {
        object::metadata_mut(&mut object).remove("selfLink");
    }
    if !gone && object == *old && is_as_stored(call, record, &object).await? {
        // Nothing changed: no write, no new version, no event.
        return Ok(match options.commit {
            Commit::Store => Outcome::Stored(record.clone()),
            Commit::DryRun => Outcome::Tried(object),
        });
    }
    if gone {
        return finish(call, record, object, options, conditional).await;
    }
    let allocation = kinds::begin_update(call, &mut object, old, options.commit).await?;
    if options.commit == Commit::DryRun {
        return Ok(Outcome::Tried(object));
    }
    let draft = match to_draft(call, &mut object).await {
        Ok(draft) => draft,
        Err(error) => {
            allocation.release(call).await;
            return Err(error.into());
        }
    };
    let (key, expect) = (record.key.as_ref().clone(), record.revision);
    match call.shared.store.write(Write::Update { key, draft, expect }).await {
        Ok(record) => {
            allocation.keep(call).await;
            Ok(Outcome::Stored(record))
        }
        Err(error) => {
            allocation.release(call).await;
            Err(not_written(call, error, conditional))
        }
    }
}

/// Ends an object whose last finalizer an update took away. Who watches sees it go as it was stored; only who made the
/// update sees what it was to become.
async fn finish(
    call: &Call,
    record: &Arc<Record>,
    object: Value,
    options: &WriteOptions,
    conditional: Conditional,
) -> Result<Outcome, Failed> {
    if options.commit == Commit::Store {
        let write = Write::Delete {
            key: record.key.as_ref().clone(),
            draft: Draft::of(&record.value()),
            expect: record.revision,
        };
        match call.shared.store.write(write).await {
            Ok(record) => kinds::deleted(call, &record).await,
            Err(error) => return Err(not_written(call, error, conditional)),
        }
    }
    Ok(Outcome::Tried(object))
}

fn not_written(call: &Call, error: StoreError, conditional: Conditional) -> Failed {
    match error {
        StoreError::Conflict { .. } if conditional == Conditional::No => Failed::Raced,
        error => call.store_error(error, &call.path.name).into(),
    }
}

/// Whether an object that did not change would be stored as it is. One that was stored under another schema would not,
/// and Kubernetes writes it anew: so objects are brought to a new version by writing them back.
async fn is_as_stored(call: &Call, record: &Record, object: &Value) -> Result<bool> {
    if call.resource.origin_is_built_in() || call.serves_as_stored(record) {
        return Ok(true);
    }
    let mut stored = object.clone();
    call.to_storage(&mut stored).await?;
    Ok(stored == *record.value())
}

/// Whether an update takes away the last thing that held a deleted object.
fn released(object: &Value, old: &Value) -> bool {
    object::is_deleting(old)
        && object::finalizers(object).is_empty()
        && old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && strategy::is_released(object)
}

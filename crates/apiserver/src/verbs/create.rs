//! Create: from a body to a stored object.

use super::managed::{self, Ownership};
use super::object;
use super::write_options::{Commit, OptionsKind, WriteOptions};
use super::{Call, admit, encode, metadata};
use crate::admission::Operation;
use crate::error::{ApiError, Result};
use crate::kinds::{self, strategy};
use crate::server::Body;
use crate::store::{Draft, Record, Write};
use http::Response;
use serde_json::Value;
use std::sync::Arc;

/// How often a generated name is tried again when it is taken.
const NAME_ATTEMPTS: usize = 8;

/// What a write led to.
pub enum Outcome {
    /// The object as committed.
    Stored(Arc<Record>),
    /// The object as it would be.
    Tried(Value),
}

impl Outcome {
    pub async fn answer(&self, call: &Call, code: u16) -> Result<Response<Body>> {
        match self {
            Outcome::Stored(record) => call.answer_record(code, record).await,
            Outcome::Tried(object) => call.answer(code, object),
        }
    }

    pub async fn object(&self, call: &Call) -> Result<Value> {
        match self {
            Outcome::Stored(record) => call.in_version(&record.value()).await,
            Outcome::Tried(object) => Ok(object.clone()),
        }
    }
}

pub async fn create(call: &Call, body: Body) -> Result<Response<Body>> {
    let options = WriteOptions::parse(&call.query, &call.headers, OptionsKind::Create)?;
    let object = call.read_object(body, options.validation).await?;
    let outcome = create_object(call, object, Ownership::Update, &options).await?;
    outcome.answer(call, 201).await
}

/// Creates an object that is in the version of the request.
pub async fn create_object(
    call: &Call,
    mut object: Value,
    ownership: Ownership,
    options: &WriteOptions,
) -> Result<Outcome> {
    let wiped: &[&str] = match call.verb {
        "create" => &[
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ],
        // An update that creates takes the rest as it is.
        _ => &["uid", "creationTimestamp"],
    };
    for field in wiped {
        object::metadata_mut(&mut object).remove(*field);
    }
    match_namespace(call, &mut object)?;
    if object::meta(&object, "generateName").is_empty() {
        return create_once(call, object, ownership, options).await;
    }
    let sent = object;
    let mut attempt = 0;
    loop {
        attempt += 1;
        let result = create_once(call, sent.clone(), ownership, options).await;
        let generated = object::name(&sent).is_empty();
        match result {
            Err(error) if error.reason == "AlreadyExists" && generated && attempt < NAME_ATTEMPTS => {}
            Err(error) if error.reason == "AlreadyExists" => {
                let mut details = error.details;
                details["retryAfterSeconds"] = 1.into();
                return Err(ApiError::new(
                    409,
                    "AlreadyExists",
                    format!(
                        "{}, the server was not able to generate a unique name for the object",
                        error.message
                    ),
                )
                .with_details(details));
            }
            other => return other,
        }
    }
}

async fn create_once(call: &Call, mut object: Value, ownership: Ownership, options: &WriteOptions) -> Result<Outcome> {
    kinds::default(&call.resource, &mut object);
    match ownership {
        Ownership::Update if managed::can_be_owned(call, &object, None) => {
            managed::track(call, &mut object, None, options);
        }
        Ownership::Update => managed::forget(&mut object),
        Ownership::Applied => {}
    }
    let mut review = admit::review(call, Operation::Create, object, None, options);
    admit::mutate(call, &mut review).await?;
    let mut object = review.object.take().unwrap_or_default();
    fill_metadata(call, &mut object);
    kinds::prepare_create(call, &mut object).await?;
    let mut errors = metadata::errors(&call.resource, &object);
    let of_kind = kinds::create_errors(call, &object);
    if !of_kind.is_empty() && strategy::judges_metadata_last(&call.resource) {
        errors.clear();
    }
    errors.extend(of_kind);
    if !errors.is_empty() {
        return Err(ApiError::invalid(
            &call.resource.group,
            &call.resource.kind,
            object::name(&object),
            &errors,
        ));
    }
    for warning in crate::validation::warnings(&call.resource, &object, None) {
        call.warn(warning);
    }
    review.name = object::name(&object).to_string();
    review.object = Some(object);
    admit::validate(call, &mut review).await?;
    let object = review.object.take().unwrap_or_default();
    commit(call, object, options).await
}

async fn commit(call: &Call, mut object: Value, options: &WriteOptions) -> Result<Outcome> {
    if !object::meta(&object, "resourceVersion").is_empty() {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(ApiError::new(500, "", why));
    }
    kinds::settle(&call.resource, &mut object);
    let name = object::name(&object).to_string();
    let key = call.key(&name);
    let allocation = kinds::begin_create(call, &mut object, options.commit).await?;
    if options.commit == Commit::DryRun {
        return match call.find(&name).await? {
            Some(record) => Err(exists(call, &record)),
            None => Ok(Outcome::Tried(object)),
        };
    }
    object::metadata_mut(&mut object).remove("selfLink");
    let draft = match to_draft(call, &mut object).await {
        Ok(draft) => draft,
        Err(error) => {
            allocation.release(call).await;
            return Err(error);
        }
    };
    match call.shared.store.write(Write::Create { key, draft }).await {
        Ok(record) => {
            allocation.keep(call).await;
            Ok(Outcome::Stored(record))
        }
        Err(error) => {
            allocation.release(call).await;
            let refused = call.store_error(error, &name);
            match call.find(&name).await? {
                Some(record) if refused.reason == "AlreadyExists" => Err(exists(call, &record)),
                _ => Err(refused),
            }
        }
    }
}

/// What is stored of an object, if it can be.
pub async fn to_draft(call: &Call, object: &mut Value) -> Result<Draft> {
    call.to_storage(object).await?;
    let draft = encode::draft(object);
    check_size(call, draft.json.len())?;
    Ok(draft)
}

/// The refusal to create what is there, which says if that is on its way out.
fn exists(call: &Call, record: &Record) -> ApiError {
    let mut refused = ApiError::already_exists(&call.group_resource(), &record.key.name);
    if object::is_deleting(&record.value()) {
        refused.message = format!("object is being deleted: {}", refused.message);
    }
    refused
}

/// Refuses an object that is too large to store.
pub fn check_size(call: &Call, bytes: usize) -> Result<()> {
    match bytes > call.shared.limits.object {
        true => Err(ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {}", call.shared.limits.object),
        )),
        false => Ok(()),
    }
}

/// The namespace of the body must be that of the path; left out, it is filled in.
pub fn match_namespace(call: &Call, object: &mut Value) -> Result<()> {
    let expected = call.namespace();
    let sent = object::namespace(object).to_string();
    if sent == expected {
        return Ok(());
    }
    if sent.is_empty() {
        object::set_meta(object, "namespace", expected);
        return Ok(());
    }
    if expected.is_empty() {
        // Cluster-scoped kinds have none, whatever the body says.
        object::set_meta(object, "namespace", "");
        return Ok(());
    }
    Err(ApiError::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}

/// What only the server sets.
fn fill_metadata(call: &Call, object: &mut Value) {
    let prefix = object::meta(object, "generateName").to_string();
    if object::name(object).is_empty() && !prefix.is_empty() {
        // Room for the five random characters.
        const PREFIX_LENGTH: usize = 63 - 5;
        let cut = prefix
            .char_indices()
            .nth(PREFIX_LENGTH)
            .map_or(prefix.len(), |(at, _)| at);
        let name = format!("{}{}", &prefix[..cut], call.shared.environment.name_suffix());
        object::set_meta(object, "name", &name);
    }
    let uid = call.shared.environment.uid();
    object::set_meta(object, "uid", &uid);
    object::set_meta(object, "creationTimestamp", &object::time(call.now));
}

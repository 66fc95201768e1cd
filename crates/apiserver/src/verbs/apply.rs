//! Server-side apply.

mod settled;

pub use settled::Settled;

use super::create::{Outcome, create_object};
use super::managed::{self, Ownership};
use super::object;
use super::update::{Desired, update_object};
use super::write_options::{Commit, WriteOptions};
use super::{Call, create};
use crate::admission::pod_security;
use crate::catalogue::Origin;
use crate::error::{ApiError, Result};
use crate::server::Body;
use crate::server::decode::{self, FieldValidation, Mistakes};
use crate::server::negotiate::BodyEncoding;
use crate::store::Record;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use settled::Print;
use stead_machinery::apply::{self, ApplyError, Force, Kind, Writer};

/// How often a create that loses against another becomes an update, and the other way round.
const ATTEMPTS: usize = 5;

pub async fn apply(
    call: &Call,
    bytes: &Bytes,
    encoding: BodyEncoding,
    options: &WriteOptions,
) -> Result<Response<Body>> {
    let print = |record: &Record| Print::of(call, record, bytes, encoding, options);
    if let Some(record) = call.find(&call.path.name).await?
        && is_plain(call, &record, options)
        && call.shared.settled.knows(&print(&record))
    {
        return call.answer_record(200, &record).await;
    }
    let config = read(call, bytes, encoding, options)?;
    let remember = |record: &Record| {
        // A warning has to be given each time.
        if call.warnings.lock().is_empty() {
            call.shared.settled.remember(print(record));
        }
    };
    // Whoever applied is likely to apply the same again: the first time costs no more than every time after it.
    let foresee = |outcome: &Outcome| {
        if let Outcome::Stored(record) = outcome
            && is_plain(call, record, options)
            && changes_nothing(call, record, &config, options)
            && warnings(call, record).is_empty()
        {
            remember(record);
        }
    };
    for _ in 0..ATTEMPTS {
        if let Some(record) = call.find(&call.path.name).await? {
            if is_plain(call, &record, options) && changes_nothing(call, &record, &config, options) {
                for warning in warnings(call, &record) {
                    call.warn(warning);
                }
                remember(&record);
                return call.answer_record(200, &record).await;
            }
            let outcome = update_object(call, options, |old| desired(call, Some(old), &config, options)).await;
            match outcome {
                Err(error) if error.code == 404 => {}
                other => {
                    let outcome = other?;
                    foresee(&outcome);
                    return outcome.answer(call, 200).await;
                }
            }
        }
        if !call.path.subresource.is_empty() {
            return Err(call.not_found());
        }
        let mut created = fitted(call, None, &config, options)?;
        let uid = object::meta(&config, "uid");
        if !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(ApiError::conflict(&call.group_resource(), &call.path.name, why));
        }
        match_path(call, &mut created)?;
        // An apply may name the version that it expects; where there is no object there is nothing to compare it
        // with, and Kubernetes creates one. Clients use it to say "create, but never change".
        object::metadata_mut(&mut created).remove("resourceVersion");
        match create_object(call, created, Ownership::Applied, options).await {
            Err(error) if error.reason == "AlreadyExists" => {}
            other => {
                let outcome = other?;
                foresee(&outcome);
                return outcome.answer(call, 201).await;
            }
        }
    }
    Err(ApiError::modified(&call.group_resource(), &call.path.name))
}

/// Whether nobody has a say in an apply without effect: whoever watches writes from outside is asked all the same.
fn is_plain(call: &Call, record: &Record, options: &WriteOptions) -> bool {
    options.commit == Commit::Store
        && call.path.subresource.is_empty()
        && !call.shared.admission.is_steered()
        && !pod_security::is_watching(call)
        && is_judged(call, record)
        && call.serves_as_stored(record)
}

/// Whether the object is what the configuration wants already. Controllers apply the same again and again: this costs
/// little more than a get.
fn changes_nothing(call: &Call, record: &Record, config: &Value, options: &WriteOptions) -> bool {
    let live = record.value();
    !object::is_deleting(&live)
        && managed::with_kind(call, |kind| {
            apply::changes_nothing(&live, config, kind, &managed::writer(call, options))
        })
}

/// What is told of an object that stays as it is.
fn warnings(call: &Call, record: &Record) -> Vec<String> {
    let live = record.value();
    crate::validation::warnings(&call.resource, &live, Some(&live))
}

/// Whether the object was stored under the schema of today, and nothing in it is judged by what it was before.
fn is_judged(call: &Call, record: &Record) -> bool {
    match &call.resource.origin {
        Origin::BuiltIn => true,
        Origin::Custom(kind) => kind.rules.is_none() && record.revision > kind.since,
    }
}

fn read(call: &Call, bytes: &Bytes, encoding: BodyEncoding, options: &WriteOptions) -> Result<Value> {
    document_of(call, bytes, encoding, options, (&call.api_version, &call.resource.kind))
}

/// The document that is applied, which must be of this version and kind.
pub fn document_of(
    call: &Call,
    bytes: &Bytes,
    encoding: BodyEncoding,
    options: &WriteOptions,
    (api_version, kind): (&str, &str),
) -> Result<Value> {
    let config = document(call, bytes, encoding, options)?;
    let sent = config["apiVersion"].as_str().unwrap_or_default();
    if sent != api_version || config["kind"].as_str().unwrap_or_default() != kind {
        let core = if sent.contains('/') { "" } else { "/" };
        return Err(ApiError::bad_request(format!(
            "invalid object type: {core}{sent}, Kind={}",
            config["kind"].as_str().unwrap_or_default()
        )));
    }
    Ok(config)
}

fn document(call: &Call, bytes: &Bytes, encoding: BodyEncoding, options: &WriteOptions) -> Result<Value> {
    // JSON is YAML too, and its own decoder is faster and knows duplicates. What only begins like JSON is YAML.
    let as_json = match bytes.trim_ascii_start().first() {
        Some(b'{') => decode::decode(bytes, BodyEncoding::Json, None).ok(),
        _ => None,
    };
    let decoded = match as_json {
        Some(decoded) => decoded,
        None => decode::decode(bytes, encoding, None).map_err(|error| {
            ApiError::bad_request(format!("error decoding YAML: error converting YAML to JSON: {error}"))
        })?,
    };
    let config = decoded.value;
    if !config.is_object() {
        return Err(ApiError::bad_request("error decoding YAML: the document is no object"));
    }
    if !decoded.strict.is_empty() && options.validation != FieldValidation::Ignore {
        // Every apply is YAML to Kubernetes, and its library tells the line of a key that came twice.
        let duplicate = decode::yaml_duplicate(bytes).unwrap_or_else(|| decoded.strict.join(", "));
        if options.validation == FieldValidation::Strict {
            return Err(ApiError::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {duplicate}"
            )));
        }
        call.warn(duplicate);
    }
    Ok(config)
}

fn desired(call: &Call, live: Option<&Value>, config: &Value, options: &WriteOptions) -> Result<Desired> {
    let mut object = fitted(call, live, config, options)?;
    match_path(call, &mut object)?;
    Ok(Desired {
        object,
        ownership: Ownership::Applied,
    })
}

/// What a configuration makes of an object of this kind.
fn fitted(call: &Call, live: Option<&Value>, config: &Value, options: &WriteOptions) -> Result<Value> {
    let object = managed::with_kind(call, |kind| {
        merged(live, config, kind, &managed::writer(call, options), options)
    })?;
    // Fields that a custom kind does not declare were refused already; what is dropped without that is not told.
    let validation = match call.resource.origin {
        Origin::BuiltIn => options.validation,
        Origin::Custom(_) => FieldValidation::Ignore,
    };
    call.fit_or(object, validation, Mistakes::End, |_, why| unfit(call, config, &why))
}

/// What a configuration makes of the object that is there.
pub fn merged(
    live: Option<&Value>,
    config: &Value,
    kind: &Kind<'_>,
    writer: &Writer<'_>,
    options: &WriteOptions,
) -> Result<Value> {
    let force = match options.force {
        true => Force::Yes,
        false => Force::No,
    };
    apply::apply(live, config, kind, writer, force).map_err(refused)
}

/// The object must be the one that the path names.
pub fn match_path(call: &Call, object: &mut Value) -> Result<()> {
    super::update::match_name(call, object)?;
    create::match_namespace(call, object)
}

/// A document whose fields are declared, with a value that its type cannot take.
fn unfit(call: &Call, config: &Value, why: &str) -> ApiError {
    let words = match why.starts_with("illegal base64") {
        true => "error decoding from json: ",
        false => "",
    };
    let why = without_place(why);
    let kind = format!(
        "{}/{}, Kind={}",
        call.resource.group, call.resource.version, call.resource.kind
    );
    ApiError::new(
        500,
        "",
        format!(
            "failed to convert new object ({}/{}; {kind}) to proper version: unable to convert unstructured object to {kind}: {words}{why}",
            object::namespace(config),
            object::name(config),
        ),
    )
}

/// What may be a number or a text reads itself, and does not know where it stands.
fn without_place(why: &str) -> String {
    let placed = why
        .split_once(" into Go struct field ")
        .and_then(|(found, rest)| Some((found, rest.rsplit_once(" of type ")?.1)));
    match placed {
        Some((found, "int32")) if !found.contains("number") && !found.ends_with("string") => {
            format!("{found} into Go value of type int32")
        }
        _ => why.to_string(),
    }
}

fn refused(error: ApplyError) -> ApiError {
    match error {
        ApplyError::Conflicts(conflicts) => {
            let causes: Vec<Value> = conflicts
                .causes()
                .into_iter()
                .map(|cause| json!({"reason": "FieldManagerConflict", "message": cause.message, "field": cause.field}))
                .collect();
            ApiError::new(409, "Conflict", conflicts.to_string()).with_details(json!({"causes": causes}))
        }
        ApplyError::Malformed(why) => ApiError::bad_request(why),
        ApplyError::Untyped(why) => ApiError::new(500, "", why),
    }
}

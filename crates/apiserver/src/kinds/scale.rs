//! `/scale`: one number of a workload, in the same form for every kind that has it.

mod owners;

use crate::catalogue::{Origin, Resource};
use crate::error::{ApiError, Result};
use crate::server::negotiate::BodyEncoding;
use crate::server::{Body, respond};
use crate::verbs::apply;
use crate::verbs::managed::{self, Ownership};
use crate::verbs::object::{self, at};
use crate::verbs::patch::{self, Patch};
use crate::verbs::update::{Desired, update_object};
use crate::verbs::write_options::{OptionsKind, WriteOptions};
use crate::verbs::{Call, selection};
use http::Response;
use owners::Owners;
use serde_json::{Map, Value, json};
use stead_machinery::apply::{FieldSet, Kind, Writer};
use stead_machinery::field::FieldError;

const KIND: &str = "Scale";

/// Stands for the replicas of a custom resource that says none, so that a write which leaves them out is told from
/// one that wants none.
const UNSET: i64 = i32::MIN as i64;

/// Where a kind keeps what its scale shows.
struct Paths {
    spec: String,
    status: String,
    selector: Option<String>,
}

pub async fn scale(call: &Call, body: Body) -> Result<Response<Body>> {
    let paths = paths(&call.resource);
    match call.verb {
        "get" => {
            let record = call.existing().await?;
            let object = call.in_version(&record.value()).await?;
            if let Origin::Custom(custom) = &call.resource.origin
                && at(&object, &paths.spec).is_null()
            {
                let why = format!(
                    "the spec replicas field {:?} does not exist",
                    custom.scale.spec_replicas
                );
                let causes = json!({"causes": [{"message": why}]});
                let message = format!("Internal error occurred: {why}");
                return Err(ApiError::new(500, "InternalError", message).with_details(causes));
            }
            respond::object(200, &shown(call, &object, &paths), call.accepted)
        }
        "update" => {
            let options = WriteOptions::parse(&call.query, &call.headers, OptionsKind::Update)?;
            let sent = call.read_object(body, options.validation).await?;
            if object::name(&sent) != call.path.name && !object::name(&sent).is_empty() {
                return Err(ApiError::bad_request(format!(
                    "the name of the object ({}) does not match the name on the URL ({})",
                    object::name(&sent),
                    call.path.name
                )));
            }
            rewrite(call, &options, &paths, |_| Ok(sent.clone())).await
        }
        "patch" => {
            if let Some(encoding) = patch::applies(call)? {
                return apply_scale(call, body, encoding, &paths).await;
            }
            let patch = Patch::read(call, body).await?;
            let schema = crate::catalogue::built_in::kind("autoscaling", "v1", "Scale");
            rewrite(call, &patch.options, &paths, |scale| patch.apply(scale, schema)).await
        }
        _ => Err(ApiError::no_such_path()),
    }
}

/// Applies a scale: what it says becomes the manager's, in the object that is scaled.
async fn apply_scale(call: &Call, body: Body, encoding: BodyEncoding, paths: &Paths) -> Result<Response<Body>> {
    let bytes = crate::server::body::read(body, call.shared.limits.body).await?;
    let options = WriteOptions::parse(&call.query, &call.headers, OptionsKind::Apply)?;
    let sent = apply::document_of(call, &bytes, encoding, &options, (owners::API_VERSION, KIND))?;
    change(call, &options, paths, |live| {
        let mut scale = with_kind(|kind| apply::merged(Some(live), &sent, kind, &writer(call, &options), &options))?;
        apply::match_path(call, &mut scale)?;
        Ok(scale)
    })
    .await
}

/// Changes a scale, and gives what the writer changes to them.
async fn rewrite(
    call: &Call,
    options: &WriteOptions,
    paths: &Paths,
    make: impl Fn(&Value) -> Result<Value>,
) -> Result<Response<Body>> {
    change(call, options, paths, |live| {
        let mut bare = live.clone();
        managed::forget(&mut bare);
        let mut scale = make(&bare)?;
        if call.verb == "patch" {
            apply::match_path(call, &mut scale)?;
        }
        if scale["spec"]["replicas"].as_i64() == Some(0) {
            // A scale of zero replicas is written without them, so whoever scales down to zero owns nothing.
            object::map_mut(&mut scale, "spec").remove("replicas");
        }
        with_kind(|kind| stead_machinery::apply::track(Some(live), &mut scale, kind, &writer(call, options)));
        Ok(scale)
    })
    .await
}

/// Runs something with scales as the rules of ownership see them.
fn with_kind<T>(run: impl FnOnce(&Kind<'_>) -> T) -> T {
    let schema = crate::catalogue::built_in::kind("autoscaling", "v1", KIND);
    let fresh = || crate::protobuf::fresh(owners::API_VERSION, KIND).unwrap_or_default();
    run(&Kind {
        schema: schema.expect("the embedded data has every kind of Kubernetes"),
        reset: &FieldSet::new(),
        fresh: &fresh,
    })
}

fn writer<'a>(call: &'a Call, options: &'a WriteOptions) -> Writer<'a> {
    Writer {
        api_version: owners::API_VERSION,
        ..managed::writer(call, options)
    }
}

/// A patch may have made a number that no scale can hold.
fn fits(call: &Call, scale: &Value) -> Result<()> {
    let wanted = &scale["spec"]["replicas"];
    let whole = wanted.as_i64().is_some_and(|wanted| i32::try_from(wanted).is_ok());
    if call.verb != "patch" || wanted.is_null() || whole {
        return Ok(());
    }
    let found = crate::server::decode::json_type(wanted);
    let why = format!("json: cannot unmarshal {found} into Go struct field ScaleSpec.spec.replicas of type int32");
    let error = FieldError::invalid("patch", scale.to_string(), why);
    Err(ApiError::invalid("", "", "", &[error]))
}

/// Custom resources judge their replicas themselves, with the rest of the object.
fn check_replicas(call: &Call, replicas: i64) -> Result<()> {
    if let (UNSET, Origin::Custom(custom)) = (replicas, &call.resource.origin) {
        let path = &custom.scale.spec_replicas;
        return Err(ApiError::bad_request(format!(
            "the spec replicas field {path:?} cannot be empty"
        )));
    }
    if replicas < 0 && call.resource.origin_is_built_in() {
        let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        return Err(ApiError::invalid("autoscaling", KIND, &call.path.name, &[error]));
    }
    Ok(())
}

/// Writes the replicas of a scale that is made from the one there is, and its owners, into the object.
async fn change(
    call: &Call,
    options: &WriteOptions,
    paths: &Paths,
    make: impl Fn(&Value) -> Result<Value>,
) -> Result<Response<Body>> {
    let outcome = update_object(call, options, |old| {
        let owners = Owners::of(&call.resource, old, &paths.spec);
        let mut live = shown(call, old, paths);
        if selection::is_custom(&call.resource) && at(old, &paths.spec).is_null() {
            live["spec"]["replicas"] = UNSET.into();
        }
        owners::put(&mut live, &owners.of_scale());
        let scale = make(&live)?;
        fits(call, &scale)?;
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        check_replicas(call, replicas)?;
        let mut object = old.clone();
        set(&mut object, &paths.spec, replicas.into());
        for field in ["resourceVersion", "uid"] {
            object::copy_meta(&scale, &mut object, field);
        }
        owners::put(&mut object, &owners.of_object(&scale));
        Ok(Desired {
            object,
            ownership: Ownership::Applied,
        })
    })
    .await?;
    respond::object(200, &shown(call, &outcome.object(call).await?, paths), call.accepted)
}

/// The scale of an object.
fn shown(call: &Call, object: &Value, paths: &Paths) -> Value {
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata.insert(field.to_string(), value.clone());
        }
    }
    let mut spec = Map::new();
    if let Some(replicas) = at(object, &paths.spec).as_i64().filter(|replicas| *replicas != 0) {
        spec.insert("replicas".to_string(), replicas.into());
    }
    let mut status = json!({"replicas": at(object, &paths.status).as_i64().unwrap_or(0)});
    if let Some(selector) = selector(call, object, paths) {
        status["selector"] = selector.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// The selector in the form of a query.
fn selector(call: &Call, object: &Value, paths: &Paths) -> Option<String> {
    let found = at(object, paths.selector.as_deref()?);
    if selection::is_custom(&call.resource) {
        return found.as_str().map(str::to_string);
    }
    let text = match super::id(&call.resource) {
        // A plain map of labels.
        ("", "replicationcontrollers") => {
            let pairs = found.as_object().into_iter().flatten();
            let terms: Vec<String> = pairs
                .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
                .collect();
            terms.join(",")
        }
        _ => stead_machinery::selector::LabelSelector::from_object(found)
            .ok()?
            .to_string(),
    };
    (!text.is_empty()).then_some(text)
}

fn paths(resource: &Resource) -> Paths {
    match &resource.origin {
        Origin::BuiltIn => Paths {
            spec: "spec.replicas".to_string(),
            status: "status.replicas".to_string(),
            selector: Some("spec.selector".to_string()),
        },
        Origin::Custom(custom) => {
            let path = |path: &str| path.trim_start_matches('.').to_string();
            Paths {
                spec: path(&custom.scale.spec_replicas),
                status: path(&custom.scale.status_replicas),
                selector: Some(path(&custom.scale.selector)).filter(|path| !path.is_empty()),
            }
        }
    }
}

/// Sets a value at a dotted path, making the objects on the way.
fn set(object: &mut Value, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            if let Value::Object(map) = object {
                map.insert(path.to_string(), value);
            }
        }
        Some((first, rest)) => {
            object::map_mut(object, first);
            set(&mut object[first], rest, value);
        }
    }
}

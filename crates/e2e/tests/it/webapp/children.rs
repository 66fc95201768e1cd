//! The children of an application in a form in which those of two applications can be compared.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams};
use kube::core::DynamicObject;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use stead_apis::WebApp;
use stead_webapp::resources::revision::wanted_hash;

/// Objects by kind and name.
pub type Children = BTreeMap<String, Value>;

/// Everything that an application has, without what only one installation knows. Fails before the operator is done with
/// the spec as it is now.
pub async fn of(client: &Client, name: &str) -> Result<Children, String> {
    let revision = revision(client, name).await?;
    let mut children = Children::new();
    for kind in stead_webapp::observe::owned_kinds() {
        let chosen = ListParams::default().labels(&format!("app.kubernetes.io/instance={name}"));
        let found = objects(client, &kind).list(&chosen).await;
        for object in found.map_err(|error| error.to_string())?.items {
            // Older revisions are history, which a fresh installation does not have.
            if kind.kind == "ControllerRevision" && !object.name_any().ends_with(&revision) {
                continue;
            }
            let place = format!("{kind} {}", object.name_any().replace(name, "NAME"));
            children.insert(place, comparable(&object, name));
        }
    }
    Ok(children)
}

pub fn objects(client: &Client, kind: &stead::Kind) -> Api<DynamicObject> {
    Api::default_namespaced_with(client.clone(), &kind.api_resource())
}

/// An object without what only one installation knows. Names must be of one length, so that nothing else than the name
/// can differ because of it.
pub fn comparable(object: &DynamicObject, name: &str) -> Value {
    let mut value = serde_json::to_value(object).expect("JSON");
    let meta = &object.metadata;
    value["metadata"] = json!({"labels": meta.labels, "annotations": meta.annotations});
    for field in ["apiVersion", "kind", "status", "revision"] {
        value.as_object_mut().expect("an object").remove(field);
    }
    if let Some(Value::Object(spec)) = value.get_mut("spec") {
        spec.retain(|field, _| !field.starts_with("clusterIP"));
    }
    serde_json::from_str(&value.to_string().replace(name, "NAME")).expect("JSON")
}

/// The hash of the revision, once the operator is done with the spec as it is now.
async fn revision(client: &Client, name: &str) -> Result<String, String> {
    let apps: Api<WebApp> = Api::default_namespaced(client.clone());
    let app = apps.get(name).await.map_err(|error| error.to_string())?;
    let status = app.status.clone().unwrap_or_default();
    if status.observed_generation != app.metadata.generation {
        return Err(format!("not looked at yet: {status:?}"));
    }
    let deployment = objects(client, &stead::Kind::of::<Deployment>()).get(name).await;
    let deployment = deployment.map_err(|error| format!("{error}: {status:?}"))?;
    let (hash, label) = (wanted_hash(&app), deployment.labels().get("stead.dev/revision"));
    match label == Some(&hash) {
        true => Ok(hash),
        false => Err(format!(
            "the Deployment is of {label:?}, the spec of {hash}: {status:?}"
        )),
    }
}

//! `stead export`: an application with its configuration, as YAML that restores it elsewhere.
//!
//! What is printed names no namespace and nothing that only one cluster knows, so `kubectl apply -n NS -f -` makes the
//! same application in any namespace of any cluster.

use crate::commands::connection::{self, App, Readable};
use crate::terminal::{Line, say, tell};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::api::Api;
use kube::core::ObjectMeta;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use stead_apis::WebApp;
use stead_webapp::references;

/// Print an application with its configuration, to restore it in another namespace or cluster
#[derive(Args)]
#[command(after_help = "Examples:
  stead export webapp shop > shop.yaml
  stead export webapp shop | kubectl apply -n staging -f -
  stead export webapp shop --secrets omit | kubectl --context other apply -f -")]
pub struct Arguments {
    #[command(flatten)]
    app: App,
    /// What becomes of the Secrets that it refers to
    #[arg(long, value_enum, default_value_t = Secrets::Include)]
    secrets: Secrets,
}

/// What becomes of Secrets.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Secrets {
    /// They are printed too
    Include,
    /// They must be there already where it is restored
    Omit,
}

/// Annotations that belong to one cluster, or to the way in which an object got there.
const NOT_EXPORTED: &[&str] = &["kubectl.kubernetes.io/last-applied-configuration"];

pub fn run(arguments: &Arguments) -> Result<()> {
    connection::block_on(async {
        let (client, namespace) = arguments.app.client().await?;
        let app = arguments.app.get(&Api::namespaced(client.clone(), &namespace)).await?;
        let mut objects = configuration(&client, &namespace, &app, arguments.secrets).await?;
        let secrets = objects.iter().any(|object| object["kind"] == "Secret");
        objects.push(portable(&app)?);
        for object in &objects {
            let text = serde_saphyr::to_string(object).context("cannot print it as YAML")?;
            say(&format!("---\n{}", text.trim_end()))?;
        }
        if secrets {
            tell(Line::Note, "this holds Secrets: keep it as you keep them");
        }
        Ok(())
    })
}

/// Everything that the application refers to by name, as far as it exists.
async fn configuration(client: &Client, namespace: &str, app: &WebApp, secrets: Secrets) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    let named = references::named(&app.spec);
    if let Some(name) = app
        .spec
        .service_account_name
        .as_deref()
        .filter(|name| *name != "default")
    {
        objects.extend(fetched::<ServiceAccount>(client, namespace, name).await?);
    }
    for name in named.config_maps.keys() {
        objects.extend(fetched::<ConfigMap>(client, namespace, name).await?);
    }
    if secrets == Secrets::Include {
        let ingress = app
            .spec
            .ingress
            .as_ref()
            .and_then(|ingress| ingress.tls_secret_name.clone());
        let pulls = app.spec.image_pull_secrets.iter().map(|secret| secret.name.clone());
        let mut names: Vec<String> = named.secrets.into_keys().chain(ingress).chain(pulls).collect();
        names.sort();
        names.dedup();
        for name in names {
            objects.extend(fetched::<Secret>(client, namespace, &name).await?);
        }
    }
    Ok(objects)
}

async fn fetched<K: Readable + Serialize>(client: &Client, namespace: &str, name: &str) -> Result<Option<Value>> {
    match connection::get::<K>(client, namespace, name).await? {
        Some(found) => portable(&found).map(Some),
        None => {
            tell(
                Line::Note,
                &format!("{} {name} does not exist and is left out", K::kind(&())),
            );
            Ok(None)
        }
    }
}

/// The object without what only its own cluster knows.
fn portable<K: Resource<DynamicType = ()> + Clone + Serialize>(object: &K) -> Result<Value> {
    let mut object = object.clone();
    let kept = |all: &BTreeMap<String, String>| {
        let mut kept = all.clone();
        kept.retain(|name, _| !NOT_EXPORTED.contains(&name.as_str()));
        (!kept.is_empty()).then_some(kept)
    };
    let labels = kept(object.labels());
    let annotations = kept(object.annotations());
    *object.meta_mut() = ObjectMeta {
        name: Some(object.name_any()),
        labels,
        annotations,
        ..ObjectMeta::default()
    };
    let mut value = serde_json::to_value(&object).context("cannot read the object")?;
    if let Value::Object(fields) = &mut value {
        fields.remove("status");
        // Tokens of an account are made anew wherever it is.
        if K::kind(&()) == "ServiceAccount" {
            fields.remove("secrets");
        }
    }
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_one_cluster_knows_is_left_out() {
        let app: WebApp = serde_json::from_value(json!({"apiVersion": "stead.dev/v1", "kind": "WebApp",
            "metadata": {"name": "shop", "namespace": "a", "uid": "u", "resourceVersion": "7", "generation": 3,
                "labels": {"team": "blue"}, "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "kept"}},
            "spec": {"image": "nginx:1.25", "replicas": 2}, "status": {"phase": "Ready"}}))
        .unwrap();
        let value = portable(&app).unwrap();
        assert_eq!(
            value["metadata"],
            json!({"name": "shop", "labels": {"team": "blue"}, "annotations": {"note": "kept"}})
        );
        assert_eq!((&value["kind"], &value["status"]), (&json!("WebApp"), &Value::Null));
        assert_eq!(value["spec"]["replicas"], 2);
    }
}

//! What the operator would see, read from the API server instead of a cache.

use crate::commands::connection::{Readable, get, list};
use anyhow::Result;
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Api, ListParams};
use kube::{Client, Resource, ResourceExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use stead_apis::WebApp;
use stead_webapp::foreign::{Foreign, HttpRoute, Named, ServiceMonitor};
use stead_webapp::names::{self, Track};
use stead_webapp::references::{self, Digested};
use stead_webapp::resources::network_policy;
use stead_webapp::resources::revision::Revision;
use stead_webapp::seen::{Digests, OptionalKinds, Seen};

/// Everything that a plan for this application depends on. What pods use and how many requests fail is left out: it
/// changes from minute to minute, and a plan is about the spec.
pub async fn seen(client: &Client, namespace: &str, app: &WebApp) -> Result<Seen> {
    let deployment = async |track: Track| -> Result<Option<Arc<Deployment>>> {
        let found: Option<Deployment> = get(client, namespace, &track.deployment(app)).await?;
        Ok(found.filter(|found| is_owned(found, app)).map(Arc::new))
    };
    let chosen = names::selector_text(app);
    let revisions: Vec<ControllerRevision> = list(client, namespace, &chosen).await?;
    let pods: Vec<Pod> = list(client, namespace, &chosen).await?;
    let stored = revisions.iter().filter(|stored| is_owned(*stored, app));
    let revisions: Vec<Revision> = stored.filter_map(Revision::read).collect();
    let named = references::named_by_any(app, &revisions);
    let config_maps = digests::<ConfigMap>(client, namespace, named.config_maps.keys()).await?;
    let secrets = digests::<Secret>(client, namespace, named.secrets.keys()).await?;
    Ok(Seen {
        stable: deployment(Track::Stable).await?,
        canary: deployment(Track::Canary).await?,
        service: get::<Service>(client, namespace, &names::child(app))
            .await?
            .map(Arc::new),
        revisions,
        pods: pods.into_iter().map(Arc::new).collect(),
        digests: Digests { config_maps, secrets },
        optional: OptionalKinds {
            gateway: is_served::<HttpRoute>(client, namespace).await,
            monitoring: is_served::<ServiceMonitor>(client, namespace).await,
        },
        home: get::<NetworkPolicy>(client, namespace, &names::child(app))
            .await?
            .and_then(|policy| network_policy::home_of(&policy)),
        ..Seen::default()
    })
}

/// Whether an object belongs to the application that is there now.
pub fn is_owned(object: &impl Resource, app: &WebApp) -> bool {
    let owners = object.meta().owner_references.iter().flatten();
    let uid = app.uid().unwrap_or_default();
    owners.into_iter().any(|owner| owner.uid == uid)
}

async fn digests<K>(
    client: &Client,
    namespace: &str,
    names: impl Iterator<Item = &String>,
) -> Result<BTreeMap<String, String>>
where
    Digested<K>: Readable,
{
    let mut found = BTreeMap::new();
    for name in names {
        let object: Option<Digested<K>> = get(client, namespace, name).await?;
        found.extend(object.map(|object| (name.clone(), object.digest)));
    }
    Ok(found)
}

async fn is_served<N: Named>(client: &Client, namespace: &str) -> bool {
    let api: Api<Foreign<N>> = Api::namespaced(client.clone(), namespace);
    let first = ListParams::default().limit(1);
    api.list(&first).await.is_ok()
}

//! Claims and volumes that are in use stay until nobody uses them any more.

use crate::controllers::pods;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Rule, Store, Typed};

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Adds the guard of claims.
pub fn add_claims(manager: &Manager) {
    let claims = manager.cache().store::<PersistentVolumeClaim>();
    let controller = Controller::new("pvc-protection", Claims { claims })
        .for_::<PersistentVolumeClaim>()
        .watches::<Pod>(|pod| {
            let namespace = pod.metadata.namespace.as_deref();
            claims_of(pod).map(|name| Key::new(namespace, &name)).collect()
        })
        .may(Rule::new("", &["persistentvolumeclaims"], &["patch"]))
        .may(Rule::new("", &["pods"], &["list"]))
        .without_resync()
        .concurrency(4);
    manager.add(controller);
}

/// Adds the guard of volumes.
pub fn add_volumes(manager: &Manager) {
    let volumes = manager.cache().store::<PersistentVolume>();
    let controller = Controller::new("pv-protection", Volumes { volumes })
        .for_::<PersistentVolume>()
        .may(Rule::new("", &["persistentvolumes"], &["patch"]))
        .without_resync()
        .concurrency(4);
    manager.add(controller);
}

/// The names of the claims that a pod uses; those of its ephemeral volumes are named after both.
pub fn claims_of(pod: &Pod) -> impl Iterator<Item = String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(ephemeral_name(pod, &volume.name)),
        (None, None) => None,
    })
}

/// The name of the claim of an ephemeral volume.
pub fn ephemeral_name(pod: &Pod, volume: &str) -> String {
    format!("{}-{volume}", pod.metadata.name.as_deref().unwrap_or_default())
}

struct Claims {
    claims: Store<PersistentVolumeClaim>,
}

impl Reconciler for Claims {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(claim) = self.claims.get(key) else {
            return Ok(Outcome::Settled);
        };
        if claim.metadata.deletion_timestamp.is_none() || !has(&*claim, CLAIM_FINALIZER) {
            return Ok(Outcome::Settled);
        }
        // Past the cache: a pod that it does not show yet may be starting on the claim right now.
        let namespace = key.namespace().unwrap_or_default();
        let live: Api<Pod> = Api::namespaced(context.client(), namespace);
        let all = live.list(&ListParams::default()).await;
        let all = all.map_err(|error| Error::api(format!("list pods of {namespace}"), error))?;
        let mut users = all.items.iter().filter(|pod| !pods::has_ended(pod));
        if users.any(|pod| claims_of(pod).any(|name| name == key.name())) {
            return Ok(Outcome::Settled);
        }
        release(context, &*claim, CLAIM_FINALIZER).await
    }
}

struct Volumes {
    volumes: Store<PersistentVolume>,
}

impl Reconciler for Volumes {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(volume) = self.volumes.get(key) else {
            return Ok(Outcome::Settled);
        };
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let going = volume.metadata.deletion_timestamp.is_some() && has(&*volume, VOLUME_FINALIZER);
        if !going || phase == Some("Bound") {
            return Ok(Outcome::Settled);
        }
        release(context, &*volume, VOLUME_FINALIZER).await
    }
}

fn has<K: Typed>(object: &K, finalizer: &str) -> bool {
    let mut finalizers = object.meta().finalizers.iter().flatten();
    finalizers.any(|name| name == finalizer)
}

/// Takes a finalizer off the object that was read.
async fn release<K: Typed>(context: &Context, object: &K, finalizer: &str) -> Result<Outcome, Error> {
    let finalizers = object.meta().finalizers.iter().flatten();
    let rest: Vec<_> = finalizers.filter(|name| *name != finalizer).collect();
    let patch = json!({"metadata": {"finalizers": rest}});
    match context.writer().patch(object, patch).await {
        Err(error) if error.is_not_found() => Ok(Outcome::Settled),
        other => other.map(|_| Outcome::Settled),
    }
}

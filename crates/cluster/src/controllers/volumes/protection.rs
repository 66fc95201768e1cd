//! Claims and volumes that are in use stay until nobody uses them any more.

use crate::controllers::{ownership, pods};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
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
            claims_of(pod).map(|used| Key::new(namespace, used.name())).collect()
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

/// A claim that a pod uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// One that is there by itself, and that others may use too.
    Shared(String),
    /// That of an ephemeral volume: made for this pod, and for no other one.
    Own(String),
}

impl Use {
    /// The name of the claim.
    pub fn name(&self) -> &str {
        match self {
            Use::Shared(name) | Use::Own(name) => name,
        }
    }

    /// Whether a claim of that name is the one that is meant; if it is not, why, in Kubernetes' words.
    pub fn check(&self, pod: &Pod, claim: &PersistentVolumeClaim) -> Result<(), String> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        match self {
            Use::Own(_) if !ownership::is_controlled_by(&claim.metadata, uid) => Err(format!(
                "PVC {} was not created for pod {} (pod is not owner)",
                Key::of(claim),
                Key::of(pod)
            )),
            Use::Own(_) | Use::Shared(_) => Ok(()),
        }
    }
}

/// The claim that a volume of a pod is, if it is one.
pub fn claim_of(pod: &Pod, volume: &Volume) -> Option<Use> {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(Use::Shared(claim.claim_name.clone())),
        (None, Some(_)) => Some(Use::Own(ephemeral_name(pod, &volume.name))),
        (None, None) => None,
    }
}

/// The claims that a pod uses.
pub fn claims_of(pod: &Pod) -> impl Iterator<Item = Use> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| claim_of(pod, volume))
}

/// The name of the claim of an ephemeral volume: after both.
pub fn ephemeral_name(pod: &Pod, volume: &str) -> String {
    format!("{}-{volume}", pod.metadata.name.as_deref().unwrap_or_default())
}

/// Whether a pod keeps a claim. One without a node does not: it will not start on a claim that goes away. One that
/// has ended does, as long as it is there; an ephemeral volume only until its node is done with the pod.
fn keeps(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let done = pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0);
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let mut used = claims_of(pod).filter(|used| used.name() == name);
    pods::is_placed(pod)
        && used.any(|used| match used {
            Use::Shared(_) => true,
            Use::Own(_) => !done && used.check(pod, claim).is_ok(),
        })
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
        if all.items.iter().any(|pod| keeps(pod, &claim)) {
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

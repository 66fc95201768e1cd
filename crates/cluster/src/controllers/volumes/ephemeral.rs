//! Ephemeral volumes: a claim for each, which comes and goes with its pod.

use super::protection::{self, Use};
use crate::controllers::{created, ownership, pods};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::core::ObjectMeta;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Rule, Severity, Store};

/// Adds the controller of ephemeral volumes.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let pods = cache.store::<Pod>();
    let by_claim = pods.index(|pod: &Pod| templates(pod).map(|claim| Key::of(&claim).to_string()).collect());
    let reconciler = Ephemeral {
        pods: pods.clone(),
        claims: cache.store(),
    };
    let controller = Controller::new("ephemeral-volume", reconciler)
        // Nearly all pods have none, and are not even looked at.
        .watches::<Pod>(|pod| {
            let own = templates(pod).next().is_some();
            own.then(|| Key::of(pod)).into_iter().collect()
        })
        // One that was deleted is made again, and one that was in the way makes room.
        .watches::<PersistentVolumeClaim>(move |claim| {
            let named = pods.by_index(&by_claim, &Key::of(claim).to_string());
            named.iter().map(|pod| Key::of(&**pod)).collect()
        })
        .may(Rule::read::<PersistentVolumeClaim>())
        .may(Rule::new("", &["persistentvolumeclaims"], &["create"]))
        // An owner that blocks may only be named by who may set its finalizers.
        .may(Rule::new("", &["pods/finalizers"], &["update"]))
        .without_resync()
        .concurrency(2);
    manager.add(controller);
}

struct Ephemeral {
    pods: Store<Pod>,
    claims: Store<PersistentVolumeClaim>,
}

impl Reconciler for Ephemeral {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(pod) = self.pods.get(key).filter(|pod| pods::is_active(pod)) else {
            return Ok(Outcome::Settled);
        };
        for claim in templates(&pod) {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            let own = Use::Own(name.to_string());
            match self
                .claims
                .named(key.namespace(), name)
                .map(|known| own.check(&pod, &known))
            {
                None => created(context.writer().create(&claim).await)?,
                Some(Ok(())) => {}
                // The pod waits until whoever has the name gives it up, which wakes us.
                Some(Err(why)) => {
                    let about = ownership::about(&*pod);
                    context
                        .events()
                        .tell(about, Severity::Warning, "ClaimMisbound", "Binding", &why);
                }
            }
        }
        Ok(Outcome::Settled)
    }
}

/// The claims of a pod's ephemeral volumes.
fn templates(pod: &Pod) -> impl Iterator<Item = PersistentVolumeClaim> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
        let meta = template.metadata.as_ref();
        Some(PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(protection::ephemeral_name(pod, &volume.name)),
                namespace: pod.metadata.namespace.clone(),
                labels: meta.and_then(|meta| meta.labels.clone()),
                annotations: meta.and_then(|meta| meta.annotations.clone()),
                owner_references: Some(vec![ownership::controller_reference(pod)]),
                ..ObjectMeta::default()
            },
            spec: Some(template.spec.clone()),
            status: None,
        })
    })
}

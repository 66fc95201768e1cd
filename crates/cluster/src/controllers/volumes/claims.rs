//! Claims: found a volume, made one, bound, grown or lost.

use super::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, Directories, PROVISIONER, SELECTED_NODE, annotation, capacity, claim_ref,
    class_of, class_of_volume, classes, is_for, is_ours, matching, named_class, provision, requested, volume_name,
    waits_for_consumer,
};
use crate::controllers::{created, job, ownership};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};
use std::sync::Arc;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Rule, Severity, Store};

const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const OLD_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// The provisioner of classes whose volumes are all made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

pub fn add_to(manager: &Manager, directories: Option<Directories>) {
    let cache = manager.cache();
    let claims = cache.store::<PersistentVolumeClaim>();
    let reconciler = Claims {
        claims: claims.clone(),
        volumes: cache.store(),
        classes: cache.store(),
        directories,
    };
    let of_class = claims.clone();
    let controller = Controller::new("persistentvolume-binder", reconciler)
        .for_::<PersistentVolumeClaim>()
        .watches::<PersistentVolume>(move |volume| concerned(&claims, volume))
        .watches::<StorageClass>(move |class| {
            let name = class.metadata.name.as_deref().unwrap_or_default();
            // One that names none waits for a class that is everybody's.
            keys(&of_class, |claim| {
                volume_name(claim).is_none() && (class_of(claim) == name || named_class(claim).is_none())
            })
        })
        .may(Rule::root::<PersistentVolumeClaim>())
        .may(Rule::new("", &["persistentvolumes"], &["create", "patch"]))
        .without_resync()
        .concurrency(4);
    manager.add(controller);
}

/// The claims for which a volume may matter: its own, those that name it, and, while it is free, those that search.
fn concerned(claims: &Store<PersistentVolumeClaim>, volume: &PersistentVolume) -> Vec<Key> {
    let own = claim_ref(volume);
    let name = volume.metadata.name.as_deref();
    let class = class_of_volume(volume);
    keys(claims, |claim| match (volume_name(claim), own) {
        (Some(named), _) => Some(named) == name,
        (None, Some(own)) => is_for(own, claim),
        (None, None) => class_of(claim) == class,
    })
}

fn keys(claims: &Store<PersistentVolumeClaim>, wanted: impl Fn(&PersistentVolumeClaim) -> bool) -> Vec<Key> {
    let mut keys = Vec::new();
    claims.for_each(|key, claim| {
        if wanted(claim) {
            keys.push(key.clone());
        }
    });
    keys
}

struct Claims {
    claims: Store<PersistentVolumeClaim>,
    volumes: Store<PersistentVolume>,
    classes: Store<StorageClass>,
    directories: Option<Directories>,
}

impl Reconciler for Claims {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(claim) = self.claims.get(key) else {
            return Ok(Outcome::Settled);
        };
        match volume_name(&claim) {
            Some(name) => self.complete(context, &claim, name).await?,
            None if claim.metadata.deletion_timestamp.is_none() => self.find(context, &claim).await?,
            None => {}
        }
        Ok(Outcome::Settled)
    }
}

impl Claims {
    /// A claim that names its volume: binds it if the volume agrees, and says so.
    async fn complete(&self, context: &Context, claim: &PersistentVolumeClaim, name: &str) -> Result<(), Error> {
        let was_bound = annotation(&claim.metadata, BIND_COMPLETED).is_some();
        let Some(volume) = self.volumes.named(None, name) else {
            return match was_bound {
                true => {
                    let why = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
                    lose(context, claim, "ClaimLost", why).await
                }
                false => set_status(context, claim, json!({"phase": "Pending"})).await,
            };
        };
        match claim_ref(&volume) {
            Some(reference) if is_for(reference, claim) => self.bind(context, claim, &volume).await,
            None => self.bind(context, claim, &volume).await,
            Some(_) if was_bound => {
                let why = "Two claims are bound to the same volume, this one is bound incorrectly";
                lose(context, claim, "ClaimMisbound", why).await
            }
            Some(_) => set_status(context, claim, json!({"phase": "Pending"})).await,
        }
    }

    /// A claim without a volume: takes a fitting one, or has one made.
    async fn find(&self, context: &Context, claim: &PersistentVolumeClaim) -> Result<(), Error> {
        let volumes = self.volumes.list();
        if let Some(volume) = matching::reserved(claim, &volumes) {
            return self.bind(context, claim, volume).await;
        }
        if let Some(default) = classes::default_of(&self.classes.list()).filter(|_| named_class(claim).is_none()) {
            // It came before there was a default; the class is filled in now, and the change wakes us again.
            let patch = json!({"spec": {"storageClassName": default.metadata.name}});
            return context.writer().patch(claim, patch).await.map(drop);
        }
        let class = self.classes.named(None, class_of(claim));
        let selected = annotation(&claim.metadata, SELECTED_NODE).is_some();
        if class.as_deref().is_some_and(waits_for_consumer) && !selected {
            let why = "waiting for first consumer to be created before binding";
            tell(context, claim, Severity::Normal, "WaitForFirstConsumer", why);
            return set_status(context, claim, json!({"phase": "Pending"})).await;
        }
        // Where the claim waited, the scheduler has chosen among the volumes there are and found none that reach.
        if let Some(volume) = matching::best(claim, &volumes, None).filter(|_| !selected) {
            return self.bind(context, claim, volume).await;
        }
        set_status(context, claim, json!({"phase": "Pending"})).await?;
        match class {
            Some(class) if class.provisioner == PROVISIONER && self.directories.is_some() => {
                self.provision(context, claim, &class).await
            }
            Some(class) if class.provisioner == NO_PROVISIONER => Ok(()),
            Some(class) => {
                name_provisioner(context, claim, &class.provisioner).await?;
                let why = format!(
                    "Waiting for a volume to be created either by the external provisioner '{}' or manually by the \
                     system administrator. If volume creation is delayed, please verify that the provisioner is \
                     running and correctly registered.",
                    class.provisioner
                );
                tell(context, claim, Severity::Normal, "ExternalProvisioning", &why);
                Ok(())
            }
            None if class_of(claim).is_empty() => {
                let why = "no persistent volumes available for this claim and no storage class is set";
                tell(context, claim, Severity::Normal, "FailedBinding", why);
                Ok(())
            }
            None => {
                let why = format!("storageclass.storage.k8s.io \"{}\" not found", class_of(claim));
                tell(context, claim, Severity::Warning, "ProvisioningFailed", &why);
                Ok(())
            }
        }
    }

    /// Makes a directory and a volume for a claim. The volume's arrival in the cache binds them.
    async fn provision(
        &self,
        context: &Context,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
    ) -> Result<(), Error> {
        let Some(directories) = &self.directories else {
            return Ok(());
        };
        if let Some(why) = provision::refusal(claim) {
            tell(context, claim, Severity::Warning, "ProvisioningFailed", why);
            return Ok(());
        }
        name_provisioner(context, claim, PROVISIONER).await?;
        let name = provision::name(claim);
        let path = match directories.create(&name).await {
            Ok(path) => path,
            Err(error) => {
                let why = format!("cannot make the directory of volume {name}: {error}");
                tell(context, claim, Severity::Warning, "ProvisioningFailed", &why);
                return Err(Error::transient(why));
            }
        };
        created(context.writer().create(&provision::volume(claim, class, &path)).await)?;
        let note = format!("Successfully provisioned volume {name}");
        tell(context, claim, Severity::Normal, "ProvisioningSucceeded", &note);
        Ok(())
    }

    /// Points volume and claim at each other, the volume first, and tells in the claim's status what it has.
    async fn bind(
        &self,
        context: &Context,
        claim: &PersistentVolumeClaim,
        volume: &Arc<PersistentVolume>,
    ) -> Result<(), Error> {
        if let Some(patch) = volume_patch(claim, volume) {
            context.writer().patch(&**volume, patch).await?;
        }
        let claimed = match claim_patch(claim, volume) {
            Some(patch) => context.writer().patch(claim, patch).await?.object()?,
            None => claim.clone(),
        };
        let size = self.grow(context, &claimed, volume).await?;
        let spec = volume.spec.as_ref();
        let status = json!({
            "phase": "Bound",
            "accessModes": spec.and_then(|spec| spec.access_modes.clone()),
            "capacity": size,
        });
        set_status(context, &claimed, status).await
    }

    /// Makes a volume of ours as large as its claim asks for: a directory has no bounds, so saying it is enough.
    async fn grow(
        &self,
        context: &Context,
        claim: &PersistentVolumeClaim,
        volume: &Arc<PersistentVolume>,
    ) -> Result<Value, Error> {
        let before = json!(volume.spec.as_ref().and_then(|spec| spec.capacity.clone()));
        let (Some(wanted), Some(has)) = (requested(claim), capacity(volume)) else {
            return Ok(before);
        };
        if wanted <= has || !is_ours(volume) {
            return Ok(before);
        }
        let after = json!({"storage": wanted.to_string()});
        // Read again: binding may have changed it just now.
        let Some(fresh) = context.writer().read::<PersistentVolume>(&Key::of(&**volume)).await? else {
            return Ok(before);
        };
        context
            .writer()
            .patch(&fresh, json!({"spec": {"capacity": after}}))
            .await?;
        let note = format!("ExpandVolume succeeded for volume {}", Key::of(claim));
        tell(context, claim, Severity::Normal, "VolumeResizeSuccessful", &note);
        Ok(after)
    }
}

/// What has to change in a volume so that it points at the claim.
fn volume_patch(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Value> {
    let reference = ownership::about(claim);
    match claim_ref(volume) {
        None => Some(json!({
            "metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}},
            "spec": {"claimRef": reference},
        })),
        Some(known) if known.uid.as_deref().unwrap_or_default().is_empty() => {
            Some(json!({"spec": {"claimRef": reference}}))
        }
        Some(_) => None,
    }
}

/// What has to change in a claim so that it points at the volume.
fn claim_patch(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Value> {
    let mut patch = json!({});
    if volume_name(claim).is_none() {
        patch["spec"]["volumeName"] = json!(volume.metadata.name);
        patch["metadata"]["annotations"][BOUND_BY_CONTROLLER] = json!("yes");
    }
    if annotation(&claim.metadata, BIND_COMPLETED).is_none() {
        patch["metadata"]["annotations"][BIND_COMPLETED] = json!("yes");
    }
    (patch != json!({})).then_some(patch)
}

async fn name_provisioner(context: &Context, claim: &PersistentVolumeClaim, name: &str) -> Result<(), Error> {
    if annotation(&claim.metadata, STORAGE_PROVISIONER) == Some(name) {
        return Ok(());
    }
    let fresh = context.writer().read::<PersistentVolumeClaim>(&Key::of(claim)).await?;
    let Some(fresh) = fresh else { return Ok(()) };
    let annotations = json!({STORAGE_PROVISIONER: name, OLD_STORAGE_PROVISIONER: name});
    let patch = json!({"metadata": {"annotations": annotations}});
    context.writer().patch(&fresh, patch).await.map(drop)
}

async fn lose(context: &Context, claim: &PersistentVolumeClaim, reason: &str, why: &str) -> Result<(), Error> {
    tell(context, claim, Severity::Warning, reason, why);
    set_status(
        context,
        claim,
        json!({"phase": "Lost", "accessModes": null, "capacity": null}),
    )
    .await
}

/// Writes these fields of the status where they differ.
async fn set_status(context: &Context, claim: &PersistentVolumeClaim, fields: Value) -> Result<(), Error> {
    let before = json!(claim.status.clone().unwrap_or_default());
    let mut after = before.clone();
    for (name, value) in fields.as_object().into_iter().flatten() {
        match value {
            Value::Null => drop(after.as_object_mut().and_then(|after| after.remove(name))),
            value => after[name] = value.clone(),
        }
    }
    match job::difference(&before, &after) {
        Some(patch) => {
            let patch = json!({"status": patch});
            context.writer().patch_status(claim, patch).await.map(drop)
        }
        None => Ok(()),
    }
}

/// An event about a claim. The same words again and again become one event with a count.
fn tell(context: &Context, claim: &PersistentVolumeClaim, severity: Severity, reason: &str, note: &str) {
    context
        .events()
        .tell(ownership::about(claim), severity, reason, "Binding", note);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(meta: Value, volume: &str) -> PersistentVolumeClaim {
        let mut all = json!({"name": "data", "namespace": "n", "uid": "c1"});
        all["annotations"] = meta;
        serde_json::from_value(json!({"metadata": all, "spec": {"volumeName": volume}})).unwrap()
    }

    fn volume(reference: Value) -> PersistentVolume {
        serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": {"claimRef": reference}})).unwrap()
    }

    #[test]
    fn a_free_volume_is_pointed_at_the_claim_and_a_pointed_one_is_left() {
        let claim = claim(json!({}), "");
        let patch = volume_patch(&claim, &volume(Value::Null)).unwrap();
        assert_eq!(patch["spec"]["claimRef"]["uid"], "c1");
        assert_eq!(patch["metadata"]["annotations"][BOUND_BY_CONTROLLER], "yes");
        let by_hand = volume(json!({"name": "data", "namespace": "n"}));
        let patch = volume_patch(&claim, &by_hand).unwrap();
        assert_eq!(patch["metadata"], Value::Null, "a person's pointer stays a person's");
        let done = volume(json!({"name": "data", "namespace": "n", "uid": "c1"}));
        assert_eq!(volume_patch(&claim, &done), None);
    }

    #[test]
    fn a_claim_is_pointed_at_its_volume_once() {
        let v = volume(Value::Null);
        let patch = claim_patch(&claim(json!({}), ""), &v).unwrap();
        assert_eq!(patch["spec"]["volumeName"], "v");
        let by_hand = claim_patch(&claim(json!({}), "v"), &v).unwrap();
        assert_eq!(by_hand, json!({"metadata": {"annotations": {BIND_COMPLETED: "yes"}}}));
        assert_eq!(claim_patch(&claim(json!({BIND_COMPLETED: "yes"}), "v"), &v), None);
    }
}

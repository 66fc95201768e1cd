//! Volumes: available, bound, released, and given up as their policy says.

use super::{BOUND_BY_CONTROLLER, DIRECTORY_FINALIZER, Directories, annotation, claim_ref, is_ours, volume_name};
use crate::controllers::ownership;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Propagation, Reconciler, Rule, Severity, Store};

pub fn add_to(manager: &Manager, directories: Option<Directories>) {
    let cache = manager.cache();
    let volumes = cache.store::<PersistentVolume>();
    let reconciler = Volumes {
        volumes: volumes.clone(),
        claims: cache.store(),
        directories,
    };
    let controller = Controller::new("persistentvolume-release", reconciler)
        .for_::<PersistentVolume>()
        .watches::<PersistentVolumeClaim>(move |claim| {
            let mut keys: Vec<Key> = volume_name(claim).map(Key::cluster).into_iter().collect();
            // A volume that points at a claim which does not point back yet.
            volumes.for_each(|key, volume| {
                let same = claim_ref(volume).is_some_and(|reference| {
                    reference.name == claim.metadata.name && reference.namespace == claim.metadata.namespace
                });
                if same && !keys.contains(key) {
                    keys.push(key.clone());
                }
            });
            keys
        })
        .may(Rule::root::<PersistentVolume>())
        .may(Rule::new("", &["persistentvolumes"], &["delete"]))
        .may(Rule::new("", &["persistentvolumeclaims"], &["get"]))
        .without_resync()
        .concurrency(4);
    manager.add(controller);
}

struct Volumes {
    volumes: Store<PersistentVolume>,
    claims: Store<PersistentVolumeClaim>,
    directories: Option<Directories>,
}

/// What a volume is to the claim that it points at.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// It points at none.
    Free,
    /// It is set aside for a claim that is not there, or has not answered yet.
    Reserved,
    Bound,
    /// Its claim is gone.
    Abandoned,
    /// Its claim took another volume.
    Spurned,
}

fn standing(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> Standing {
    let Some(reference) = claim_ref(volume) else {
        return Standing::Free;
    };
    let uid = reference.uid.as_deref().unwrap_or_default();
    let same = claim.filter(|claim| uid.is_empty() || claim.metadata.uid.as_deref() == Some(uid));
    match same.map(volume_name) {
        None if uid.is_empty() => Standing::Reserved,
        None => Standing::Abandoned,
        Some(None) => Standing::Reserved,
        Some(named) if named == volume.metadata.name.as_deref() && !uid.is_empty() => Standing::Bound,
        Some(_) if uid.is_empty() => Standing::Reserved,
        Some(_) => Standing::Spurned,
    }
}

impl Reconciler for Volumes {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(volume) = self.volumes.get(key) else {
            return Ok(Outcome::Settled);
        };
        let claim = claim_ref(&volume).and_then(|reference| {
            let name = reference.name.as_deref().unwrap_or_default();
            self.claims.named(reference.namespace.as_deref(), name)
        });
        match standing(&volume, claim.as_deref()) {
            Standing::Free | Standing::Reserved if volume.metadata.deletion_timestamp.is_some() => {
                self.end(context, &volume).await?;
            }
            Standing::Free | Standing::Reserved => set_phase(context, &volume, "Available", None).await?,
            Standing::Bound => set_phase(context, &volume, "Bound", None).await?,
            Standing::Abandoned => self.abandon(context, &volume).await?,
            Standing::Spurned => self.spurn(context, &volume).await?,
        }
        Ok(Outcome::Settled)
    }
}

impl Volumes {
    async fn abandon(&self, context: &Context, volume: &PersistentVolume) -> Result<(), Error> {
        // A cache that is behind must not cost anybody data: the claim is really gone only if the server says so.
        if let Some(reference) = claim_ref(volume) {
            let name = reference.name.as_deref().unwrap_or_default();
            let key = Key::new(reference.namespace.as_deref(), name);
            let live = context.writer().read::<PersistentVolumeClaim>(&key).await?;
            if live.is_some_and(|claim| claim.metadata.uid == reference.uid) {
                return Ok(());
            }
        }
        self.reclaim(context, volume).await
    }

    async fn reclaim(&self, context: &Context, volume: &PersistentVolume) -> Result<(), Error> {
        let spec = volume.spec.as_ref();
        let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        if policy != Some("Delete") {
            let phase = if policy == Some("Recycle") {
                "Failed"
            } else {
                "Released"
            };
            set_phase(context, volume, phase, None).await?;
            return self.end(context, volume).await;
        }
        if !is_ours(volume) {
            // Whoever made it deletes it; a volume made by hand has nobody.
            let by_hand = annotation(&volume.metadata, super::PROVISIONED_BY).is_none();
            let why = "no volume plugin can delete this volume";
            return match by_hand {
                true => set_phase(context, volume, "Failed", Some(why)).await,
                false => set_phase(context, volume, "Released", None).await,
            };
        }
        set_phase(context, volume, "Released", None).await?;
        match volume.metadata.deletion_timestamp {
            Some(_) => self.end(context, volume).await,
            None => {
                let Some(fresh) = context.writer().read::<PersistentVolume>(&Key::of(volume)).await? else {
                    return Ok(());
                };
                context.writer().delete(&fresh, Propagation::Background).await
            }
        }
    }

    /// Lets a volume that is being deleted go, its directory first.
    async fn end(&self, context: &Context, volume: &PersistentVolume) -> Result<(), Error> {
        let finalizers = volume.metadata.finalizers.clone().unwrap_or_default();
        let held = finalizers.iter().any(|name| name == DIRECTORY_FINALIZER);
        if volume.metadata.deletion_timestamp.is_none() || !held || !is_ours(volume) {
            return Ok(());
        }
        let spec = volume.spec.as_ref();
        let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        if let Some(directories) = self.directories.as_ref().filter(|_| policy == Some("Delete")) {
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            let path = spec
                .and_then(|spec| spec.host_path.as_ref())
                .map(|host| host.path.as_str());
            // Only what this very cluster made: the same name from elsewhere has another path.
            let own = directories.path(name).map(|own| own.display().to_string());
            if own.as_deref() == path
                && let Err(error) = directories.remove(name).await
            {
                let why = format!("cannot remove the directory of volume {name}: {error}");
                tell(context, volume, Severity::Warning, "VolumeFailedDelete", &why);
                return Err(Error::transient(why));
            }
        }
        let Some(fresh) = context.writer().read::<PersistentVolume>(&Key::of(volume)).await? else {
            return Ok(());
        };
        let finalizers = fresh.metadata.finalizers.iter().flatten();
        let rest: Vec<_> = finalizers.filter(|name| *name != DIRECTORY_FINALIZER).collect();
        let patch = json!({"metadata": {"finalizers": rest}});
        context.writer().patch(&fresh, patch).await.map(drop)
    }

    /// Its claim has another volume: one that was made for the claim goes, one that was chosen is free again.
    async fn spurn(&self, context: &Context, volume: &PersistentVolume) -> Result<(), Error> {
        if is_ours(volume) {
            return self.reclaim(context, volume).await;
        }
        let chosen = annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_some();
        let patch = match chosen {
            true => json!({
                "metadata": {"annotations": {BOUND_BY_CONTROLLER: null}},
                "spec": {"claimRef": null},
            }),
            false => json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}}),
        };
        context.writer().patch(volume, patch).await.map(drop)
    }
}

async fn set_phase(
    context: &Context,
    volume: &PersistentVolume,
    phase: &str,
    message: Option<&str>,
) -> Result<(), Error> {
    let before = volume.status.as_ref();
    let known = before.and_then(|status| status.phase.as_deref()) == Some(phase);
    if known && before.and_then(|status| status.message.as_deref()) == message {
        return Ok(());
    }
    if let Some(message) = message {
        tell(context, volume, Severity::Warning, "VolumeFailedDelete", message);
    }
    let status = json!({
        "phase": phase,
        "message": message,
        "lastPhaseTransitionTime": Time(context.now()),
    });
    let patch = json!({"status": status});
    context.writer().patch_status(volume, patch).await.map(drop)
}

fn tell(context: &Context, volume: &PersistentVolume, severity: Severity, reason: &str, note: &str) {
    context
        .events()
        .tell(ownership::about(volume), severity, reason, "Reclaiming", note);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_what_its_claim_makes_of_it() {
        let volume = |uid: Option<&str>| -> PersistentVolume {
            let reference = uid.map(|uid| json!({"name": "data", "namespace": "n", "uid": uid}));
            serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": {"claimRef": reference}})).unwrap()
        };
        let claim = |uid: &str, named: &str| -> PersistentVolumeClaim {
            let meta = json!({"name": "data", "namespace": "n", "uid": uid});
            serde_json::from_value(json!({"metadata": meta, "spec": {"volumeName": named}})).unwrap()
        };
        let check = |reference: Option<&str>, claim: Option<PersistentVolumeClaim>, expected: Standing| {
            assert_eq!(standing(&volume(reference), claim.as_ref()), expected);
        };
        check(None, None, Standing::Free);
        check(Some(""), None, Standing::Reserved);
        check(Some("c1"), None, Standing::Abandoned);
        check(Some("c1"), Some(claim("c2", "v")), Standing::Abandoned);
        check(Some("c1"), Some(claim("c1", "")), Standing::Reserved);
        check(Some("c1"), Some(claim("c1", "v")), Standing::Bound);
        check(Some("c1"), Some(claim("c1", "w")), Standing::Spurned);
        check(Some(""), Some(claim("c1", "w")), Standing::Reserved);
    }
}

//! When an image is fetched: what neither the store nor the catalogue has, and what must be looked at again.
//!
//! Names of the catalogue are never asked for: they mean programs of this machine. One pull runs at a time, as on
//! Kubernetes by default, so that two containers of one image do not fetch it twice.

use super::registry::{Keys, PullError};
use super::{Catalogue, Pull, Resolved, unknown};
use crate::node::process::Process;
use crate::node::runtime::RuntimeError;
use crate::node::shape::Shape;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use std::sync::Arc;
use tokio::sync::Mutex;

/// One pull at a time.
pub type Turn = Arc<Mutex<()>>;

impl Process {
    /// What to run for an image, which is fetched if it is nowhere on this machine.
    pub(in crate::node::process) async fn obtain(
        &self,
        pod: &Pod,
        image: &str,
        pull: Pull,
    ) -> Result<Resolved, RuntimeError> {
        let catalogue = &self.catalogue;
        if !catalogue.wants(image, pull)? {
            return catalogue.resolve(image, pull);
        }
        let uid = Shape::of(pod).uid().to_owned();
        let ends = self.pulls.lock().entry(uid).or_default().clone();
        tokio::select! {
            () = ends.cancelled() => Err(RuntimeError::Image {
                reason: "ErrImagePull",
                message: format!("image \"{image}\" is not pulled any more: the pod ends"),
            }),
            found = self.pull(pod, image, pull) => found,
        }
    }

    async fn pull(&self, pod: &Pod, image: &str, pull: Pull) -> Result<Resolved, RuntimeError> {
        let catalogue = &self.catalogue;
        let tell = |reason: &str, note: String| self.events.normal(pod, reason, &note, self.clock.now());
        let keys = self.keys(pod).await;
        let _turn = catalogue.turn.lock().await;
        // Whoever had the turn before may have fetched it.
        if pull == Pull::Always || catalogue.wants(image, pull)? {
            tell("Pulling", format!("Pulling image \"{image}\""));
            catalogue.fetch(image, &keys).await?;
            tell("Pulled", format!("Successfully pulled image \"{image}\""));
        }
        catalogue.resolve(image, pull)
    }

    /// The passwords that a pod brings along. One that cannot be read is one that is not there, as on Kubernetes: the
    /// registry may not ask for it.
    async fn keys(&self, pod: &Pod) -> Keys {
        let shape = Shape::of(pod);
        let mut keys = Keys::default();
        let secrets: Api<Secret> = Api::namespaced(self.voices.of(pod), shape.namespace());
        for reference in shape.spec.image_pull_secrets.iter().flatten() {
            match secrets.get_opt(&reference.name).await {
                Ok(Some(secret)) => keys.add(&secret),
                Ok(None) | Err(_) => {
                    let note = format!(
                        "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                        reference.name
                    );
                    let now = self.clock.now();
                    self.events.warning(pod, "FailedToRetrieveImagePullSecret", &note, now);
                }
            }
        }
        keys
    }
}

impl Catalogue {
    /// Whether an image must be fetched before it can run.
    fn wants(&self, image: &str, pull: Pull) -> Result<bool, RuntimeError> {
        let (repository, _) = super::split(image)?;
        let name = super::short(repository);
        let found = self.store.as_ref().and_then(|store| store.find(image));
        Ok(match (pull, found) {
            (Pull::Never, _) => false,
            // What was loaded by hand is nobody's to replace; what was pulled may have changed where it came from.
            (Pull::Always, Some((found, _))) => found.source.is_some(),
            (Pull::Allowed, Some(_)) => false,
            (_, None) => {
                let own = self.own_entry(repository, name)?.is_some();
                !own && super::built_in(repository, name).is_none() && super::known(name).is_none()
            }
        })
    }

    async fn fetch(&self, image: &str, keys: &Keys) -> Result<(), RuntimeError> {
        let Some(store) = self.store.as_ref().filter(|_| nix::unistd::geteuid().is_root()) else {
            let why = "one with a root of its own takes root or user namespaces";
            return Err(unknown(image, why));
        };
        match store.pull(image, keys).await {
            Ok(()) => Ok(()),
            Err(PullError::Name(_)) => Err(super::misnamed(image)),
            Err(error) => Err(unknown(image, &error.to_string())),
        }
    }
}

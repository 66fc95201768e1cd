//! What gives pods their volumes: the place where a storage driver attaches.
//!
//! A volume is a path of this machine, which the runtime mounts into containers. What the volume is made from says who
//! makes it: the API's objects, a new directory, or one that the machine has. Each of these is this one trait; an
//! implementation that speaks CSI would be one more of `of_machine`, for the source `csi` of pods and of bound volumes.

pub(super) mod claims;
mod empty;
mod files;
mod host;
mod memory;
pub(super) mod objects;
mod ownership;
mod tokens;

use super::process::environment::Sources;
use super::process::users;
use super::runtime::RuntimeError;
use super::shape::Shape;
use super::voices::Voices;
use crate::clock::Clock;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{PersistentVolume, Volume};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a volume is made from.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// What the pod itself says.
    Pod(&'a Volume),
    /// What the pod's claim is bound to.
    Bound(&'a PersistentVolume),
}

/// A volume that a pod wants.
pub struct Wanted<'a> {
    pub shape: Shape<'a>,
    pub name: &'a str,
    pub source: Source<'a>,
    /// A place that is this volume's alone, where nothing has to be yet. It is removed with the pod.
    pub place: PathBuf,
    /// What files may tell of the pod and of its node.
    pub sources: &'a Sources,
}

/// What gives pods volumes of some sources. Every call may be repeated after a crash of the agent.
#[async_trait]
pub trait Volumes: Send + Sync + 'static {
    /// Whether it makes volumes from this. No two do so from the same.
    fn serves(&self, source: Source<'_>) -> bool;

    /// Whether its volumes follow something that changes. Such a volume is published again every few seconds, and
    /// containers only read it. It is asked of what pods themselves say, and not of what a claim is bound to.
    fn follows(&self) -> bool {
        false
    }

    /// Makes a volume present and says where. One that is there keeps what containers have written, and a volume that
    /// follows something is brought up to date in one step.
    async fn publish(&self, wanted: &Wanted<'_>) -> Result<PathBuf, RuntimeError>;

    /// Gives back what volumes of a pod have outside of their places. None of its containers runs any more; the places
    /// themselves are removed afterwards, and only if this succeeds.
    async fn unpublish(&self, _uid: &str) -> Result<(), RuntimeError> {
        Ok(())
    }
}

/// Those that need nothing but this machine and the API.
pub fn of_machine(voices: Voices, clock: Arc<dyn Clock>) -> Vec<Box<dyn Volumes>> {
    vec![
        Box::new(objects::Objects::new(voices, clock)),
        Box::new(empty::Empty),
        Box::new(host::Host),
    ]
}

/// Gives back what volumes of a pod have outside of its folder. Needs no agent: it is for what a kill -9 left, too.
pub fn end(uid: &str) {
    memory::end(uid);
}

impl Wanted<'_> {
    /// Why nobody makes it.
    pub fn unknown(&self) -> RuntimeError {
        match self.source {
            Source::Pod(_) => mount_error(format!(
                "volume \"{}\" is of a kind that this node does not have",
                self.name
            )),
            Source::Bound(volume) => {
                let name = volume.metadata.name.as_deref().unwrap_or_default();
                mount_error(format!("persistentvolume \"{name}\" is not a local directory"))
            }
        }
    }

    fn failed(&self, error: std::io::Error) -> RuntimeError {
        mount_error(format!("volume {}: {error}", self.name))
    }

    /// The group that the pod's volumes are for.
    fn group(&self) -> Option<u32> {
        let security = self.shape.spec.security_context.as_ref();
        let group = security.and_then(|security| security.fs_group);
        group.and_then(|group| u32::try_from(group).ok())
    }

    /// Gives a volume that pods write to the pod's group. Only root can give files away.
    async fn share(&self, place: &Path) -> Result<(), RuntimeError> {
        let Some(group) = self.group().filter(|group| users::has_group(*group)) else {
            return Ok(());
        };
        let own = place.to_owned();
        // It may be a walk through millions of files, and other pods wait on this thread.
        let given = tokio::task::spawn_blocking(move || ownership::give(&own, group)).await;
        given
            .unwrap_or_else(|error| Err(error.into()))
            .map_err(|error| mount_error(format!("fsGroup of {}: {error}", place.display())))
    }
}

fn mount_error(message: String) -> RuntimeError {
    RuntimeError::Configuration {
        reason: "FailedMount",
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MachineClock;
    use serde_json::{Value, json};

    fn served(volumes: &[Box<dyn Volumes>], source: Source<'_>) -> usize {
        volumes.iter().filter(|volumes| volumes.serves(source)).count()
    }

    #[tokio::test]
    async fn every_source_is_made_by_one_and_those_of_drivers_by_nobody() {
        // Nobody listens there, and nobody is asked.
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let voices = Voices::one(kube::Client::try_from(nowhere).unwrap());
        let all = of_machine(voices, Arc::new(MachineClock));
        let of_pod = |source: Value| {
            let mut volume = json!({"name": "v"});
            volume
                .as_object_mut()
                .unwrap()
                .extend(source.as_object().unwrap().clone());
            served(&all, Source::Pod(&serde_json::from_value(volume).unwrap()))
        };
        assert_eq!(of_pod(json!({"configMap": {"name": "c"}})), 1);
        assert_eq!(of_pod(json!({"secret": {"secretName": "s"}})), 1);
        assert_eq!(of_pod(json!({"projected": {"sources": []}})), 1);
        assert_eq!(of_pod(json!({"downwardAPI": {"items": []}})), 1);
        assert_eq!(of_pod(json!({"emptyDir": {}})), 1);
        assert_eq!(of_pod(json!({"hostPath": {"path": "/srv"}})), 1);
        assert_eq!(of_pod(json!({"csi": {"driver": "d"}})), 0);
        let bound = |spec: Value| {
            let volume = serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": spec})).unwrap();
            served(&all, Source::Bound(&volume))
        };
        assert_eq!(bound(json!({"local": {"path": "/srv"}})), 1);
        assert_eq!(bound(json!({"hostPath": {"path": "/srv"}})), 1);
        assert_eq!(bound(json!({"csi": {"driver": "d", "volumeHandle": "h"}})), 0);
    }
}

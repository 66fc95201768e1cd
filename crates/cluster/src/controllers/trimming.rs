//! What the caches of controllers and scheduler keep of pods: what is read, and no more.
//!
//! With ten thousand pods their copies are most of the memory of the process. Nothing here writes a whole pod back:
//! all writes are patches, so that what is left out is never lost.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Container, Pod};
use stead::Cache;

/// Says what the caches of the controllers keep.
pub fn for_controllers(cache: &Cache) {
    cache.trim::<Pod>(pod);
    // Half of a small object says who wrote which field, and nobody here reads it.
    cache.trim::<ReplicaSet>(|set| set.metadata.managed_fields = None);
    cache.trim::<Deployment>(|deployment| deployment.metadata.managed_fields = None);
}

/// Says what the cache of the scheduler keeps, where it has one of its own.
pub fn for_scheduler(cache: &Cache) {
    cache.trim::<Pod>(|pod_| {
        pod(pod_);
        if let Some(status) = &mut pod_.status {
            status.container_statuses = None;
            status.init_container_statuses = None;
            status.pod_ips = None;
            status.host_ips = None;
        }
    });
}

/// Leaves out how a pod's programs are run, and volumes that are made for it alone.
pub fn pod(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    if let Some(status) = &mut pod.status {
        // Lists are read with room for more elements than there are, and these are large ones.
        status.container_statuses.iter_mut().for_each(Vec::shrink_to_fit);
        status.init_container_statuses.iter_mut().for_each(Vec::shrink_to_fit);
        status.conditions.iter_mut().for_each(Vec::shrink_to_fit);
    }
    let Some(spec) = &mut pod.spec else { return };
    for container in spec
        .containers
        .iter_mut()
        .chain(spec.init_containers.iter_mut().flatten())
    {
        let kept = std::mem::take(container);
        *container = Container {
            name: kept.name,
            image: kept.image,
            ports: kept.ports,
            resources: kept.resources,
            restart_policy: kept.restart_policy,
            ..Container::default()
        };
    }
    if let Some(volumes) = &mut spec.volumes {
        volumes.retain(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
        volumes.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_keeps_what_decides_about_it() {
        let mut trimmed: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "labels": {"app": "web"}, "managedFields": [{"manager": "m"}]},
            "spec": {
                "nodeName": "n",
                "containers": [{
                    "name": "c", "image": "i", "env": [{"name": "A", "value": "b"}], "ports": [{"containerPort": 1}],
                    "resources": {"requests": {"cpu": "1"}}, "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }],
                "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
                    {"name": "token", "projected": {"sources": []}},
                ],
            },
            "status": {"phase": "Running"},
        }))
        .unwrap();
        pod(&mut trimmed);
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": {"app": "web"}},
            "spec": {
                "nodeName": "n",
                "containers": [{
                    "name": "c", "image": "i", "ports": [{"containerPort": 1}],
                    "resources": {"requests": {"cpu": "1"}},
                }],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "d"}}],
            },
            "status": {"phase": "Running"},
        });
        assert_eq!(serde_json::to_value(&trimmed).unwrap(), expected);
    }
}

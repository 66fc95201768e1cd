//! A hundred thousand pods in the cache: in full, without bookkeeping, and projected.

use super::server::Server;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::core::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use stead::metrics::Metrics;
use stead::{Cache, CacheSettings, Key, Namespaces, Store, Typed, Watch};

const PODS: usize = 100_000;
const READS: usize = 2_000_000;

/// All that a controller which counts ready pods needs of a pod.
#[derive(Deserialize, Clone)]
struct Slim {
    metadata: ObjectMeta,
    #[serde(default)]
    #[allow(dead_code)]
    status: SlimStatus,
}

#[derive(Deserialize, Clone, Default)]
struct SlimStatus {
    #[allow(dead_code)]
    phase: Option<String>,
}

impl Resource for Slim {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        "".into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// How much of a pod is kept.
#[derive(Clone, Copy)]
pub enum Form {
    Full,
    WithoutManagers,
    Projected,
}

impl Form {
    pub const ALL: [Form; 3] = [Form::Full, Form::WithoutManagers, Form::Projected];

    pub fn name(self) -> &'static str {
        match self {
            Form::Full => "in full",
            Form::WithoutManagers => "without managedFields",
            Form::Projected => "projected to names, owner and phase",
        }
    }

    pub fn named(name: &str) -> Option<Form> {
        Form::ALL.into_iter().find(|form| form.name() == name)
    }
}

pub async fn pods(form: Form) {
    match form {
        Form::Full => {
            let full = fill(form, Watch::<Pod>::all()).await;
            reads(&full);
        }
        Form::WithoutManagers => {
            let slim = Watch::<Pod>::all().transform(|pod| pod.metadata.managed_fields = None);
            fill(form, slim).await;
        }
        Form::Projected => {
            let projected = Watch::<Slim>::all().transform(|pod| {
                let meta = std::mem::take(&mut pod.metadata);
                pod.metadata = ObjectMeta {
                    name: meta.name,
                    namespace: meta.namespace,
                    uid: meta.uid,
                    resource_version: meta.resource_version,
                    owner_references: meta.owner_references,
                    ..ObjectMeta::default()
                };
            });
            fill(form, projected).await;
        }
    }
}

async fn fill<K: Typed>(form: Form, watch: Watch<K>) -> Store<K> {
    let json = pod(0).to_string().len();
    let form = form.name();
    let server = Server::default().with("pods", PODS, Arc::new(pod));
    let settings = CacheSettings {
        page: 500,
        ..CacheSettings::default()
    };
    let cache = Cache::new(server.client(), Namespaces::All, settings, Metrics::default());
    let store = cache.watch(watch);
    let before = resident();
    let start = Instant::now();
    cache.start();
    cache.wait_for_sync().await;
    let took = start.elapsed();
    assert_eq!(store.len(), PODS);
    let each = resident().saturating_sub(before) / PODS as u64;
    println!(
        "| cache: {PODS} pods {form} ({json} bytes of JSON each) | {each} bytes resident each, filled in {took:.1?} |"
    );
    cache.stop().await;
    store
}

fn reads(store: &Store<Pod>) {
    let keys: Vec<Key> = (0..PODS)
        .map(|number| Key::namespaced("bench", &format!("web-{}", (number * 7919) % PODS)))
        .collect();
    let start = Instant::now();
    for number in 0..READS {
        black_box(store.get(&keys[number % PODS]));
    }
    let each = start.elapsed().as_nanos() as f64 / READS as f64;
    println!("| cache: reading one of {PODS} pods | {each:.0} ns |");
}

/// Bytes of this process that are in memory; the allocator gives little back, so only growth is meaningful.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * 4096
}

/// A pod as a Deployment makes it and a kubelet reports it.
fn pod(number: usize) -> Value {
    json!({
        "metadata": {
            "name": format!("web-{number}"), "namespace": "bench", "uid": format!("00000000-0000-4000-8000-{number:012}"),
            "resourceVersion": (number + 1).to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "5d4f8c7b9", "tier": "frontend"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f8c7b9",
                "uid": "10000000-0000-4000-8000-000000000000", "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [
                {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                 "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {
                    "f:generateName": {}, "f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}, "f:tier": {}},
                    "f:ownerReferences": {".": {}, "k:{\"uid\":\"10000000-0000-4000-8000-000000000000\"}": {}}},
                    "f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}, "f:name": {},
                    "f:ports": {}, "f:resources": {}, "f:env": {}}}, "f:dnsPolicy": {}, "f:restartPolicy": {}}}},
                {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "subresource": "status",
                 "time": "2026-01-01T00:00:05Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {
                    "f:conditions": {}, "f:containerStatuses": {}, "f:hostIP": {}, "f:phase": {}, "f:podIP": {},
                    "f:startTime": {}}}}],
        },
        "spec": {
            "containers": [{"name": "web", "image": "registry.example.com/shop/web:1.25.3",
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "env": [{"name": "MODE", "value": "production"}, {"name": "REGION", "value": "eu-west"}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 5},
                "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent"}],
            "nodeName": format!("node-{}", number % 500), "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30,
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300}],
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}],
            "startTime": "2026-01-01T00:00:01Z", "qosClass": "Burstable",
            "conditions": [
                {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"},
                {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}],
            "containerStatuses": [{"name": "web", "ready": true, "restartCount": 0, "started": true,
                "image": "registry.example.com/shop/web:1.25.3", "imageID": "registry.example.com/shop/web@sha256:0",
                "containerID": "containerd://0", "state": {"running": {"startedAt": "2026-01-01T00:00:04Z"}}}],
        },
    })
}

//! The objects that every cluster has from its first moment.

use super::service;
use crate::server::Shared;
use crate::store::{Key, StoreError, Write};
use crate::verbs::{encode, object};
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};

/// Priority classes, and the flow schemas and priority levels that Kubernetes prescribes.
const PRESCRIBED: &str = include_str!("../../data/bootstrap.json");

/// Creates what is missing. Safe to run again, and by two servers at once.
///
/// All of it is written together, so that a store that waits for its disk waits once, not two hundred times.
pub async fn bootstrap(shared: &Shared) -> Result<(), StoreError> {
    service::repair(shared).await?;
    let names = ["default", "kube-system", "kube-public", "kube-node-lease"];
    let mut objects: Vec<Value> = names.into_iter().map(namespace).collect();
    let now = object::time(shared.environment.clock.now());
    let prescribed: Vec<Value> =
        serde_json::from_str(PRESCRIBED).expect("the embedded document is JSON, which a test reads");
    for mut value in prescribed {
        for condition in value["status"]["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"] = now.as_str().into();
        }
        objects.push(value);
    }
    objects.push(service_range(shared, &now));
    tokio::try_join!(
        try_join_all(objects.into_iter().map(|object| ensure(shared, object))),
        kubernetes_service(shared),
        super::access::default_roles(shared),
    )?;
    Ok(())
}

fn namespace(name: &str) -> Value {
    let mut namespace = json!({
        "kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    });
    super::namespace::set_label(&mut namespace, name);
    namespace
}

fn service_range(shared: &Shared, now: &str) -> Value {
    json!({
        "kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": [shared.network.services.to_string()]},
        "status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "", "lastTransitionTime": now,
            "message": "Kubernetes default Service CIDR is ready",
        }]},
    })
}

/// The service under which programs in the cluster find the API server.
async fn kubernetes_service(shared: &Shared) -> Result<(), StoreError> {
    let address = shared.network.services.nth(1);
    let port = shared.network.advertised.map_or(443, |advertised| advertised.port());
    let value = json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
            "clusterIP": address.to_string(), "clusterIPs": [address.to_string()], "type": "ClusterIP",
            "sessionAffinity": "None", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
        },
        "status": {"loadBalancer": {}},
    });
    ensure(shared, service::reservation(shared, &value, address)).await?;
    ensure(shared, value.clone()).await?;
    if let Some(advertised) = shared.network.advertised {
        replace(shared, endpoints(advertised)).await?;
        replace(shared, endpoint_slice(advertised)).await?;
    }
    Ok(())
}

fn endpoints(advertised: SocketAddr) -> Value {
    json!({
        "kind": "Endpoints", "apiVersion": "v1",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{
            "addresses": [{"ip": advertised.ip().to_string()}],
            "ports": [{"name": "https", "port": advertised.port(), "protocol": "TCP"}],
        }],
    })
}

fn endpoint_slice(advertised: SocketAddr) -> Value {
    let family = match advertised.ip() {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    };
    json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": family,
        "metadata": {
            "name": "kubernetes", "namespace": "default", "generation": 1,
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "endpoints": [{"addresses": [advertised.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": advertised.port(), "protocol": "TCP"}],
    })
}

/// The place of a built-in object, by its kind.
fn key(shared: &Shared, value: &Value) -> Option<Key> {
    let version = value["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let catalogue = shared.catalogue();
    let resource = catalogue.by_kind(group, version, value["kind"].as_str().unwrap_or_default())?;
    Some(Key::new(
        resource.storage(),
        object::namespace(value),
        object::name(value),
    ))
}

/// Creates an object unless one of its name is there.
async fn ensure(shared: &Shared, mut value: Value) -> Result<(), StoreError> {
    let Some(key) = key(shared, &value) else { return Ok(()) };
    if shared.store.get(&key).await?.is_some() {
        return Ok(());
    }
    let (uid, now) = (shared.environment.uid(), shared.environment.clock.now());
    object::set_meta(&mut value, "uid", &uid);
    object::set_meta(&mut value, "creationTimestamp", &object::time(now));
    let draft = encode::draft(&value);
    match shared.store.write(Write::Create { key, draft }).await {
        Ok(_) | Err(StoreError::Exists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Brings an object to this state, creating it if needed: the address of the server may have changed.
async fn replace(shared: &Shared, value: Value) -> Result<(), StoreError> {
    ensure(shared, value.clone()).await?;
    let Some(key) = key(shared, &value) else { return Ok(()) };
    let Some(record) = shared.store.get(&key).await? else {
        return Ok(());
    };
    let mut wanted = value;
    for field in ["uid", "creationTimestamp", "resourceVersion"] {
        object::copy_meta(&record.value(), &mut wanted, field);
    }
    if wanted == *record.value() {
        return Ok(());
    }
    let write = Write::Update {
        key,
        draft: encode::draft(&wanted),
        expect: record.revision,
    };
    match shared.store.write(write).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

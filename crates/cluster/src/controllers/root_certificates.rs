//! `kube-root-ca.crt` in every namespace: what pods check the API server's certificate with.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Rule, Source, Store, Watch};

const NAME: &str = "kube-root-ca.crt";
/// Only these ConfigMaps are watched.
const SELECTED: &str = "metadata.name=kube-root-ca.crt";

/// Adds the publisher of the root certificates.
pub fn add_to(manager: &Manager, pem: &str) {
    let cache = manager.cache();
    let reconciler = RootCertificates {
        namespaces: cache.store(),
        maps: cache.watch(Watch::all().fields(SELECTED)),
        pem: pem.to_string(),
    };
    let controller = Controller::new("root-ca-certificate-publisher", reconciler)
        .for_::<Namespace>()
        .watches_source(Source::<ConfigMap>::from(Watch::all().fields(SELECTED)), |map| {
            map.metadata
                .namespace
                .as_deref()
                .map(Key::cluster)
                .into_iter()
                .collect()
        })
        .may(Rule::new("", &["configmaps"], &["create", "patch"]))
        .without_resync();
    manager.add(controller);
}

struct RootCertificates {
    namespaces: Store<Namespace>,
    maps: Store<ConfigMap>,
    pem: String,
}

impl Reconciler for RootCertificates {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(namespace) = self.namespaces.get(key) else {
            return Ok(Outcome::Settled);
        };
        if namespace.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Settled);
        }
        let data = BTreeMap::from([("ca.crt".to_string(), self.pem.clone())]);
        match self.maps.named(Some(key.name()), NAME) {
            None => {
                let note = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                            endpoints such as the internal service IP or kubernetes.default.svc.";
                let annotations = [("kubernetes.io/description".to_string(), note.to_string())].into();
                let map = ConfigMap {
                    metadata: ObjectMeta {
                        name: Some(NAME.to_string()),
                        namespace: Some(key.name().to_string()),
                        annotations: Some(annotations),
                        ..ObjectMeta::default()
                    },
                    data: Some(data),
                    ..ConfigMap::default()
                };
                super::created(context.writer().create(&map).await)?;
            }
            Some(map) if map.data.as_ref() != Some(&data) => {
                let mut patch = json!({"data": data, "binaryData": null});
                // What somebody added goes too: who reads the map may read all of it.
                for name in map.data.iter().flatten().map(|(name, _)| name) {
                    if !data.contains_key(name) {
                        patch["data"][name] = Value::Null;
                    }
                }
                context.writer().patch(&*map, patch).await?;
            }
            Some(_) => {}
        }
        Ok(Outcome::Settled)
    }
}

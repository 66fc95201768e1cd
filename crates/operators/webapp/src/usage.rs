//! What pods use, as the metrics API tells it: for advice on resource requests.
//!
//! That API cannot be watched, and one list tells of all pods, so one look is shared by all applications. A cluster
//! need not have it; then nothing is known.

use crate::seen::Usage;
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use stead::Namespaces;
use stead_apis::webapp::validate::CONTAINER;
use stead_machinery::quantity::Quantity;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How old a look may be: sources of these figures take one every quarter or half minute themselves.
const FRESH: Duration = Duration::from_secs(30);
/// A list that takes longer is done without.
const PATIENCE: Duration = Duration::from_secs(5);
const COLLECTION: &str = "pods?labelSelector=app.kubernetes.io%2Fname%3Dwebapp";

/// By namespace and name of the pod.
type Known = HashMap<(String, String), Usage>;

/// Looks at what pods use, at most once in a while.
#[derive(Default)]
pub struct Looks {
    last: Mutex<Option<(Instant, Arc<Known>)>>,
}

#[derive(Deserialize)]
struct List {
    items: Vec<PodMetrics>,
}

#[derive(Deserialize)]
struct PodMetrics {
    metadata: kube::core::ObjectMeta,
    #[serde(default)]
    containers: Vec<ContainerMetrics>,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    name: String,
    usage: BTreeMap<String, String>,
}

impl Looks {
    /// What these pods use, as far as it is known.
    pub async fn of(&self, client: &Client, namespaces: &Namespaces, pods: &[Arc<Pod>]) -> Vec<Usage> {
        let known = self.known(client, namespaces).await;
        let name = |pod: &Pod| {
            let meta = &pod.metadata;
            Some((meta.namespace.clone()?, meta.name.clone()?))
        };
        pods.iter().filter_map(|pod| known.get(&name(pod)?).copied()).collect()
    }

    async fn known(&self, client: &Client, namespaces: &Namespaces) -> Arc<Known> {
        let mut last = self.last.lock().await;
        if let Some((at, known)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            let _ = at;
            return known.clone();
        }
        let root = "/apis/metrics.k8s.io/v1beta1";
        let paths = match namespaces {
            Namespaces::All => vec![format!("{root}/{COLLECTION}")],
            Namespaces::Only(names) => names
                .iter()
                .map(|name| format!("{root}/namespaces/{name}/{COLLECTION}"))
                .collect(),
        };
        let mut found = Known::new();
        for path in paths {
            match list(client, &path).await {
                Some(list) => found.extend(list.items.iter().filter_map(usage)),
                None => break,
            }
        }
        let found = Arc::new(found);
        *last = Some((Instant::now(), found.clone()));
        found
    }
}

/// `None` where the cluster does not measure, or does not tell us.
async fn list(client: &Client, path: &str) -> Option<List> {
    let request = Request::get(path).body(Vec::new()).ok()?;
    match tokio::time::timeout(PATIENCE, client.request::<List>(request)).await {
        Ok(Ok(list)) => Some(list),
        Ok(Err(error)) => {
            tracing::debug!(%error, "the cluster does not tell what pods use");
            None
        }
        Err(_) => None,
    }
}

fn usage(pod: &PodMetrics) -> Option<((String, String), Usage)> {
    let own = pod.containers.iter().find(|container| container.name == CONTAINER)?;
    let read = |name: &str| own.usage.get(name)?.parse::<Quantity>().ok();
    let usage = Usage {
        cpu_millis: read("cpu")?.milli_value(),
        memory_bytes: read("memory")?.value(),
    };
    Some(((pod.metadata.namespace.clone()?, pod.metadata.name.clone()?), usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_application_s_own_container_counts_and_sidecars_do_not() {
        let list: List = serde_json::from_value(serde_json::json!({"items": [{
            "metadata": {"namespace": "default", "name": "shop-1"},
            "containers": [
                {"name": "proxy", "usage": {"cpu": "900m", "memory": "900Mi"}},
                {"name": "app", "usage": {"cpu": "12345678n", "memory": "10240Ki"}},
            ],
        }]}))
        .unwrap();
        let (name, found) = usage(&list.items[0]).unwrap();
        assert_eq!(name, ("default".to_string(), "shop-1".to_string()));
        assert_eq!(found.memory_bytes, 10 << 20);
        assert!((12..=13).contains(&found.cpu_millis), "{found:?}");
    }
}

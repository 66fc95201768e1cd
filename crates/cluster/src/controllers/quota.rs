//! ResourceQuotas: what a namespace uses of what it may.
//!
//! The API server charges a quota when an object is made; here it is counted afresh, so that what is gone is given
//! back and a new quota knows what is there already.

mod usage;

use super::{discovery, job};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use kube::ResourceExt;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Rule, Store};
use stead_machinery::quantity::Quantity;
use usage::Usage;

/// How often kinds are counted of which no event tells us.
const RECOUNT: Duration = Duration::from_secs(10);

/// How long a charge is left alone for which no object is seen yet.
const PATIENCE: Duration = Duration::from_secs(1);

/// Adds the controller of quotas.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let quotas = cache.store::<ResourceQuota>();
    let reconciler = Quotas {
        quotas: quotas.clone(),
        pods: cache.store(),
        services: cache.store(),
        claims: cache.store(),
        counted: Mutex::default(),
    };
    let in_namespace = move |namespace: Option<&String>| -> Vec<Key> {
        let all = quotas.in_namespace(namespace.map_or("", String::as_str));
        all.iter().map(|quota| Key::of(&**quota)).collect()
    };
    let (of_services, of_claims) = (in_namespace.clone(), in_namespace.clone());
    let controller = Controller::new("resourcequota", reconciler)
        .for_::<ResourceQuota>()
        .watches::<Pod>(move |pod| in_namespace(pod.metadata.namespace.as_ref()))
        .watches::<Service>(move |service| of_services(service.metadata.namespace.as_ref()))
        .watches::<PersistentVolumeClaim>(move |claim| of_claims(claim.metadata.namespace.as_ref()))
        .may(Rule::root::<ResourceQuota>())
        // A quota may count any kind.
        .may(Rule::new("*", &["*"], &["list"]))
        .without_resync()
        .concurrency(2);
    manager.add(controller);
}

struct Quotas {
    quotas: Store<ResourceQuota>,
    pods: Store<Pod>,
    services: Store<Service>,
    claims: Store<PersistentVolumeClaim>,
    /// The version of each quota at its last count.
    counted: Mutex<HashMap<Key, String>>,
}

impl Quotas {
    /// Whether nobody has charged the quota since it was counted last. The API server charges before it stores the
    /// object: a count that follows a charge at once may come before the object, and must not take it back.
    fn is_calm(&self, key: &Key, quota: &ResourceQuota) -> bool {
        let version = quota.resource_version().unwrap_or_default();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let last = counted.insert(key.clone(), version.clone());
        last.is_some_and(|last| last == version)
    }

    fn forget(&self, key: &Key) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.remove(key);
    }
}

impl Reconciler for Quotas {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(quota) = self.quotas.get(key) else {
            self.forget(key);
            return Ok(Outcome::Settled);
        };
        let Some(spec) = &quota.spec else {
            return Ok(Outcome::Settled);
        };
        let hard = spec.hard.clone().unwrap_or_default();
        let namespace = key.namespace().unwrap_or_default();
        let mut usage = Usage::default();
        for pod in self.pods.in_namespace(namespace) {
            usage.pod(spec, &pod);
        }
        for service in self.services.in_namespace(namespace) {
            usage.service(spec, &service);
        }
        for claim in self.claims.in_namespace(namespace) {
            usage.claim(spec, &claim);
        }
        let mut next = Outcome::Settled;
        let mut used = BTreeMap::new();
        for name in hard.keys() {
            let amount = match usage::counted(name) {
                Some(kind) => {
                    next = Outcome::CheckAgain(RECOUNT);
                    Quantity::whole(count(context, namespace, &kind).await?)
                }
                None => usage.of(name),
            };
            used.insert(name.clone(), Text(amount.to_string()));
        }
        let status = quota.status.clone().unwrap_or_default();
        let calm = self.is_calm(key, &quota);
        if !calm && status.used.as_ref().is_some_and(|charged| is_less(&used, charged)) {
            return Ok(Outcome::CheckAgain(PATIENCE));
        }
        let before = json!(status);
        if let Some(patch) = job::difference(&before, &json!({"hard": hard, "used": used})) {
            context.writer().patch_status(&*quota, json!({"status": patch})).await?;
        }
        Ok(next)
    }
}

/// Whether any amount is less than what is charged.
fn is_less(used: &BTreeMap<String, Text>, charged: &BTreeMap<String, Text>) -> bool {
    let amount = |text: &Text| text.0.parse::<Quantity>().ok();
    used.iter()
        .any(|(name, used)| matches!((amount(used), charged.get(name).and_then(amount)), (Some(used), Some(charged)) if used < charged))
}

/// How many objects a namespace has of a kind that we keep no copy of. A kind that does not exist has none.
async fn count(context: &Context, namespace: &str, kind: &usage::Counted) -> Result<i64, Error> {
    let client = context.client();
    let root = match kind.group.as_str() {
        "" => "/api/v1".to_string(),
        group => {
            let found = discovery::get(&client, &format!("/apis/{group}")).await?;
            match found["preferredVersion"]["groupVersion"].as_str() {
                Some(version) => format!("/apis/{version}"),
                None => return Ok(0),
            }
        }
    };
    let path = format!("{root}/namespaces/{namespace}/{}?limit=1", kind.plural);
    let list = discovery::get(&client, &path).await?;
    let first = list["items"].as_array().map_or(0, Vec::len);
    let rest = list["metadata"]["remainingItemCount"].as_i64().unwrap_or(0);
    Ok(rest.saturating_add(i64::try_from(first).unwrap_or(0)))
}

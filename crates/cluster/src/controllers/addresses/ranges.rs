//! ServiceCIDRs: a range is ready once it is guarded, and goes only when no address would be left outside of all.

use super::{Range, is_allocated, ranges_of};
use jiff::SignedDuration;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Rule, Store};

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// How long every API server may take to hear that a range gives no more addresses, as Kubernetes has it.
const HEARING: SignedDuration = SignedDuration::from_secs(10);

/// Adds the controller of ranges.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let ranges = cache.store::<ServiceCIDR>();
    let (waiting, overlapping) = (ranges.clone(), ranges.clone());
    let reconciler = Ranges {
        ranges,
        addresses: cache.store(),
    };
    let controller = Controller::new("service-cidrs-controller", reconciler)
        .for_::<ServiceCIDR>()
        // Another range may cover one that waits to go, and the last address in it may have gone.
        .watches::<ServiceCIDR>(move |_| ending(&overlapping))
        .watches::<IPAddress>(move |_| ending(&waiting))
        .may(Rule::cache::<IPAddress>())
        .may(Rule::root::<ServiceCIDR>())
        .without_resync()
        .concurrency(1);
    manager.add(controller);
}

fn ending(ranges: &Store<ServiceCIDR>) -> Vec<Key> {
    let mut keys = Vec::new();
    ranges.for_each(|key, range| {
        if range.metadata.deletion_timestamp.is_some() {
            keys.push(key.clone());
        }
    });
    keys
}

struct Ranges {
    ranges: Store<ServiceCIDR>,
    addresses: Store<IPAddress>,
}

impl Reconciler for Ranges {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(range) = self.ranges.get(key) else {
            return Ok(Outcome::Settled);
        };
        let finalizers = range.metadata.finalizers.clone().unwrap_or_default();
        let guarded = finalizers.iter().any(|name| name == FINALIZER);
        let Some(deleted) = &range.metadata.deletion_timestamp else {
            if !guarded {
                let all = [finalizers, vec![FINALIZER.to_string()]].concat();
                let patch = json!({"metadata": {"finalizers": all}});
                context.writer().patch(&*range, patch).await?;
            }
            say(context, &range, "True", "", "Kubernetes Service CIDR is ready").await?;
            return Ok(Outcome::Settled);
        };
        if !guarded {
            return Ok(Outcome::Settled);
        }
        let mut addresses = Vec::new();
        self.addresses.for_each(|key, address| {
            addresses.extend(key.name().parse::<IpAddr>().ok().filter(|_| is_allocated(address)));
        });
        if !may_go(&range, &self.ranges.list(), &addresses) {
            let why = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new \
                       ServiceCIDR";
            say(context, &range, "False", "Terminating", why).await?;
            return Ok(Outcome::Settled);
        }
        let left = HEARING - context.now().duration_since(deleted.0);
        if left.is_positive() {
            return Ok(Outcome::CheckAgain(left.unsigned_abs()));
        }
        let rest: Vec<_> = finalizers.into_iter().filter(|name| name != FINALIZER).collect();
        let patch = json!({"metadata": {"finalizers": rest}});
        context.writer().patch(&*range, patch).await?;
        Ok(Outcome::Settled)
    }
}

/// Whether every address of a range would still be in another one.
fn may_go(range: &ServiceCIDR, all: &[Arc<ServiceCIDR>], addresses: &[IpAddr]) -> bool {
    let others: Vec<Range> = all
        .iter()
        .filter(|other| other.metadata.name != range.metadata.name)
        .flat_map(|other| ranges_of(other))
        .collect();
    ranges_of(range).all(|own| {
        others.iter().any(|other| other.covers(own))
            || !addresses
                .iter()
                .any(|address| own.contains(*address) && !others.iter().any(|other| other.contains(*address)))
    })
}

/// Writes the condition, unless it says so already.
async fn say(context: &Context, range: &ServiceCIDR, status: &str, reason: &str, message: &str) -> Result<(), Error> {
    let conditions = range.status.as_ref().and_then(|status| status.conditions.clone());
    let mut conditions = conditions.unwrap_or_default();
    let said = conditions.iter().find(|condition| condition.type_ == "Ready");
    // The range that every cluster starts with is ready in words of its own.
    if said.is_some_and(|said| said.status == status && said.reason == reason) {
        return Ok(());
    }
    conditions.retain(|condition| condition.type_ != "Ready");
    let mut written = json!(conditions);
    if let Some(list) = written.as_array_mut() {
        list.push(json!({
            "type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(context.now()),
        }));
    }
    let patch = json!({"status": {"conditions": written}});
    context.writer().patch_status(range, patch).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_goes_when_no_address_would_be_left_outside() {
        let range = |name: &str, cidr: &str| -> Arc<ServiceCIDR> {
            Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"cidrs": [cidr]}})).unwrap())
        };
        let all = [
            range("main", "10.96.0.0/16"),
            range("more", "10.200.0.0/24"),
            range("part", "10.96.4.0/24"),
        ];
        let inside = ["10.200.0.7".parse().unwrap()];
        assert!(!may_go(&all[1], &all, &inside));
        assert!(may_go(&all[1], &all, &[]));
        let covered = ["10.96.4.9".parse().unwrap()];
        assert!(may_go(&all[2], &all, &covered), "the larger range has it too");
        assert!(may_go(&all[0], &all, &covered), "the smaller one has the only address");
    }
}

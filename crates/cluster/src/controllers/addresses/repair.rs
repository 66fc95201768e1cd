//! The repair of addresses: every cluster address of a Service has its IPAddress, and no other is left over.
//!
//! What looks wrong in the cache is read again from the API server before anything is changed: the two kinds arrive
//! by two watches, and a Service may be seen before the address that was taken for it.

use super::{ALLOCATOR, FAMILY, MANAGED_BY, family, is_allocated, label, parent, ranges_of};
use crate::controllers::{created, ownership};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::{IPAddress, IPAddressSpec, ParentReference, ServiceCIDR};
use kube::core::ObjectMeta;
use std::collections::BTreeMap;
use std::net::IpAddr;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Propagation, Reconciler, Rule, Severity, Store, Typed};

/// How long a request that takes an address may run before it counts as lost, as Kubernetes has it.
const REQUEST: SignedDuration = SignedDuration::from_secs(60);
/// How long an address that was taken for an existing Service may wait to be given back.
const UNDOING: SignedDuration = SignedDuration::from_secs(5);

/// Adds the repair of both sides.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let of_services = Services {
        services: cache.store(),
        addresses: cache.store(),
        ranges: cache.store(),
    };
    let rights = || {
        [
            Rule::read::<IPAddress>(),
            Rule::read::<Service>(),
            Rule::cache::<ServiceCIDR>(),
            Rule::new("networking.k8s.io", &["ipaddresses"], &["create", "delete"]),
        ]
    };
    let controller = Controller::new("ipallocator-repair-controller", of_services)
        .for_::<Service>()
        .watches::<IPAddress>(|address| service_of(address).into_iter().collect())
        .without_resync()
        .concurrency(2);
    manager.add(rights().into_iter().fold(controller, Controller::may));
    let leaked = Addresses {
        addresses: cache.store(),
    };
    let controller = Controller::new("ipallocator-release-controller", leaked)
        .for_::<IPAddress>()
        .watches::<Service>(|service| {
            let addresses = cluster_addresses(service);
            addresses.iter().map(|address| Key::cluster(address)).collect()
        })
        .without_resync()
        .concurrency(2);
    manager.add(rights().into_iter().fold(controller, Controller::may));
}

struct Services {
    services: Store<Service>,
    addresses: Store<IPAddress>,
    ranges: Store<ServiceCIDR>,
}

impl Reconciler for Services {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(service) = self.services.get(key) else {
            return Ok(Outcome::Settled);
        };
        for text in cluster_addresses(&service) {
            let Ok(address) = text.parse::<IpAddr>() else {
                let note = format!("Cluster IP {text} is not a valid IP; please recreate Service");
                warn(context, &*service, "ClusterIPNotValid", "ClusterIPValidation", &note);
                continue;
            };
            let mut ranges = Vec::new();
            self.ranges.for_each(|_, range| ranges.extend(ranges_of(range)));
            // Before the first range is seen nothing is known about them.
            if !ranges.is_empty() && !ranges.iter().any(|range| range.contains(address)) {
                let note = format!(
                    "Cluster IP [{}]: {address} is not within any configured Service CIDR; please recreate service",
                    family(address)
                );
                warn(context, &*service, "ClusterIPOutOfRange", "ClusterIPAllocation", &note);
                continue;
            }
            self.mend(context, &service, address).await?;
        }
        Ok(Outcome::Settled)
    }
}

impl Services {
    async fn mend(&self, context: &Context, service: &Service, address: IpAddr) -> Result<(), Error> {
        let name = Key::cluster(&address.to_string());
        if fault(service, address, self.addresses.get(&name).as_deref()).is_none() {
            return Ok(());
        }
        let writer = context.writer();
        // Past the cache, on both sides: the address may be new, and the Service may be gone.
        let taken = writer.read::<IPAddress>(&name).await?;
        let Some(fault) = fault(service, address, taken.as_ref()) else {
            return Ok(());
        };
        let current = writer.read::<Service>(&Key::of(service)).await?;
        let Some(service) = current.filter(|current| cluster_addresses(current).contains(&address.to_string())) else {
            return Ok(());
        };
        let other = match taken.as_ref().filter(|_| fault == Fault::Another).and_then(service_of) {
            Some(other) => writer.read::<Service>(&other).await?,
            None => None,
        };
        if other.is_some_and(|other| cluster_addresses(&other).contains(&address.to_string())) {
            let note = format!(
                "Cluster IP [{}]:{address} was assigned to multiple services; please recreate service",
                family(address)
            );
            warn(
                context,
                &service,
                "ClusterIPAlreadyAllocated",
                "ClusterIPAllocation",
                &note,
            );
            return Ok(());
        }
        if let Some(note) = fault.note(&service, address) {
            warn(context, &service, "ClusterIPNotAllocated", "ClusterIPAllocation", &note);
        }
        if let Some(taken) = &taken {
            writer.delete(taken, Propagation::Background).await?;
        }
        created(writer.create(&reservation(&service, address)).await)
    }
}

/// What is wrong between a Service's address and its IPAddress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// There is none.
    Missing,
    /// It belongs to something that is no Service.
    Stranger,
    /// It belongs to another Service.
    Another,
    /// Its labels are not the allocator's.
    Unmarked,
}

impl Fault {
    /// What people are told, in Kubernetes' words.
    fn note(self, service: &Service, address: IpAddr) -> Option<String> {
        let family = family(address);
        let key = Key::of(service);
        match self {
            Fault::Missing => Some(format!("Cluster IP [{family}]: {address} is not allocated; repairing")),
            Fault::Stranger | Fault::Another => Some(format!(
                "the ClusterIP [{family}]: {address} for Service {key} has a wrong reference; repairing"
            )),
            Fault::Unmarked => None,
        }
    }
}

fn fault(service: &Service, address: IpAddr, taken: Option<&IPAddress>) -> Option<Fault> {
    let Some(taken) = taken else {
        return Some(Fault::Missing);
    };
    match service_of(taken) {
        None => Some(Fault::Stranger),
        Some(key) if key != Key::of(service) => Some(Fault::Another),
        Some(_) if !is_allocated(taken) || label(taken, FAMILY) != Some(family(address)) => Some(Fault::Unmarked),
        Some(_) => None,
    }
}

/// The IPAddress that a Service's address should have.
fn reservation(service: &Service, address: IpAddr) -> IPAddress {
    let labels = [(FAMILY, family(address)), (MANAGED_BY, ALLOCATOR)];
    let labels = labels.map(|(name, value)| (name.to_string(), value.to_string()));
    IPAddress {
        metadata: ObjectMeta {
            name: Some(address.to_string()),
            labels: Some(BTreeMap::from(labels)),
            ..ObjectMeta::default()
        },
        spec: IPAddressSpec {
            parent_ref: ParentReference {
                group: None,
                resource: "services".to_string(),
                namespace: service.metadata.namespace.clone(),
                name: service.metadata.name.clone().unwrap_or_default(),
            },
        },
    }
}

struct Addresses {
    addresses: Store<IPAddress>,
}

impl Reconciler for Addresses {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(address) = self.addresses.get(key).filter(|address| is_allocated(address)) else {
            return Ok(Outcome::Settled);
        };
        let service = match service_of(&address) {
            // Past the cache: a Service that it does not show yet may have been stored a moment ago.
            Some(owner) => context.writer().read::<Service>(&owner).await?,
            None => None,
        };
        match judge(&address, service.as_ref(), context.now()) {
            Verdict::Used => Ok(Outcome::Settled),
            Verdict::Wait(time) => Ok(Outcome::CheckAgain(time.unsigned_abs())),
            Verdict::Leaked { reason, note } => {
                warn(context, &*address, reason, "IPAddressAllocation", &note);
                context.writer().delete(&*address, Propagation::Background).await?;
                Ok(Outcome::Settled)
            }
        }
    }
}

/// What becomes of an IPAddress.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Used,
    /// A request that is still under way may explain it.
    Wait(SignedDuration),
    Leaked {
        reason: &'static str,
        note: String,
    },
}

fn judge(address: &IPAddress, service: Option<&Service>, now: Timestamp) -> Verdict {
    let name = address.metadata.name.as_deref().unwrap_or_default();
    let Some(owner) = service_of(address) else {
        return Verdict::Leaked {
            reason: "IPAddressNotAllocated",
            note: format!("IPAddress {name} appears to have been modified, not referencing a Service: cleaning up"),
        };
    };
    let made = address.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let left = |patience: SignedDuration| patience - now.duration_since(made);
    let Some(service) = service else {
        return match left(REQUEST) {
            left if left.is_positive() => Verdict::Wait(left),
            _ => Verdict::Leaked {
                reason: "IPAddressNotAllocated",
                note: format!("IPAddress: {name} for Service {owner} appears to have leaked: cleaning up"),
            },
        };
    };
    if cluster_addresses(service).iter().any(|own| own == name) {
        return Verdict::Used;
    }
    // A Service that had no address may be getting one, and one that could not be stored may be given back.
    let external = service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("ExternalName");
    match left(if external { REQUEST } else { UNDOING }) {
        left if left.is_positive() => Verdict::Wait(left),
        _ => Verdict::Leaked {
            reason: "IPAddressWrongReference",
            note: format!("IPAddress: {name} for Service {owner} has a wrong reference; cleaning up"),
        },
    }
}

/// The Service that an IPAddress belongs to.
fn service_of(address: &IPAddress) -> Option<Key> {
    let parent = parent(address);
    let service = parent.group.as_deref().unwrap_or_default().is_empty() && parent.resource == "services";
    service.then(|| Key::new(parent.namespace.as_deref(), &parent.name))
}

/// The cluster addresses of a Service, without the word for none.
fn cluster_addresses(service: &Service) -> Vec<String> {
    let spec = service.spec.as_ref();
    if spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName") {
        return Vec::new();
    }
    let all = spec.and_then(|spec| spec.cluster_ips.clone()).unwrap_or_default();
    all.into_iter().filter(|address| address != "None").collect()
}

fn warn<K: Typed>(context: &Context, object: &K, reason: &str, action: &str, note: &str) {
    let about = ownership::about(object);
    context.events().tell(about, Severity::Warning, reason, action, note);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(name: &str, address: &str) -> Service {
        let meta = json!({"name": name, "namespace": "n"});
        serde_json::from_value(json!({"metadata": meta, "spec": {"clusterIPs": [address], "type": "ClusterIP"}}))
            .unwrap()
    }

    fn taken(owner: Value, labels: Value) -> IPAddress {
        let meta = json!({"name": "10.96.0.9", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"});
        serde_json::from_value(json!({"metadata": meta, "spec": {"parentRef": owner}})).unwrap()
    }

    fn marks() -> Value {
        json!({FAMILY: "IPv4", MANAGED_BY: ALLOCATOR})
    }

    #[test]
    fn a_service_and_its_address_belong_together_both_ways() {
        let web = service("web", "10.96.0.9");
        let address: IpAddr = "10.96.0.9".parse().unwrap();
        let check = |owner: Value, labels: Value, expected: Option<Fault>| {
            assert_eq!(fault(&web, address, Some(&taken(owner, labels))), expected);
        };
        assert_eq!(fault(&web, address, None), Some(Fault::Missing));
        assert_eq!(fault(&web, address, Some(&reservation(&web, address))), None);
        let own = json!({"resource": "services", "namespace": "n", "name": "web"});
        check(own.clone(), marks(), None);
        check(own, json!({}), Some(Fault::Unmarked));
        let other = json!({"resource": "services", "namespace": "n", "name": "db"});
        check(other, marks(), Some(Fault::Another));
        let stranger = json!({"group": "g", "resource": "gateways", "name": "web"});
        check(stranger, marks(), Some(Fault::Stranger));
    }

    #[test]
    fn an_address_that_nobody_has_is_given_back_when_no_request_can_explain_it() {
        let own = json!({"resource": "services", "namespace": "n", "name": "web"});
        let address = taken(own, marks());
        let at = |time: &str| time.parse::<Timestamp>().unwrap();
        let soon = at("2026-01-01T00:00:03Z");
        let later = at("2026-01-01T00:01:01Z");
        assert_eq!(
            judge(&address, Some(&service("web", "10.96.0.9")), later),
            Verdict::Used
        );
        assert_eq!(
            judge(&address, None, soon),
            Verdict::Wait(SignedDuration::from_secs(57))
        );
        let leaked = |verdict: Verdict| match verdict {
            Verdict::Leaked { reason, note } => (reason, note),
            other => panic!("{other:?}"),
        };
        let (reason, note) = leaked(judge(&address, None, later));
        assert_eq!(reason, "IPAddressNotAllocated");
        assert!(note.contains("n/web appears to have leaked"), "{note}");
        let elsewhere = service("web", "10.96.0.10");
        assert_eq!(
            judge(&address, Some(&elsewhere), soon),
            Verdict::Wait(SignedDuration::from_secs(2))
        );
        assert_eq!(
            leaked(judge(&address, Some(&elsewhere), later)).0,
            "IPAddressWrongReference"
        );
        let stranger = taken(json!({"resource": "gateways", "name": "web"}), marks());
        assert_eq!(leaked(judge(&stranger, None, soon)).0, "IPAddressNotAllocated");
    }
}

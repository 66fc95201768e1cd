//! What pods, services and claims take of a quota. Pure.

use crate::controllers::pods;
use crate::scheduler::resources::{self, Resources};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuotaSpec, Service};
use std::collections::BTreeMap;
use stead_machinery::quantity::Quantity;

/// Amounts by the names that quotas use.
#[derive(Debug, Default)]
pub struct Usage(BTreeMap<String, Quantity>);

/// A kind that is counted by asking the API server.
#[derive(Debug, PartialEq, Eq)]
pub struct Counted {
    pub group: String,
    pub plural: String,
}

/// The kind that a name of a quota counts, if it is not one that [`Usage`] knows.
pub fn counted(name: &str) -> Option<Counted> {
    let (plural, group) = match name {
        "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => (name, ""),
        _ => {
            let kind = name.strip_prefix("count/")?;
            kind.split_once('.').unwrap_or((kind, ""))
        }
    };
    let known = group.is_empty() && matches!(plural, "pods" | "services" | "persistentvolumeclaims");
    (!known).then(|| Counted {
        group: group.to_string(),
        plural: plural.to_string(),
    })
}

fn has_scope(quota: &ResourceQuotaSpec) -> bool {
    quota.scopes.as_ref().is_some_and(|scopes| !scopes.is_empty()) || quota.scope_selector.is_some()
}

fn quantity(name: &str, amount: i64) -> Quantity {
    match name {
        "cpu" => Quantity::milli(amount),
        "memory" | "ephemeral-storage" => Quantity::bytes(amount),
        _ => Quantity::whole(amount),
    }
}

impl Usage {
    pub fn of(&self, name: &str) -> Quantity {
        self.0.get(name).cloned().unwrap_or_else(|| Quantity::whole(0))
    }

    fn add(&mut self, name: &str, amount: &Quantity) {
        let sum = match self.0.remove(name) {
            Some(have) => have + amount,
            None => amount.clone(),
        };
        self.0.insert(name.to_string(), sum);
    }

    /// A pod counts as long as it is there, what it asks for only while it runs.
    pub fn pod(&mut self, quota: &ResourceQuotaSpec, pod: &Pod) {
        if !in_scope(quota, pod) {
            return;
        }
        self.add("count/pods", &Quantity::whole(1));
        if pods::has_ended(pod) {
            return;
        }
        self.add("pods", &Quantity::whole(1));
        for (name, amount) in resources::requests(pod).iter() {
            let amount = quantity(name, amount);
            if matches!(name, "cpu" | "memory" | "ephemeral-storage") {
                self.add(name, &amount);
            }
            self.add(&format!("requests.{name}"), &amount);
        }
        for (name, amount) in limits(pod).iter() {
            self.add(&format!("limits.{name}"), &quantity(name, amount));
        }
    }

    pub fn service(&mut self, quota: &ResourceQuotaSpec, service: &Service) {
        let Some(spec) = service.spec.as_ref().filter(|_| !has_scope(quota)) else {
            return;
        };
        let one = Quantity::whole(1);
        self.add("services", &one);
        self.add("count/services", &one);
        let ports = i64::try_from(spec.ports.as_ref().map_or(0, Vec::len)).unwrap_or(i64::MAX);
        let balanced = spec.type_.as_deref() == Some("LoadBalancer");
        if balanced {
            self.add("services.loadbalancers", &one);
        }
        if spec.type_.as_deref() == Some("NodePort")
            || balanced && spec.allocate_load_balancer_node_ports != Some(false)
        {
            self.add("services.nodeports", &Quantity::whole(ports));
        }
    }

    pub fn claim(&mut self, quota: &ResourceQuotaSpec, claim: &PersistentVolumeClaim) {
        let Some(spec) = claim.spec.as_ref().filter(|_| !has_scope(quota)) else {
            return;
        };
        let requests = spec.resources.as_ref().and_then(|all| all.requests.as_ref());
        let storage = requests.and_then(|all| all.get("storage")?.0.parse::<Quantity>().ok());
        let class = spec.storage_class_name.as_deref().filter(|name| !name.is_empty());
        let prefix = class.map(|class| format!("{class}.storageclass.storage.k8s.io/"));
        for prefix in prefix.iter().map(String::as_str).chain([""]) {
            self.add(&format!("{prefix}persistentvolumeclaims"), &Quantity::whole(1));
            if let Some(storage) = &storage {
                self.add(&format!("{prefix}requests.storage"), storage);
            }
        }
        self.add("count/persistentvolumeclaims", &Quantity::whole(1));
    }
}

/// What a pod is limited to: as its requests, with its limits in their place.
fn limits(pod: &Pod) -> Resources {
    let mut limited = pod.clone();
    if let Some(spec) = &mut limited.spec {
        let containers = spec.containers.iter_mut();
        for container in containers.chain(spec.init_containers.iter_mut().flatten()) {
            if let Some(resources) = &mut container.resources {
                resources.requests = resources.limits.clone();
            }
        }
    }
    resources::requests(&limited)
}

fn in_scope(quota: &ResourceQuotaSpec, pod: &Pod) -> bool {
    let plain = quota
        .scopes
        .iter()
        .flatten()
        .map(|scope| (scope.as_str(), "Exists", &[][..]));
    let selector = quota
        .scope_selector
        .iter()
        .flat_map(|all| all.match_expressions.iter().flatten());
    let selected = selector.map(|one| {
        let values = one.values.as_deref().unwrap_or_default();
        (one.scope_name.as_str(), one.operator.as_str(), values)
    });
    plain.chain(selected).all(|(scope, operator, values)| {
        let spec = pod.spec.as_ref();
        let terminating = spec.and_then(|spec| spec.active_deadline_seconds).is_some();
        let asks = |resources: Resources| resources.iter().next().is_some();
        let best_effort = !asks(resources::requests(pod)) && !asks(limits(pod));
        let class = spec.and_then(|spec| spec.priority_class_name.as_ref());
        match scope {
            "Terminating" => terminating,
            "NotTerminating" => !terminating,
            "BestEffort" => best_effort,
            "NotBestEffort" => !best_effort,
            "PriorityClass" => match operator {
                "In" => class.is_some_and(|class| values.contains(class)),
                "NotIn" => class.is_none_or(|class| !values.contains(class)),
                "DoesNotExist" => class.is_none(),
                _ => class.is_some(),
            },
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(phase: &str, cpu: &str) -> Pod {
        let resources = json!({"requests": {"cpu": cpu}, "limits": {"memory": "64Mi"}});
        let spec = json!({"containers": [{"name": "c", "resources": resources}]});
        serde_json::from_value(json!({"spec": spec, "status": {"phase": phase}})).unwrap()
    }

    #[test]
    fn pods_use_what_they_ask_for_while_they_run() {
        let mut usage = Usage::default();
        let quota = ResourceQuotaSpec::default();
        for pod in [pod("Running", "250m"), pod("Pending", "1"), pod("Succeeded", "1")] {
            usage.pod(&quota, &pod);
        }
        let text = |name: &str| usage.of(name).to_string();
        assert_eq!((text("count/pods"), text("pods")), ("3".into(), "2".into()));
        assert_eq!((text("cpu"), text("requests.cpu")), ("1250m".into(), "1250m".into()));
        assert_eq!(
            (text("limits.memory"), text("requests.memory")),
            ("128Mi".into(), "0".into())
        );
    }

    #[test]
    fn a_scope_leaves_pods_out() {
        let quota: ResourceQuotaSpec = serde_json::from_value(json!({"scopes": ["BestEffort"]})).unwrap();
        let mut usage = Usage::default();
        usage.pod(&quota, &pod("Running", "1"));
        assert_eq!(usage.of("pods").to_string(), "0");
        usage.pod(&quota, &Pod::default());
        assert_eq!(usage.of("pods").to_string(), "1");
    }

    #[test]
    fn other_kinds_are_counted_by_name() {
        assert_eq!(counted("pods"), None);
        assert_eq!(counted("count/services"), None);
        assert_eq!(counted("requests.cpu"), None);
        let counted = counted("count/deployments.apps").unwrap();
        assert_eq!(
            (counted.plural.as_str(), counted.group.as_str()),
            ("deployments", "apps")
        );
    }
}

//! Amounts of resources: what pods ask for and what nodes have.

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;
use stead_machinery::quantity::Quantity;

/// Amounts by name, in thousandths for processor and whole units for all else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources(BTreeMap<String, i64>);

impl Resources {
    /// The amounts of a resource list.
    pub fn of(list: Option<&BTreeMap<String, Text>>) -> Self {
        let amount = |(name, text): (&String, &Text)| {
            let quantity: Quantity = text.0.parse().ok()?;
            let amount = if name == "cpu" {
                quantity.milli_value()
            } else {
                quantity.value()
            };
            Some((name.clone(), amount))
        };
        Resources(list.into_iter().flatten().filter_map(amount).collect())
    }

    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub fn add(&mut self, other: &Resources) {
        for (name, amount) in &other.0 {
            *self.0.entry(name.clone()).or_default() += amount;
        }
    }

    pub fn subtract(&mut self, other: &Resources) {
        for (name, amount) in &other.0 {
            *self.0.entry(name.clone()).or_default() -= amount;
        }
    }

    /// For each name the larger of both.
    fn at_least(&mut self, other: &Resources) {
        for (name, amount) in &other.0 {
            let have = self.0.entry(name.clone()).or_default();
            *have = (*have).max(*amount);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }
}

/// What a container that asks for no processor time or memory is taken to use when nodes are compared, as in
/// Kubernetes: without it, all pods that ask for nothing would go to one node.
const USUAL: [(&str, i64); 2] = [("cpu", 100), ("memory", 200 << 20)];

/// What a pod is taken to use when nodes are compared.
pub fn weight(pod: &Pod) -> Resources {
    total(pod, |container| {
        let mut asked = asked(container);
        for (name, usual) in USUAL {
            asked.0.entry(name.to_string()).or_insert(usual);
        }
        asked
    })
}

/// What a pod asks for: its containers together, or its largest init container where that is more, and its overhead.
pub fn requests(pod: &Pod) -> Resources {
    total(pod, asked)
}

fn asked(container: &Container) -> Resources {
    Resources::of(container.resources.as_ref().and_then(|r| r.requests.as_ref()))
}

fn total(pod: &Pod, of: impl Fn(&Container) -> Resources) -> Resources {
    let Some(spec) = &pod.spec else {
        return Resources::default();
    };
    let mut sum = Resources::default();
    for container in &spec.containers {
        sum.add(&of(container));
    }
    // Init containers run one after the other, beside the sidecars that were started before them.
    let mut sidecars = Resources::default();
    let mut peak = Resources::default();
    for init in spec.init_containers.iter().flatten() {
        let mut during = of(init);
        during.add(&sidecars);
        peak.at_least(&during);
        if init.restart_policy.as_deref() == Some("Always") {
            sidecars.add(&of(init));
        }
    }
    sum.add(&sidecars);
    sum.at_least(&peak);
    sum.add(&Resources::of(spec.overhead.as_ref()));
    sum
}

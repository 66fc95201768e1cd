//! Which nodes a pod may run on. Pure.

pub mod affinity;
pub mod spread;
pub mod volumes;

use super::ledger::NodeInfo;
use super::resources::{self, Resources};
use affinity::Namespaces;
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};

/// Why a pod cannot run on a node, in Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason(pub String);

/// What has to be known of all nodes to judge one.
pub struct World<'a> {
    pub spread: spread::Spread,
    pub affinity: affinity::Affinity,
    /// What the pod's claims ask for.
    pub needs: &'a [volumes::Need],
    /// What the pod itself asks for.
    pub requests: Resources,
    ports: Vec<HostPort>,
    /// Whether one of its volumes is for one pod alone, and another pod has it.
    occupied: Option<Reason>,
}

impl<'a> World<'a> {
    pub fn new(
        pod: &'a Pod,
        nodes: impl Iterator<Item = &'a NodeInfo> + Clone,
        needs: &'a [volumes::Need],
        namespaces: &Namespaces,
    ) -> Self {
        World {
            spread: spread::Spread::new(pod, nodes.clone()),
            occupied: volumes::occupied(pod, needs, nodes.clone()),
            affinity: affinity::Affinity::new(pod, nodes, namespaces),
            needs,
            requests: resources::requests(pod),
            ports: host_ports(pod),
        }
    }

    /// Whether what is known of all nodes could be otherwise if pods went. What a single node has room for is not
    /// known here.
    pub fn rests_on_pods(&self) -> bool {
        self.occupied.is_some() || self.spread.has_limits() || !self.affinity.is_indifferent()
    }
}

/// Why a node does not do, and whether that could change if pods of it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reasons: Vec<Reason>,
    pub hope: Hope,
}

/// Whether a node could do if it had fewer pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hope {
    None,
    IfPodsGo,
}

impl Refusal {
    fn of(reason: Reason, hope: Hope) -> Self {
        Refusal {
            reasons: vec![reason],
            hope,
        }
    }
}

/// Whether the pod may run there, and every reason why not.
pub fn check(pod: &Pod, info: &NodeInfo, world: &World<'_>) -> Result<(), Refusal> {
    let Some(node) = &info.node else {
        return Err(Refusal::of(Reason("node(s) are unknown".to_string()), Hope::None));
    };
    // The first filter that refuses speaks for the node, as Kubernetes does it; only resources give several reasons.
    let first = unschedulable(pod, node)
        .or_else(|| named_otherwise(pod, node))
        .or_else(|| untolerated(pod, node))
        .or_else(|| affinity::node(pod, node));
    if let Some(reason) = first {
        return Err(Refusal::of(reason, Hope::None));
    }
    if let Some(reason) = ports_taken(&world.ports, info) {
        return Err(Refusal::of(reason, Hope::IfPodsGo));
    }
    insufficient(&world.requests, info)?;
    if let Some(reason) = world.occupied.clone() {
        return Err(Refusal::of(reason, Hope::IfPodsGo));
    }
    if let Some(reason) = volumes::check(world.needs, node) {
        return Err(Refusal::of(reason, Hope::None));
    }
    match world.spread.check(node).or_else(|| world.affinity.check(node)) {
        Some((reason, hope)) => Err(Refusal::of(reason, hope)),
        None => Ok(()),
    }
}

fn unschedulable(pod: &Pod, node: &Node) -> Option<Reason> {
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true) {
        return None;
    }
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_string(),
        effect: "NoSchedule".to_string(),
        ..Taint::default()
    };
    (!tolerates(pod, &taint)).then(|| Reason("node(s) were unschedulable".to_string()))
}

fn named_otherwise(pod: &Pod, node: &Node) -> Option<Reason> {
    let wanted = pod.spec.as_ref()?.node_name.as_ref()?;
    (node.metadata.name.as_ref() != Some(wanted))
        .then(|| Reason("node(s) didn't match the requested node name".to_string()))
}

fn untolerated(pod: &Pod, node: &Node) -> Option<Reason> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let bad = taints
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
        .any(|taint| !tolerates(pod, taint));
    bad.then(|| Reason("node(s) had untolerated taint(s)".to_string()))
}

/// Whether one of the pod's tolerations covers a taint.
pub fn tolerates(pod: &Pod, taint: &Taint) -> bool {
    pod.spec
        .iter()
        .flat_map(|spec| spec.tolerations.iter().flatten())
        .any(|toleration| covers(toleration, taint))
}

/// Whether a toleration covers a taint.
pub fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    let key = toleration.key.as_deref().unwrap_or_default();
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        _ => {
            !key.is_empty()
                && toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
    }
}

fn ports_taken(wanted: &[HostPort], info: &NodeInfo) -> Option<Reason> {
    let clash = !wanted.is_empty()
        && info
            .pods
            .values()
            .flat_map(|other| host_ports(other))
            .any(|taken| wanted.iter().any(|port| collide(port, &taken)));
    clash.then(|| Reason("node(s) didn't have free ports for the requested pod ports".to_string()))
}

type HostPort = (String, String, i32);

fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let containers = pod
        .spec
        .iter()
        .flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let address = port
                .host_ip
                .clone()
                .filter(|address| !address.is_empty())
                .unwrap_or_else(|| "0.0.0.0".to_string());
            Some((
                address,
                port.protocol.clone().unwrap_or_else(|| "TCP".to_string()),
                number,
            ))
        })
        .collect()
}

fn collide(a: &HostPort, b: &HostPort) -> bool {
    let everywhere = |address: &str| address == "0.0.0.0";
    a.1 == b.1 && a.2 == b.2 && (a.0 == b.0 || everywhere(&a.0) || everywhere(&b.0))
}

fn insufficient(requests: &Resources, info: &NodeInfo) -> Result<(), Refusal> {
    let mut refusal = Refusal {
        reasons: Vec::new(),
        hope: Hope::IfPodsGo,
    };
    let most = info.allocatable.get("pods");
    if most > 0 && i64::try_from(info.pods.len()).unwrap_or(i64::MAX) >= most {
        refusal.reasons.push(Reason("Too many pods".to_string()));
    }
    for (name, amount) in requests.iter() {
        let all = info.allocatable.get(name);
        if amount > 0 && all - info.requested.get(name) < amount {
            refusal.reasons.push(Reason(format!("Insufficient {name}")));
            if amount > all {
                // Not even an empty node would do.
                refusal.hope = Hope::None;
            }
        }
    }
    match refusal.reasons.is_empty() {
        true => Ok(()),
        false => Err(refusal),
    }
}

//! How a node makes itself known: its Node object and its Lease.
//!
//! The objects are built by pure functions; the agent writes them. A node that already exists (an agent that was
//! restarted) keeps what others put on it: taints, labels, annotations, its pod range.

use super::process::users::Known;
use super::status::whole_seconds;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// How often a node says that it lives.
pub const LEASE_RENEWAL: Duration = Duration::from_secs(10);
/// How long others believe it without a renewal.
const LEASE_SECONDS: i32 = 40;
/// How often an unchanged status is written again.
pub const STATUS_RENEWAL: Duration = Duration::from_secs(300);

/// One node as its operator describes it.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub name: String,
    pub role: Role,
    /// The value of `topology.kubernetes.io/zone`.
    pub zone: String,
    /// Where its pods are reached from outside and the agent's own server listens.
    pub address: IpAddr,
    /// The port of the agent's HTTPS server, if there is one.
    pub port: Option<u16>,
    pub capacity: Capacity,
    /// The range of its pods' addresses, if no other node of the cluster has it.
    pub pod_range: Option<String>,
    /// Words about what this node can and cannot do, shown in its conditions.
    pub isolation: Isolation,
}

/// What a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    ControlPlane,
    Worker,
    /// The only node: no role is shown.
    Only,
}

/// What pods may ask of a node.
#[derive(Clone, Debug)]
pub struct Capacity {
    pub cpus: u64,
    pub memory_bytes: u64,
    pub pods: u32,
    pub storage_bytes: u64,
}

/// What keeps pods apart from each other and from the machine.
#[derive(Clone, Debug, Default)]
pub struct Isolation {
    pub ground: Ground,
    /// Who exists here beside the user, on a [`Ground::UserRange`].
    pub known: Known,
    /// Resources whose limits are not enforced.
    pub unlimited: Vec<&'static str>,
    /// A sentence about the network of pods.
    pub network: String,
    /// A sentence about limits of memory and processor.
    pub limits: String,
}

/// What pods stand on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ground {
    /// Namespaces that root has made, or none are needed.
    #[default]
    Namespaces,
    /// Namespaces that an ordinary user has made, as root of a user namespace.
    UserNamespace,
    /// The same, with a range of users beside his own.
    UserRange,
    /// Nothing of their own.
    Machine,
}

impl Ground {
    /// What that means for pods, in sentences for people.
    pub fn describe(self) -> &'static str {
        match self {
            Ground::Namespaces => "Pods have network namespaces of their own.",
            Ground::UserNamespace => {
                "Pods have namespaces of their own, made by an ordinary user: all files of a container are one user's, \
                 whatever it runs as, and no process can become another user."
            }
            Ground::UserRange => {
                "Pods have namespaces of their own, made by an ordinary user, with the users that /etc/subuid gives to him."
            }
            Ground::Machine => {
                "Pods share the machine's network, one loopback address each: two pods cannot both listen on all \
                 addresses of one port, cluster addresses of Services are not reachable, and volumes are not mounted. \
                 Files, processes and the user are the machine's."
            }
        }
    }
}

impl Capacity {
    /// The capacity of a hollow node: as large as a usual cloud machine with the highest usual number of pods.
    pub fn hollow() -> Capacity {
        Capacity {
            cpus: 32,
            memory_bytes: 256 << 30,
            pods: 250,
            storage_bytes: 1 << 40,
        }
    }

    fn quantities(&self) -> BTreeMap<String, Quantity> {
        [
            ("cpu", self.cpus.to_string()),
            ("memory", format!("{}Ki", self.memory_bytes >> 10)),
            ("ephemeral-storage", format!("{}Ki", self.storage_bytes >> 10)),
            ("hugepages-1Gi", "0".to_owned()),
            ("hugepages-2Mi", "0".to_owned()),
            ("pods", self.pods.to_string()),
        ]
        .into_iter()
        .map(|(name, amount)| (name.to_owned(), Quantity(amount)))
        .collect()
    }
}

/// The labels that the agent keeps on its node.
fn labels(config: &NodeConfig) -> BTreeMap<String, String> {
    let arch = architecture().to_owned();
    [
        ("kubernetes.io/hostname", config.name.clone()),
        ("kubernetes.io/os", "linux".to_owned()),
        ("kubernetes.io/arch", arch.clone()),
        ("beta.kubernetes.io/os", "linux".to_owned()),
        ("beta.kubernetes.io/arch", arch),
        ("topology.kubernetes.io/region", "local".to_owned()),
        ("topology.kubernetes.io/zone", config.zone.clone()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// The label that says what the node is for, as a patch.
pub fn role_patch(config: &NodeConfig) -> Option<serde_json::Value> {
    let role = match config.role {
        Role::ControlPlane => "node-role.kubernetes.io/control-plane",
        Role::Worker => "node-role.kubernetes.io/worker",
        Role::Only => return None,
    };
    Some(serde_json::json!({ "metadata": { "labels": { role: "" } } }))
}

/// The range of the node's pods as a patch, unless the node has one: it never changes.
pub fn range_patch(config: &NodeConfig, node: &Node) -> Option<serde_json::Value> {
    let range = config.pod_range.as_ref()?;
    let known = node.spec.as_ref().and_then(|spec| spec.pod_cidr.as_ref());
    known
        .is_none()
        .then(|| serde_json::json!({ "spec": { "podCIDR": range, "podCIDRs": [range] } }))
}

/// The processor's name as Go spells it.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The Node object to create.
pub fn node(config: &NodeConfig, runtime: &'static str, now: Timestamp) -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some(config.name.clone()),
            labels: Some(labels(config)),
            annotations: Some(BTreeMap::from([(
                "volumes.kubernetes.io/controller-managed-attach-detach".to_owned(),
                "true".to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        spec: None,
        status: Some(status(config, runtime, None, now)),
    }
}

/// The node's status, keeping the transition times of `old`.
pub fn status(config: &NodeConfig, runtime: &'static str, old: Option<&NodeStatus>, now: Timestamp) -> NodeStatus {
    let capacity = config.capacity.quantities();
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        let before = old.iter().flat_map(|old| old.conditions.iter().flatten());
        let since = before
            .filter(|condition| condition.type_ == type_ && condition.status == status)
            .find_map(|condition| condition.last_transition_time.clone());
        NodeCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(whole_seconds(now)),
            last_transition_time: since.or_else(|| Some(whole_seconds(now))),
        }
    };
    let ready = format!(
        "stead node agent is posting ready status. {} {}",
        config.isolation.network, config.isolation.limits
    );
    let uname = nix::sys::utsname::uname().ok();
    let of_uname = |part: fn(&nix::sys::utsname::UtsName) -> &std::ffi::OsStr| {
        let text = uname.as_ref().map(part).unwrap_or_default();
        text.to_string_lossy().into_owned()
    };
    NodeStatus {
        addresses: Some(vec![
            NodeAddress {
                type_: "InternalIP".to_owned(),
                address: config.address.to_string(),
            },
            NodeAddress {
                type_: "Hostname".to_owned(),
                address: config.name.clone(),
            },
        ]),
        allocatable: Some(capacity.clone()),
        capacity: Some(capacity),
        conditions: Some(vec![
            condition(
                "MemoryPressure",
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ),
            condition(
                "DiskPressure",
                "False",
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure",
            ),
            condition(
                "PIDPressure",
                "False",
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
            ),
            condition("Ready", "True", "KubeletReady", ready.trim()),
        ]),
        daemon_endpoints: config.port.map(|port| NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(port) }),
        }),
        node_info: Some(NodeSystemInfo {
            architecture: architecture().to_owned(),
            operating_system: "linux".to_owned(),
            os_image: "Stead".to_owned(),
            kernel_version: of_uname(nix::sys::utsname::UtsName::release),
            machine_id: config.name.clone(),
            system_uuid: config.name.clone(),
            boot_id: config.name.clone(),
            container_runtime_version: format!("{runtime}://{}", env!("CARGO_PKG_VERSION")),
            kubelet_version: concat!("v1.36.4+stead-", env!("CARGO_PKG_VERSION")).to_owned(),
            kube_proxy_version: String::new(),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

/// The labels as a patch, for a node that exists already.
pub fn label_patch(config: &NodeConfig) -> serde_json::Value {
    serde_json::json!({ "metadata": { "labels": labels(config) } })
}

/// The node's Lease.
pub fn lease(config: &NodeConfig, uid: &str, now: Timestamp) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(config.name.clone()),
            namespace: Some("kube-node-lease".to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: config.name.clone(),
                uid: uid.to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(lease_spec(&config.name, now)),
    }
}

/// What the Lease of a node says that lives.
pub fn lease_spec(node: &str, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(node.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(now)),
        ..LeaseSpec::default()
    }
}

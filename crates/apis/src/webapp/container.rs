//! The container of a WebApp: ports, files, probes, security.

use k8s_openapi::api::core::v1::Probe;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A port that the application listens on.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// Its name, unique among the ports: lower case letters, digits and dashes, at most 15.
    #[schemars(length(min = 1, max = 15))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$') && self.matches('[a-z]')")
        .message("a port's name holds lower case letters, digits and dashes, and at least one letter"))]
    pub name: String,

    /// The port on which the container listens.
    #[schemars(range(min = 1, max = 65535))]
    pub container_port: i32,

    /// The port on which the Service offers it. Without it: 80 for the first port, else the container's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub service_port: Option<i32>,

    /// The protocol.
    #[serde(default)]
    pub protocol: Protocol,
}

/// What is said of two ports that are one.
pub(super) const LISTENED_TWICE: &str = "another port has this number and protocol; name it once";

/// The port of an application that names none, and of its Service.
pub const DEFAULT_PORT: i32 = 80;

impl Port {
    /// The port on which the Service offers it, as the so-many-th of all ports.
    pub fn offered_as(&self, index: usize) -> i32 {
        let usual = if index == 0 { DEFAULT_PORT } else { self.container_port };
        self.service_port.unwrap_or(usual)
    }
}

/// Protocols that a Service can carry.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    #[default]
    TCP,
    UDP,
    SCTP,
}

/// A file with its content.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Where it appears in the container: an absolute path.
    #[schemars(length(min = 2, max = 1024))]
    #[x_kube(validation = Rule::new("self.startsWith('/') && !self.endsWith('/') && !self.contains('/../')")
        .message("give an absolute path of a file, such as /etc/app/config.yaml"))]
    pub path: String,

    /// What it holds.
    #[schemars(length(max = 262144))]
    pub content: String,
}

/// How the application's state is known.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Probes {
    /// Has it started? Until it has, the other two wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<Probe>,

    /// Can it serve? Without one, a connection to its first port is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Probe>,

    /// Is it alive? It is restarted when it is not. There is none by default: a bad one does more harm than good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness: Option<Probe>,
}

/// What the application's processes may do.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Security {
    /// `Default` forbids what no common image needs; `Restricted` is Kubernetes' restricted Pod Security Standard;
    /// `Off` sets nothing.
    #[serde(default)]
    pub profile: Profile,

    /// The numeric user that its processes run as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4294967295i64))]
    pub run_as_user: Option<i64>,

    /// The group that owns its volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4294967295i64))]
    pub fs_group: Option<i64>,

    /// Whether the container's own file system is read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only_root_filesystem: Option<bool>,

    /// Whether the token of its service account is mounted. It is not unless this says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automount_service_account_token: Option<bool>,
}

/// How far processes are confined.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// No privilege escalation, the runtime's seccomp profile: nothing that breaks a common image.
    #[default]
    Default,
    /// The restricted Pod Security Standard: not as root, no capabilities.
    Restricted,
    /// Nothing is set.
    Off,
}

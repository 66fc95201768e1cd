//! The upstream programs that tests compare with or drive: where they are, and what to say when they are not.

use std::path::PathBuf;

/// The Kubernetes release whose schemas we embed and whose binaries judge us.
pub const KUBERNETES_VERSION: &str = "v1.36.4";
/// The etcd release under it.
pub const ETCD_VERSION: &str = "v3.6.16";
/// The Helm release that installs charts on us.
pub const HELM_VERSION: &str = "v4.3.1";

/// The release of Prometheus whose promtool checks our rules.
pub const PROMTOOL_VERSION: &str = "v0.315.0";

/// A program that `cargo xtask kubernetes` provides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// The API server.
    KubeApiserver,
    /// The controllers.
    KubeControllerManager,
    /// The scheduler.
    KubeScheduler,
    /// The command line.
    Kubectl,
    /// The store under the API server.
    Etcd,
    /// Its command line.
    Etcdctl,
    /// Helm.
    Helm,
    /// Prometheus' own check of rules.
    Promtool,
}

/// A program is not there. Tests print it as `skipped: ...`.
#[derive(Debug, thiserror::Error)]
#[error("no real Kubernetes: {name} is not at {path}; `cargo xtask kubernetes {name}` builds it", path = path.display())]
pub struct Missing {
    name: &'static str,
    path: PathBuf,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::KubeApiserver => "kube-apiserver",
            Tool::KubeControllerManager => "kube-controller-manager",
            Tool::KubeScheduler => "kube-scheduler",
            Tool::Kubectl => "kubectl",
            Tool::Etcd => "etcd",
            Tool::Etcdctl => "etcdctl",
            Tool::Helm => "helm",
            Tool::Promtool => "promtool",
        }
    }

    fn folder(self) -> String {
        match self {
            Tool::Etcd | Tool::Etcdctl => format!("etcd-{ETCD_VERSION}"),
            Tool::Helm => format!("helm-{HELM_VERSION}"),
            Tool::Promtool => format!("promtool-{PROMTOOL_VERSION}"),
            _ => format!("kubernetes-{KUBERNETES_VERSION}"),
        }
    }

    /// The program's path. It is only looked for: building is the chore's work, never a test's.
    pub fn find(self) -> Result<PathBuf, Missing> {
        let path = cache().join(self.folder()).join(self.name());
        if path.exists() {
            Ok(path)
        } else {
            Err(Missing {
                name: self.name(),
                path,
            })
        }
    }
}

/// Where the programs are kept, outside any work tree: `$STEAD_TOOLS`, else the user's cache directory.
pub fn cache() -> PathBuf {
    if let Some(tools) = std::env::var_os("STEAD_TOOLS") {
        return tools.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache"));
    cache.join("stead/tools")
}

//! `cargo xtask kubernetes`: the real control plane and its tools, built from the Go module registry.
//!
//! Nothing is downloaded as a binary. Each program is built once, when something first asks for it, and kept
//! outside the work tree by version, so that the second time takes no time.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

const KUBERNETES: &str = "v1.36.4";
const ETCD: &str = "v3.6.16";
const HELM: &str = "v4.3.1";
const PROMTOOL: &str = "v0.315.0";

/// A program that we build from upstream's own sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    pub name: &'static str,
    /// Its directory in the cache: product and version.
    product: Product,
    /// The Go package to build.
    package: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Product {
    Kubernetes,
    Etcd,
    Helm,
    Promtool,
}

pub const TOOLS: &[Tool] = &[
    Tool {
        name: "kubectl",
        product: Product::Kubernetes,
        package: "k8s.io/kubernetes/cmd/kubectl",
    },
    Tool {
        name: "etcd",
        product: Product::Etcd,
        package: "go.etcd.io/etcd/server/v3",
    },
    Tool {
        name: "etcdctl",
        product: Product::Etcd,
        package: "go.etcd.io/etcd/etcdctl/v3",
    },
    Tool {
        name: "etcdutl",
        product: Product::Etcd,
        package: "go.etcd.io/etcd/etcdutl/v3",
    },
    Tool {
        name: "kube-apiserver",
        product: Product::Kubernetes,
        package: "k8s.io/kubernetes/cmd/kube-apiserver",
    },
    Tool {
        name: "kube-controller-manager",
        product: Product::Kubernetes,
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
    },
    Tool {
        name: "kube-scheduler",
        product: Product::Kubernetes,
        package: "k8s.io/kubernetes/cmd/kube-scheduler",
    },
    Tool {
        name: "ginkgo",
        product: Product::Kubernetes,
        package: "github.com/onsi/ginkgo/v2/ginkgo",
    },
    Tool {
        name: "e2e.test",
        product: Product::Kubernetes,
        package: "k8s.io/kubernetes/test/e2e",
    },
    Tool {
        name: "helm",
        product: Product::Helm,
        package: "helm.sh/helm/v4/cmd/helm",
    },
    Tool {
        name: "promtool",
        product: Product::Promtool,
        package: "github.com/prometheus/prometheus/cmd/promtool",
    },
];

/// What the story suite on the real control plane needs.
pub const CONTROL_PLANE: &[&str] = &[
    "kubectl",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "promtool",
];

/// Builds what is asked for (everything but the optional tools when nothing is named) and prints where it is.
pub fn run(names: &[String]) -> Result<()> {
    let wanted: Vec<&str> = if names.is_empty() {
        TOOLS
            .iter()
            .filter(|t| matches!(t.product, Product::Kubernetes | Product::Etcd))
            .map(|t| t.name)
            .collect()
    } else {
        names.iter().map(String::as_str).collect()
    };
    for name in wanted {
        println!("{}", ensure(name)?.display());
    }
    Ok(())
}

/// The path of a program, built now if it is not there yet.
pub fn ensure(name: &str) -> Result<PathBuf> {
    let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else {
        let known: Vec<_> = TOOLS.iter().map(|tool| tool.name).collect();
        bail!("no tool {name:?}; there are {}", known.join(", "));
    };
    let path = tool.path()?;
    if !path.exists() {
        tool.build(&path)
            .with_context(|| format!("no real Kubernetes: {name} cannot be built"))?;
    }
    Ok(path)
}

impl Tool {
    /// Where the program is, or will be.
    pub fn path(&self) -> Result<PathBuf> {
        let folder = match self.product {
            Product::Kubernetes => format!("kubernetes-{KUBERNETES}"),
            Product::Etcd => format!("etcd-{ETCD}"),
            Product::Helm => format!("helm-{HELM}"),
            Product::Promtool => format!("promtool-{PROMTOOL}"),
        };
        Ok(cache()?.join(folder).join(self.name))
    }

    fn build(&self, path: &PathBuf) -> Result<()> {
        let go = Command::new("go").arg("version").output();
        if !go.is_ok_and(|output| output.status.success()) {
            bail!("no Go toolchain on the PATH; install Go 1.26 or newer");
        }
        let folder = path.parent().context("the cache has a parent directory")?;
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        eprintln!(
            "building {} from the Go module registry (once; kept in {})",
            self.name,
            folder.display()
        );
        let started = Instant::now();
        // Built beside the final name and renamed, so that a build that is cut short leaves nothing that looks done.
        let unfinished = folder.join(format!(".{}-{}", self.name, std::process::id()));
        let mut command = self.command(&unfinished);
        let status = command.env("CGO_ENABLED", "0").status().context("running go")?;
        if !status.success() {
            bail!("`go` failed with {status}; is the Go module registry reachable?");
        }
        std::fs::rename(&unfinished, path).context("putting the finished program in place")?;
        eprintln!("built {} in {} s", self.name, started.elapsed().as_secs());
        Ok(())
    }

    fn command(&self, output: &PathBuf) -> Command {
        let mut command = Command::new("go");
        let verb: &[&str] = if self.name == "e2e.test" {
            &["test", "-c"]
        } else {
            &["build"]
        };
        match self.product {
            Product::Kubernetes => {
                command
                    .current_dir("tools/kubernetes")
                    .args(verb)
                    .args(["-tags", "tools", "-trimpath"]);
                command.arg("-ldflags").arg(version_stamps());
            }
            Product::Etcd => {
                command
                    .current_dir("tools/etcd")
                    .args(verb)
                    .args(["-trimpath", "-ldflags", "-s -w"]);
            }
            Product::Helm | Product::Promtool => {
                command
                    .current_dir("tools/extras")
                    .args(verb)
                    .args(["-tags", "tools", "-trimpath"]);
                command.args(["-ldflags", "-s -w"]);
            }
        }
        command.arg("-o").arg(output).arg(self.package);
        command
    }
}

/// Without these stamps the programs report a version that clients cannot parse.
fn version_stamps() -> String {
    let minor = KUBERNETES.split('.').nth(1).unwrap_or_default();
    let mut flags = String::from("-s -w");
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        flags.push_str(&format!(" -X {package}.gitVersion={KUBERNETES}"));
        flags.push_str(&format!(" -X {package}.gitMajor=1 -X {package}.gitMinor={minor}"));
    }
    flags
}

/// `$STEAD_TOOLS`, else a directory of the user's cache: the place where the test crate looks too.
fn cache() -> Result<PathBuf> {
    if let Some(tools) = std::env::var_os("STEAD_TOOLS") {
        return Ok(tools.into());
    }
    let cache = match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(cache.join("stead/tools"))
}

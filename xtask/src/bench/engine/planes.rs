//! The two clusters: started with their nodes, and ready to be given work.

use super::{NAMESPACE, Nodes, join};
use crate::bench::http::Connection;
use crate::bench::servers::{self, Server};
use crate::kubernetes as tools;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long nodes, and the account that pods need, may take to be there.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks.
const GLANCE: Duration = Duration::from_millis(50);
/// The limits of the real parts' clients: high enough never to hold them up.
const REQUESTS_A_SECOND: &str = "10000";

/// Ours: all parts in one process.
pub fn stead(program: &Path, nodes: Nodes) -> Result<Server> {
    let count = nodes.count();
    let nodes_argument = count.to_string();
    let mut arguments = vec!["--nodes", nodes_argument.as_str()];
    if let Nodes::Hollow(_) = nodes {
        arguments.extend(["--runtime", "hollow", "--parts", "api,controllers,scheduler,nodes"]);
    }
    let server = servers::stead(program, &arguments)?;
    prepare(&server, count)?;
    Ok(server)
}

/// The real one, with hollow nodes of ours.
pub fn kubernetes(program: &Path, nodes: Nodes) -> Result<Server> {
    let mut server = servers::kubernetes()?;
    let folder = server.directory().to_path_buf();
    let kubeconfig = folder.join("kubeconfig");
    for name in ["kube-controller-manager", "kube-scheduler"] {
        let mut command = Command::new(tools::ensure(name)?);
        command
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(["--leader-elect=false", "--secure-port=0"])
            .args([
                "--kube-api-qps",
                REQUESTS_A_SECOND,
                "--kube-api-burst",
                REQUESTS_A_SECOND,
            ]);
        if name == "kube-controller-manager" {
            command
                .arg("--service-account-private-key-file")
                .arg(folder.join("service-accounts.key"));
        }
        server.extend(name, &mut command)?;
    }
    server.accompany("nodes", &mut join(program, &kubeconfig, nodes.count()))?;
    prepare(&server, nodes.count())?;
    Ok(server)
}

impl Nodes {
    fn count(self) -> usize {
        match self {
            Nodes::Three => 3,
            Nodes::Hollow(count) => count,
        }
    }
}

/// Makes the namespace, and waits until a pod that is created could be bound.
fn prepare(server: &Server, nodes: usize) -> Result<()> {
    let mut connection = server.target.connect()?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    connection.expect("POST", "/api/v1/namespaces", namespace.to_string().as_bytes())?;
    let account = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default");
    until("the namespace has its account", || {
        Ok(connection.call("GET", &account, b"")?.status == 200)
    })?;
    until("all nodes are ready", || Ok(ready_nodes(&mut connection)? >= nodes))
}

fn ready_nodes(connection: &mut Connection) -> Result<usize> {
    let body = connection.expect("GET", "/api/v1/nodes", b"")?;
    let list: Value = serde_json::from_slice(&body)?;
    let nodes = list["items"].as_array().context("a list has items")?;
    let tainted = |node: &Value| {
        node["spec"]["taints"]
            .as_array()
            .is_some_and(|taints| !taints.is_empty())
    };
    let ready = nodes.iter().filter(|node| is_ready(node) && !tainted(node));
    Ok(ready.count())
}

/// Whether a node or a pod says that it is ready.
pub fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Waits until something is so.
pub fn until(what: &str, mut so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !so()? {
        if Instant::now() > deadline {
            bail!("not in time: {what}");
        }
        std::thread::sleep(GLANCE);
    }
    Ok(())
}

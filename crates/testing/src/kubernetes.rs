//! The real control plane on loopback: etcd, kube-apiserver, controller manager and scheduler.
//!
//! Every instance has its own directory, certificates and ports, so many run side by side, and nothing of
//! it outlives the test. Nodes are not part of it; Stead's node agents join it as ordinary clients.

mod certificates;

use crate::children::{Process, Program};
use crate::tools::{Missing, Tool};
use crate::wait::{self, TimedOut};
use certificates::Certificates;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// kube-apiserver refuses a loopback address for its own Endpoints; nothing ever connects to this one.
const ADVERTISED: &str = "198.18.255.254";
/// A /16: with 254 addresses a busy suite fills the range.
const SERVICE_RANGE: &str = "10.96.0.0/16";
/// A port can be taken between choosing and binding it; then everything starts again on others.
const ATTEMPTS: usize = 5;
const START_LIMIT: Duration = Duration::from_secs(90);

/// Which parts of the control plane run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// etcd and kube-apiserver.
    Api,
    /// The controller manager and the scheduler as well.
    All,
}

/// A running control plane; dropping it ends it.
#[derive(Debug)]
pub struct Kubernetes {
    directory: tempfile::TempDir,
    server: String,
    processes: Vec<Process>,
}

/// Why the control plane could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A program is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// Files or ports could not be had.
    #[error("cannot prepare the control plane: {0}")]
    Prepare(#[from] std::io::Error),
    /// Certificates could not be made.
    #[error("cannot make certificates: {0}")]
    Certificates(#[from] rcgen::Error),
    /// It runs and does not answer.
    #[error("the control plane did not become ready: {0}")]
    NotReady(#[from] TimedOut),
    /// One of its programs ended; the end of its log says why.
    #[error("a program of the control plane {0}")]
    Ended(String),
    /// Its kubeconfig cannot be used.
    #[error("cannot make a client: {0}")]
    Client(String),
}

impl Kubernetes {
    /// Starts the control plane and waits until it answers.
    pub async fn start(parts: Parts) -> Result<Self, StartError> {
        for tool in [
            Tool::Etcd,
            Tool::KubeApiserver,
            Tool::KubeControllerManager,
            Tool::KubeScheduler,
        ] {
            tool.find()?;
        }
        let mut attempt = 1;
        loop {
            match Self::attempt(parts).await {
                Err(StartError::Ended(how)) if how.contains("address already in use") && attempt < ATTEMPTS => {
                    attempt += 1
                }
                other => return other,
            }
        }
    }

    async fn attempt(parts: Parts) -> Result<Self, StartError> {
        let directory = tempfile::Builder::new().prefix("stead-kubernetes-").tempdir()?;
        let certificates = Certificates::write(directory.path())?;
        let [client_port, peer_port, api_port] = free_ports()?;
        let server = format!("https://127.0.0.1:{api_port}");
        certificates.write_kubeconfig(&directory.path().join("kubeconfig"), &server)?;
        let mut cluster = Kubernetes {
            directory,
            server,
            processes: Vec::new(),
        };
        cluster.run(Tool::Etcd, &etcd_arguments(cluster.path(), client_port, peer_port))?;
        cluster.run(
            Tool::KubeApiserver,
            &apiserver_arguments(cluster.path(), client_port, api_port),
        )?;
        cluster.wait_until_ready().await?;
        if parts == Parts::All {
            cluster.run(
                Tool::KubeControllerManager,
                &controller_manager_arguments(cluster.path()),
            )?;
            cluster.run(Tool::KubeScheduler, &scheduler_arguments(cluster.path()))?;
        }
        Ok(cluster)
    }

    /// A kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path().join("kubeconfig")
    }

    /// `https://127.0.0.1:PORT`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// What each request did, one `audit.k8s.io/v1` Event a line.
    pub fn audit_log(&self) -> PathBuf {
        self.path().join("audit.log")
    }

    /// A client with the administrator's rights.
    pub async fn client(&self) -> Result<kube::Client, StartError> {
        client_for(&self.kubeconfig()).await
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn run(&mut self, tool: Tool, arguments: &[String]) -> Result<(), StartError> {
        let path = tool.find()?;
        let name = path.file_name().map(OsString::from).unwrap_or_default();
        let log = self.path().join(name).with_extension("log");
        let arguments = arguments.iter().map(OsString::from).collect();
        self.processes.push(Process::start(Program {
            path,
            arguments,
            environment: Vec::new(),
            log,
        })?);
        Ok(())
    }

    async fn wait_until_ready(&mut self) -> Result<(), StartError> {
        let kubeconfig = self.kubeconfig();
        let processes = std::sync::Mutex::new(&mut self.processes);
        wait::until("kube-apiserver answers", START_LIMIT, || async {
            let ended = processes
                .lock()
                .map(|mut all| all.iter_mut().find_map(|p| p.check().err()));
            if let Ok(Some(how)) = ended {
                return Ok(Err(how));
            }
            ready(&kubeconfig).await.map(Ok)
        })
        .await?
        .map_err(StartError::Ended)
    }
}

/// A client for a kubeconfig file.
pub async fn client_for(kubeconfig: &Path) -> Result<kube::Client, StartError> {
    let failed = |error: &dyn std::error::Error| StartError::Client(error.to_string());
    let file = kube::config::Kubeconfig::read_from(kubeconfig).map_err(|e| failed(&e))?;
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default())
        .await
        .map_err(|e| failed(&e))?;
    kube::Client::try_from(config).map_err(|e| failed(&e))
}

async fn ready(kubeconfig: &Path) -> Result<(), String> {
    let client = client_for(kubeconfig).await.map_err(|e| e.to_string())?;
    let request = http::Request::get("/readyz")
        .body(Vec::new())
        .map_err(|e| e.to_string())?;
    client.request_text(request).await.map(drop).map_err(|e| e.to_string())
}

fn free_ports<const N: usize>() -> std::io::Result<[u16; N]> {
    let mut ports = [0; N];
    // All are held at once, so that no two are the same.
    let mut held = Vec::with_capacity(N);
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

fn etcd_arguments(directory: &Path, client_port: u16, peer_port: u16) -> Vec<String> {
    let client = format!("http://127.0.0.1:{client_port}");
    let peer = format!("http://127.0.0.1:{peer_port}");
    vec![
        format!("--data-dir={}", directory.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--log-level=warn".to_string(),
    ]
}

fn apiserver_arguments(directory: &Path, etcd_port: u16, port: u16) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    // Metadata of every request, so that a test can ask who wrote what.
    let policy =
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";
    let written = std::fs::write(directory.join("audit-policy.yaml"), policy);
    let mut arguments = vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        "--bind-address=127.0.0.1".to_string(),
        format!("--secure-port={port}"),
        format!("--advertise-address={ADVERTISED}"),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--authorization-mode=Node,RBAC".to_string(),
        "--allow-privileged=true".to_string(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_string(),
        format!("--service-account-signing-key-file={}", file("service-account.key")),
        format!("--service-account-key-file={}", file("service-account.pub")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--kubelet-client-certificate={}", file("admin.crt")),
        format!("--kubelet-client-key={}", file("admin.key")),
        "--kubelet-preferred-address-types=InternalIP".to_string(),
    ];
    if written.is_ok() {
        arguments.push(format!("--audit-policy-file={}", file("audit-policy.yaml")));
        arguments.push(format!("--audit-log-path={}", file("audit.log")));
    }
    arguments
}

fn controller_manager_arguments(directory: &Path) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    vec![
        format!("--kubeconfig={}", file("kubeconfig")),
        "--leader-elect=false".to_string(),
        "--secure-port=0".to_string(),
        "--use-service-account-credentials=true".to_string(),
        "--kube-api-qps=1000".to_string(),
        "--kube-api-burst=2000".to_string(),
        format!("--service-account-private-key-file={}", file("service-account.key")),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--cluster-signing-cert-file={}", file("ca.crt")),
        format!("--cluster-signing-key-file={}", file("ca.key")),
    ]
}

fn scheduler_arguments(directory: &Path) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", directory.join("kubeconfig").display()),
        "--leader-elect=false".to_string(),
        "--secure-port=0".to_string(),
        "--kube-api-qps=1000".to_string(),
        "--kube-api-burst=2000".to_string(),
    ]
}

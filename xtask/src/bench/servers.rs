//! The two servers: started, measured from outside, ended.

use super::http::{Credentials, Target};
use crate::kubernetes;
use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(120);

/// Between two looks at a server that is starting.
const GLANCE: Duration = Duration::from_millis(2);

/// How long a server is left alone before its idle memory is read.
const SETTLE: Duration = Duration::from_secs(5);

/// A running server, possibly of several processes.
pub struct Server {
    pub target: Target,
    /// From the start of the first process to the first answer that it is ready.
    pub ready: Duration,
    /// Resident bytes some seconds later.
    pub idle: u64,
    running: Running,
}

/// Processes and their directory. They end with the value, also where a start fails half-way.
struct Running {
    processes: Vec<Child>,
    /// Needed beside them, and not measured.
    companions: Vec<Child>,
    directory: PathBuf,
    /// What clears away the pods that outlive the first process.
    clearing: Option<Command>,
}

impl Server {
    /// Seconds of processor time that its processes have used so far.
    pub fn processor(&self) -> Result<f64> {
        let mut ticks = 0;
        for process in &self.running.processes {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id()))?;
            // The name in brackets may hold spaces; behind it the fields are plain.
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            let field = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok());
            ticks += field(11).context("no utime")? + field(12).context("no stime")?;
        }
        // Linux counts these in hundredths of a second on every architecture that we run on.
        Ok(ticks as f64 / 100.0)
    }

    /// Resident bytes now.
    pub fn memory(&self) -> Result<u64> {
        self.status("VmRSS:")
    }

    /// The most resident bytes since `forget_peak`.
    pub fn peak(&self) -> Result<u64> {
        self.status("VmHWM:")
    }

    pub fn forget_peak(&self) -> Result<()> {
        for process in &self.running.processes {
            std::fs::write(format!("/proc/{}/clear_refs", process.id()), "5")?;
        }
        Ok(())
    }

    fn status(&self, field: &str) -> Result<u64> {
        let mut bytes = 0;
        for process in &self.running.processes {
            let status = std::fs::read_to_string(format!("/proc/{}/status", process.id()))?;
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            bytes += kibibytes.context("no memory in /proc")? * 1024;
        }
        Ok(bytes)
    }

    /// Starts another process that belongs to it, and is measured with it.
    pub fn extend(&mut self, name: &str, command: &mut Command) -> Result<()> {
        let log = std::fs::File::create(self.directory().join(format!("{name}.log")))?;
        let process = command.stdout(Stdio::null()).stderr(log).spawn();
        let process = process.with_context(|| format!("starting {name}"))?;
        self.running.processes.push(process);
        Ok(())
    }

    /// Starts a process that it needs, and that is not measured.
    pub fn accompany(&mut self, name: &str, command: &mut Command) -> Result<()> {
        self.extend(name, command)?;
        self.running.companions.extend(self.running.processes.pop());
        Ok(())
    }

    /// Where it keeps its files.
    pub fn directory(&self) -> &Path {
        &self.running.directory
    }

    fn settle(mut self) -> Result<Server> {
        std::thread::sleep(SETTLE);
        self.idle = self.memory()?;
        Ok(self)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for process in self.companions.iter_mut().chain(&mut self.processes) {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
        if let Some(clearing) = &mut self.clearing {
            let _ = clearing.status();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Our own with these arguments, on a data directory of its own.
pub fn stead(program: &Path, arguments: &[&str]) -> Result<Server> {
    let directory = directory("stead")?;
    let data = directory.join("data");
    let mut clearing = Command::new(program);
    clearing.args(["down", "--data"]).arg(&data).stderr(Stdio::null());
    let started = Instant::now();
    let mut process = Command::new(program)
        .arg("up")
        .args(arguments)
        .arg("--data")
        .arg(&data)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("starting stead")?;
    let lines = BufReader::new(process.stdout.take().context("its output is a pipe")?).lines();
    let mut lines = lines.map_while(Result::ok);
    let kubeconfig = lines.find_map(|line| line.strip_prefix("ready ").map(str::to_string));
    let processes = vec![process];
    let running = Running {
        processes,
        companions: Vec::new(),
        directory,
        clearing: Some(clearing),
    };
    let Some(kubeconfig) = kubeconfig else {
        bail!("stead ended before it was ready");
    };
    let target = from_kubeconfig(&std::fs::read_to_string(&kubeconfig)?)?;
    wait_until_ready(&target)?;
    let server = Server {
        target,
        ready: started.elapsed(),
        idle: 0,
        running,
    };
    server.settle()
}

/// The program to measure: the given one, or one that is built for release now.
pub fn program(given: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(given) = given {
        return Ok(given);
    }
    let built = Command::new("cargo")
        .args(["build", "--release", "--bin", "stead"])
        .status()?;
    if !built.success() {
        bail!("the release build failed");
    }
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    Ok(Path::new(&target).join("release/stead"))
}

/// The real one with a real etcd, both with their defaults of durability.
pub fn kubernetes() -> Result<Server> {
    let (etcd, apiserver) = (kubernetes::ensure("etcd")?, kubernetes::ensure("kube-apiserver")?);
    let directory = directory("kubernetes")?;
    let [client, peer, secure] = free_ports()?;
    let key = rcgen::KeyPair::generate()?;
    std::fs::write(directory.join("service-accounts.key"), key.serialize_pem())?;
    std::fs::write(directory.join("service-accounts.pub"), key.public_key_pem())?;
    std::fs::write(directory.join("tokens.csv"), "bench,bench,bench,system:masters\n")?;
    std::fs::write(directory.join("kubeconfig"), kubeconfig_of(secure))?;
    let log = directory.join("kube-apiserver.log");
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let started = Instant::now();
    let etcd = Command::new(etcd)
        .arg("--data-dir")
        .arg(directory.join("etcd"))
        .args([
            "--listen-client-urls",
            &url(client),
            "--advertise-client-urls",
            &url(client),
        ])
        .args([
            "--listen-peer-urls",
            &url(peer),
            "--initial-advertise-peer-urls",
            &url(peer),
        ])
        .args([
            "--initial-cluster",
            &format!("default={}", url(peer)),
            "--log-level",
            "error",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("starting etcd")?;
    let mut server = Server {
        target: Target::new(&format!("127.0.0.1:{secure}"), Credentials::Token("bench".to_string()))?,
        ready: Duration::ZERO,
        idle: 0,
        running: Running {
            processes: vec![etcd],
            companions: Vec::new(),
            directory: directory.clone(),
            clearing: None,
        },
    };
    let path = |name: &str| directory.join(name).display().to_string();
    let apiserver = Command::new(apiserver)
        .args(["--etcd-servers", &url(client), "--bind-address", "127.0.0.1"])
        .args([
            "--secure-port",
            &secure.to_string(),
            "--cert-dir",
            &path("certificates"),
        ])
        .args([
            "--token-auth-file",
            &path("tokens.csv"),
            "--authorization-mode",
            "Node,RBAC",
        ])
        .args(["--service-account-issuer", "https://kubernetes.default.svc"])
        .args(["--service-account-key-file", &path("service-accounts.pub")])
        .args(["--service-account-signing-key-file", &path("service-accounts.key")])
        .args(["--service-cluster-ip-range", "10.96.0.0/16"])
        // It refuses loopback for its own Endpoints; nothing connects there.
        .args(["--advertise-address", "192.0.2.1", "--endpoint-reconciler-type", "none"])
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log)?)
        .spawn()
        .context("starting kube-apiserver")?;
    server.running.processes.push(apiserver);
    if let Err(error) = wait_until_ready(&server.target) {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        let last = log.lines().last().unwrap_or_default().to_string();
        return Err(error.context(format!("kube-apiserver said: {last}")));
    }
    server.ready = started.elapsed();
    server.settle()
}

/// For the other parts of the real control plane, and for nodes: as JSON, which every reader of YAML reads.
fn kubeconfig_of(port: u16) -> String {
    let server = format!("https://127.0.0.1:{port}");
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        // It signs its own certificate, on loopback.
        "clusters": [{"name": "bench", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    })
    .to_string()
}

fn wait_until_ready(target: &Target) -> Result<()> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        let answer = target
            .connect()
            .and_then(|mut connection| connection.call("GET", "/readyz", b""));
        match answer {
            Ok(answer) if answer.status == 200 => return Ok(()),
            Ok(_) | Err(_) if Instant::now() < deadline => std::thread::sleep(GLANCE),
            Ok(answer) => bail!("not ready in time: {}", answer.status),
            Err(error) => return Err(error.context("not ready in time")),
        }
    }
}

/// The server and the credentials that a kubeconfig of our own making names first.
fn from_kubeconfig(text: &str) -> Result<Target> {
    let config: Value = serde_saphyr::from_str(text).context("reading the kubeconfig")?;
    let server = config["clusters"][0]["cluster"]["server"].as_str();
    let server = server.context("the kubeconfig names no server")?;
    let address = server.trim_start_matches("https://").trim_end_matches('/');
    let user = &config["users"][0]["user"];
    let data = |field: &str| {
        let text = user[field]
            .as_str()
            .with_context(|| format!("no {field} in the kubeconfig"))?;
        Ok::<_, anyhow::Error>(BASE64_STANDARD.decode(text)?)
    };
    let credentials = match user["token"].as_str() {
        Some(token) => Credentials::Token(token.to_string()),
        None => Credentials::Certificate {
            chain: data("client-certificate-data")?,
            key: data("client-key-data")?,
        },
    };
    Target::new(address, credentials)
}

fn free_ports() -> Result<[u16; 3]> {
    // Held together, so that none is given twice.
    let held = [bind()?, bind()?, bind()?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

fn bind() -> Result<TcpListener> {
    Ok(TcpListener::bind("127.0.0.1:0")?)
}

/// On the disk of the work tree: the temporary directory is memory on many machines, where fsync costs nothing.
fn directory(name: &str) -> Result<PathBuf> {
    let directory = std::env::current_dir()?.join(format!("target/bench/{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

//! Startup, readiness and liveness probes.
//!
//! One task for each container that has any. A container that is not ready yet is asked more often than its period
//! says, so that it gets traffic as soon as it can take it; only answers at the period's beat count as failures.

use super::Process;
use crate::clock::after;
use crate::node::runtime::{Notice, Readiness, What};
use crate::node::shape::Shape;
use k8s_openapi::api::core::v1::{HTTPGetAction, Pod, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The first wait between eager tries; it doubles up to the period. A small server listens a few milliseconds after its
/// start.
const EAGER: Duration = Duration::from_millis(2);
/// Bytes of an answer that are read: the status line and what a message quotes.
const MOST_ANSWER: usize = 4096;

/// One container's probes.
pub struct Prober {
    pub process: Arc<Process>,
    pub pod: Arc<Pod>,
    pub container: String,
    pub id: String,
    pub address: IpAddr,
}

/// How a probe is told to behave.
struct Beat {
    initial: Duration,
    period: Duration,
    timeout: Duration,
    failures: u32,
    successes: u32,
}

impl Beat {
    fn of(probe: &Probe) -> Beat {
        let number = |value: Option<i32>, default: u32| {
            value
                .and_then(|value| u32::try_from(value).ok())
                .filter(|value| *value > 0)
                .unwrap_or(default)
        };
        let seconds = |value, default| Duration::from_secs(u64::from(number(value, default)));
        Beat {
            initial: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            failures: number(probe.failure_threshold, 3),
            successes: number(probe.success_threshold, 1),
        }
    }
}

impl Prober {
    /// Probes until the task is aborted, which happens when the container ends.
    pub async fn run(self) {
        let pod = self.pod.clone();
        let shape = Shape::of(&pod);
        let Some(container) = shape.find(&self.container) else {
            return;
        };
        let grace = |probe: &Probe| {
            probe
                .termination_grace_period_seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map(Duration::from_secs)
        };
        if let Some(probe) = &container.startup_probe {
            if let Err(message) = self.until_success(probe).await {
                let message = format!(
                    "Container {} failed startup probe, will be restarted: {message}",
                    self.container
                );
                self.tell(What::Unhealthy {
                    grace: grace(probe),
                    message,
                });
                return;
            }
            self.tell(What::Started);
            if container.readiness_probe.is_none() {
                self.tell(What::Ready(Readiness::Ready));
            }
        }
        let readiness = async {
            if let Some(probe) = &container.readiness_probe {
                self.watch_readiness(probe).await;
            }
        };
        let liveness = async {
            if let Some(probe) = &container.liveness_probe {
                let message = self.until_dead(probe).await;
                let message = format!(
                    "Container {} failed liveness probe, will be restarted: {message}",
                    self.container
                );
                self.tell(What::Unhealthy {
                    grace: grace(probe),
                    message,
                });
            }
        };
        tokio::join!(readiness, liveness);
    }

    fn tell(&self, what: What) {
        // Nobody is left to tell once the agent has ended.
        let _ = self.process.notices.send(Notice {
            pod: Shape::of(&self.pod).uid().to_owned(),
            container: self.container.clone(),
            id: self.id.clone(),
            what,
        });
    }

    async fn pause(&self, time: Duration) {
        let clock = &self.process.clock;
        clock.sleep_until(after(clock.now(), time)).await;
    }

    async fn until_success(&self, probe: &Probe) -> Result<(), String> {
        let beat = Beat::of(probe);
        self.pause(beat.initial).await;
        let mut failures = 0;
        loop {
            let message = match self.eagerly(probe, &beat).await {
                Ok(()) => return Ok(()),
                Err(message) => message,
            };
            failures += 1;
            self.complain("Startup", &message);
            if failures >= beat.failures {
                return Err(message);
            }
        }
    }

    /// Tries again and again for one period.
    async fn eagerly(&self, probe: &Probe, beat: &Beat) -> Result<(), String> {
        let clock = &self.process.clock;
        let end = after(clock.now(), beat.period);
        let mut wait = EAGER;
        loop {
            let result = self.once(probe, beat.timeout).await;
            if result.is_ok() {
                return result;
            }
            if after(clock.now(), wait) >= end {
                clock.sleep_until(end).await;
                return result;
            }
            self.pause(wait).await;
            wait *= 2;
        }
    }

    async fn watch_readiness(&self, probe: &Probe) {
        let beat = Beat::of(probe);
        self.pause(beat.initial).await;
        let mut ready = false;
        let mut streak = 0;
        loop {
            let result = if ready {
                self.once(probe, beat.timeout).await
            } else {
                self.eagerly(probe, &beat).await
            };
            let (good, needed) = (result.is_ok(), if ready { beat.failures } else { beat.successes });
            if good == ready {
                streak = 0;
            } else {
                streak += 1;
            }
            if let Err(message) = &result {
                self.complain("Readiness", message);
            }
            if streak >= needed {
                ready = !ready;
                streak = 0;
                self.tell(What::Ready(if ready { Readiness::Ready } else { Readiness::NotReady }));
            }
            if good || ready {
                self.pause(beat.period).await;
            }
        }
    }

    async fn until_dead(&self, probe: &Probe) -> String {
        let beat = Beat::of(probe);
        self.pause(beat.initial.max(beat.period.min(Duration::from_secs(1))))
            .await;
        let mut failures = 0;
        loop {
            match self.once(probe, beat.timeout).await {
                Ok(()) => failures = 0,
                Err(message) => {
                    self.complain("Liveness", &message);
                    failures += 1;
                    if failures >= beat.failures {
                        return message;
                    }
                }
            }
            self.pause(beat.period).await;
        }
    }

    fn complain(&self, which: &str, message: &str) {
        let now = self.process.clock.now();
        self.process
            .events
            .warning(&self.pod, "Unhealthy", &format!("{which} probe failed: {message}"), now);
    }

    async fn once(&self, probe: &Probe, timeout: Duration) -> Result<(), String> {
        tokio::time::timeout(timeout, self.attempt(probe))
            .await
            .unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
    }

    async fn attempt(&self, probe: &Probe) -> Result<(), String> {
        if let Some(http) = &probe.http_get {
            return self.http(http).await;
        }
        if let Some(tcp) = &probe.tcp_socket {
            let address = self.target(tcp.host.as_deref(), &tcp.port)?;
            return self
                .process
                .network
                .connect(address)
                .await
                .map(|_| ())
                .map_err(|error| format!("dial tcp {address}: {error}"));
        }
        if let Some(grpc) = &probe.grpc {
            let port = u16::try_from(grpc.port).map_err(|_| "the port is out of range".to_owned())?;
            let stream = self.process.network.connect(SocketAddr::new(self.address, port)).await;
            let stream = stream.map_err(|error| format!("timeout: failed to connect service: {error}"))?;
            return super::grpc::check(stream, grpc.service.as_deref().unwrap_or_default()).await;
        }
        if let Some(exec) = &probe.exec {
            let command = exec.command.clone().unwrap_or_default();
            let uid = Shape::of(&self.pod).uid().to_owned();
            let output = self
                .process
                .output(&uid, &self.container, &command)
                .await
                .map_err(|error| error.to_string())?;
            return if output.status.success() {
                Ok(())
            } else {
                Err(String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
                    .trim()
                    .to_owned())
            };
        }
        Ok(())
    }

    fn target(&self, host: Option<&str>, port: &IntOrString) -> Result<SocketAddr, String> {
        let ip = match host.filter(|host| !host.is_empty()) {
            Some(host) => host.parse().map_err(|_| format!("the host {host} is not an address"))?,
            None => self.address,
        };
        Ok(SocketAddr::new(ip, port_number(&self.pod, &self.container, port)?))
    }

    async fn http(&self, action: &HTTPGetAction) -> Result<(), String> {
        let address = self.target(action.host.as_deref(), &action.port)?;
        let status = http_get(&self.process, address, action).await?;
        if (200..400).contains(&status) {
            Ok(())
        } else {
            Err(format!("HTTP probe failed with statuscode: {status}"))
        }
    }
}

/// A port by number or by the name that the container gives it.
pub fn port_number(pod: &Pod, container: &str, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let found = Shape::of(pod).find(container);
            let ports = found.as_ref().and_then(|container| container.ports.as_ref());
            let named = ports
                .into_iter()
                .flatten()
                .find(|port| port.name.as_deref() == Some(name));
            match named {
                Some(port) => port.container_port,
                None => name.parse().map_err(|_| format!("no port is named {name}"))?,
            }
        }
    };
    u16::try_from(number).map_err(|_| format!("the port {number} is out of range"))
}

/// Asks a web server and gives its status code. A probe trusts any certificate, as a kubelet's does.
pub async fn http_get(process: &Process, address: SocketAddr, action: &HTTPGetAction) -> Result<u16, String> {
    let path = action.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
    let failed = |error: std::io::Error| format!("Get \"http://{address}{path}\": {error}");
    let mut headers = String::new();
    let mut host = address.to_string();
    for header in action.http_headers.iter().flatten() {
        if header.name.eq_ignore_ascii_case("host") {
            host.clone_from(&header.value);
        } else {
            headers.push_str(&format!("{}: {}\r\n", header.name, header.value));
        }
    }
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: kube-probe/1.36\r\nAccept: */*\r\n{headers}Connection: close\r\n\r\n"
    );
    let stream = process.network.connect(address).await.map_err(failed)?;
    if action.scheme.as_deref() == Some("HTTPS") {
        let stream = super::trust::connect(stream, address.ip()).await.map_err(failed)?;
        ask(stream, &request).await.map_err(failed)
    } else {
        ask(stream, &request).await.map_err(failed)
    }
}

async fn ask(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, request: &str) -> std::io::Result<u16> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let mut buffer = [0; 512];
    while answer.len() < MOST_ANSWER && !answer.contains(&b'\n') {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            break;
        }
        answer.extend_from_slice(&buffer[..count]);
    }
    let text = String::from_utf8_lossy(&answer);
    let status = text.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    status.ok_or_else(|| std::io::Error::other("malformed HTTP response"))
}

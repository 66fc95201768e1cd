//! Sandboxes of pods: what their containers share, from when it is made until it is given back.

use super::Process;
use super::spec::{Processes, SandboxRecord, store};
use crate::node::runtime::RuntimeError;
use crate::node::shape::Shape;
use k8s_openapi::api::core::v1::Pod;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

impl Process {
    /// Makes what the containers of a pod share, and writes it down.
    pub(super) async fn make_sandbox(&self, pod: Arc<Pod>) -> Result<Vec<IpAddr>, RuntimeError> {
        let failed = |error: std::io::Error| RuntimeError::Machine {
            reason: "FailedCreatePodSandBox",
            message: format!("Failed to create pod sandbox: {error}"),
        };
        let shape = Shape::of(&pod);
        let folder = self.pod_folder(shape.uid());
        std::fs::create_dir_all(folder.join("containers")).map_err(failed)?;
        // One that died is taken down first: its address is free again.
        self.detach(&folder);
        let hostname = shape.spec.hostname.as_deref().unwrap_or(shape.name());
        let hostname: String = hostname.chars().take(63).collect();
        let processes = processes(&shape);
        let attached = async {
            match shape.uses_host_network() {
                true => self.network.attach_to_machine(self.host_of(&pod), processes).await,
                false => self.network.attach(&hostname, processes).await,
            }
        };
        // Neither needs the other, and both wait: for the API, and for the kernel.
        let (prepared, attached) = tokio::join!(self.prepare_volumes(&pod), attached);
        let attached = attached.map_err(failed)?;
        if let Err(error) = prepared {
            self.network.detach(attached);
            return Err(error);
        }
        let addresses = vec![attached.address];
        let record = SandboxRecord {
            uid: shape.uid().to_owned(),
            namespace: shape.namespace().to_owned(),
            name: shape.name().to_owned(),
            addresses: addresses.clone(),
            holder: attached.holder.as_ref().map(|held| held.process),
            detached: false,
            node: shape.spec.node_name.clone(),
        };
        let stored = match self.open_host_ports(&shape, attached.address).await {
            Ok(()) => store(&folder.join("sandbox.json"), &record),
            Err(error) => Err(error),
        };
        if let Err(error) = stored {
            self.host_ports.lock().remove(shape.uid());
            self.network.detach(attached);
            return Err(failed(error));
        }
        if let Some(held) = attached.holder {
            held.let_go().map_err(failed)?;
        }
        self.write_hosts(&shape, attached.address).map_err(failed)?;
        self.refresh_volumes(pod.clone());
        Ok(addresses)
    }

    /// Whose processes a container sees: those of its pod, or those of the container that it debugs.
    pub(super) fn processes_of(&self, shape: &Shape<'_>, name: &str) -> Result<Processes, RuntimeError> {
        let shared = processes(shape);
        let Some(target) = shape.target(name).filter(|_| shared == Processes::Own) else {
            return Ok(shared);
        };
        let runs = self.runs.lock();
        let target_run = runs.get(&(shape.uid().to_owned(), target.to_owned()));
        target_run
            .filter(|run| run.started.main.is_alive())
            .map(|run| Processes::Target(run.started.main.pid))
            .ok_or_else(|| RuntimeError::run(format!("unable to find target container \"{target}\": it does not run")))
    }

    /// Disconnects a pod, once: the next one may have its address already. Gives back what could not be noted, and so
    /// is not given to another pod yet.
    pub(super) fn detach(&self, folder: &Path) -> Vec<IpAddr> {
        let path = folder.join("sandbox.json");
        let _one_at_a_time = self.detaching.lock();
        let Some(record) = SandboxRecord::attached(&path) else {
            return Vec::new();
        };
        self.host_ports.lock().remove(&record.uid);
        let addresses = record.addresses.clone();
        match record.detach(&path, |address| self.network.give_back(address)) {
            Ok(()) => Vec::new(),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "the end of a sandbox could not be noted");
                addresses
            }
        }
    }
}

/// Whose processes the containers of a pod see.
fn processes(shape: &Shape<'_>) -> Processes {
    match (shape.spec.host_pid, shape.spec.share_process_namespace) {
        (Some(true), _) => Processes::Host,
        (_, Some(true)) => Processes::Pod,
        _ => Processes::Own,
    }
}

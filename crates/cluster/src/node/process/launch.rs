//! Starting one container: from its spec to a shim that runs it.
//!
//! Everything that can fail for a reason the user can mend (image, references, volumes) is found out before
//! anything is started, and named in Kubernetes' words.

use super::cgroups::Limits;
use super::environment::{self, Sources, expand};
use super::images::Pull;
use super::images::store::user as user_of;
use super::probe::Prober;
use super::spec::{
    Access, Input, Inside, Kernel, Mount, RunRecord, RunSpec, SandboxRecord, Screen, Silence, StartRecord, load, store,
};
use super::users::{self, Standing};
use super::{Ended, Process, powers, seccomp, shared};
use crate::node::runtime::{Readiness, Running, RuntimeError};
use crate::node::shape::{Shape, Whole};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::task::AbortHandle;

/// How long a shim may take to say that its container runs.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// How long a start waits for the first list of Services.
const SERVICES_PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn config_error(message: String) -> RuntimeError {
    RuntimeError::Configuration {
        reason: "CreateContainerConfigError",
        message,
    }
}

impl Process {
    pub(super) async fn launch(&self, pod: Arc<Pod>, name: &str, restarts: u32) -> Result<Running, RuntimeError> {
        let shape = Shape::of(&pod);
        let found = shape
            .find(name)
            .ok_or_else(|| config_error(format!("the pod has no container \"{name}\"")))?;
        let container: &Whole = &found;
        let image = container.image.as_deref().unwrap_or_default();
        let pull = match container.image_pull_policy.as_deref() {
            Some("Never") => Pull::Never,
            Some("Always") => Pull::Always,
            _ => Pull::Allowed,
        };
        let resolved = self.obtain(&pod, image, pull).await?;
        if let Some(remark) = &resolved.remark {
            self.events.normal(&pod, "Pulled", remark, self.clock.now());
        }
        let folder = self.pod_folder(shape.uid());
        let sandbox = SandboxRecord::attached(&folder.join("sandbox.json"));
        // Where the holder has ended, its number may be another process': nobody joins that one's namespaces.
        let sandbox = sandbox
            .filter(|sandbox| sandbox.holder.is_none_or(|holder| holder.is_alive()))
            .ok_or_else(|| RuntimeError::run("the pod's sandbox is gone"))?;
        let sources = self.sources(&shape, Some(container), &sandbox.addresses).await?;
        let mut env = environment::variables(&shape, container, &sources)?;
        if sandbox.holder.is_none()
            && let Some(address) = sandbox.addresses.first()
        {
            env.push(("STEAD_LISTEN".to_owned(), address.to_string()));
        }
        let content = resolved.content.as_ref();
        if content.is_some() && sandbox.holder.is_none() {
            return Err(config_error(format!(
                "image \"{image}\" has a root of its own, which this user may not make; run as root, or where users may make namespaces"
            )));
        }
        for (name, value) in content.iter().flat_map(|content| &content.env) {
            let given = container.env.iter().flatten().any(|variable| variable.name == *name);
            match env.iter_mut().find(|(known, _)| known == name) {
                // PATH and HOME are the node's guess until an image knows better.
                Some(known) if !given && (name == "PATH" || name == "HOME") => known.1 = value.clone(),
                Some(_) => {}
                None => env.push((name.clone(), value.clone())),
            }
        }
        let variables: BTreeMap<String, String> = env.iter().cloned().collect();
        let argv = command_line(container, &resolved.entrypoint, &resolved.arguments, &variables);
        let own = folder.join("containers").join(name);
        let root = own.join("root");
        std::fs::create_dir_all(&root).map_err(|error| RuntimeError::run(error.to_string()))?;
        let message = own.join(format!("{restarts}.message"));
        std::fs::write(&message, "").map_err(|error| RuntimeError::run(error.to_string()))?;
        let inside = match sandbox.holder {
            Some(holder) => {
                let mut mounts = self.mounts(&shape, container, &folder, &sources)?;
                let path = container
                    .termination_message_path
                    .as_deref()
                    .unwrap_or("/dev/termination-log");
                mounts.push(Mount {
                    source: message,
                    target: path.into(),
                    access: Access::ReadWrite,
                    volume: None,
                });
                let processes = self.processes_of(&shape, name)?;
                Some(Inside {
                    sandbox: holder.pid,
                    mounts,
                    root,
                    processes,
                    access: match container.security_context.as_ref() {
                        Some(own) if own.read_only_root_filesystem == Some(true) => Access::ReadOnly,
                        _ => Access::ReadWrite,
                    },
                    image: content.map(|content| content.root.clone()),
                    kernel: match container.security_context.as_ref() {
                        Some(own) if own.privileged == Some(true) => Kernel::Open,
                        _ => Kernel::Guarded,
                    },
                    hidden: self.hidden.clone(),
                })
            }
            None => None,
        };
        let argv = if inside.is_some() {
            self.seen_from_inside(argv)
        } else {
            argv
        };
        let security = container.security_context.as_ref();
        let pod_security = shape.spec.security_context.as_ref();
        let user = security
            .and_then(|own| own.run_as_user)
            .or_else(|| pod_security.and_then(|pod| pod.run_as_user));
        let group = security
            .and_then(|own| own.run_as_group)
            .or_else(|| pod_security.and_then(|pod| pod.run_as_group));
        let (image_user, image_group) = match content {
            Some(content) if user.is_none() => user_of(&content.root, &content.user),
            _ => (None, None),
        };
        let never_root = security
            .and_then(|own| own.run_as_non_root)
            .or_else(|| pod_security.and_then(|pod| pod.run_as_non_root));
        let ordinary = users::standing() == Standing::Ordinary;
        let as_root = user.map_or(!ordinary && image_user.unwrap_or(0) == 0, |user| user == 0);
        if never_root == Some(true) && as_root {
            return Err(config_error(format!(
                "container has runAsNonRoot and image will run as root (container: {name})"
            )));
        }
        let directory = container.working_dir.clone().filter(|path| !path.is_empty());
        let directory = directory.or_else(|| content.map(|content| content.directory.clone()));
        let user = user.and_then(|user| u32::try_from(user).ok()).or(image_user);
        let group = group.and_then(|group| u32::try_from(group).ok()).or(image_group);
        if sandbox.holder.is_none() {
            shared::check_user(user, group)?;
            if let Some(address) = sandbox.addresses.first().filter(|_| !shape.uses_host_network()) {
                shared::check_ports(container, *address)?;
            }
        }
        let spec = RunSpec {
            id: uuid::Uuid::new_v4().simple().to_string(),
            argv,
            env,
            directory: directory
                .filter(|path| !path.is_empty())
                .unwrap_or_else(|| "/".into())
                .into(),
            log: own.join(format!("{restarts}.log")),
            started: own.join(format!("{restarts}.started")),
            exit: own.join(format!("{restarts}.exit")),
            input: match (container.stdin, container.stdin_once) {
                (Some(true), Some(true)) => Input::Once,
                (Some(true), _) => Input::Open,
                _ => Input::Nothing,
            },
            screen: match container.tty {
                Some(true) => Screen::Terminal,
                _ => Screen::Pipes,
            },
            user,
            group,
            groups: users::existing(powers::groups(pod_security)),
            powers: powers::kept(security),
            gain: powers::gain(security),
            calls: seccomp::calls(security, pod_security).map_err(config_error)?,
            inside,
            cgroups: self
                .cgroups
                .prepare(shape.uid(), &format!("{name}.{restarts}"), Limits::of(container))
                .map_err(|error| RuntimeError::run(format!("cannot set the limits: {error}")))?,
            silence: match container.termination_message_policy.as_deref() {
                Some("FallbackToLogsOnError") => Silence::Log,
                _ => Silence::Nothing,
            },
        };
        forget_old_runs(&own, restarts);
        self.run(&pod, spec, &own, name, restarts, resolved.image_id).await
    }

    async fn run(
        &self,
        pod: &Arc<Pod>,
        spec: RunSpec,
        own: &Path,
        name: &str,
        restarts: u32,
        image_id: String,
    ) -> Result<Running, RuntimeError> {
        let uid = Shape::of(pod).uid().to_owned();
        let failed = |error: std::io::Error| RuntimeError::run(error.to_string());
        let path = own.join(format!("{restarts}.json"));
        for stale in [&spec.started, &spec.exit] {
            let _ = std::fs::remove_file(stale);
        }
        store(&path, &spec).map_err(failed)?;
        let record = RunRecord {
            container: name.to_owned(),
            id: spec.id.clone(),
            restarts,
            image_id: image_id.clone(),
            since: self.clock.now(),
        };
        store(&own.join("run.json"), &record).map_err(failed)?;
        let mut child = self.shim(&path).map_err(failed)?;
        let started = match wait_for_start(&spec, &mut child).await {
            Ok(started) => started,
            Err(error) => {
                // It must not start later, beside its replacement and watched by nobody.
                let _ = child.start_kill();
                return Err(error);
            }
        };
        let Some(strong) = self.own.upgrade() else {
            return Err(RuntimeError::run("the node agent ends"));
        };
        self.remember(&uid, &record, started.clone(), path, Vec::new());
        self.supervise(&uid, &record, spec, started.clone(), Ended::Child(Box::new(child)));
        if self.after_start(pod, name).await.is_err() {
            // It ran, and is told of as any run that ends: its restarts are counted, and wait longer and longer.
            started.main.kill_group();
            return Ok(Running {
                id: record.id,
                since: record.since,
                image_id,
                started: false,
                ready: Readiness::NotReady,
            });
        }
        let tasks = probe(strong, pod, &record, self.address(&uid));
        if let Some(run) = self.runs.lock().get_mut(&(uid, name.to_owned())) {
            run.tasks = tasks;
        }
        let (is_started, ready) = without_probes(pod, name);
        Ok(Running {
            id: record.id,
            since: record.since,
            image_id,
            started: is_started,
            ready,
        })
    }

    /// Reads what the container's environment, or the pod's volumes, may refer to.
    pub(super) async fn sources(
        &self,
        shape: &Shape<'_>,
        container: Option<&Whole>,
        addresses: &[IpAddr],
    ) -> Result<Sources, RuntimeError> {
        let mut sources = Sources {
            addresses: addresses.to_vec(),
            host: Some(self.host_of(shape.pod)),
            cpus: self.capacity.cpus,
            memory_bytes: self.capacity.memory_bytes,
            ..Sources::default()
        };
        let Some(container) = container else { return Ok(sources) };
        let (mut maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
        for from in container.env_from.iter().flatten() {
            maps.extend(from.config_map_ref.iter().map(|reference| reference.name.clone()));
            secrets.extend(from.secret_ref.iter().map(|reference| reference.name.clone()));
        }
        for source in container
            .env
            .iter()
            .flatten()
            .filter_map(|variable| variable.value_from.as_ref())
        {
            maps.extend(source.config_map_key_ref.iter().map(|reference| reference.name.clone()));
            secrets.extend(source.secret_key_ref.iter().map(|reference| reference.name.clone()));
        }
        let failed = |error: kube::Error| config_error(error.to_string());
        let client = self.voices.of(shape.pod);
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), shape.namespace());
        for name in maps {
            if let Some(map) = api.get_opt(&name).await.map_err(failed)? {
                sources.config_maps.insert(name, map);
            }
        }
        let api: Api<Secret> = Api::namespaced(client, shape.namespace());
        for name in secrets {
            if let Some(secret) = api.get_opt(&name).await.map_err(failed)? {
                sources.secrets.insert(name, secret);
            }
        }
        // From the cache, as on Kubernetes: two requests for each start would be most of what it waits for.
        let listed = tokio::time::timeout(SERVICES_PATIENCE, self.services.wait_for_sync()).await;
        listed.map_err(|_| {
            config_error("services have not yet been read at least once, cannot construct envs".to_owned())
        })?;
        sources.services = self.services.in_namespace(shape.namespace());
        if shape.namespace() != "default" {
            sources
                .services
                .extend(self.services.named(Some("default"), "kubernetes"));
        }
        Ok(sources)
    }
}

/// Logs and records of all but the last run go.
fn forget_old_runs(folder: &Path, restarts: u32) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.split('.').next()?.parse::<u32>().ok());
        if number.is_some_and(|number| number + 1 < restarts) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn command_line(
    container: &Whole,
    entrypoint: &[String],
    arguments: &[String],
    variables: &BTreeMap<String, String>,
) -> Vec<String> {
    let given = |list: &Option<Vec<String>>| -> Option<Vec<String>> {
        let list = list.as_ref().filter(|list| !list.is_empty())?;
        Some(list.iter().map(|word| expand(word, variables)).collect())
    };
    let command = given(&container.command);
    let args = given(&container.args);
    match (command, args) {
        (Some(command), args) => {
            // The path of a built-in program inside its real image.
            let mut line = match command.first().map(String::as_str) {
                Some("/agnhost" | "agnhost" | "/pause") if entrypoint.len() == 3 => {
                    [entrypoint, &command[1..]].concat()
                }
                _ => command,
            };
            line.extend(args.into_iter().flatten());
            line
        }
        (None, Some(args)) => [entrypoint, &args].concat(),
        (None, None) => [entrypoint, arguments].concat(),
    }
}

/// What a container counts as before any probe has spoken.
pub(super) fn without_probes(pod: &Pod, name: &str) -> (bool, Readiness) {
    let found = Shape::of(pod).find(name);
    let has = |probe: fn(&Whole) -> bool| found.as_deref().is_some_and(probe);
    let started = !has(|container| container.startup_probe.is_some());
    let ready = started && !has(|container| container.readiness_probe.is_some());
    (started, if ready { Readiness::Ready } else { Readiness::NotReady })
}

/// Starts the container's probes, if it has any.
pub(super) fn probe(process: Arc<Process>, pod: &Pod, record: &RunRecord, address: Option<IpAddr>) -> Vec<AbortHandle> {
    let found = Shape::of(pod).find(&record.container);
    let wanted = found.is_some_and(|container| {
        container.startup_probe.is_some() || container.readiness_probe.is_some() || container.liveness_probe.is_some()
    });
    let Some(address) = address.filter(|_| wanted) else {
        return Vec::new();
    };
    let prober = Prober {
        process,
        pod: Arc::new(pod.clone()),
        container: record.container.clone(),
        id: record.id.clone(),
        address,
    };
    vec![tokio::spawn(prober.run()).abort_handle()]
}

/// Waits until the shim says that its container runs, or has ended because it could not start it.
async fn wait_for_start(spec: &RunSpec, child: &mut tokio::process::Child) -> Result<StartRecord, RuntimeError> {
    let mut out = child.stdout.take();
    let told = async {
        let mut sign = [0; 1];
        match &mut out {
            Some(out) => out.read_exact(&mut sign).await.is_ok(),
            None => false,
        }
    };
    let waited = async {
        if !told.await {
            // It ended, or has closed its output, which it does when it ends.
            let _ = child.wait().await;
        }
        let started: Option<StartRecord> = load(&spec.started);
        let exit: Option<super::spec::ExitRecord> = load(&spec.exit);
        let why = exit.and_then(|exit| exit.error);
        started.ok_or_else(|| RuntimeError::run(why.unwrap_or_else(|| "the shim ended at once".to_owned())))
    };
    let waited = tokio::time::timeout(START_PATIENCE, waited).await;
    waited.unwrap_or_else(|_| Err(RuntimeError::run("the shim did not start the container in time")))
}

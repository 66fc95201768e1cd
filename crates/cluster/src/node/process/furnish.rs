//! What a container finds in its file system: volumes, its pod's files under /etc, and this binary.

use super::Process;
use super::environment::{self, Sources, expand};
use super::launch::config_error;
use super::root;
use super::spec::{Access, Mount, load, store};
use crate::node::runtime::RuntimeError;
use crate::node::shape::{Shape, Whole};
use crate::node::volumes::objects::shows_pod;
use crate::node::volumes::{Source, Wanted, claims};
use k8s_openapi::api::core::v1::{Pod, Volume};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often volumes are compared with the objects that they follow.
const REFRESH: Duration = Duration::from_secs(10);
/// Where a container sees this binary.
pub(super) const OWN_BINARY: &str = "/.stead";

/// Whether a path is within a folder when all links are followed.
fn lies_in(path: &Path, folder: &Path) -> bool {
    match (path.canonicalize(), folder.canonicalize()) {
        (Ok(path), Ok(folder)) => path.starts_with(folder),
        _ => false,
    }
}

impl Process {
    /// Makes the volumes of a pod, and writes down where they are.
    pub(super) async fn prepare_volumes(&self, pod: &Pod) -> Result<(), RuntimeError> {
        let shape = Shape::of(pod);
        let all = shape.spec.volumes.iter().flatten().collect();
        let places = self.publish(&shape, all).await?;
        let record = self.pod_folder(shape.uid()).join("volumes.json");
        store(&record, &places).map_err(|error| RuntimeError::run(error.to_string()))
    }

    /// Brings the volumes that follow something up to date. The others are left alone: a container may have closed an
    /// empty directory to everybody else, and a driver has better things to do.
    async fn update_volumes(&self, pod: &Pod) -> Result<(), RuntimeError> {
        let shape = Shape::of(pod);
        let volumes = shape.spec.volumes.iter().flatten();
        let following = volumes.filter(|volume| self.follows(volume)).collect();
        self.publish(&shape, following).await.map(drop)
    }

    /// Has volumes made by whoever serves their sources.
    async fn publish(
        &self,
        shape: &Shape<'_>,
        volumes: Vec<&Volume>,
    ) -> Result<BTreeMap<String, PathBuf>, RuntimeError> {
        let addresses: Vec<IpAddr> = self.address(shape.uid()).into_iter().collect();
        let sources = self.sources(shape, None, &addresses).await?;
        let folder = self.pod_folder(shape.uid()).join("volumes");
        let client = self.voices.of(shape.pod);
        let mut places = BTreeMap::new();
        for volume in volumes {
            let bound = claims::bound(&client, shape, volume).await?;
            let wanted = Wanted {
                shape: *shape,
                name: &volume.name,
                source: bound.as_ref().map_or(Source::Pod(volume), Source::Bound),
                place: folder.join(&volume.name),
                sources: &sources,
            };
            let theirs = self.volumes.iter().find(|volumes| volumes.serves(wanted.source));
            let place = theirs.ok_or_else(|| wanted.unknown())?.publish(&wanted).await?;
            places.insert(volume.name.clone(), place);
        }
        Ok(places)
    }

    /// Whether a volume follows something that changes.
    fn follows(&self, volume: &Volume) -> bool {
        let theirs = self.volumes.iter().find(|volumes| volumes.serves(Source::Pod(volume)));
        theirs.is_some_and(|volumes| volumes.follows())
    }

    /// Keeps volumes that follow objects up to date while the pod's folder exists. One task does so for a pod, however
    /// often its sandbox is made.
    pub(super) fn refresh_volumes(&self, pod: Arc<Pod>) {
        let Some(own) = self.own.upgrade() else { return };
        let shape = Shape::of(&pod);
        if !shape.spec.volumes.iter().flatten().any(|volume| self.follows(volume)) {
            return;
        }
        let uid = shape.uid().to_owned();
        let folder = self.pod_folder(&uid);
        let weak = Arc::downgrade(&own);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(REFRESH).await;
                let Some(own) = weak.upgrade() else { return };
                if !folder.exists() {
                    return;
                }
                let refreshed = match own.as_it_is(&pod).await {
                    Ok(current) => own.update_volumes(&current).await,
                    Err(error) => Err(RuntimeError::run(error.to_string())),
                };
                if let Err(error) = refreshed {
                    tracing::debug!(%error, "volumes stay as they are");
                }
            }
        });
        if let Some(earlier) = self.refreshing.lock().insert(uid, task.abort_handle()) {
            earlier.abort();
        }
    }

    /// The pod as the API has it, where a volume shows its labels or annotations; else as it was.
    async fn as_it_is(&self, pod: &Arc<Pod>) -> Result<Arc<Pod>, kube::Error> {
        let shape = Shape::of(pod);
        if !shape.spec.volumes.iter().flatten().any(shows_pod) {
            return Ok(pod.clone());
        }
        let pods: kube::Api<Pod> = kube::Api::namespaced(self.voices.of(pod), shape.namespace());
        let current = pods.get(shape.name()).await?;
        Ok(match current.metadata.uid == pod.metadata.uid {
            true => Arc::new(current),
            false => pod.clone(),
        })
    }

    pub(super) fn mounts(
        &self,
        shape: &Shape<'_>,
        container: &Whole,
        folder: &Path,
        sources: &Sources,
    ) -> Result<Vec<Mount>, RuntimeError> {
        let places: BTreeMap<String, PathBuf> = load(&folder.join("volumes.json")).unwrap_or_default();
        let mut mounts = vec![Mount {
            source: self.catalogue.own.clone(),
            target: OWN_BINARY.into(),
            access: Access::ReadOnly,
            volume: None,
        }];
        for (file, target) in [
            ("hosts", "/etc/hosts"),
            ("resolv.conf", "/etc/resolv.conf"),
            ("hostname", "/etc/hostname"),
        ] {
            let source = folder.join(file);
            if source.exists() {
                mounts.push(Mount {
                    source,
                    target: target.into(),
                    access: Access::ReadWrite,
                    volume: None,
                });
            }
        }
        for wanted in container.volume_mounts.iter().flatten() {
            let place = places.get(&wanted.name);
            let mut source = place
                .cloned()
                .ok_or_else(|| config_error(format!("volume \"{}\" is missing", wanted.name)))?;
            let variables = environment::variables(shape, container, sources)?.into_iter().collect();
            let sub_path = match &wanted.sub_path_expr {
                Some(expression) => Some(expand(expression, &variables)),
                None => wanted.sub_path.clone(),
            };
            for part in sub_path.iter().flat_map(|path| Path::new(path).components()) {
                match part {
                    std::path::Component::Normal(part) => source.push(part),
                    std::path::Component::CurDir => {}
                    _ => return Err(config_error("a subPath cannot leave its volume".to_owned())),
                }
            }
            let existing = source.ancestors().find(|path| path.exists());
            let leaves = |volume: &PathBuf| !existing.is_some_and(|path| lies_in(path, volume));
            if sub_path.is_some() && place.is_none_or(leaves) {
                // A container that ran before may have left links in the volume that lead out of it.
                return Err(config_error("a subPath cannot leave its volume".to_owned()));
            }
            if let Some(volume) = place.filter(|_| !source.exists()) {
                let part = source.strip_prefix(volume).unwrap_or(Path::new(""));
                let made = std::fs::create_dir_all(volume).and_then(|()| root::make_within(volume, part));
                made.map_err(|error| config_error(error.to_string()))?;
            }
            let mut volumes = shape.spec.volumes.iter().flatten();
            let follows_objects = volumes.any(|volume| volume.name == wanted.name && self.follows(volume));
            let access = match follows_objects || wanted.read_only == Some(true) {
                true => Access::ReadOnly,
                false => Access::ReadWrite,
            };
            mounts.push(Mount {
                source,
                target: wanted.mount_path.clone().into(),
                access,
                volume: place.filter(|_| sub_path.is_some()).cloned(),
            });
        }
        // Outer places before inner ones, or an outer mount would hide an inner one.
        mounts.sort_by_key(|mount| mount.target.components().count());
        Ok(mounts)
    }

    pub(super) fn seen_from_inside(&self, mut argv: Vec<String>) -> Vec<String> {
        let own = self.catalogue.own.display().to_string();
        if let Some(first) = argv.first_mut().filter(|first| **first == own) {
            *first = OWN_BINARY.to_owned();
        }
        argv
    }

    /// The files under /etc that a container gets from its pod.
    pub(super) fn write_hosts(&self, shape: &Shape<'_>, address: IpAddr) -> std::io::Result<()> {
        if shape.uses_host_network() {
            // It sees the machine's own.
            return Ok(());
        }
        let folder = self.pod_folder(shape.uid());
        let hostname = shape.spec.hostname.as_deref().unwrap_or(shape.name());
        let mut hosts = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost\n".to_owned();
        match &shape.spec.subdomain {
            Some(subdomain) => hosts.push_str(&format!(
                "{address}\t{hostname}.{subdomain}.{}.svc.cluster.local\t{hostname}\n",
                shape.namespace()
            )),
            None => hosts.push_str(&format!("{address}\t{hostname}\n")),
        }
        for alias in shape.spec.host_aliases.iter().flatten() {
            let names = alias.hostnames.clone().unwrap_or_default().join("\t");
            hosts.push_str(&format!("{}\t{names}\n", alias.ip));
        }
        std::fs::write(folder.join("hosts"), hosts)?;
        std::fs::write(folder.join("hostname"), format!("{hostname}\n"))?;
        if let Some(resolver) = self.network.gateway() {
            let namespace = shape.namespace();
            let text = format!(
                "search {namespace}.svc.cluster.local svc.cluster.local cluster.local\nnameserver {resolver}\noptions ndots:5\n"
            );
            std::fs::write(folder.join("resolv.conf"), text)?;
        }
        Ok(())
    }
}

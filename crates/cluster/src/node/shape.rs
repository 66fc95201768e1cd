//! A pod's spec, read the way the node agent needs it.
//!
//! The API has optional fields everywhere and three kinds of containers; this says once what absence means.

use super::seen::Exit;
use k8s_openapi::api::core::v1::{Container as Whole_, Pod, PodSpec};
use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

/// A container as the spec writes it.
pub type Whole = Whole_;

/// A spec for pods that have none: nonsense from outside must not stop the agent.
static NO_SPEC: LazyLock<PodSpec> = LazyLock::new(PodSpec::default);

/// A pod and its spec.
#[derive(Clone, Copy)]
pub struct Shape<'a> {
    pub pod: &'a Pod,
    pub spec: &'a PodSpec,
}

/// When a container that ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    fn parse(text: &str) -> RestartPolicy {
        match text {
            "Never" => RestartPolicy::Never,
            "OnFailure" => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        }
    }
}

impl<'a> Shape<'a> {
    pub fn of(pod: &'a Pod) -> Shape<'a> {
        Shape {
            pod,
            spec: pod.spec.as_ref().unwrap_or(&NO_SPEC),
        }
    }

    pub fn restart_policy(&self) -> RestartPolicy {
        RestartPolicy::parse(self.spec.restart_policy.as_deref().unwrap_or("Always"))
    }

    pub fn containers(&self) -> impl DoubleEndedIterator<Item = &'a Whole> + use<'a> {
        self.spec.containers.iter()
    }

    /// Init containers in order, sidecars among them.
    pub fn inits(&self) -> impl DoubleEndedIterator<Item = &'a Whole> + use<'a> {
        self.spec.init_containers.iter().flatten()
    }

    pub fn sidecars(&self) -> impl DoubleEndedIterator<Item = &'a Whole> + use<'a> {
        self.inits()
            .filter(|init| init.restart_policy.as_deref() == Some("Always"))
    }

    /// Init containers that must end before the next one starts.
    pub fn plain_inits(&self) -> impl DoubleEndedIterator<Item = &'a Whole> + use<'a> {
        self.inits()
            .filter(|init| init.restart_policy.as_deref() != Some("Always"))
    }

    /// Names of the containers that `kubectl debug` added.
    pub fn debuggers(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let added = self.spec.ephemeral_containers.iter().flatten();
        added.map(|container| container.name.as_str())
    }

    /// The container whose processes a debug container wants to see.
    pub fn target(&self, name: &str) -> Option<&'a str> {
        let mut added = self.spec.ephemeral_containers.iter().flatten();
        let debugger = added.find(|container| container.name == name)?;
        debugger
            .target_container_name
            .as_deref()
            .filter(|target| !target.is_empty())
    }

    pub fn is_sidecar(&self, init: &Whole) -> bool {
        init.restart_policy.as_deref() == Some("Always") && self.inits().any(|other| other.name == init.name)
    }

    /// The container of that name, of any kind.
    pub fn find(&self, name: &str) -> Option<Cow<'a, Whole>> {
        self.containers()
            .chain(self.inits())
            .find(|container| container.name == name)
            .map(Cow::Borrowed)
            .or_else(|| self.debugger(name).map(Cow::Owned))
    }

    /// A debug container in the form of an ordinary one: the API forbids on it what is left out here.
    fn debugger(&self, name: &str) -> Option<Whole> {
        let mut added = self.spec.ephemeral_containers.iter().flatten();
        let added = added.find(|container| container.name == name)?.clone();
        Some(Whole {
            name: added.name,
            image: added.image,
            image_pull_policy: added.image_pull_policy,
            command: added.command,
            args: added.args,
            env: added.env,
            env_from: added.env_from,
            working_dir: added.working_dir,
            stdin: added.stdin,
            stdin_once: added.stdin_once,
            tty: added.tty,
            security_context: added.security_context,
            volume_mounts: added.volume_mounts,
            termination_message_path: added.termination_message_path,
            restart_policy: Some("Never".to_owned()),
            ..Whole::default()
        })
    }

    /// Whether a container that ended so is started again.
    pub fn restarts(&self, container: &Whole, exit: &Exit) -> bool {
        for rule in container.restart_policy_rules.iter().flatten() {
            let Some(codes) = &rule.exit_codes else { continue };
            let listed = codes.values.iter().flatten().any(|code| *code == exit.code);
            let matches = match codes.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            };
            if matches {
                return true;
            }
        }
        let policy = match &container.restart_policy {
            Some(own) => RestartPolicy::parse(own),
            None => self.restart_policy(),
        };
        let init = self.plain_inits().any(|init| init.name == container.name);
        match policy {
            RestartPolicy::Never => false,
            RestartPolicy::OnFailure => exit.code != 0,
            RestartPolicy::Always => !init || exit.code != 0,
        }
    }

    /// The time between the request to end and the kill.
    pub fn grace(&self) -> Duration {
        let seconds = self
            .pod
            .metadata
            .deletion_grace_period_seconds
            .or(self.spec.termination_grace_period_seconds)
            .unwrap_or(30);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    /// The phase in the API, if it says that the pod has ended.
    pub fn recorded_end(&self) -> Option<&'a str> {
        let phase = self.pod.status.as_ref()?.phase.as_deref()?;
        ["Succeeded", "Failed"].contains(&phase).then_some(phase)
    }

    pub fn name(&self) -> &'a str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> &'a str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &'a str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    pub fn annotation(&self, key: &str) -> Option<&'a str> {
        self.pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    pub fn uses_host_network(&self) -> bool {
        self.spec.host_network == Some(true)
    }
}

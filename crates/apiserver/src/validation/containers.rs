//! What may be wrong with the containers of a pod.

use super::check::{Errors, Field};
use super::resources::{self, Owner, Restarts};
use super::volumes::Volumes;
use super::{environment, probes, security};
use std::collections::BTreeSet;
use stead_machinery::names;

const ALWAYS_ONLY: &str = "may not be set for init containers without restartPolicy=Always";

const NOT_TO_DEBUG: &str = "cannot be set for an Ephemeral Container";

/// What a container for debugging may not have: it is a guest, and nothing depends on it.
const NOT_OF_DEBUGGERS: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// Rules that say when a container is started again.
const MOST_RULES: usize = 20;

const MOST_EXIT_CODES: usize = 255;

/// Whether a container runs beside the others or before them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Main,
    Init,
}

/// What all containers of a pod have in common.
struct Pod<'a> {
    spec: &'a Field<'a>,
    volumes: &'a Volumes,
    claims: BTreeSet<&'a str>,
}

pub fn check(spec: &Field<'_>, volumes: &Volumes, errors: &mut Errors) {
    let pod = Pod {
        spec,
        volumes,
        claims: resources::claim_names(spec),
    };
    let (mains, inits, debuggers) = (
        spec.at("containers"),
        spec.at("initContainers"),
        spec.at("ephemeralContainers"),
    );
    if mains.is_empty() {
        errors.required(&mains, "");
    }
    let mut names = BTreeSet::new();
    for container in mains.items() {
        pod.any(&container, errors);
        unique(&container, &mut names, errors);
        pod.probed(&container, errors);
        restarts(&container, Role::Main, errors);
    }
    host_ports(mains.items(), errors);
    for container in inits.items() {
        pod.any(&container, errors);
        restarts(&container, Role::Init, errors);
        unique(&container, &mut names, errors);
        host_ports(std::iter::once(container.clone()), errors);
        if container.at("restartPolicy").text() == "Always" {
            pod.probed(&container, errors);
            continue;
        }
        for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.at(name).is_set() {
                errors.forbidden(&container.at(name), ALWAYS_ONLY);
            }
        }
        for policy in container.at("resizePolicy").items() {
            let restart = policy.at("restartPolicy");
            if restart.text() == "RestartContainer" {
                errors.invalid(
                    &restart,
                    "must not be set to 'RestartContainer' for non-sidecar initContainers",
                );
            }
        }
    }
    let targets = names.clone();
    for container in debuggers.items() {
        pod.any(&container, errors);
        image_without_space(&container, errors);
        unique(&container, &mut names, errors);
        debugger(&container, &targets, errors);
    }
}

/// Every container's image is told in full, without space around it. Templates are not asked.
pub fn images(spec: &Field<'_>, errors: &mut Errors) {
    for list in ["containers", "initContainers"] {
        for container in spec.at(list).items() {
            image_without_space(&container, errors);
        }
    }
}

fn image_without_space(container: &Field<'_>, errors: &mut Errors) {
    let image = container.at("image");
    if image.text().trim() != image.text() {
        errors.invalid(&image, "must not have leading or trailing whitespace");
    }
}

fn unique<'a>(container: &Field<'a>, names: &mut BTreeSet<&'a str>, errors: &mut Errors) {
    let name = container.at("name");
    if !name.is_empty() && !names.insert(name.text()) {
        errors.duplicate(&name);
    }
}

fn debugger(container: &Field<'_>, targets: &BTreeSet<&str>, errors: &mut Errors) {
    let target = container.at("targetContainerName");
    if !target.is_empty() && !targets.contains(target.text()) {
        errors.not_found(&target);
    }
    for name in NOT_OF_DEBUGGERS {
        let field = container.at(name);
        let said = match name {
            // Defaults make an empty one of every container.
            "resources" => !field.is_empty(),
            _ => field.is_set(),
        };
        if said {
            errors.forbidden(&field, NOT_TO_DEBUG);
        }
    }
    for mount in container.at("volumeMounts").items() {
        for name in ["subPath", "subPathExpr"] {
            if !mount.at(name).is_empty() {
                errors.forbidden(&mount.at(name), NOT_TO_DEBUG);
            }
        }
    }
}

impl Pod<'_> {
    /// What holds for containers of every sort.
    fn any(&self, container: &Field<'_>, errors: &mut Errors) {
        errors.named(&container.at("name"), names::dns1123_label);
        errors.present(&container.at("image"));
        errors.one_of(
            &container.at("terminationMessagePolicy"),
            &["File", "FallbackToLogsOnError"],
        );
        errors.one_of(&container.at("imagePullPolicy"), &["Always", "IfNotPresent", "Never"]);
        ports(&container.at("ports"), errors);
        environment::check(container, errors);
        mounts(container, self.volumes, errors);
        devices(container, self.volumes, errors);
        resources::requirements(&container.at("resources"), Owner::Container, &self.claims, errors);
        let restarts = match self.spec.at("restartPolicy").text() {
            "Never" => Restarts::Never,
            _ => Restarts::Sometimes,
        };
        resources::resize(&container.at("resizePolicy"), restarts, errors);
        security::container(&container.at("securityContext"), self.spec, errors);
    }

    /// Probes and hooks, of a container that runs beside the others.
    fn probed(&self, container: &Field<'_>, errors: &mut Errors) {
        let grace = self.spec.at("terminationGracePeriodSeconds").number();
        let lifecycle = container.at("lifecycle");
        for hook in ["postStart", "preStop"] {
            probes::handler(&lifecycle.at(hook), grace, errors);
        }
        for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
            let probe = container.at(name);
            probes::check(&probe, grace, errors);
            let (successes, own) = (probe.at("successThreshold"), probe.at("terminationGracePeriodSeconds"));
            if name != "readinessProbe" && successes.number().is_some_and(|n| n != 1) {
                errors.invalid(&successes, "must be 1");
            }
            if name == "readinessProbe" && own.is_set() {
                errors.invalid(&own, "must not be set for readinessProbes");
            }
        }
    }
}

fn restarts(container: &Field<'_>, role: Role, errors: &mut Errors) {
    let (policy, rules) = (container.at("restartPolicy"), container.at("restartPolicyRules"));
    if !policy.is_set() && !rules.is_empty() {
        errors.required(&policy, "must specify restartPolicy when restart rules are used");
        if role == Role::Init {
            return;
        }
    }
    errors.one_of_if_set(&policy, &["Always", "Never", "OnFailure"]);
    errors.count(&rules, MOST_RULES);
    for rule in rules.items() {
        errors.one_of_shown(&rule.at("action"), &["Restart", "RestartAllContainers"]);
        let codes = rule.at("exitCodes");
        if !codes.is_set() {
            errors.required(&codes, "must be specified");
            continue;
        }
        errors.one_of_shown(&codes.at("operator"), &["In", "NotIn"]);
        errors.count(&codes.at("values"), MOST_EXIT_CODES);
    }
}

fn ports(list: &Field<'_>, errors: &mut Errors) {
    errors.unique(list, "name");
    for port in list.items() {
        errors.named_if_set(&port.at("name"), names::port_name);
        let number = port.at("containerPort");
        match number.number() {
            None | Some(0) => errors.required(&number, ""),
            _ => errors.port_number(&number),
        }
        let host = port.at("hostPort");
        if host.number().is_some_and(|port| port != 0) {
            errors.port_number(&host);
        }
        errors.one_of(&port.at("protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

/// Two containers cannot have one port of the node.
fn host_ports<'a>(containers: impl Iterator<Item = Field<'a>>, errors: &mut Errors) {
    let mut taken = BTreeSet::new();
    for container in containers {
        for port in container.at("ports").items() {
            let host = port.at("hostPort");
            let Some(number) = host.number().filter(|number| *number != 0) else {
                continue;
            };
            let (protocol, address) = (port.at("protocol").text(), port.at("hostIP").text());
            let place = format!("{protocol}/{address}/{number}");
            let shown = serde_json::Value::from(place.as_str());
            if !taken.insert(place) {
                errors.duplicate(&Field {
                    value: &shown,
                    path: host.path,
                });
            }
        }
    }
}

/// What a container has at one place cannot be in another as well.
fn elsewhere(field: &Field<'_>, others: &BTreeSet<&str>, words: &str, errors: &mut Errors) {
    if others.contains(field.text()) {
        errors.invalid(field, format!("must not already exist {words}"));
    }
}

/// The texts that the items of a list have in one field. Gathered once: a list can be as long as a request.
fn texts<'a>(list: &Field<'a>, name: &str) -> BTreeSet<&'a str> {
    let items = list.value.as_array().into_iter().flatten();
    items.map(|item| item[name].as_str().unwrap_or_default()).collect()
}

fn mounts(container: &Field<'_>, volumes: &Volumes, errors: &mut Errors) {
    let (list, devices) = (container.at("volumeMounts"), container.at("volumeDevices"));
    let (device_names, device_paths) = (texts(&devices, "name"), texts(&devices, "devicePath"));
    let mut paths = BTreeSet::new();
    for mount in list.items() {
        let (name, path) = (mount.at("name"), mount.at("mountPath"));
        if name.is_empty() {
            errors.required(&name, "");
        }
        if !volumes.has(name.text()) {
            errors.not_found_named(&name);
        }
        if path.is_empty() {
            errors.required(&path, "");
        }
        if !paths.insert(path.text()) {
            errors.invalid_value(&path, path.text(), "must be unique");
        }
        elsewhere(&name, &device_names, "in volumeDevices", errors);
        elsewhere(&path, &device_paths, "as a path in volumeDevices", errors);
        // Kubernetes names the list in these.
        let of_list = |name: &str| Field {
            value: mount.at(name).value,
            path: list.at(name).path,
        };
        let (sub, expression) = (mount.at("subPath"), mount.at("subPathExpr"));
        errors.descending_path(&of_list("subPath"));
        if !sub.is_empty() && !expression.is_empty() {
            errors.invalid(&expression, "subPathExpr and subPath are mutually exclusive");
        }
        errors.descending_path(&of_list("subPathExpr"));
        propagation(&of_list("mountPropagation"), container, errors);
        read_only(&of_list("recursiveReadOnly"), &mount, errors);
    }
}

fn propagation(mode: &Field<'_>, container: &Field<'_>, errors: &mut Errors) {
    errors.one_of_if_set(mode, &["Bidirectional", "HostToContainer", "None"]);
    let privileged = container.at("securityContext").at("privileged").is_true();
    if mode.text() == "Bidirectional" && !privileged {
        errors.forbidden(
            mode,
            "Bidirectional mount propagation is available only to privileged containers",
        );
    }
}

fn read_only(mode: &Field<'_>, mount: &Field<'_>, errors: &mut Errors) {
    errors.one_of_if_set(mode, &["Disabled", "Enabled", "IfPossible"]);
    if !matches!(mode.text(), "Enabled" | "IfPossible") {
        return;
    }
    if !mount.at("readOnly").is_true() {
        errors.forbidden(mode, "may only be specified when readOnly is true");
    }
    let propagation = mount.at("mountPropagation");
    if propagation.is_set() && propagation.text() != "None" {
        let why = "may only be specified when mountPropagation is None or not specified";
        errors.forbidden(mode, why);
    }
}

fn devices(container: &Field<'_>, volumes: &Volumes, errors: &mut Errors) {
    let mounts = container.at("volumeMounts");
    let (mount_names, mount_paths) = (texts(&mounts, "name"), texts(&mounts, "mountPath"));
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for device in container.at("volumeDevices").items() {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        if name.is_empty() {
            errors.required(&name, "");
        } else if !names.insert(name.text()) {
            errors.invalid(&name, "must be unique");
        }
        match volumes.is_claimed(name.text()) {
            Some(true) => {}
            Some(false) => errors.invalid(
                &name,
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ),
            None => errors.not_found_named(&name),
        }
        if path.is_empty() {
            errors.required(&path, "");
        }
        if path.text().split('/').any(|part| part == "..") {
            errors.invalid(&path, "can not contain backsteps ('..')");
        } else if !paths.insert(path.text()) {
            errors.invalid_value(&path, path.text(), "must be unique");
        }
        elsewhere(&name, &mount_names, "in volumeMounts", errors);
        elsewhere(&path, &mount_paths, "as a path in volumeMounts", errors);
    }
}

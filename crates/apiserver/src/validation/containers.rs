//! What may be wrong with the containers of a pod.

use super::check::{Errors, Field};
use super::{pods, probes};
use std::collections::BTreeSet;
use stead_machinery::names;
use stead_machinery::quantity::Quantity;

/// Resources that containers have without a domain in front.
const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Fields of a container that the downward API shows.
const SHOWN: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Whether a container runs beside the others or before them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Main,
    Init,
}

pub fn check(spec: &Field<'_>, volumes: &BTreeSet<String>, errors: &mut Errors) {
    let (mains, inits) = (spec.at("containers"), spec.at("initContainers"));
    if mains.is_empty() {
        errors.required(&mains, "");
    }
    errors.unique(&mains, "name");
    let grace = spec.at("terminationGracePeriodSeconds").number();
    for container in mains.items() {
        one(&container, volumes, Role::Main, grace, errors);
    }
    let taken: BTreeSet<&str> = mains.items().map(|c| c.at("name").text()).collect();
    errors.unique(&inits, "name");
    for container in inits.items() {
        one(&container, volumes, Role::Init, grace, errors);
        if taken.contains(container.at("name").text()) {
            errors.duplicate(&container.at("name"));
        }
    }
}

fn one(container: &Field<'_>, volumes: &BTreeSet<String>, role: Role, grace: Option<i64>, errors: &mut Errors) {
    errors.named(&container.at("name"), names::dns1123_label);
    let image = container.at("image");
    if image.is_empty() {
        errors.required(&image, "");
    } else if image.text().trim() != image.text() {
        errors.invalid(&image, "must not have leading or trailing whitespace");
    }
    errors.one_of(
        &container.at("terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    errors.one_of(&container.at("imagePullPolicy"), &["Always", "IfNotPresent", "Never"]);
    errors.one_of_if_set(&container.at("restartPolicy"), &["Always", "Never", "OnFailure"]);
    ports(&container.at("ports"), errors);
    environment(container, errors);
    mounts(container, volumes, errors);
    resources(&container.at("resources"), errors);
    security_context(&container.at("securityContext"), errors);
    let sidecar = container.at("restartPolicy").text() == "Always";
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(name);
        match role {
            Role::Init if !sidecar && probe.is_set() => {
                errors.forbidden(
                    &probe,
                    "may not be set for init containers without restartPolicy=Always",
                );
            }
            _ => probes::check(&probe, grace, errors),
        }
        let successes = probe.at("successThreshold");
        if name != "readinessProbe" && successes.number().is_some_and(|n| n != 1) {
            errors.invalid(&successes, "must be 1");
        }
    }
    let lifecycle = container.at("lifecycle");
    if role == Role::Init && !sidecar && lifecycle.is_set() {
        errors.forbidden(
            &lifecycle,
            "may not be set for init containers without restartPolicy=Always",
        );
        return;
    }
    for hook in ["postStart", "preStop"] {
        probes::handler(&lifecycle.at(hook), grace, errors);
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

fn environment(container: &Field<'_>, errors: &mut Errors) {
    for variable in container.at("env").items() {
        let (name, source) = (variable.at("name"), variable.at("valueFrom"));
        errors.named(&name, environment_name);
        if !source.is_set() {
            continue;
        }
        let sources = [
            "fieldRef",
            "resourceFieldRef",
            "configMapKeyRef",
            "secretKeyRef",
            "fileKeyRef",
        ];
        match sources.iter().filter(|name| source.at(name).is_set()).count() {
            0 => errors.invalid_value(
                &source,
                "",
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
            ),
            _ if !variable.at("value").is_empty() => {
                errors.invalid_value(&source, "", "may not be specified when `value` is not empty");
            }
            1 => {}
            _ => errors.invalid_value(&source, "", "may not have more than one field specified at a time"),
        }
        let path = source.at("fieldRef").at("fieldPath");
        if source.at("fieldRef").is_set() {
            match path.text() {
                "" => errors.required(&path, ""),
                text if !is_field_path(text) => {
                    errors.invalid(
                        &path,
                        format!("error converting fieldPath: field label not supported: {text}"),
                    );
                }
                _ => {}
            }
        }
        let resource = source.at("resourceFieldRef").at("resource");
        if source.at("resourceFieldRef").is_set() {
            match resource.text() {
                "" => errors.required(&resource, ""),
                text if SHOWN.contains(&text) || text.contains(".hugepages-") => {}
                _ => errors.unsupported(&resource, SHOWN),
            }
        }
        for name in ["configMapKeyRef", "secretKeyRef"] {
            let reference = source.at(name);
            if reference.is_set() {
                errors.named(&reference.at("key"), names::config_map_key);
            }
        }
    }
    for source in container.at("envFrom").items() {
        // Kubernetes names the list here, not the item.
        let list = container.at("envFrom");
        match (source.at("configMapRef").is_set(), source.at("secretRef").is_set()) {
            (false, false) => errors.invalid_value(&list, "", "must specify one of: `configMapRef` or `secretRef`"),
            (true, true) => errors.invalid_value(&list, "", "may not have more than one field specified at a time"),
            _ => {}
        }
    }
}

fn environment_name(name: &str) -> Vec<String> {
    match name.chars().all(|c| c.is_ascii() && !c.is_ascii_control() && c != '=') {
        true => Vec::new(),
        false => vec![
            "a valid environment variable name must consist only of printable ASCII characters other than '='".into(),
        ],
    }
}

/// What the downward API can show of a pod.
fn is_field_path(path: &str) -> bool {
    const WHOLE: [&str; 13] = [
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "status.phase",
        "status.hostIP",
        "status.podIP",
        "status.podIPs",
    ];
    let keyed = ["metadata.annotations[", "metadata.labels["];
    WHOLE.contains(&path) || path == "status.hostIPs" || keyed.iter().any(|prefix| path.starts_with(prefix))
}

fn mounts(container: &Field<'_>, volumes: &BTreeSet<String>, errors: &mut Errors) {
    let mut paths = BTreeSet::new();
    for mount in container.at("volumeMounts").items() {
        let (name, path) = (mount.at("name"), mount.at("mountPath"));
        match name.text() {
            "" => errors.required(&name, ""),
            text if !volumes.contains(text) => errors.not_found(&name),
            _ => {}
        }
        if path.is_empty() {
            errors.required(&path, "");
        } else if !paths.insert(path.text()) {
            errors.invalid(&path, "must be unique");
        }
        let sub = mount.at("subPath");
        if sub.text().starts_with('/') {
            errors.invalid(&sub, "must be a relative path");
        }
        if sub.text().split('/').any(|part| part == "..") {
            errors.invalid(&sub, "must not contain '..'");
        }
    }
    for device in container.at("volumeDevices").items() {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        match name.text() {
            "" => errors.required(&name, ""),
            text if !volumes.contains(text) => errors.not_found(&name),
            _ => {}
        }
        errors.present(&path);
    }
}

/// Requests and limits: known resources, not negative, requests within limits.
pub fn resources(resources: &Field<'_>, errors: &mut Errors) {
    let amount = |field: &Field<'_>| field.text().parse::<Quantity>().ok();
    for list in ["limits", "requests"] {
        for (name, field) in resources.at(list).entries() {
            resource_name(name, &field, errors);
            match amount(&field) {
                Some(quantity) if quantity.is_negative() => {
                    errors.invalid(&field, "must be greater than or equal to 0");
                }
                // Things of other makes are counted, not measured.
                Some(quantity) if name.contains('/') && quantity.to_string().ends_with('m') => {
                    errors.invalid(&field, "must be an integer");
                }
                Some(_) => {}
                None => errors.invalid(&field, "must be a quantity"),
            }
        }
    }
    for (name, limit) in resources.at("limits").entries() {
        let request = resources.at("requests").key(name);
        if let (Some(limited), Some(requested)) = (amount(&limit), amount(&request))
            && requested > limited
        {
            let detail = format!("must be less than or equal to {name} limit of {}", limit.text());
            errors.invalid_value(&resources.at("requests"), request.text(), detail);
        }
    }
}

fn resource_name(name: &str, field: &Field<'_>, errors: &mut Errors) {
    if name.contains('/') || STANDARD.contains(&name) || name.starts_with("hugepages-") {
        return;
    }
    errors.invalid_value(field, name, "must be a standard resource type or fully qualified");
    errors.invalid_value(field, name, "must be a standard resource for containers");
}

fn security_context(context: &Field<'_>, errors: &mut Errors) {
    pods::user(&context.at("runAsUser"), errors);
    pods::user(&context.at("runAsGroup"), errors);
    let no_escalation = *context.at("allowPrivilegeEscalation").value == serde_json::Value::Bool(false);
    if no_escalation && context.at("privileged").is_true() {
        errors.invalid(
            context,
            "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        );
    }
}

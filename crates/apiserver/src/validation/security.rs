//! What may be wrong with the security of a pod and of its containers.

use super::check::{Errors, Field};
use std::collections::BTreeSet;
use stead_machinery::names;

/// Users and groups are 32-bit numbers that are not negative.
const MOST_ID: i64 = i32::MAX as i64;

const MOST_SYSCTL_LETTERS: usize = 253;

const PROFILES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

/// The longest path that a profile may have.
const MOST_PROFILE_LETTERS: usize = 4_095;

/// The security of the whole pod.
pub fn pod(spec: &Field<'_>, errors: &mut Errors) {
    let context = spec.at("securityContext");
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        user(&context.at(name), errors);
    }
    for group in context.at("supplementalGroups").items() {
        user(&group, errors);
    }
    if spec.at("shareProcessNamespace").is_true() && spec.at("hostPID").is_true() {
        // Kubernetes knows the field in another place than its clients do.
        let shown = Field {
            value: spec.at("shareProcessNamespace").value,
            path: context.at("shareProcessNamespace").path,
        };
        errors.invalid(&shown, "ShareProcessNamespace and HostPID cannot both be enabled");
    }
    sysctls(&context.at("sysctls"), errors);
    errors.one_of_if_set(&context.at("fsGroupChangePolicy"), &["Always", "OnRootMismatch"]);
    seccomp(&context.at("seccompProfile"), errors);
    windows(&context.at("windowsOptions"), errors);
    app_armor(&context.at("appArmorProfile"), errors);
    errors.one_of_if_set(&context.at("supplementalGroupsPolicy"), &["Merge", "Strict"]);
    errors.one_of_if_set(&context.at("seLinuxChangePolicy"), &["Recursive"]);
    host_process(spec, errors);
    own_users(spec, errors);
    system(spec, errors);
}

/// The security of one container of the pod.
pub fn container(context: &Field<'_>, spec: &Field<'_>, errors: &mut Errors) {
    user(&context.at("runAsUser"), errors);
    user(&context.at("runAsGroup"), errors);
    let mount = context.at("procMount");
    errors.one_of_if_set(&mount, &["Default", "Unmasked"]);
    let shares_users = *spec.at("hostUsers").value != serde_json::Value::Bool(false);
    if mount.text() == "Unmasked" && shares_users {
        errors.invalid(&mount, "`hostUsers` must be false to use `Unmasked`");
    }
    seccomp(&context.at("seccompProfile"), errors);
    if *context.at("allowPrivilegeEscalation").value == serde_json::Value::Bool(false) {
        if context.at("privileged").is_true() {
            errors.invalid(
                context,
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            );
        }
        let mut added = context.at("capabilities").at("add").items();
        if added.any(|capability| capability.text() == "CAP_SYS_ADMIN") {
            errors.invalid(
                context,
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            );
        }
    }
    windows(&context.at("windowsOptions"), errors);
    app_armor(&context.at("appArmorProfile"), errors);
}

/// The number of a user or group.
fn user(field: &Field<'_>, errors: &mut Errors) {
    if field.number().is_some_and(|id| !(0..=MOST_ID).contains(&id)) {
        errors.invalid(field, "must be between 0 and 2147483647, inclusive");
    }
}

fn sysctls(list: &Field<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for setting in list.items() {
        let name = setting.at("name");
        if name.is_empty() {
            errors.required(&name, "");
        } else if !is_sysctl_name(name.text()) {
            errors.invalid(
                &name,
                "must have at most 253 characters and match regex \
                 ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            );
        } else if !seen.insert(name.text()) {
            errors.duplicate(&name);
        }
    }
}

/// The name of a kernel setting: words of small letters and digits between dots or slashes.
fn is_sysctl_name(name: &str) -> bool {
    let plain = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let word = |word: &str| {
        let bytes = word.as_bytes();
        bytes.first().copied().is_some_and(plain)
            && bytes.last().copied().is_some_and(plain)
            && bytes
                .iter()
                .all(|&letter| plain(letter) || letter == b'-' || letter == b'_')
    };
    name.len() <= MOST_SYSCTL_LETTERS && name.split(['.', '/']).all(word)
}

fn seccomp(profile: &Field<'_>, errors: &mut Errors) {
    if !profile.is_set() {
        return;
    }
    let (kind, file) = (profile.at("type"), profile.at("localhostProfile"));
    match kind.text() {
        "" => errors.required(&kind, "type is required when seccompProfile is set"),
        _ => errors.one_of(&kind, PROFILES),
    }
    match (kind.text(), file.is_set()) {
        ("Localhost", false) => errors.required(&file, "must be set when seccomp type is Localhost"),
        ("Localhost", true) => errors.descending_path(&file),
        (_, true) => {
            let shown = Field {
                value: profile.value,
                path: file.path,
            };
            errors.invalid(&shown, "can only be set when seccomp type is Localhost");
        }
        _ => {}
    }
}

fn app_armor(profile: &Field<'_>, errors: &mut Errors) {
    if !profile.is_set() {
        return;
    }
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    let (kind, file) = (profile.at("type"), profile.at("localhostProfile"));
    match kind.text() {
        "Localhost" if !file.is_set() => errors.required(&file, NEEDED),
        "Localhost" => {
            let text = file.text();
            if text.trim() != text {
                errors.invalid(&file, "must not be padded with whitespace");
            } else if text.is_empty() {
                errors.required(&file, NEEDED);
            }
            errors.at_most(&file, MOST_PROFILE_LETTERS);
        }
        "RuntimeDefault" | "Unconfined" if file.is_set() => {
            errors.invalid(&file, "can only be set when AppArmor type is Localhost");
        }
        "RuntimeDefault" | "Unconfined" => {}
        "" => errors.required(&kind, "type is required when appArmorProfile is set"),
        _ => errors.unsupported(&kind, PROFILES),
    }
}

fn windows(options: &Field<'_>, errors: &mut Errors) {
    let spec_name = options.at("gmsaCredentialSpecName");
    if spec_name.is_set() {
        errors.complaints(&spec_name, names::dns1123_subdomain(spec_name.text()));
    }
    let credentials = options.at("gmsaCredentialSpec");
    if credentials.is_set() && credentials.is_empty() {
        errors.invalid(&credentials, "gmsaCredentialSpec cannot be an empty string");
    }
    let user = options.at("runAsUserName");
    if user.is_set() && user.is_empty() {
        errors.invalid(&user, "runAsUserName cannot be an empty string");
    }
}

/// Every container that the pod has, of whatever sort.
fn containers<'a>(spec: &Field<'a>) -> impl Iterator<Item = Field<'a>> + use<'a> {
    let lists = ["initContainers", "containers", "ephemeralContainers"].map(|name| spec.at(name));
    lists.into_iter().flat_map(|list| list.items().collect::<Vec<_>>())
}

/// Containers of Windows that are processes of the node: all or none, and on its network.
fn host_process(spec: &Field<'_>, errors: &mut Errors) {
    let of = |context: Field<'_>| {
        let wanted = context.at("windowsOptions").at("hostProcess");
        wanted.is_set().then(|| wanted.is_true())
    };
    let of_pod = of(spec.at("securityContext"));
    let wanted: Vec<bool> = containers(spec)
        .map(|container| of(container.at("securityContext")).or(of_pod).unwrap_or(false))
        .collect();
    if !wanted.contains(&true) {
        return;
    }
    if wanted.contains(&false) {
        let why = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid_value(spec, "", why);
    }
    if !spec.at("hostNetwork").is_true() {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid_value(&spec.at("hostNetwork"), false, why);
    }
}

/// What a pod with users of its own may not share with its node.
fn own_users(spec: &Field<'_>, errors: &mut Errors) {
    const WHY: &str = "when `hostUsers` is false";
    if *spec.at("hostUsers").value != serde_json::Value::Bool(false) {
        return;
    }
    for (name, shown) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if spec.at(name).is_true() {
            errors.forbidden(&spec.at(shown), WHY);
        }
    }
    for container in containers(spec) {
        if !container.at("volumeDevices").is_empty() {
            errors.forbidden(&container.at("volumeDevices"), WHY);
        }
    }
}

/// The system that the pod is made for.
fn system(spec: &Field<'_>, errors: &mut Errors) {
    let system = spec.at("os");
    if !system.is_set() {
        return;
    }
    match system.at("name").text() {
        "" => errors.required(&system.at("name"), ""),
        "linux" => {
            let all = containers(spec).map(|container| container.at("securityContext"));
            for context in std::iter::once(spec.at("securityContext")).chain(all) {
                if context.at("windowsOptions").is_set() {
                    let why = "windows options cannot be set for a linux pod";
                    errors.forbidden(&context.at("windowsOptions"), why);
                }
            }
        }
        "windows" => {}
        _ => {
            let shown = Field {
                value: system.at("name").value,
                path: system.path,
            };
            errors.unsupported(&shown, &["linux", "windows"]);
        }
    }
}

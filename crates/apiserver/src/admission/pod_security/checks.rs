//! The standards: what a baseline and a restricted pod may not do, in Kubernetes' words.

use super::super::pods::text;
use serde_json::Value;

/// A Pod Security Standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    pub fn parse(text: &str) -> Option<Level> {
        match text {
            "privileged" => Some(Level::Privileged),
            "baseline" => Some(Level::Baseline),
            "restricted" => Some(Level::Restricted),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// Everything that breaks the standard, or `None`.
pub fn violations(level: Level, spec: &Value, pod: &Value) -> Option<String> {
    let mut found: Vec<(String, String)> = Vec::new();
    if level >= Level::Baseline {
        baseline(spec, pod, &mut found);
    }
    if level == Level::Restricted {
        restricted(spec, &mut found);
    }
    if found.is_empty() {
        return None;
    }
    let shown: Vec<String> = found
        .into_iter()
        .map(|(what, why)| {
            if why.is_empty() {
                what
            } else {
                format!("{what} ({why})")
            }
        })
        .collect();
    Some(shown.join(", "))
}

const BASELINE_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const SAFE_SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];
const RESTRICTED_VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| spec[list].as_array().into_iter().flatten())
}

/// The names of the containers for which this is so.
fn named(spec: &Value, test: impl Fn(&Value) -> bool) -> Vec<String> {
    containers(spec)
        .filter(|container| test(container))
        .map(|container| format!("{:?}", text(container, "name")))
        .collect()
}

/// `container "a"` or `containers "a", "b"`.
fn which(names: &[String]) -> String {
    let plural = if names.len() == 1 { "container" } else { "containers" };
    format!("{plural} {}", names.join(", "))
}

fn quoted(values: &[String]) -> String {
    values
        .iter()
        .map(|value| format!("{value:?}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn baseline(spec: &Value, pod: &Value, found: &mut Vec<(String, String)>) {
    let mut add = |what: &str, why: String| found.push((what.to_string(), why));
    let context = |container: &Value| container["securityContext"].clone();
    let host_process = named(spec, |c| context(c)["windowsOptions"]["hostProcess"] == true);
    if !host_process.is_empty() {
        add(
            "hostProcess",
            format!(
                "{} must not set securityContext.windowsOptions.hostProcess=true",
                which(&host_process)
            ),
        );
    }
    let host: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| spec[*field] == true)
        .map(|field| format!("{field}=true"))
        .collect();
    if !host.is_empty() {
        add("host namespaces", host.join(", "));
    }
    let privileged = named(spec, |c| context(c)["privileged"] == true);
    if !privileged.is_empty() {
        add(
            "privileged",
            format!("{} must not set securityContext.privileged=true", which(&privileged)),
        );
    }
    let added = |container: &Value| -> Vec<String> {
        crate::verbs::object::strings(&container["securityContext"]["capabilities"]["add"])
    };
    let beyond = |capability: &String| !BASELINE_CAPABILITIES.contains(&capability.as_str());
    let capable = named(spec, |c| added(c).iter().any(beyond));
    if !capable.is_empty() {
        let mut names: Vec<String> = containers(spec).flat_map(added).filter(beyond).collect();
        names.sort();
        names.dedup();
        add(
            "non-default capabilities",
            format!(
                "{} must not include {} in securityContext.capabilities.add",
                which(&capable),
                quoted(&names)
            ),
        );
    }
    let host_paths: Vec<String> = spec["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|volume| volume["hostPath"].is_object())
        .map(|volume| format!("{:?}", text(volume, "name")))
        .collect();
    if !host_paths.is_empty() {
        let plural = if host_paths.len() == 1 { "volume" } else { "volumes" };
        add("hostPath volumes", format!("{plural} {}", host_paths.join(", ")));
    }
    let ports = |container: &Value| -> Vec<u64> {
        let ports = container["ports"].as_array().into_iter().flatten();
        ports
            .filter_map(|port| port["hostPort"].as_u64())
            .filter(|port| *port > 0)
            .collect()
    };
    let with_ports = named(spec, |c| !ports(c).is_empty());
    if !with_ports.is_empty() {
        let mut numbers: Vec<u64> = containers(spec).flat_map(ports).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let plural = if numbers.len() == 1 { "hostPort" } else { "hostPorts" };
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let verb = if with_ports.len() == 1 { "uses" } else { "use" };
        add(
            "hostPort",
            format!("{} {verb} {plural} {}", which(&with_ports), numbers.join(", ")),
        );
    }
    let proc_mount = named(spec, |c| {
        !matches!(text(&c["securityContext"], "procMount"), "" | "Default")
    });
    if !proc_mount.is_empty() {
        add(
            "procMount",
            format!(
                "{} must not set securityContext.procMount to \"Unmasked\"",
                which(&proc_mount)
            ),
        );
    }
    let unconfined = |context: &Value| text(&context["seccompProfile"], "type") == "Unconfined";
    let mut seccomp = Vec::new();
    if unconfined(&spec["securityContext"]) {
        seccomp.push("pod".to_string());
    }
    let containers_unconfined = named(spec, |c| unconfined(&c["securityContext"]));
    if !containers_unconfined.is_empty() {
        seccomp.push(which(&containers_unconfined));
    }
    if !seccomp.is_empty() {
        let who = seccomp.join(" and ");
        add(
            "seccompProfile",
            format!("{who} must not set securityContext.seccompProfile.type to \"Unconfined\""),
        );
    }
    let sysctls: Vec<String> = spec["securityContext"]["sysctls"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|sysctl| text(sysctl, "name").to_string())
        .filter(|name| !SAFE_SYSCTLS.contains(&name.as_str()))
        .collect();
    if !sysctls.is_empty() {
        add("forbidden sysctls", sysctls.join(", "));
    }
    let armor = pod["metadata"]["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| {
            key.starts_with("container.apparmor.security.beta.kubernetes.io/")
                && !matches!(value.as_str(), Some("runtime/default" | ""))
                && !value.as_str().is_some_and(|value| value.starts_with("localhost/"))
        });
    let armor: Vec<String> = armor.map(|(key, value)| format!("{key}={value}")).collect();
    if !armor.is_empty() {
        add("forbidden AppArmor profile", armor.join(", "));
    }
}

fn restricted(spec: &Value, found: &mut Vec<(String, String)>) {
    let mut add = |what: &str, why: String| found.push((what.to_string(), why));
    let escalates = named(spec, |c| c["securityContext"]["allowPrivilegeEscalation"] != false);
    if !escalates.is_empty() {
        add(
            "allowPrivilegeEscalation != false",
            format!(
                "{} must set securityContext.allowPrivilegeEscalation=false",
                which(&escalates)
            ),
        );
    }
    let list = |container: &Value, field: &str| {
        crate::verbs::object::strings(&container["securityContext"]["capabilities"][field])
    };
    let undropped = named(spec, |c| !list(c, "drop").iter().any(|name| name == "ALL"));
    let beyond = |name: &String| name != "NET_BIND_SERVICE";
    let adding = named(spec, |c| list(c, "add").iter().any(beyond));
    let mut capabilities = Vec::new();
    if !undropped.is_empty() {
        capabilities.push(format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            which(&undropped)
        ));
    }
    if !adding.is_empty() {
        let mut names: Vec<String> = containers(spec).flat_map(|c| list(c, "add")).filter(beyond).collect();
        names.sort();
        names.dedup();
        capabilities.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            which(&adding),
            quoted(&names)
        ));
    }
    if !capabilities.is_empty() {
        add("unrestricted capabilities", capabilities.join("; "));
    }
    let volumes: Vec<(String, String)> = spec["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|volume| {
            let kind = volume.as_object()?.keys().find(|key| *key != "name")?;
            (!RESTRICTED_VOLUMES.contains(&kind.as_str()))
                .then(|| (format!("{:?}", text(volume, "name")), kind.clone()))
        })
        .collect();
    if !volumes.is_empty() {
        let names: Vec<String> = volumes.iter().map(|(name, _)| name.clone()).collect();
        let mut kinds: Vec<String> = volumes.into_iter().map(|(_, kind)| format!("{kind:?}")).collect();
        kinds.sort();
        kinds.dedup();
        let (plural, verb) = if names.len() == 1 {
            ("volume", "uses")
        } else {
            ("volumes", "use")
        };
        let types = if kinds.len() == 1 { "type" } else { "types" };
        let why = format!(
            "{plural} {} {verb} restricted volume {types} {}",
            names.join(", "),
            kinds.join(", ")
        );
        add("restricted volume types", why);
    }
    non_root(spec, &mut add);
    let profile = |context: &Value| text(&context["seccompProfile"], "type").to_string();
    let good = |profile: &str| matches!(profile, "RuntimeDefault" | "Localhost");
    let pod_good = good(&profile(&spec["securityContext"]));
    let unprofiled = named(spec, |c| match profile(&c["securityContext"]).as_str() {
        "" => !pod_good,
        own => !good(own),
    });
    if !unprofiled.is_empty() {
        add(
            "seccompProfile",
            format!(
                "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
                which(&unprofiled)
            ),
        );
    }
}

fn non_root(spec: &Value, add: &mut dyn FnMut(&str, String)) {
    let pod = &spec["securityContext"]["runAsNonRoot"];
    let rooted = named(spec, |c| match &c["securityContext"]["runAsNonRoot"] {
        Value::Bool(own) => !own,
        _ => pod != &Value::Bool(true),
    });
    if !rooted.is_empty() {
        add(
            "runAsNonRoot != true",
            format!("pod or {} must set securityContext.runAsNonRoot=true", which(&rooted)),
        );
    }
    let mut zero = Vec::new();
    if spec["securityContext"]["runAsUser"].as_i64() == Some(0) {
        zero.push("pod".to_string());
    }
    let containers = named(spec, |c| c["securityContext"]["runAsUser"].as_i64() == Some(0));
    if !containers.is_empty() {
        zero.push(which(&containers));
    }
    if !zero.is_empty() {
        add(
            "runAsUser=0",
            format!("{} must not set runAsUser=0", zero.join(" and ")),
        );
    }
}

//! What is advised against in pods and templates of them, in the order in which Kubernetes tells it.

use serde_json::Value;
use std::collections::{HashMap, HashSet};
use stead_machinery::names;
use stead_machinery::quantity::Quantity;

const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

/// Labels of nodes that have a better name by now.
const OLD_LABELS: &[(&str, &str)] = &[
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "node-role.kubernetes.io/master",
        "use \"node-role.kubernetes.io/control-plane\" instead",
    ),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
];

/// Annotations that nobody reads any more.
const OLD_ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

/// Kinds of volumes that are on their way out.
const OLD_VOLUMES: &[(&str, &str)] = &[
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Looks at a pod or a template; `at` is its place, with a dot behind it.
pub fn check(pod: &Value, at: &str, found: &mut Vec<String>) {
    let spec = &pod["spec"];
    node_labels(spec, at, found);
    for (annotation, why) in OLD_ANNOTATIONS {
        if pod["metadata"]["annotations"].get(annotation).is_some() {
            found.push(format!("{at}metadata.annotations[{annotation}]: {why}"));
        }
    }
    for (index, volume) in items(&spec["volumes"]) {
        for (kind, why) in OLD_VOLUMES.iter().filter(|(kind, _)| !volume[kind].is_null()) {
            let kind = if *kind == "storageos" { "storageOS" } else { kind };
            found.push(format!("{at}spec.volumes[{index}].{kind}: {why}"));
        }
    }
    repeated(&spec["hostAliases"], "ip", &format!("{at}spec.hostAliases"), found);
    let secrets = format!("{at}spec.imagePullSecrets");
    repeated(&spec["imagePullSecrets"], "name", &secrets, found);
    for (index, secret) in items(&spec["imagePullSecrets"]) {
        if text(&secret["name"]).is_empty() {
            found.push(format!("{secrets}[{index}].name: invalid empty name \"\""));
        }
    }
    for name in ["memory", "ephemeral-storage"] {
        fraction(&spec["overhead"], name, &format!("{at}spec.overhead"), found);
    }
    let containers: Vec<(String, &Value)> = ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .flat_map(|list| items(&spec[list]).map(move |(index, it)| (format!("{at}spec.{list}[{index}]"), it)))
        .collect();
    for (at, container) in &containers {
        for name in ["memory", "ephemeral-storage"] {
            for part in ["limits", "requests"] {
                let amounts = &container["resources"][part];
                fraction(amounts, name, &format!("{at}.resources.{part}"), found);
            }
        }
        hidden_variables(container, at, found);
    }
    ports(&containers, found);
    port_names(&containers, found);
    if spec["terminationGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds < 0)
    {
        found.push(format!(
            "{at}spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    affinity(&spec["affinity"], &format!("{at}spec.affinity"), found);
}

fn items(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn old_label(label: &str) -> Option<&'static str> {
    let listed = OLD_LABELS.iter().find(|(name, _)| *name == label);
    listed.map(|(_, why)| *why)
}

fn node_labels(spec: &Value, at: &str, found: &mut Vec<String>) {
    for label in spec["nodeSelector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(label, _)| label)
    {
        if let Some(why) = old_label(label) {
            found.push(format!("{at}spec.nodeSelector[{label}]: {why}"));
        }
    }
    let nodes = &spec["affinity"]["nodeAffinity"];
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in items(&nodes[required]["nodeSelectorTerms"]) {
        let at = format!("{at}spec.affinity.nodeAffinity.{required}.nodeSelectorTerms[{index}]");
        expressions(term, &at, |_, _| {}, found);
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in items(&nodes[preferred]) {
        let at = format!("{at}spec.affinity.nodeAffinity.{preferred}[{index}].preference");
        expressions(&term["preference"], &at, bad_values, found);
    }
    for (index, spread) in items(&spec["topologySpreadConstraints"]) {
        let at = format!("{at}spec.topologySpreadConstraints[{index}]");
        let key = text(&spread["topologyKey"]);
        if let Some(why) = old_label(key) {
            found.push(format!("{at}.topologyKey: {key} is {why}"));
        }
        if spread["labelSelector"].is_null() {
            found.push(format!("{at}.labelSelector: {NULL_SELECTOR}"));
        }
    }
}

fn expressions(term: &Value, at: &str, values: impl Fn((&str, &Value), &mut Vec<String>), found: &mut Vec<String>) {
    for (index, expression) in items(&term["matchExpressions"]) {
        let at = format!("{at}.matchExpressions[{index}]");
        let key = text(&expression["key"]);
        if let Some(why) = old_label(key) {
            found.push(format!("{at}.key: {key} is {why}"));
        }
        values((&at, &expression["values"]), found);
    }
}

/// What is merely preferred may name values that no label can have.
fn bad_values((at, values): (&str, &Value), found: &mut Vec<String>) {
    for (index, value) in items(values) {
        let value = text(value);
        for why in names::label_value(value) {
            found.push(format!("{at}.values[{index}]: {value} is invalid, {why}"));
        }
    }
}

fn repeated(list: &Value, field: &str, at: &str, found: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for (index, item) in items(list) {
        let value = text(&item[field]);
        if !seen.insert(value) {
            found.push(format!("{at}[{index}].{field}: duplicate {field} {value:?}"));
        }
    }
}

fn fraction(amounts: &Value, name: &str, at: &str, found: &mut Vec<String>) {
    let Ok(quantity) = text(&amounts[name]).parse::<Quantity>() else {
        return;
    };
    if quantity.milli_value() % 1000 != 0 {
        found.push(format!(
            "{at}[{name}]: fractional byte value {:?} is invalid, must be an integer",
            quantity.to_string()
        ));
    }
}

fn hidden_variables(container: &Value, at: &str, found: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for (index, variable) in items(&container["env"]) {
        let (name, value) = (text(&variable["name"]), text(&variable["value"]));
        let reference = format!("$({name})");
        let builds_on_it = variable["valueFrom"].is_null() && value != reference && value.contains(&reference);
        if !seen.insert(name) && !builds_on_it {
            found.push(format!(
                "{at}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

/// One port, where it is on the node, and its place.
struct Port<'a> {
    host_ip: &'a str,
    host_port: i64,
    at: String,
}

fn ports(containers: &[(String, &Value)], found: &mut Vec<String>) {
    let mut all: HashMap<(i64, &str), Vec<Port<'_>>> = HashMap::new();
    for (at, container) in containers {
        for (index, value) in items(&container["ports"]) {
            let number = |field: &str| value[field].as_i64().unwrap_or_default();
            let port = Port {
                host_ip: text(&value["hostIP"]),
                host_port: number("hostPort"),
                at: format!("{at}.ports[{index}]"),
            };
            let (inside, protocol) = (number("containerPort"), text(&value["protocol"]));
            if !port.host_ip.is_empty() && port.host_port == 0 {
                found.push(format!(
                    "{}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{inside} Protocol:{protocol} HostIP:{}}}",
                    port.at,
                    text(&value["name"]),
                    port.host_ip
                ));
            }
            let others = all.entry((inside, protocol)).or_default();
            for other in others.iter() {
                let what = if port.host_ip == other.host_ip && port.host_port == other.host_port {
                    "duplicate"
                } else if port.host_port == 0 || other.host_port == 0 {
                    "overlapping"
                } else if port.host_port == other.host_port && port.host_ip.is_empty() != other.host_ip.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                found.push(format!("{}: {what} port definition with {}", port.at, other.at));
            }
            others.push(port);
        }
    }
}

fn port_names(containers: &[(String, &Value)], found: &mut Vec<String>) {
    let mut first: HashMap<&str, String> = HashMap::new();
    for (at, container) in containers {
        for (index, port) in items(&container["ports"]).filter(|(_, port)| !text(&port["name"]).is_empty()) {
            let (name, place) = (text(&port["name"]), format!("{at}.ports[{index}]"));
            match first.get(name) {
                Some(other) => found.push(format!(
                    "{place}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
                )),
                None => {
                    first.insert(name, place);
                }
            }
        }
    }
}

/// Terms about other pods that can match none.
fn affinity(affinity: &Value, at: &str, found: &mut Vec<String>) {
    for side in ["podAffinity", "podAntiAffinity"] {
        for (list, term) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            ("preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm"),
        ] {
            for (index, item) in items(&affinity[side][list]) {
                let (inner, dot) = match term {
                    "" => (item, ""),
                    term => (&item[term], "."),
                };
                if inner["labelSelector"].is_null() {
                    found.push(format!(
                        "{at}.{side}.{list}[{index}]{dot}{term}.labelSelector: {NULL_SELECTOR}"
                    ));
                }
            }
        }
    }
}

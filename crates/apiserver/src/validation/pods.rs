//! What may be wrong with a pod.

use super::check::{Errors, Field};
use super::{containers, volumes};
use std::collections::BTreeSet;
use stead_machinery::names;

/// Users and groups are 32-bit numbers that are not negative.
const MOST_ID: i64 = i32::MAX as i64;

const MOST_SYSCTL_LETTERS: usize = 253;

pub fn pod(pod: &Field<'_>, errors: &mut Errors) {
    spec(&pod.at("spec"), errors);
}

/// What only a new pod may not have.
pub fn new_pod(pod: &Field<'_>, errors: &mut Errors) {
    let debuggers = pod.at("spec").at("ephemeralContainers");
    if !debuggers.is_empty() {
        errors.forbidden(&debuggers, "cannot be set on create");
    }
    let (node, gates) = (pod.at("spec").at("nodeName"), pod.at("spec").at("schedulingGates"));
    if !node.is_empty() && !gates.is_empty() {
        errors.forbidden(&node, "cannot be set until all schedulingGates have been cleared");
    }
}

/// The spec of a pod or of a template.
pub fn spec(spec: &Field<'_>, errors: &mut Errors) {
    let volumes = volumes::check(&spec.at("volumes"), errors);
    containers::check(spec, &volumes, errors);
    errors.one_of(&spec.at("restartPolicy"), &["Always", "OnFailure", "Never"]);
    errors.one_of(
        &spec.at("dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    errors.labels(&spec.at("nodeSelector"));
    security_context(&spec.at("securityContext"), errors);
    errors.named_if_set(&spec.at("serviceAccountName"), names::dns1123_subdomain);
    errors.named_if_set(&spec.at("nodeName"), names::dns1123_subdomain);
    errors.named_if_set(&spec.at("hostname"), names::dns1123_label);
    errors.named_if_set(&spec.at("subdomain"), names::dns1123_label);
    errors.named_if_set(&spec.at("priorityClassName"), names::dns1123_subdomain);
    let deadline = spec.at("activeDeadlineSeconds");
    if deadline
        .number()
        .is_some_and(|seconds| !(1..=MOST_ID).contains(&seconds))
    {
        errors.invalid(&deadline, "must be between 1 and 2147483647, inclusive");
    }
    tolerations(&spec.at("tolerations"), errors);
    for gate in spec.at("readinessGates").items() {
        let kind = gate.at("conditionType");
        errors.complaints(&kind, names::qualified_name(kind.text()));
    }
    for constraint in spec.at("topologySpreadConstraints").items() {
        let skew = constraint.at("maxSkew");
        if skew.number().unwrap_or_default() <= 0 {
            errors.invalid(&skew, "must be greater than zero");
        }
        if constraint.at("topologyKey").is_empty() {
            errors.required(&constraint.at("topologyKey"), "can not be empty");
        }
        errors.one_of(
            &constraint.at("whenUnsatisfiable"),
            &["DoNotSchedule", "ScheduleAnyway"],
        );
    }
    for alias in spec.at("hostAliases").items() {
        errors.ip(&alias.at("ip"));
        for host in alias.at("hostnames").items() {
            errors.complaints(&host, names::dns1123_subdomain(host.text()));
        }
    }
    affinity(&spec.at("affinity"), errors);
    let dns = spec.at("dnsConfig");
    if spec.at("dnsPolicy").text() == "None" {
        if !dns.is_set() {
            errors.required(&dns, "must provide `dnsConfig` when `dnsPolicy` is None");
        } else if dns.at("nameservers").is_empty() {
            errors.required(
                &dns.at("nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            );
        }
    }
    for server in dns.at("nameservers").items() {
        errors.ip(&server);
    }
    for gate in spec.at("schedulingGates").items() {
        let named = Field {
            value: gate.at("name").value,
            path: gate.path.clone(),
        };
        errors.complaints(&named, names::qualified_name(named.text()));
    }
    let system = spec.at("os");
    if system.is_set() && !["linux", "windows"].contains(&system.at("name").text()) {
        let shown = Field {
            value: system.at("name").value,
            path: system.path,
        };
        errors.unsupported(&shown, &["linux", "windows"]);
    }
}

fn security_context(context: &Field<'_>, errors: &mut Errors) {
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        user(&context.at(name), errors);
    }
    for group in context.at("supplementalGroups").items() {
        user(&group, errors);
    }
    let profile = context.at("seccompProfile");
    if profile.at("type").text() == "Localhost" && profile.at("localhostProfile").is_empty() {
        let detail = "must be set when seccomp type is Localhost";
        errors.required(&profile.at("localhostProfile"), detail);
    }
    let mut seen = BTreeSet::new();
    for setting in context.at("sysctls").items() {
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

/// The number of a user or group.
pub fn user(field: &Field<'_>, errors: &mut Errors) {
    if field.number().is_some_and(|id| !(0..=MOST_ID).contains(&id)) {
        errors.invalid(field, "must be between 0 and 2147483647, inclusive");
    }
}

pub fn tolerations(list: &Field<'_>, errors: &mut Errors) {
    for toleration in list.items() {
        let (key, operator) = (toleration.at("key"), toleration.at("operator"));
        let (value, effect) = (toleration.at("value"), toleration.at("effect"));
        errors.named_if_set(&key, names::qualified_name);
        if key.is_empty() && operator.text() != "Exists" {
            errors.invalid(
                &operator,
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        let seconds = toleration.at("tolerationSeconds");
        if seconds.is_set() && effect.text() != "NoExecute" {
            errors.invalid(&effect, "effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator.text() {
            "" | "Equal" => errors.complaints(&operator, names::label_value(value.text())),
            "Exists" if !value.is_empty() => {
                errors.invalid_value(
                    &operator,
                    value.text(),
                    "value must be empty when `operator` is 'Exists'",
                );
            }
            "Exists" => {}
            _ => errors.unsupported(&operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            errors.one_of(&effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
    }
}

fn affinity(affinity: &Field<'_>, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let required = affinity.at("nodeAffinity").at(REQUIRED);
    if required.is_set() && required.at("nodeSelectorTerms").is_empty() {
        errors.required(
            &required.at("nodeSelectorTerms"),
            "must have at least one node selector term",
        );
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let rules = affinity.at(kind);
        for term in rules.at(REQUIRED).items() {
            pod_term(&term, errors);
        }
        for weighted in rules.at(PREFERRED).items() {
            let weight = weighted.at("weight");
            if !(1..=100).contains(&weight.number().unwrap_or_default()) {
                errors.invalid(&weight, "must be in the range 1-100");
            }
            pod_term(&weighted.at("podAffinityTerm"), errors);
        }
    }
}

fn pod_term(term: &Field<'_>, errors: &mut Errors) {
    errors.selector(&term.at("labelSelector"));
    let key = term.at("topologyKey");
    if key.is_empty() {
        errors.required(&key, "can not be empty");
        errors.invalid_value(&key, "", "name part must be non-empty");
    }
    for complaint in names::qualified_name(key.text()) {
        if complaint != "name part must be non-empty" {
            errors.invalid_value(&key, key.text(), complaint);
        }
    }
}

//! What may be wrong with a pod.

use super::check::{Errors, Field};
use super::resources::{self, Owner};
use super::{containers, environment, scheduling, security, volumes};
use stead_machinery::names;

const LONGEST_DEADLINE: i64 = i32::MAX as i64;
const MOST_HOST_LETTERS: usize = 64;
const MOST_NAMESERVERS: usize = 3;
const MOST_SEARCHES: usize = 32;
const MOST_SEARCH_LETTERS: usize = 2_048;

/// Whose spec it is: some things are asked of pods alone, because templates were never asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose<'a> {
    /// The pod of this name.
    Pod(&'a str),
    Template,
}

pub fn pod(pod: &Field<'_>, errors: &mut Errors) {
    let spec = pod.at("spec");
    check(&spec, Whose::Pod(pod.at("metadata").at("name").text()), errors);
    containers::images(&spec, errors);
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

/// The spec of a template.
pub fn spec(spec: &Field<'_>, errors: &mut Errors) {
    check(spec, Whose::Template, errors);
}

fn check(spec: &Field<'_>, whose: Whose<'_>, errors: &mut Errors) {
    let volumes = volumes::check(&spec.at("volumes"), whose, errors);
    resources::claims(&spec.at("resourceClaims"), errors);
    containers::check(spec, &volumes, errors);
    pod_resources(spec, errors);
    host_network(spec, whose, errors);
    errors.one_of(&spec.at("restartPolicy"), &["Always", "OnFailure", "Never"]);
    errors.one_of(
        &spec.at("dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    errors.labels(&spec.at("nodeSelector"));
    security::pod(spec, errors);
    scheduling::affinity(&spec.at("affinity"), errors);
    dns(spec, errors);
    scheduling::gates(spec, errors);
    scheduling::spread(&spec.at("topologySpreadConstraints"), errors);
    errors.named_if_set(&spec.at("serviceAccountName"), names::dns1123_subdomain);
    errors.named_if_set(&spec.at("nodeName"), names::dns1123_subdomain);
    names_of_host(spec, errors);
    errors.named_if_set(&spec.at("priorityClassName"), names::dns1123_subdomain);
    errors.named_if_set(&spec.at("runtimeClassName"), names::dns1123_subdomain);
    errors.one_of_if_set(&spec.at("preemptionPolicy"), &["PreemptLowerPriority", "Never"]);
    let deadline = spec.at("activeDeadlineSeconds");
    if deadline
        .number()
        .is_some_and(|seconds| !(1..=LONGEST_DEADLINE).contains(&seconds))
    {
        errors.invalid(&deadline, "must be between 1 and 2147483647, inclusive");
    }
    scheduling::tolerations(&spec.at("tolerations"), errors);
    resources::overhead(&spec.at("overhead"), errors);
    environment::files(spec, errors);
}

/// What the containers of a pod have together.
fn pod_resources(spec: &Field<'_>, errors: &mut Errors) {
    let resources = spec.at("resources");
    if !resources.is_set() {
        return;
    }
    let claims = resources.at("claims");
    if claims.is_set() {
        errors.forbidden(&claims, "claims may not be set for Resources at pod-level");
    }
    resources::requirements(&resources, Owner::Pod, &resources::claim_names(spec), errors);
}

/// On the network of its node, a container has the ports that it says.
fn host_network(spec: &Field<'_>, whose: Whose<'_>, errors: &mut Errors) {
    if !spec.at("hostNetwork").is_true() {
        return;
    }
    for container in spec.at("containers").items() {
        for port in container.at("ports").items() {
            let (host, own) = (port.at("hostPort"), port.at("containerPort"));
            let said = host.number().unwrap_or_default();
            if (whose != Whose::Template || said != 0) && said != own.number().unwrap_or_default() {
                let why = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid_value(&host, said, why);
            }
        }
    }
}

fn names_of_host(spec: &Field<'_>, errors: &mut Errors) {
    errors.named_if_set(&spec.at("hostname"), names::dns1123_label);
    errors.named_if_set(&spec.at("subdomain"), names::dns1123_label);
    let host = spec.at("hostnameOverride");
    if host.is_set() {
        if spec.at("setHostnameAsFQDN").is_true() {
            errors.forbidden(&host, "may not be specified when setHostnameAsFQDN is true");
        }
        if spec.at("hostNetwork").is_true() {
            errors.forbidden(&host, "may not be specified when hostNetwork is true");
        }
        errors.at_most(&host, MOST_HOST_LETTERS);
        errors.complaints(&host, names::dns1123_subdomain(host.text()));
    }
    for alias in spec.at("hostAliases").items() {
        errors.ip(&alias.at("ip"));
        for host in alias.at("hostnames").items() {
            errors.complaints(&host, names::dns1123_subdomain(host.text()));
        }
    }
}

fn dns(spec: &Field<'_>, errors: &mut Errors) {
    let dns = spec.at("dnsConfig");
    let (servers, searches) = (dns.at("nameservers"), dns.at("searches"));
    if spec.at("dnsPolicy").text() == "None" {
        if !dns.is_set() {
            errors.required(&dns, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(&servers, why);
            return;
        }
    }
    if servers.items().count() > MOST_NAMESERVERS {
        errors.invalid(&servers, "must not have more than 3 nameservers");
    }
    for server in servers.items() {
        errors.ip(&server);
    }
    if searches.items().count() > MOST_SEARCHES {
        errors.invalid(&searches, "must not have more than 32 search paths");
    }
    let letters: usize = searches.items().map(|search| search.text().len() + 1).sum();
    if letters > MOST_SEARCH_LETTERS + 1 {
        let why = "must not have more than 2048 characters (including spaces) in the search list";
        errors.invalid(&searches, why);
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let text = search.text().strip_suffix('.').unwrap_or(search.text());
        for complaint in names::dns1123_subdomain_with_underscore(text) {
            errors.invalid_value(&search, text, complaint);
        }
    }
    for option in dns.at("options").items() {
        if option.at("name").is_empty() {
            errors.required(&option, "must not be empty");
        }
    }
}

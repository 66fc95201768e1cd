//! Which names the objects of a kind may have.

use crate::catalogue::{Origin, Resource};
use stead_machinery::names::{dns1123_label, dns1123_subdomain, path_segment};

/// The rule of a kind.
enum Rule {
    Subdomain,
    Label,
    Segment,
}

fn rule(resource: &Resource) -> Rule {
    if matches!(resource.origin, Origin::Custom(_)) {
        return Rule::Subdomain;
    }
    match super::id(resource) {
        // Since 1.36 the name of a service may begin with a digit.
        ("", "namespaces" | "services") | ("apps", "statefulsets") => Rule::Label,
        ("", "events") | ("events.k8s.io", "events") => Rule::Segment,
        ("rbac.authorization.k8s.io", _) => Rule::Segment,
        ("certificates.k8s.io", "certificatesigningrequests") => Rule::Segment,
        ("networking.k8s.io", "ipaddresses") => Rule::Segment,
        // Nobody checks the name of a budget.
        ("policy", "poddisruptionbudgets") => Rule::Segment,
        _ => Rule::Subdomain,
    }
}

/// What is wrong with a name.
pub fn complaints(resource: &Resource, name: &str) -> Vec<String> {
    match rule(resource) {
        Rule::Subdomain => dns1123_subdomain(name),
        Rule::Label => dns1123_label(name),
        Rule::Segment => path_segment(name),
    }
}

/// What is wrong with the beginning of a generated name; it may end where a name may not.
pub fn prefix_complaints(resource: &Resource, prefix: &str) -> Vec<String> {
    let masked = match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => format!("{rest}a"),
        _ => prefix.to_string(),
    };
    complaints(resource, &masked)
}

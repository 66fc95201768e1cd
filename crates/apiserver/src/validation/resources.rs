//! What may be wrong with requests, limits and claims of resources.

use super::check::{Errors, Field};
use std::collections::BTreeSet;
use stead_machinery::names;
use stead_machinery::quantity::Quantity;

/// Resources that containers have without a domain in front.
const OF_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Resources that are known without a domain in front, those of quotas among them.
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// How many names of claims a refusal repeats.
const MOST_SHOWN: usize = 64;

/// Resources of which there are only whole ones.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Whose resources they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Container,
    Pod,
}

/// Names that claims of containers may refer to.
pub fn claim_names<'a>(spec: &Field<'a>) -> BTreeSet<&'a str> {
    let names = spec.at("resourceClaims").items().map(|claim| claim.at("name").text());
    names.filter(|name| !name.is_empty()).collect()
}

/// Requests, limits and claims.
pub fn requirements(resources: &Field<'_>, owner: Owner, claims: &BTreeSet<&str>, errors: &mut Errors) {
    amounts(
        resources,
        (&resources.at("limits"), &resources.at("requests")),
        owner,
        errors,
    );
    used_claims(&resources.at("claims"), claims, errors);
}

/// What a pod costs beyond its containers; Kubernetes judges it as limits.
pub fn overhead(overhead: &Field<'_>, errors: &mut Errors) {
    let limits = Field {
        value: overhead.value,
        path: overhead.at("limits").path,
    };
    let requests = overhead.at("requests").at("none");
    amounts(overhead, (&limits, &requests), Owner::Container, errors);
}

fn amounts(of: &Field<'_>, (limits, requests): (&Field<'_>, &Field<'_>), owner: Owner, errors: &mut Errors) {
    for (name, field) in limits.entries() {
        amount(name, &field, owner, errors);
    }
    for (name, field) in requests.entries() {
        amount(name, &field, owner, errors);
        within(name, &field, (limits, requests), errors);
    }
    let names = || limits.entries().chain(requests.entries()).map(|(name, _)| name);
    if names().any(is_huge_pages) && !names().any(|name| name == "cpu" || name == "memory") {
        errors.forbidden(of, "HugePages require cpu or memory");
    }
}

fn amount(name: &str, field: &Field<'_>, owner: Owner, errors: &mut Errors) {
    resource_name(name, field, owner, errors);
    let Some(quantity) = quantity(field) else {
        errors.invalid(field, "must be a quantity");
        return;
    };
    if quantity.is_negative() {
        errors.invalid(field, "must be greater than or equal to 0");
    }
    counted(name, field, errors);
    if is_huge_pages(name) && !is_multiple(name, &quantity) {
        errors.invalid(field, format!("{quantity} is not positive integer multiple of {name}"));
    }
}

fn quantity(field: &Field<'_>) -> Option<Quantity> {
    field.text().parse().ok()
}

/// A request is at most its limit; what cannot be lent twice has to be its limit.
fn within(name: &str, request: &Field<'_>, (limits, requests): (&Field<'_>, &Field<'_>), errors: &mut Errors) {
    let limit = limits.key(name);
    let lent = is_native(name) && !is_huge_pages(name);
    if !limit.is_set() {
        if !lent {
            errors.required(limits, "Limit must be set for non overcommitable resources");
        }
        return;
    }
    if let (Some(limited), Some(requested)) = (quantity(&limit), quantity(request)) {
        let words = match lent {
            false if requested != limited => "must be equal to",
            _ if requested > limited => "must be less than or equal to",
            _ => return,
        };
        let detail = format!("{words} {name} limit of {}", limit.text());
        errors.invalid_value(requests, request.text(), detail);
    }
}

fn resource_name(name: &str, field: &Field<'_>, owner: Owner, errors: &mut Errors) {
    match owner {
        Owner::Container => container_name(name, field, errors),
        Owner::Pod => {
            let before = errors.0.len();
            known_name(name, field, errors);
            let supported = matches!(name, "cpu" | "memory") || is_huge_pages(name);
            if errors.0.len() == before && !supported {
                let shown = serde_json::Value::from(name);
                let field = Field {
                    value: &shown,
                    path: field.path.clone(),
                };
                errors.unsupported(&field, &["cpu", "hugepages-", "memory"]);
            }
        }
    }
}

/// A resource that there is, or that somebody may have made up under a name of theirs.
pub fn known_name(name: &str, field: &Field<'_>, errors: &mut Errors) {
    let complaints = names::qualified_name(name);
    let standard = name.contains('/')
        || STANDARD.contains(&name)
        || is_huge_pages(name)
        || name.starts_with("requests.hugepages-");
    if complaints.is_empty() && !standard {
        errors.invalid_value(field, name, "must be a standard resource type or fully qualified");
    }
    for complaint in complaints {
        errors.invalid_value(field, name, complaint);
    }
}

/// A resource that a container may have.
pub fn container_name(name: &str, field: &Field<'_>, errors: &mut Errors) {
    known_name(name, field, errors);
    if !name.contains('/') {
        if !OF_CONTAINERS.contains(&name) && !is_huge_pages(name) {
            errors.invalid_value(field, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid_value(field, name, "doesn't follow extended resource name standard");
    }
}

/// An amount of something of which there are only whole ones.
pub fn counted(name: &str, field: &Field<'_>, errors: &mut Errors) {
    let whole = quantity(field).is_none_or(|quantity| quantity.is_whole());
    if (COUNTED.contains(&name) || is_extended(name)) && !whole {
        errors.invalid(field, "must be an integer");
    }
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether Kubernetes knows the resource itself.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether an amount is made of whole pages.
fn is_multiple(name: &str, amount: &Quantity) -> bool {
    let size = name.strip_prefix("hugepages-").unwrap_or_default();
    let size = size.parse::<Quantity>().map(|size| size.value()).unwrap_or_default();
    size > 0 && amount.is_whole() && amount.value() % size == 0
}

fn used_claims(claims: &Field<'_>, known: &BTreeSet<&str>, errors: &mut Errors) {
    let (mut used, mut used_at_all) = (BTreeSet::new(), BTreeSet::new());
    let which = match known.is_empty() {
        true => " which is empty".to_string(),
        // Every claim that is not there repeats them, and both lists can be as long as a request.
        false => {
            let shown: Vec<&str> = known.iter().copied().take(MOST_SHOWN).collect();
            format!(": {}", shown.join(", "))
        }
    };
    for claim in claims.items() {
        let (name, request) = (claim.at("name").text(), claim.at("request"));
        if name.is_empty() {
            errors.required(&claim, "");
            continue;
        }
        let named = Field {
            value: claim.at("name").value,
            path: claim.path.clone(),
        };
        errors.named_if_set(&request, names::dns1123_label);
        let whole = used.contains(&(name, ""));
        let part = request.is_empty() && used_at_all.contains(name);
        used_at_all.insert(name);
        if whole || part || !used.insert((name, request.text())) {
            errors.duplicate(&named);
        }
        if !known.contains(name) {
            let why = format!("must be one of the names in pod.spec.resourceClaims{which}");
            errors.not_found_because(&named, why);
        }
    }
}

/// The claims of a pod: each has a name, and names what it is for.
pub fn claims(claims: &Field<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for claim in claims.items() {
        let name = claim.at("name");
        match name.text() {
            "" => errors.required(&name, ""),
            text if !seen.insert(text) => errors.duplicate(&name),
            text => errors.complaints(&name, names::dns1123_label(text)),
        }
        let (claimed, template) = (claim.at("resourceClaimName"), claim.at("resourceClaimTemplateName"));
        match (claimed.is_set(), template.is_set()) {
            (true, true) => errors.invalid(
                &claim,
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (false, false) => errors.invalid(
                &claim,
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            _ => {}
        }
        for field in [claimed, template] {
            if field.is_set() {
                errors.complaints(&field, names::dns1123_subdomain(field.text()));
            }
        }
    }
}

/// How a container takes a change of its resources.
pub fn resize(policies: &Field<'_>, never_restarts: Restarts, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for policy in policies.items() {
        let (resource, restart) = (policy.at("resourceName"), policy.at("restartPolicy"));
        if !seen.insert(resource.text()) {
            errors.duplicate(&Field {
                value: resource.value,
                path: policy.path.clone(),
            });
        }
        for (field, allowed) in [
            (&resource, ["cpu", "memory"]),
            (&restart, ["NotRequired", "RestartContainer"]),
        ] {
            let shown = Field {
                value: field.value,
                path: policies.path.clone(),
            };
            match field.text() {
                "" => errors.required(&shown, ""),
                _ => errors.one_of(&shown, &allowed),
            }
        }
        if never_restarts == Restarts::Never && restart.text() != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid_value(policies, restart.text(), why);
        }
    }
}

/// Whether containers of the pod are ever started again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Restarts {
    Never,
    Sometimes,
}

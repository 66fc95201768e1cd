//! What may be wrong with the order in which requests are served.

use super::check::{Errors, Field};
use stead_machinery::names;

const VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

const LAST_PRECEDENCE: i64 = 10_000;

pub fn schema(schema: &Field<'_>, errors: &mut Errors) {
    let spec = schema.at("spec");
    let precedence = spec.at("matchingPrecedence");
    match precedence.number() {
        Some(number) if number <= 0 => errors.invalid(&precedence, "must be a positive value"),
        Some(number) if number > LAST_PRECEDENCE => errors.invalid(&precedence, "must not be greater than 10000"),
        Some(1) if schema.at("metadata").at("name").text() != "exempt" => {
            let why = "only the schema named 'exempt' may have matchingPrecedence 1";
            errors.invalid(&precedence, why);
        }
        _ => {}
    }
    let method = spec.at("distinguisherMethod");
    if method.is_set() && !["ByNamespace", "ByUser"].contains(&method.at("type").text()) {
        let shown = Field {
            value: method.value,
            path: method.at("type").path,
        };
        errors.unsupported(&shown, &["ByNamespace", "ByUser"]);
    }
    let level = spec.at("priorityLevelConfiguration").at("name");
    match level.is_empty() {
        true => errors.required(&level, "must reference a priority level"),
        false => errors.complaints(&level, names::dns1123_subdomain(level.text())),
    }
    for rule in spec.at("rules").items() {
        self::rule(&rule, errors);
    }
}

fn rule(rule: &Field<'_>, errors: &mut Errors) {
    let subjects = rule.at("subjects");
    if subjects.is_empty() {
        errors.required(&subjects, "subjects must contain at least one value");
    }
    for subject in subjects.items() {
        errors.one_of_shown(&subject.at("kind"), &["Group", "ServiceAccount", "User"]);
    }
    let (resources, paths) = (rule.at("resourceRules"), rule.at("nonResourceRules"));
    if resources.is_empty() && paths.is_empty() {
        let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.required(rule, why);
    }
    for resource in resources.items() {
        verbs(&resource.at("verbs"), errors);
        let (namespaces, cluster) = (resource.at("namespaces"), resource.at("clusterScope").is_true());
        for (name, why) in [
            ("apiGroups", "resource rules must supply at least one api group"),
            ("resources", "resource rules must supply at least one resource"),
        ] {
            if resource.at(name).is_empty() {
                errors.required(&resource.at(name), why);
            }
        }
        if namespaces.is_empty() && !cluster {
            let why = "resource rules that are not cluster scoped must supply at least one namespace";
            errors.required(&namespaces, why);
        }
        for namespace in namespaces.items().filter(|namespace| namespace.text() != "*") {
            for complaint in names::dns1123_label(namespace.text()) {
                let why = format!("each member of this list must be '*' or a DNS-1123 label; {complaint}");
                errors.invalid(&namespace, why);
            }
        }
    }
    for path in paths.items() {
        verbs(&path.at("verbs"), errors);
        let urls = path.at("nonResourceURLs");
        if urls.is_empty() {
            errors.required(&urls, "nonResourceURLs must contain at least one value");
        }
        for url in urls.items().filter(|url| url.text() != "*") {
            match url.text() {
                "" => errors.invalid(&url, "must not be empty"),
                text if !text.starts_with('/') => errors.invalid(&url, "must start with slash"),
                _ => {}
            }
        }
    }
}

fn verbs(verbs: &Field<'_>, errors: &mut Errors) {
    if verbs.is_empty() {
        errors.required(verbs, "verbs must contain at least one value");
        return;
    }
    let all = verbs.items().any(|verb| verb.text() == "*");
    if !all && !verbs.items().all(|verb| VERBS.contains(&verb.text())) {
        errors.unsupported(verbs, VERBS);
    }
}

pub fn level(level: &Field<'_>, errors: &mut Errors) {
    let spec = level.at("spec");
    let (kind, limited, exempt) = (spec.at("type"), spec.at("limited"), spec.at("exempt"));
    match kind.text() {
        "" => errors.required(&kind, ""),
        "Limited" => {
            if exempt.is_set() {
                errors.forbidden(&exempt, "must be nil if the type is Limited");
            }
            if limited.is_set() {
                limits(&limited, errors);
            } else {
                errors.required(&limited, "must not be empty when type is Limited");
            }
        }
        "Exempt" if limited.is_set() => {
            errors.forbidden(&limited, "must be nil if the type is not Limited");
        }
        "Exempt" => {}
        _ => errors.unsupported(&kind, &["Exempt", "Limited"]),
    }
}

fn limits(limited: &Field<'_>, errors: &mut Errors) {
    let negative = |field: &Field<'_>| field.number().is_some_and(|number| number < 0);
    let (shares, lent, borrowed) = (
        limited.at("nominalConcurrencyShares"),
        limited.at("lendablePercent"),
        limited.at("borrowingLimitPercent"),
    );
    if negative(&shares) {
        errors.invalid(&shares, "must be a non-negative integer");
    }
    if lent.number().is_some_and(|percent| !(0..=100).contains(&percent)) {
        errors.invalid(&lent, "must be between 0 and 100, inclusive");
    }
    if negative(&borrowed) {
        errors.invalid(&borrowed, "if specified, must be a non-negative integer");
    }
    let response = limited.at("limitResponse");
    let (kind, queuing) = (response.at("type"), response.at("queuing"));
    match kind.text() {
        "" => errors.required(&kind, ""),
        "Queue" if !queuing.is_set() => {
            let why = "must not be empty if limited.limitResponse.type is Limited";
            errors.required(&queuing, why);
        }
        "Queue" => {}
        "Reject" if queuing.is_set() => {
            let why = "must be nil if limited.limitResponse.type is not Limited";
            errors.forbidden(&queuing, why);
        }
        "Reject" => {}
        _ => errors.unsupported(&kind, &["Queue", "Reject"]),
    }
}

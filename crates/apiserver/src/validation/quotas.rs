//! What may be wrong with quotas and with limits of what a namespace may use.

use super::check::{Errors, Field};
use super::resources;
use stead_machinery::names;
use stead_machinery::quantity::Quantity;

/// Which objects a quota may be narrowed to.
const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

/// What quotas count besides objects of any kind.
const KNOWN_QUOTAS: [&str; 12] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

pub fn resource_quota(quota: &Field<'_>, errors: &mut Errors) {
    let spec = quota.at("spec");
    quota_amounts(&spec.at("hard"), errors);
    for scope in spec.at("scopes").items() {
        if !SCOPES.contains(&scope.text()) {
            errors.invalid(&spec.at("scopes"), "unsupported scope");
        }
    }
    // Kubernetes names the list, not the item.
    let list = spec.at("scopeSelector").at("matchExpressions");
    for expression in list.items() {
        let item = Field {
            value: expression.value,
            path: list.path.clone(),
        };
        scope_expression(&item, errors);
    }
}

fn scope_expression(expression: &Field<'_>, errors: &mut Errors) {
    let (scope, operator, values) = (
        expression.at("scopeName"),
        expression.at("operator"),
        expression.at("values"),
    );
    if !SCOPES.contains(&scope.text()) {
        errors.invalid_value(&scope, scope.text(), "unsupported scope");
    }
    let valued = ["PriorityClass", "VolumeAttributesClass"].contains(&scope.text());
    if SCOPES.contains(&scope.text()) && !valued && operator.text() != "Exists" {
        let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                   ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                   ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
        errors.invalid_value(&operator, operator.text(), why);
    }
    match operator.text() {
        "In" | "NotIn" if values.is_empty() => errors.required(
            &values,
            "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        ),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            errors.invalid(&values, why);
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid_value(&operator, other, "not a valid selector operator"),
    }
}

pub fn quota_status(quota: &Field<'_>, errors: &mut Errors) {
    quota_amounts(&quota.at("status").at("hard"), errors);
    quota_amounts(&quota.at("status").at("used"), errors);
}

fn quota_amounts(amounts: &Field<'_>, errors: &mut Errors) {
    for (name, amount) in amounts.entries() {
        let prefixed = ["requests.", "limits.", "count/"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        resources::known_name(name, &amount, errors);
        if !KNOWN_QUOTAS.contains(&name) && !prefixed && !name.contains('/') && !name.starts_with("hugepages-") {
            errors.invalid_value(&amount, name, "must be a standard resource for quota");
        }
        resources::counted(name, &amount, errors);
        if amount
            .text()
            .parse::<Quantity>()
            .is_ok_and(|quantity| quantity.is_negative())
        {
            errors.invalid(&amount, "must be greater than or equal to 0");
        }
    }
}

/// What else may be wrong with one limit.
fn limit(limit: &Field<'_>, errors: &mut Errors) {
    let kind = limit.at("type");
    let standard = ["Container", "Pod", "PersistentVolumeClaim"].contains(&kind.text());
    let complaints = names::qualified_name(kind.text());
    if complaints.is_empty() && !standard && !kind.text().contains('/') {
        errors.invalid(&kind, "must be a standard limit type or fully qualified");
    }
    for complaint in complaints {
        errors.invalid_value(&kind, kind.text(), complaint);
    }
    for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let amounts = limit.at(list);
        if kind.text() == "Pod" && list.starts_with("default") {
            if !amounts.is_empty() {
                errors.forbidden(&amounts, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (name, amount) in amounts.entries() {
            match kind.text() {
                "Pod" | "Container" => resources::container_name(name, &amount, errors),
                _ => resources::known_name(name, &amount, errors),
            }
        }
    }
    let stored = |list: &str| limit.at(list).value.get("storage").is_some();
    if kind.text() == "PersistentVolumeClaim" && !stored("min") && !stored("max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&limit.at("limits"), detail);
    }
    let amount = |list: &str, name: &str| limit.value[list][name].as_str()?.parse::<Quantity>().ok();
    let upper = [
        ("defaultRequest", "default request", "max", "max"),
        ("defaultRequest", "default request", "default", "default limit"),
        ("default", "default", "max", "max"),
    ];
    for (list, words, bound_list, bound_words) in upper {
        for (name, field) in limit.at(list).entries().filter(|_| kind.text() != "Pod") {
            let (Some(value), Some(bound)) = (amount(list, name), amount(bound_list, name)) else {
                continue;
            };
            if value > bound {
                let detail = format!("{words} value {value} is greater than {bound_words} value {bound}");
                // Kubernetes shows the bound for a default, and the value for a default request.
                let shown = if list == "default" {
                    bound.to_string()
                } else {
                    value.to_string()
                };
                errors.invalid_value(&field, shown, detail);
            }
        }
    }
    for (name, field) in limit.at("maxLimitRequestRatio").entries() {
        let one: Option<Quantity> = "1".parse().ok();
        if let (Some(ratio), Some(one)) = (amount("maxLimitRequestRatio", name), one)
            && ratio < one
        {
            errors.invalid(&field, format!("ratio {ratio} is less than 1"));
        }
    }
}

pub fn limit_range(range: &Field<'_>, errors: &mut Errors) {
    let limits = range.at("spec").at("limits");
    errors.unique(&limits, "type");
    for limit in limits.items() {
        self::limit(&limit, errors);
        let amount = |list: &str, name: &str| {
            let text = limit.value[list][name].as_str()?;
            text.parse::<Quantity>()
                .ok()
                .map(|quantity| (quantity, text.to_string()))
        };
        for (name, field) in limit.at("min").entries() {
            let Some((least, shown)) = amount("min", name) else {
                continue;
            };
            for (list, words) in [
                ("max", "max"),
                ("defaultRequest", "default request"),
                ("default", "default"),
            ] {
                let Some((bound, bound_shown)) = amount(list, name).filter(|(bound, _)| least > *bound) else {
                    continue;
                };
                let detail = format!("min value {shown} is greater than {words} value {bound}");
                match list {
                    "max" => errors.invalid(&field, detail),
                    "defaultRequest" => errors.invalid_value(&limit.at(list).key(name), bound_shown, detail),
                    _ => errors.invalid_value(&limit.at(list).key(name), shown.clone(), detail),
                }
            }
        }
    }
}

//! Which writes a webhook or a policy is about.

use super::{Operation, Review};
use crate::catalogue::Resource;
use crate::verbs::Call;
use crate::verbs::object;
use serde_json::Value;
use std::sync::Arc;
use stead_machinery::selector::LabelSelector;

/// The rules and selectors of one webhook, policy or binding.
#[derive(Debug, Default)]
pub struct Matcher {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    namespace_selector: Option<LabelSelector>,
    object_selector: Option<LabelSelector>,
    policy: MatchPolicy,
}

/// Whether a rule for one version of a kind is meant for the others as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum MatchPolicy {
    Exact,
    #[default]
    Equivalent,
}

#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    object_names: Vec<String>,
    scope: String,
}

/// Kinds that admission itself is configured with; a broken webhook must not lock them.
const EXEMPT: &[&str] = &[
    "validatingwebhookconfigurations",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

/// Whether no webhook and no policy ever sees this kind.
pub fn exempt(review: &Review) -> bool {
    let resource = &review.resource;
    resource.group == "admissionregistration.k8s.io" && EXEMPT.contains(&resource.plural.as_str())
}

impl Matcher {
    /// From a webhook, whose rules are beside its selectors.
    pub fn of_webhook(webhook: &Value) -> Self {
        Matcher {
            rules: rules(&webhook["rules"]),
            ..Matcher::selectors(webhook)
        }
    }

    /// From `matchConstraints` of a policy or `matchResources` of a binding.
    pub fn of_policy(resources: &Value) -> Self {
        Matcher {
            rules: rules(&resources["resourceRules"]),
            excluded: rules(&resources["excludeResourceRules"]),
            ..Matcher::selectors(resources)
        }
    }

    fn selectors(around: &Value) -> Self {
        let selector = |field: &str| match &around[field] {
            Value::Object(map) if !map.is_empty() => LabelSelector::from_object(&around[field]).ok(),
            _ => None,
        };
        Matcher {
            namespace_selector: selector("namespaceSelector"),
            object_selector: selector("objectSelector"),
            policy: match around["matchPolicy"].as_str() {
                Some("Exact") => MatchPolicy::Exact,
                _ => MatchPolicy::Equivalent,
            },
            ..Matcher::default()
        }
    }

    /// Whether this write is meant. A binding without rules narrows nothing down.
    pub fn matches(&self, call: &Call, review: &Review, without_rules: WithoutRules) -> bool {
        if exempt(review) {
            return false;
        }
        let meant = match (self.rules.is_empty(), without_rules) {
            (true, WithoutRules::Everything) => true,
            _ => self.rules.iter().any(|rule| self.rule_matches(rule, call, review)),
        };
        meant
            && !self.excluded.iter().any(|rule| self.rule_matches(rule, call, review))
            && self.namespace_matches(call, review)
            && self.object_matches(review)
    }

    fn rule_matches(&self, rule: &Rule, call: &Call, review: &Review) -> bool {
        let own = &review.resource;
        // Another served version of the same objects is as good.
        rule.is_about(review)
            && (rule.names(own)
                || self.policy == MatchPolicy::Equivalent && equivalents(call, own).any(|other| rule.names(other)))
    }

    /// The version of the kind that the rules name: the write's own if one does that is about the write, else the
    /// first that is equivalent, earlier rules first.
    pub fn seen_as(&self, call: &Call, review: &Review) -> Arc<Resource> {
        let own = &review.resource;
        let about = || self.rules.iter().filter(|rule| rule.is_about(review));
        if about().any(|rule| rule.names(own)) {
            return own.clone();
        }
        let named = about().find_map(|rule| equivalents(call, own).find(|other| rule.names(other)));
        named.unwrap_or(own).clone()
    }

    fn namespace_matches(&self, call: &Call, review: &Review) -> bool {
        let Some(selector) = &self.namespace_selector else {
            return true;
        };
        let is_namespace = review.resource.group.is_empty() && review.resource.plural == "namespaces";
        if is_namespace {
            let object = review.object.as_ref().or(review.old.as_deref());
            return object.is_some_and(|object| selector.matches(&object["metadata"]["labels"]));
        }
        if !review.resource.namespaced {
            return true;
        }
        let found = call.shared.admission.object("/namespaces", "", &review.namespace);
        found.is_some_and(|namespace| selector.matches(&namespace["metadata"]["labels"]))
    }

    fn object_matches(&self, review: &Review) -> bool {
        let Some(selector) = &self.object_selector else {
            return true;
        };
        let either = [review.object.as_ref(), review.old.as_deref()];
        either
            .into_iter()
            .flatten()
            .any(|object| selector.matches(&object["metadata"]["labels"]))
    }
}

/// What having no rules means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutRules {
    Everything,
    Nothing,
}

impl Rule {
    /// Whether the rule is about what is done to what, in whatever version.
    fn is_about(&self, review: &Review) -> bool {
        let scope = match (review.resource.namespaced, self.scope.as_str()) {
            (_, "*" | "") => true,
            (true, scope) => scope == "Namespaced",
            (false, scope) => scope == "Cluster",
        };
        let named = self.object_names.is_empty() || self.object_names.contains(&review.name);
        scope && named && one_of(&self.operations, review.operation.name()) && self.resource_matches(review)
    }

    /// Whether the rule names this version of a kind.
    fn names(&self, resource: &Resource) -> bool {
        one_of(&self.groups, &resource.group) && one_of(&self.versions, &resource.version)
    }

    fn resource_matches(&self, review: &Review) -> bool {
        self.resources.iter().any(|wanted| {
            let (resource, subresource) = wanted.split_once('/').unwrap_or((wanted, ""));
            (resource == "*" || resource == review.resource.plural)
                && (subresource == "*" || subresource == review.subresource)
        })
    }
}

impl Operation {
    /// As rules and reviews spell it.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

fn rules(list: &Value) -> Vec<Rule> {
    let strings = |value: &Value| object::strings(value);
    list.as_array()
        .into_iter()
        .flatten()
        .map(|rule| Rule {
            operations: strings(&rule["operations"]),
            groups: strings(&rule["apiGroups"]),
            versions: strings(&rule["apiVersions"]),
            resources: strings(&rule["resources"]),
            object_names: strings(&rule["resourceNames"]),
            scope: rule["scope"].as_str().unwrap_or_default().to_string(),
        })
        .collect()
}

/// All served versions of the same objects.
fn equivalents<'a>(call: &'a Call, own: &'a Resource) -> impl Iterator<Item = &'a Arc<Resource>> {
    call.catalogue.iter().filter(|other| other.storage() == own.storage())
}

fn one_of(allowed: &[String], value: &str) -> bool {
    allowed.iter().any(|allowed| allowed == "*" || allowed == value)
}

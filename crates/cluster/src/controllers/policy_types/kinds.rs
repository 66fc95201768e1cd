//! The kinds that a policy names.

use super::list;
use crate::controllers::discovery;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use stead::Error;

/// The most kinds of one rule that are looked at.
const MOST_KINDS: usize = 10;

/// A kind in one version, in the order of Kubernetes' lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl Kind {
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Kind {
            group: group.to_string(),
            version: version.to_string(),
            kind: kind.to_string(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// A served resource.
#[derive(Debug, Clone)]
pub struct Served {
    plural: String,
    kind: Kind,
}

/// Every resource in every version that is served.
pub async fn served(client: &kube::Client) -> Result<Vec<Served>, Error> {
    let mut found = Vec::new();
    for group in discovery::groups(client).await? {
        let name = text(&group["metadata"]["name"]);
        for version in list(&group["versions"]) {
            for resource in list(&version["resources"]) {
                let kind = text(&resource["responseKind"]["kind"]);
                found.push(Served {
                    plural: text(&resource["resource"]).to_string(),
                    kind: Kind::new(name, text(&version["version"]), kind),
                });
            }
        }
    }
    Ok(found)
}

/// The kinds that the rules of a policy name; those with wildcards could be anything and name none.
pub fn about(spec: &Value, served: &[Served]) -> Vec<Kind> {
    let mut found = BTreeSet::new();
    for rule in list(&spec["matchConstraints"]["resourceRules"]) {
        let names = |field: &str| -> Vec<&str> { list(&rule[field]).filter_map(Value::as_str).collect() };
        let (mut groups, mut versions) = (names("apiGroups"), names("apiVersions"));
        let mut resources = names("resources");
        resources.retain(|resource| !resource.contains(['*', '/']));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        for sorted in [&mut groups, &mut versions, &mut resources] {
            sorted.sort_unstable();
        }
        let mut count = 0;
        for group in groups {
            for version in &versions {
                for resource in &resources {
                    for one in served.iter().filter(|one| one.is(group, version, resource)) {
                        found.insert(one.kind.clone());
                        count += 1;
                        if count == MOST_KINDS {
                            return found.into_iter().collect();
                        }
                    }
                }
            }
        }
    }
    found.into_iter().collect()
}

/// The kind of a policy's parameters.
pub fn of_params(spec: &Value) -> Option<Kind> {
    let named = spec["paramKind"].as_object()?;
    let api_version = text(named.get("apiVersion")?);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Some(Kind::new(group, version, text(named.get("kind")?)))
}

impl Served {
    /// Whether this is a resource that a rule names. The group without a name stands for any, as in all of
    /// Kubernetes' searches for kinds.
    fn is(&self, group: &str, version: &str, resource: &str) -> bool {
        (group.is_empty() || self.kind.group == group) && self.kind.version == version && self.plural == resource
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_name_kinds_unless_they_are_about_anything() {
        let served: Vec<Served> = [("", "v1", "pods", "Pod"), ("apps", "v1", "deployments", "Deployment")]
            .into_iter()
            .map(|(group, version, plural, kind)| Served {
                plural: plural.to_string(),
                kind: Kind::new(group, version, kind),
            })
            .collect();
        let rule =
            |group: &str, resource: &str| json!({"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource]});
        let told = |rules: Value| -> Vec<String> {
            let spec = json!({"matchConstraints": {"resourceRules": rules}});
            about(&spec, &served).iter().map(Kind::to_string).collect()
        };
        let both = ["/v1, Kind=Pod", "apps/v1, Kind=Deployment"];
        assert_eq!(told(json!([rule("apps", "deployments"), rule("", "pods")])), both);
        assert!(told(json!([rule("*", "deployments"), rule("apps", "*")])).is_empty());
        assert!(told(json!([rule("apps", "deployments/scale")])).is_empty());
    }
}

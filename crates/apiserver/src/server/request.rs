//! What a request asks for, read from its method, path and query.
//!
//! Routing, authorisation, audit and metrics must agree on what a request is; all of them read this one
//! value instead of the URL.

use super::query::Query;
use crate::auth::{Attributes, Target};
use http::Method;

/// A request's target and verb in the words of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestInfo {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for paths that are no
    /// resource the lower-case method.
    pub verb: &'static str,
    pub path: String,
    pub resource: Option<ResourcePath>,
    /// The one name that the field selector of a list or watch lets through: authorisation counts it as the name.
    pub selected: String,
}

/// The parts of `/apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE/REST`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourcePath {
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// What follows the subresource: the path that a proxy forwards, as it was sent. It is somebody else's to decode.
    pub rest: String,
}

/// Parts of a namespace itself, not resources inside it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

impl RequestInfo {
    pub fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let raw: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let parts: Vec<String> = raw.iter().map(|part| super::query::percent_decode(part)).collect();
        let borrowed: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match borrowed.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Self::path_only(method, path),
        };
        let (rest, legacy_watch) = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => (rest, true),
            rest => (rest, false),
        };
        let mut found = ResourcePath {
            group: group.to_string(),
            version: version.to_string(),
            ..ResourcePath::default()
        };
        let rest = match rest {
            ["namespaces", namespace, inner @ ..] => {
                found.namespace = namespace.to_string();
                match inner {
                    [] => rest,
                    [first, ..] if NAMESPACE_SUBRESOURCES.contains(first) => rest,
                    _ => inner,
                }
            }
            _ => rest,
        };
        found.resource = rest[0].to_string();
        found.name = rest.get(1).copied().unwrap_or_default().to_string();
        found.subresource = rest.get(2).copied().unwrap_or_default().to_string();
        if let Some(further) = rest.get(3..).filter(|further| !further.is_empty()) {
            found.rest = raw[raw.len() - further.len()..].join("/");
            if path.ends_with('/') {
                found.rest.push('/');
            }
        }
        if legacy_watch && !found.name.is_empty() && found.subresource.is_empty() {
            return RequestInfo {
                verb: "watch",
                path: path.to_string(),
                resource: Some(found),
                selected: String::new(),
            };
        }
        let verb = verb(method, &found, query, legacy_watch);
        let selected = match verb {
            "list" | "watch" | "deletecollection" => selected_name(query),
            _ => String::new(),
        };
        RequestInfo {
            verb,
            path: path.to_string(),
            resource: Some(found),
            selected,
        }
    }

    fn path_only(method: &Method, path: &str) -> Self {
        RequestInfo {
            verb: plain_verb(method),
            path: path.to_string(),
            resource: None,
            selected: String::new(),
        }
    }

    /// A request that is expected to stay open, and that therefore counts against no limit on requests in
    /// flight and no timeout.
    pub fn long_running(&self) -> bool {
        const CONNECTIONS: [&str; 5] = ["proxy", "attach", "exec", "log", "portforward"];
        match &self.resource {
            Some(found) => self.verb == "watch" || CONNECTIONS.contains(&found.subresource.as_str()),
            None => false,
        }
    }

    /// The request as authorisation sees it.
    pub fn attributes(&self) -> Attributes {
        let target = match &self.resource {
            None => Target::Path(self.path.clone()),
            Some(found) => Target::Resource {
                group: found.group.clone(),
                version: found.version.clone(),
                resource: found.resource.clone(),
                subresource: found.subresource.clone(),
                namespace: found.namespace.clone(),
                name: match found.name.is_empty() {
                    true => self.selected.clone(),
                    false => found.name.clone(),
                },
            },
        };
        Attributes {
            verb: self.verb.to_string(),
            target,
        }
    }
}

fn verb(method: &Method, found: &ResourcePath, query: &Query, legacy_watch: bool) -> &'static str {
    let named = !found.name.is_empty();
    match *method {
        Method::GET | Method::HEAD if named => "get",
        Method::GET | Method::HEAD if legacy_watch || query.is_true("watch") => "watch",
        Method::GET | Method::HEAD => "list",
        Method::DELETE if !named => "deletecollection",
        _ => plain_verb(method),
    }
}

/// The name in a field selector like `metadata.name=x`, also among other requirements.
fn selected_name(query: &Query) -> String {
    let selector = query.get("fieldSelector").unwrap_or_default();
    let mut requirements = selector.split(',').filter_map(|part| {
        let (field, value) = part.split_once("==").or_else(|| part.split_once('='))?;
        (field == "metadata.name").then_some(value)
    });
    requirements.next().unwrap_or_default().to_string()
}

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: Method, path_and_query: &str) -> RequestInfo {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        RequestInfo::parse(&method, path, &Query::parse(query))
    }

    fn shown(method: Method, path: &str) -> String {
        let info = info(method, path);
        match info.resource {
            None => format!("{} {}", info.verb, info.path),
            Some(r) => format!(
                "{} g={} v={} ns={} r={} n={} s={} rest={}",
                info.verb, r.group, r.version, r.namespace, r.resource, r.name, r.subresource, r.rest
            ),
        }
    }

    #[test]
    fn paths_become_what_kubernetes_calls_them() {
        let check = |method, path, expected: &str| assert_eq!(shown(method, path), expected, "{path}");
        check(Method::GET, "/api/v1/pods", "list g= v=v1 ns= r=pods n= s= rest=");
        check(
            Method::GET,
            "/api/v1/namespaces/a/pods?watch=1",
            "watch g= v=v1 ns=a r=pods n= s= rest=",
        );
        check(
            Method::GET,
            "/api/v1/namespaces/a",
            "get g= v=v1 ns=a r=namespaces n=a s= rest=",
        );
        check(
            Method::PUT,
            "/api/v1/namespaces/a/finalize",
            "update g= v=v1 ns=a r=namespaces n=a s=finalize rest=",
        );
        check(
            Method::DELETE,
            "/apis/apps/v1/namespaces/a/deployments",
            "deletecollection g=apps v=v1 ns=a r=deployments n= s= rest=",
        );
        check(
            Method::GET,
            "/api/v1/namespaces/a/pods/p/proxy/x/y",
            "get g= v=v1 ns=a r=pods n=p s=proxy rest=x/y",
        );
        check(
            Method::GET,
            "/api/v1/namespaces/a/pods/p%2Dq/proxy/x%20y/%2F/z/",
            "get g= v=v1 ns=a r=pods n=p-q s=proxy rest=x%20y/%2F/z/",
        );
        check(
            Method::GET,
            "/api/v1/watch/namespaces/a/pods/p",
            "watch g= v=v1 ns=a r=pods n=p s= rest=",
        );
        check(Method::GET, "/apis/apps/v1", "get /apis/apps/v1");
        check(Method::GET, "/healthz", "get /healthz");
    }

    #[test]
    fn a_list_of_one_name_is_authorised_by_that_name() {
        let check = |path: &str, expected: &str| {
            let attributes = info(Method::GET, path).attributes();
            let Target::Resource { name, .. } = attributes.target else {
                panic!("{path} is a resource");
            };
            assert_eq!(name, expected, "{path}");
        };
        check("/api/v1/nodes?fieldSelector=metadata.name%3Dn1", "n1");
        check(
            "/api/v1/nodes?watch=1&fieldSelector=spec.unschedulable%3Dtrue,metadata.name%3D%3Dn1",
            "n1",
        );
        check("/api/v1/nodes?fieldSelector=metadata.name!%3Dn1", "");
        check("/api/v1/nodes/n2?fieldSelector=metadata.name%3Dn1", "n2");
    }
}

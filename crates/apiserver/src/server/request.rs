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
    /// What follows the subresource: the path that a proxy forwards.
    pub rest: String,
}

/// Parts of a namespace itself, not resources inside it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

impl RequestInfo {
    pub fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let parts: Vec<String> = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(super::query::percent_decode)
            .collect();
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
        found.rest = rest.get(3..).map(|rest| rest.join("/")).unwrap_or_default();
        if legacy_watch && !found.name.is_empty() && found.subresource.is_empty() {
            return RequestInfo {
                verb: "watch",
                path: path.to_string(),
                resource: Some(found),
            };
        }
        let verb = verb(method, &found, query, legacy_watch);
        RequestInfo {
            verb,
            path: path.to_string(),
            resource: Some(found),
        }
    }

    fn path_only(method: &Method, path: &str) -> Self {
        RequestInfo {
            verb: plain_verb(method),
            path: path.to_string(),
            resource: None,
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
                name: found.name.clone(),
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
            "/api/v1/watch/namespaces/a/pods/p",
            "watch g= v=v1 ns=a r=pods n=p s= rest=",
        );
        check(Method::GET, "/apis/apps/v1", "get /apis/apps/v1");
        check(Method::GET, "/healthz", "get /healthz");
    }
}

//! The HTTPRoute of the Gateway API. Its types are not built in, so it is made as plain JSON.

use super::ports;
use crate::names;
use serde_json::{Value, json};
use stead_apis::WebApp;

/// The route, where the spec asks for one.
pub fn build(app: &WebApp) -> Option<Value> {
    let wanted = app.spec.route.as_ref()?;
    let mut parent = json!({"name": wanted.gateway.name});
    if let Some(namespace) = &wanted.gateway.namespace {
        parent["namespace"] = json!(namespace);
    }
    if let Some(section) = &wanted.gateway.section_name {
        parent["sectionName"] = json!(section);
    }
    let port = ports(app).first().map(|port| port.offered_as(0));
    let mut spec = json!({
        "parentRefs": [parent],
        "rules": [{
            "matches": [{"path": {"type": "PathPrefix", "value": wanted.path}}],
            "backendRefs": [{"name": names::child(app), "port": port}],
        }],
    });
    if !wanted.hostnames.is_empty() {
        spec["hostnames"] = json!(wanted.hostnames);
    }
    Some(json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": names::child(app), "namespace": app.metadata.namespace, "labels": names::labels(app)},
        "spec": spec,
    }))
}

//! The Ingress in front of the Service.

use super::{metadata, ports};
use crate::names;
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    IngressTLS, ServiceBackendPort,
};
use stead_apis::WebApp;

/// The Ingress, where the spec asks for one.
pub fn build(app: &WebApp) -> Option<Ingress> {
    let wanted = app.spec.ingress.as_ref()?;
    let number = ports(app).first().map(|port| port.offered_as(0));
    let backend = IngressServiceBackend {
        name: names::child(app),
        port: Some(ServiceBackendPort { number, name: None }),
    };
    let path = HTTPIngressPath {
        path: Some(wanted.path.clone()),
        path_type: "Prefix".to_string(),
        backend: IngressBackend {
            service: Some(backend),
            resource: None,
        },
    };
    let tls = wanted.tls_secret_name.clone().map(|secret| IngressTLS {
        hosts: Some(vec![wanted.host.clone()]),
        secret_name: Some(secret),
    });
    let mut meta = metadata(app, names::child(app));
    meta.annotations = (!wanted.annotations.is_empty()).then(|| wanted.annotations.clone());
    Some(Ingress {
        metadata: meta,
        spec: Some(IngressSpec {
            ingress_class_name: wanted.class_name.clone(),
            rules: Some(vec![IngressRule {
                host: Some(wanted.host.clone()),
                http: Some(HTTPIngressRuleValue { paths: vec![path] }),
            }]),
            tls: tls.map(|tls| vec![tls]),
            default_backend: None,
        }),
        status: None,
    })
}

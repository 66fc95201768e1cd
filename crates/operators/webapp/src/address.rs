//! Where an application is reached.

use crate::{names, resources};
use stead_apis::WebApp;
use stead_apis::webapp::Route;

/// From outside where the spec makes a way, else the address inside the cluster.
pub fn url(app: &WebApp) -> String {
    if let Some(ingress) = app.spec.ingress.as_ref().filter(|ingress| is_one(&ingress.host)) {
        let scheme = if ingress.tls_secret_name.is_some() {
            "https"
        } else {
            "http"
        };
        return format!("{scheme}://{}{}", ingress.host, ingress.path);
    }
    if let Some(route) = &app.spec.route
        && let Some(host) = route.hostnames.iter().find(|host| is_one(host))
    {
        return format!("{}://{host}{}", scheme(route), route.path);
    }
    let port = resources::ports(app).first().map_or(80, |port| port.offered_as(0));
    let namespace = app.metadata.namespace.as_deref().unwrap_or("default");
    let host = format!("{}.{namespace}.svc", names::child(app));
    if port == 80 {
        format!("http://{host}")
    } else {
        format!("http://{host}:{port}")
    }
}

/// Whether this is the name of one host: nobody can go to `*.example.com`.
fn is_one(host: &str) -> bool {
    !host.starts_with('*')
}

/// What a listener speaks is the Gateway's affair, which the operator has no right to read. By custom those that end TLS
/// have `https` in their name.
fn scheme(route: &Route) -> &'static str {
    let listener = route.gateway.section_name.as_deref().unwrap_or_default();
    match listener.split(['-', '.']).any(|part| part == "https") {
        true => "https",
        false => "http",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(way_in: Value, expected: &str) {
        let mut app = json!({"apiVersion": "stead.dev/v1", "kind": "WebApp",
            "metadata": {"name": "shop", "namespace": "a"}, "spec": {"image": "nginx:1.25"}});
        for (name, value) in way_in.as_object().expect("an object") {
            app["spec"][name] = value.clone();
        }
        assert_eq!(url(&serde_json::from_value(app).expect("a WebApp")), expected);
    }

    #[test]
    fn an_application_is_reached_by_a_name_that_somebody_can_go_to() {
        let route = |hostnames: &[&str], listener: Option<&str>| json!({"route": {"gateway": {"name": "door", "sectionName": listener}, "hostnames": hostnames}});
        check(json!({}), "http://shop.a.svc");
        check(
            json!({"ports": [{"name": "x", "containerPort": 80, "servicePort": 8080}]}),
            "http://shop.a.svc:8080",
        );
        check(
            json!({"ingress": {"host": "x.example.com", "path": "/shop"}}),
            "http://x.example.com/shop",
        );
        check(
            json!({"ingress": {"host": "x.example.com", "tlsSecretName": "t"}}),
            "https://x.example.com/",
        );
        check(json!({"ingress": {"host": "*.example.com"}}), "http://shop.a.svc");
        check(
            route(&["*.example.com", "x.example.com"], None),
            "http://x.example.com/",
        );
        check(route(&["x.example.com"], Some("https")), "https://x.example.com/");
        check(
            route(&["x.example.com"], Some("https-public")),
            "https://x.example.com/",
        );
        check(route(&["x.example.com"], Some("http")), "http://x.example.com/");
        check(route(&["*.example.com"], None), "http://shop.a.svc");
    }
}

//! How a WebApp is reached, by whom, and how it is watched.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An Ingress in front of the Service.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Ingress {
    /// The name under which it is reached, such as `shop.example.com`.
    #[schemars(schema_with = "host")]
    pub host: String,

    /// The path below which it is reached.
    #[serde(default = "super::defaults::path")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("self.startsWith('/')").message("a path begins with /"))]
    pub path: String,

    /// The Ingress class; without it the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub class_name: Option<String>,

    /// The Secret with certificate and key; with it the application is reached by https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub tls_secret_name: Option<String>,

    /// Annotations of the Ingress, for instance for certificates or a controller's own options.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// An HTTPRoute of the Gateway API in front of the Service.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The names under which it is reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "hostnames")]
    pub hostnames: Vec<String>,

    /// The path below which it is reached.
    #[serde(default = "super::defaults::path")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("self.startsWith('/')").message("a path begins with /"))]
    pub path: String,

    /// The Gateway that carries it, in the same namespace unless the Gateway allows others.
    pub gateway: GatewayReference,
}

/// The name that an Ingress takes.
fn host(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 253,
        "x-kubernetes-validations": [{"rule": is_a_host(), "message": NOT_A_HOST}],
    })
}

/// Names that a Gateway takes. The rule is one of each item, so that it is the item that is named when it is refused.
fn hostnames(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": {
            "type": "string",
            "maxLength": 253,
            "x-kubernetes-validations": [{"rule": is_a_host(), "message": NOT_A_HOST}],
        },
    })
}

/// Addresses are no names. They are told by an expression: `isIP` is unknown to clusters before 1.31, which would refuse
/// the definition.
fn is_a_host() -> String {
    let label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
    let byte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
    let name = format!("self.matches('^([*][.])?{label}([.]{label})*$')");
    let address = format!("self.matches('^([*][.])?({byte}[.]){{3}}{byte}$')");
    format!("{name} && !{address}")
}

/// What is said of a host name that is none.
pub(super) const NOT_A_HOST: &str = "not a host name: use lower case letters, digits, dashes and dots, and no address";

/// A Gateway, and a listener of it.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GatewayReference {
    /// Name of the Gateway.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Namespace of the Gateway; without it the WebApp's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,

    /// Name of the listener, for instance the one that ends TLS. If `https` is a part of it, `status.url` says so too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub section_name: Option<String>,
}

/// Who may connect: a NetworkPolicy.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NetworkAccess {
    /// Pods of the same namespace that may connect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub from_pods: Vec<LabelSelector>,

    /// Namespaces whose pods may connect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub from_namespaces: Vec<LabelSelector>,
}

/// How many pods may be missing at once: a PodDisruptionBudget.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.minAvailable) != has(self.maxUnavailable)")
    .message("give one of minAvailable and maxUnavailable"))]
pub struct Disruption {
    /// At least so many stay: a number or a percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_available: Option<IntOrString>,

    /// At most so many are missing: a number or a percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// Where Prometheus finds the application's metrics.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Monitoring {
    /// The name of the port; without it the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 15))]
    pub port: Option<String>,

    /// The path of the metrics.
    #[serde(default = "super::defaults::metrics_path")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("self.startsWith('/')").message("a path begins with /"))]
    pub path: String,

    /// How often they are read, in seconds.
    #[serde(default = "super::defaults::scrape_interval")]
    #[schemars(range(min = 1, max = 3600))]
    pub interval_seconds: i32,
}

//! The objects of the manifests. Pure.

use crate::commands::operator::NAME;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};
use stead::webhook::WebhookOptions;
use stead::{Namespaces, Rule};
use stead_webapp::webhooks::{MUTATE, VALIDATE};

/// Replicas: one leads, and two are warm when it dies.
const REPLICAS: i32 = 3;
const METRICS: i32 = 8080;
const PROBES: i32 = 8081;
const WEBHOOKS: i32 = 9443;

/// Where the operator runs and works.
pub struct Place {
    /// The operator's own namespace.
    pub namespace: String,
    /// Where it works.
    pub namespaces: Namespaces,
    /// What its controllers need.
    pub rules: Vec<Rule>,
}

/// The definitions of the custom resources.
pub fn definitions() -> Vec<Value> {
    let all = stead_apis::definitions::all();
    all.iter()
        .map(|definition| serde_json::to_value(definition).expect("a definition is plain data"))
        .collect()
}

/// The account, and what it may do.
pub fn rbac(place: &Place) -> Vec<Value> {
    let namespace = place.namespace.as_str();
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": namespace,
            "labels": {"app.kubernetes.io/part-of": "stead", "pod-security.kubernetes.io/enforce": "restricted"},
        }}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(place, NAME)}),
    ];
    let (own, everywhere): (Vec<Rule>, Vec<Rule>) = Rule::manager()
        .into_iter()
        .partition(|rule| rule.resources.contains("leases"));
    let mut own_rules: Vec<Value> = own.into_iter().flat_map(|rule| of_one(rule, NAME)).collect();
    let mut rules = place.rules.clone();
    rules.extend(everywhere);
    let rules = policy(Rule::merge(rules));
    match &place.namespaces {
        Namespaces::All => {
            let secret = WebhookOptions::service(namespace, NAME).secret;
            own_rules.extend(of_one(
                Rule::new("", &["secrets"], &["create", "get", "update"]),
                &secret,
            ));
            objects.extend(role(place, Some(namespace), own_rules));
            let mut rules = rules;
            rules.push(json!({
                "apiGroups": ["admissionregistration.k8s.io"],
                "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
                "resourceNames": [NAME], "verbs": ["get", "patch"],
            }));
            objects.extend(role(place, None, rules));
        }
        Namespaces::Only(names) => {
            if names.iter().any(|name| name == namespace) {
                own_rules.extend(rules.iter().cloned());
            }
            objects.extend(role(place, Some(namespace), own_rules));
            for name in names.iter().filter(|name| *name != namespace) {
                objects.extend(role(place, Some(name), rules.clone()));
            }
        }
    }
    objects
}

fn policy(rules: Vec<Rule>) -> Vec<Value> {
    rules
        .into_iter()
        .map(|rule| serde_json::to_value(PolicyRule::from(rule)).expect("a rule is plain data"))
        .collect()
}

/// The same for one object alone. Creating cannot be limited so: the name is not known when it is asked for.
fn of_one(rule: Rule, name: &str) -> [Value; 2] {
    let (creates, rest) = rule.verbs.into_iter().partition(|verb| verb == "create");
    [(creates, None), (rest, Some(name))].map(|(verbs, name)| {
        let mut policy = PolicyRule::from(Rule {
            group: rule.group.clone(),
            resources: rule.resources.clone(),
            verbs,
        });
        policy.resource_names = name.map(|name| vec![name.to_owned()]);
        serde_json::to_value(policy).expect("a rule is plain data")
    })
}

/// A role and its binding, in a namespace or in the whole cluster.
fn role(place: &Place, namespace: Option<&str>, rules: Vec<Value>) -> [Value; 2] {
    let prefix = if namespace.is_none() { "Cluster" } else { "" };
    let kind = format!("{prefix}Role");
    let mut meta = json!({"name": NAME, "labels": labels()});
    if let Some(namespace) = namespace {
        meta["namespace"] = namespace.into();
    }
    [
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": meta, "rules": rules}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": place.namespace}],
        }),
    ]
}

/// The operator itself.
pub fn operator(place: &Place) -> Vec<Value> {
    vec![
        deployment(place),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(place, NAME), "spec": {
            "selector": labels(),
            "ports": [
                {"name": "metrics", "port": METRICS, "targetPort": "metrics"},
                {"name": "webhooks", "port": 443, "targetPort": WEBHOOKS},
            ],
        }}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(place, NAME), "spec": {
            "maxUnavailable": 1, "selector": {"matchLabels": labels()},
        }}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata(place, NAME), "spec": {
            "podSelector": {"matchLabels": labels()},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [
                {"port": METRICS, "protocol": "TCP"},
                {"port": PROBES, "protocol": "TCP"},
                {"port": WEBHOOKS, "protocol": "TCP"},
            ]}],
        }}),
    ]
}

fn deployment(place: &Place) -> Value {
    let mut arguments = vec![
        "operator".to_owned(),
        "--leader-elect".to_owned(),
        format!("--metrics-bind-address=:{METRICS}"),
        format!("--health-probe-bind-address=:{PROBES}"),
        "--log-format=json".to_owned(),
    ];
    match &place.namespaces {
        Namespaces::All => arguments.push(format!("--webhook-bind-address=:{WEBHOOKS}")),
        Namespaces::Only(names) => arguments.push(format!("--namespaces={}", names.join(","))),
    }
    let from = |field: &str| json!({"fieldRef": {"fieldPath": field}});
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "probes"}, "periodSeconds": 10});
    let container = json!({
        "name": "operator",
        "image": format!("stead/operator:{}", env!("CARGO_PKG_VERSION")),
        "args": arguments,
        "env": [
            {"name": "POD_NAME", "valueFrom": from("metadata.name")},
            {"name": "POD_NAMESPACE", "valueFrom": from("metadata.namespace")},
        ],
        "ports": [
            {"name": "metrics", "containerPort": METRICS},
            {"name": "probes", "containerPort": PROBES},
            {"name": "webhooks", "containerPort": WEBHOOKS},
        ],
        "livenessProbe": probe("/healthz"),
        "readinessProbe": probe("/readyz"),
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
    });
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(place, NAME), "spec": {
        "replicas": REPLICAS,
        "selector": {"matchLabels": labels()},
        "template": {
            "metadata": {"labels": labels()},
            "spec": {
                "serviceAccountName": NAME,
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "terminationGracePeriodSeconds": 30,
                "topologySpreadConstraints": [{
                    "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": labels()},
                }],
                "containers": [container],
            },
        },
    }})
}

/// The webhook configurations. An operator that works in some namespaces has no right to keep them current, so
/// it has none.
pub fn webhooks(place: &Place) -> Vec<Value> {
    if place.namespaces != Namespaces::All {
        return Vec::new();
    }
    [("Mutating", MUTATE), ("Validating", VALIDATE)]
        .map(|(kind, path)| {
            let webhook = json!({
                "name": "webapps.stead.dev",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"name": NAME, "namespace": place.namespace, "path": path, "port": 443}},
                // The schema and the operator refuse the same mistakes; an operator that is away must not keep
                // anybody from working.
                "failurePolicy": "Ignore",
                "matchPolicy": "Equivalent",
                "sideEffects": "None",
                "timeoutSeconds": 5,
                "rules": [{"apiGroups": ["stead.dev"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["webapps"], "scope": "Namespaced"}],
            });
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
                "metadata": {"name": NAME, "labels": labels()}, "webhooks": [webhook]})
        })
        .to_vec()
}

/// The labels of everything, which also choose the operator's pods.
pub fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "stead"})
}

pub fn metadata(place: &Place, name: &str) -> Value {
    json!({"name": name, "namespace": place.namespace, "labels": labels()})
}

//! Least privilege, proven: the operator runs with the generated roles on a cluster with an audit log and with the
//! kinds of the Gateway API and of the Prometheus operator; what it is granted it uses, and it is refused nothing.

use super::audit::{Audit, Right, of_one};
use super::stage::{foreign, install};
use crate::binary::{Up, command, stead, succeeded};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, ServiceAccount};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;
use stead_apis::WebApp;
use stead_apis::webapp::Phase;
use stead_test::children::{Process, Program};
use stead_test::kubernetes::client_for;
use stead_test::wait::until;

const PATIENCE: Duration = Duration::from_secs(90);
const HOME: &str = "stead-system";
const USER: &str = "system:serviceaccount:stead-system:stead-operator";

/// Rights that are asked for without a request of their own.
///
/// Children name their application as an owner whose deletion they block. Clusters with the admission plugin
/// OwnerReferencesPermissionEnforcement allow that only to those who may update its finalizers.
fn never_seen() -> BTreeSet<Right> {
    [right("stead.dev", "webapps/finalizers", "update")].into()
}

fn right(group: &str, resource: &str, verb: &str) -> Right {
    (group.to_string(), resource.to_string(), verb.to_string())
}

/// A cluster whose audit log tells what the operator did.
struct Stage {
    up: Up,
    binary: PathBuf,
    client: Client,
    audit: Audit,
    /// What was granted.
    granted: BTreeSet<Right>,
}

impl Stage {
    async fn start(manifests: &[&str], namespaces: &[&str]) -> Option<Stage> {
        let binary = stead()?;
        let place = tempfile::tempdir().expect("a directory");
        let audit_log = place.path().join("audit.log");
        let log = audit_log.display().to_string();
        let parts = "controllers,scheduler,nodes";
        let up = Up::start_in(
            place,
            &[
                "--ephemeral",
                "--runtime",
                "hollow",
                "--parts",
                parts,
                "--audit-log",
                &log,
            ],
        )?;
        let client = client_for(&up.kubeconfig).await.expect("a client");
        install(&client, &stead_apis::definitions::all()).await;
        install(&client, &foreign()).await;
        for namespace in namespaces {
            let api: Api<Namespace> = Api::all(client.clone());
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            let namespace = serde_json::from_value(namespace).expect("a namespace");
            api.create(&PostParams::default(), &namespace)
                .await
                .expect("a namespace");
        }
        let mut granted = BTreeSet::new();
        for only in ["rbac", "webhooks"] {
            let text = succeeded(
                command(&binary, up.place.path())
                    .args(["manifests", "--only", only])
                    .args(manifests),
            );
            let objects: Vec<Value> = match text.trim().is_empty() {
                true => Vec::new(),
                false => serde_saphyr::from_multiple(&text).expect("YAML"),
            };
            for object in objects {
                granted.extend(rights_of(&object));
                apply(&client, object).await;
            }
        }
        Some(Stage {
            audit: Audit::new(audit_log),
            up,
            binary,
            client,
            granted,
        })
    }

    /// The operator as the generated account, with everything on.
    async fn operator(&self, arguments: &[&str]) -> Process {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), HOME);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec::default()),
            ..TokenRequest::default()
        };
        let token = accounts
            .create_token_request("stead-operator", &PostParams::default(), &request)
            .await
            .expect("a token");
        let token = token.status.expect("a token").token;
        let text = std::fs::read_to_string(&self.up.kubeconfig).expect("a kubeconfig");
        let mut config: Value = serde_saphyr::from_str(&text).expect("YAML");
        config["users"][0]["user"] = json!({"token": token});
        let path = self.up.place.path().join("operator.kubeconfig");
        std::fs::write(&path, config.to_string()).expect("a kubeconfig");
        Process::start(Program {
            path: self.binary.clone(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: vec![
                ("KUBECONFIG".into(), path.into()),
                ("POD_NAMESPACE".into(), HOME.into()),
                ("POD_NAME".into(), "the-operator".into()),
            ],
            log: self.up.place.path().join("operator.log"),
        })
        .expect("the operator starts")
    }

    fn apps(&self, namespace: &str) -> Api<WebApp> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn put(&self, namespace: &str, name: &str, spec: Value) {
        let app = json!({"apiVersion": "stead.dev/v1", "kind": "WebApp",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec});
        apply(&self.client, app).await;
    }

    async fn ready(&self, namespace: &str, name: &str) {
        until(&format!("{name} is ready"), PATIENCE, || async {
            let app = self
                .apps(namespace)
                .get(name)
                .await
                .map_err(|error| error.to_string())?;
            let status = app.status.unwrap_or_default();
            let ready = status.phase == Some(Phase::Ready) && status.observed_generation == app.metadata.generation;
            ready
                .then_some(())
                .ok_or_else(|| format!("{status:?}; the operator said: {}", self.operator_log()))
        })
        .await
        .expect("readiness");
    }

    fn operator_log(&self) -> String {
        let text = std::fs::read_to_string(self.up.place.path().join("operator.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    /// Waits until every right but those named has been used.
    async fn everything_is_used(&self, but: &BTreeSet<Right>) {
        until("every right is used", PATIENCE, || async {
            let (used, refused) = self.audit.rights(USER);
            assert!(refused.is_empty(), "needed and not granted: {refused:?}");
            let idle: Vec<&Right> = self
                .granted
                .difference(&used)
                .filter(|right| !but.contains(*right))
                .collect();
            idle.is_empty()
                .then_some(())
                .ok_or_else(|| format!("granted and never used: {idle:?}"))
        })
        .await
        .expect("no right too many");
    }
}

/// The rights that a role gives; one to objects of certain names is a right to each of them.
fn rights_of(object: &Value) -> Vec<Right> {
    let rules = object["rules"].as_array().cloned().unwrap_or_default();
    let list = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_string)).collect()
    };
    let mut rights = Vec::new();
    for rule in &rules {
        let names = list(&rule["resourceNames"]);
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                for verb in list(&rule["verbs"]) {
                    match names.is_empty() {
                        true => rights.push(right(&group, &resource, &verb)),
                        false => rights.extend(names.iter().map(|name| right(&group, &of_one(&resource, name), &verb))),
                    }
                }
            }
        }
    }
    rights
}

/// Applies an object of any kind, as an administrator.
async fn apply(client: &Client, object: Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, bare) = version.split_once('/').unwrap_or(("", &version));
    let plural = match kind.as_str() {
        "NetworkPolicy" => "networkpolicies".to_string(),
        other => format!("{}s", other.to_lowercase()),
    };
    let resource = ApiResource {
        group: group.to_string(),
        version: bare.to_string(),
        api_version: version.clone(),
        kind,
        plural,
    };
    let name = text(&object["metadata"]["name"]);
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    until("the object is taken", PATIENCE, || async {
        let how = PatchParams::apply("test").force();
        api.patch(&name, &how, &Patch::Apply(&object)).await
    })
    .await
    .expect("an accepted object");
}

/// Everything that an application can have, with a way in of either kind.
fn everything(way_in: Value) -> Value {
    let mut spec = json!({
        "image": "nginx:1.25", "replicas": 2, "network": {}, "monitoring": {},
        "autoscaling": {"minReplicas": 2, "maxReplicas": 4}, "files": [{"path": "/etc/a", "content": "1"}],
        "revisionHistoryLimit": 0,
        "strategy": {"type": "Canary", "canary": {"steps": [{"percent": 50, "pauseSeconds": 0}]}},
    });
    for (name, value) in way_in.as_object().expect("an object") {
        spec[name] = value.clone();
    }
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn every_right_of_the_generated_role_is_used_and_none_is_missing() {
    let Some(stage) = Stage::start(&[], &[]).await else {
        return;
    };
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let webhooks = format!("--webhook-bind-address=127.0.0.1:{}", port.expect("a port").port());
    let arguments = [
        "operator",
        "--leader-elect",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
        &webhooks,
    ];
    let mut operator = stage.operator(&arguments).await;
    let ways = [
        ("by-ingress", json!({"ingress": {"host": "shop.example.com"}})),
        (
            "by-route",
            json!({"route": {"gateway": {"name": "door"}, "hostnames": ["shop.example.com"]}}),
        ),
    ];
    for (name, way_in) in &ways {
        let mut spec = everything(way_in.clone());
        for image in ["nginx:1.25", "nginx:1.26", "nginx:1.27"] {
            spec["image"] = image.into();
            stage.put("default", name, spec.clone()).await;
            stage.ready("default", name).await;
        }
    }
    for (name, _) in &ways {
        // Everything off again: what was made for it goes.
        stage
            .put("default", name, json!({"image": "nginx:1.27", "replicas": 1}))
            .await;
        stage.ready("default", name).await;
    }
    replace_a_failing_pod(&stage).await;
    repeat_an_event(&stage).await;
    // Certificates that are gone from their Secret are made anew when the operator starts again.
    operator.kill();
    let secrets: Api<Secret> = Api::namespaced(stage.client.clone(), HOME);
    let found = secrets.list(&ListParams::default()).await.expect("a list");
    let secret = found.items.first().expect("the Secret of the webhooks").name_any();
    let nothing = json!({"stringData": {"material.json": r#"{"authorities": [], "serving": null}"#}});
    secrets
        .patch(&secret, &PatchParams::default(), &Patch::Merge(nothing))
        .await
        .expect("an empty Secret");
    let _again = stage.operator(&arguments).await;
    stage.everything_is_used(&never_seen()).await;
}

/// A pod that was ready and is not any more is replaced.
async fn replace_a_failing_pod(stage: &Stage) {
    let spec = json!({"image": "nginx:1.27", "recovery": {"restartAfterSeconds": 1}});
    stage.put("default", "failing", spec).await;
    stage.ready("default", "failing").await;
    let pods: Api<Pod> = Api::default_namespaced(stage.client.clone());
    let chosen = ListParams::default().labels("app.kubernetes.io/instance=failing");
    let first = pods.list(&chosen).await.expect("a list").items.remove(0).name_any();
    let sick = json!({"status": {"startTime": "2026-01-01T00:00:00Z", "conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T01:00:00Z"}]}});
    until("the pod is replaced", PATIENCE, || async {
        // Its node may say again that it is well; the operator needs to see it only once.
        let how = PatchParams::default();
        let _ = pods.patch_status(&first, &how, &Patch::Strategic(sick.clone())).await;
        let found = pods.get_opt(&first).await.map_err(|error| error.to_string())?;
        let gone = found.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
        gone.then_some(()).ok_or_else(|| "it is still there".to_string())
    })
    .await
    .expect("another pod");
}

/// The same news twice is one event that counts.
async fn repeat_an_event(stage: &Stage) {
    let theirs = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "taken", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}});
    apply(&stage.client, theirs).await;
    for replicas in 1..4 {
        stage
            .put("default", "taken", json!({"image": "nginx:1.27", "replicas": replicas}))
            .await;
        until("it is told that the name is taken", PATIENCE, || async {
            let app = stage
                .apps("default")
                .get("taken")
                .await
                .map_err(|error| error.to_string())?;
            let status = app.status.unwrap_or_default();
            let told = stead_machinery::conditions::get(&status.conditions, "Ready").is_some_and(|ready| {
                ready.reason == "NameTaken" && ready.observed_generation == app.metadata.generation
            });
            told.then_some(()).ok_or_else(|| format!("{:?}", status.conditions))
        })
        .await
        .expect("a condition");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_chosen_namespaces_roles_are_enough_and_nothing_else_is_touched() {
    let Some(stage) = Stage::start(&["--namespaces", "blog,shop"], &["blog", "shop"]).await else {
        return;
    };
    let _operator = stage
        .operator(&[
            "operator",
            "--leader-elect",
            "--namespaces=blog,shop",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        ])
        .await;
    for namespace in ["blog", "shop"] {
        stage
            .put(
                namespace,
                "app",
                everything(json!({"ingress": {"host": "a.example.com"}})),
            )
            .await;
        stage.ready(namespace, "app").await;
    }
    stage.put("default", "elsewhere", json!({"image": "nginx:1.27"})).await;
    let (_, refused) = stage.audit.rights(USER);
    assert!(refused.is_empty(), "needed and not granted: {refused:?}");
    let elsewhere = stage.apps("default").get("elsewhere").await.expect("an application");
    assert!(
        elsewhere.status.is_none(),
        "nobody looks outside of the chosen namespaces"
    );
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(stage.client.clone());
    assert!(roles.get_opt("stead-operator").await.expect("an answer").is_none());
}

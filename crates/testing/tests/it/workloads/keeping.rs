//! What is kept, adopted, released and swept: sets of equal pods, daemons, owners, budgets and the small duties.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

async fn bare_pod(cluster: &HollowCluster, name: &str, app: &str, script: Value) {
    let mut pod = template(app, script);
    pod["metadata"]["name"] = json!(name);
    cluster.create("pods", pod).await.expect("a pod");
    until(cluster, &format!("pods/{name}"), SOON, |pod| {
        pod["status"]["phase"] == "Running"
    })
    .await;
}

fn ready(count: i64) -> impl FnMut(&Value) -> bool {
    move |set| set["status"]["readyReplicas"] == count && set["status"]["replicas"] == count
}

fn owner(object: &Value) -> &str {
    object["metadata"]["ownerReferences"][0]["name"]
        .as_str()
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_set_adopts_pods_that_fit_and_releases_those_that_no_longer_do() {
    let cluster = cluster().await;
    bare_pod(&cluster, "stray", "web", json!({})).await;
    replica_set(&cluster, 2, json!({})).await;
    until(&cluster, "replicasets/web", SOON, ready(2)).await;
    let stray = cluster.get("pods/stray").await.expect("it stays");
    assert_eq!(owner(&stray), "web");
    let other = json!({"metadata": {"labels": {"app": "other"}}});
    cluster.patch("pods/stray", other).await.expect("another label");
    let free = until(&cluster, "pods/stray", SOON, |pod| {
        pod["metadata"]["ownerReferences"].is_null()
    })
    .await;
    assert_eq!(free["status"]["phase"], "Running");
    until(&cluster, "replicasets/web", SOON, ready(2)).await;
    assert_eq!(pods(&cluster, "web").await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn of_too_many_pods_those_that_are_not_ready_go_first() {
    let cluster = cluster().await;
    bare_pod(&cluster, "lame", "web", json!({"ready-after": "never"})).await;
    for name in ["well-1", "well-2"] {
        bare_pod(&cluster, name, "web", json!({})).await;
    }
    replica_set(&cluster, 2, json!({})).await;
    gone(&cluster, "pods/lame", SOON).await;
    assert_eq!(names(&pods(&cluster, "web").await), ["well-1", "well-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_cost_decides_who_goes() {
    let cluster = cluster().await;
    for (name, cost) in [("cheap", "-5"), ("dear", "100"), ("plain", "0")] {
        bare_pod(&cluster, name, "web", json!({})).await;
        let patch = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}});
        cluster.patch(&format!("pods/{name}"), patch).await.expect("a cost");
    }
    replica_set(&cluster, 2, json!({})).await;
    gone(&cluster, "pods/cheap", SOON).await;
    assert_eq!(names(&pods(&cluster, "web").await), ["dear", "plain"]);
}

#[tokio::test(start_paused = true)]
async fn a_replication_controller_keeps_its_pods() {
    let cluster = cluster().await;
    let spec = json!({"replicas": 2, "selector": {"app": "web"}, "template": template("web", json!({}))});
    let object = json!({"metadata": {"name": "web"}, "spec": spec});
    cluster
        .create("replicationcontrollers", object)
        .await
        .expect("a controller");
    until(&cluster, "replicationcontrollers/web", SOON, ready(2)).await;
    let first = name(&pods(&cluster, "web").await[0]);
    cluster
        .delete(&format!("pods/{first}"), "Background")
        .await
        .expect("a deletion");
    gone(&cluster, &format!("pods/{first}"), minutes(1)).await;
    until(&cluster, "replicationcontrollers/web", SOON, ready(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_refuses_pods_is_told_in_the_sets_status() {
    let cluster = cluster().await;
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    cluster.create("resourcequotas", quota).await.expect("a quota");
    until(&cluster, "resourcequotas/none", SOON, |quota| {
        quota["status"]["hard"].is_object()
    })
    .await;
    replica_set(&cluster, 1, json!({})).await;
    let set = until(&cluster, "replicasets/web", SOON, |set| {
        condition(set, "ReplicaFailure", "True")
    })
    .await;
    assert_eq!(reason(&set, "ReplicaFailure"), "FailedCreate");
    cluster
        .delete("resourcequotas/none", "Background")
        .await
        .expect("a deletion");
    until(&cluster, "replicasets/web", minutes(10), ready(1)).await;
}

async fn daemon(cluster: &HollowCluster, extra: Value) {
    let mut spec = json!({"selector": selector("agent"), "template": template("agent", json!({}))});
    for (key, value) in extra.as_object().into_iter().flatten() {
        match key.as_str() {
            "pod" => spec["template"]["spec"]
                .as_object_mut()
                .expect("a spec")
                .extend(value.as_object().expect("a map").clone()),
            _ => spec[key] = value.clone(),
        }
    }
    let object = json!({"metadata": {"name": "agent"}, "spec": spec});
    cluster.create("daemonsets", object).await.expect("a daemon");
}

fn daemons(count: i64) -> impl FnMut(&Value) -> bool {
    move |set| {
        let status = &set["status"];
        status["numberReady"] == count && status["desiredNumberScheduled"] == count
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_follows_the_labels_of_nodes() {
    let cluster = cluster().await;
    daemon(&cluster, json!({"pod": {"nodeSelector": {"role": "edge"}}})).await;
    until(&cluster, "daemonsets/agent", SOON, |set| {
        set["status"]["desiredNumberScheduled"] == 0
    })
    .await;
    let role = |role: Value| json!({"metadata": {"labels": {"role": role}}});
    cluster
        .patch("nodes/node-1", role(json!("edge")))
        .await
        .expect("a label");
    until(&cluster, "daemonsets/agent", SOON, daemons(1)).await;
    assert_eq!(pods(&cluster, "agent").await[0]["spec"]["nodeName"], "node-1");
    cluster
        .patch("nodes/node-1", role(Value::Null))
        .await
        .expect("no label");
    until(&cluster, "daemonsets/agent", SOON, daemons(0)).await;
    until(&cluster, "pods?labelSelector=app=agent", minutes(1), |list| {
        list["items"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_runs_on_cordoned_nodes_and_not_on_tainted_ones() {
    let cluster = cluster().await;
    cluster
        .patch("nodes/node-0", json!({"spec": {"unschedulable": true}}))
        .await
        .expect("a cordon");
    let taint = json!({"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}});
    cluster.patch("nodes/node-1", taint).await.expect("a taint");
    daemon(&cluster, json!({})).await;
    until(&cluster, "daemonsets/agent", SOON, daemons(2)).await;
    let mut nodes: Vec<String> = pods(&cluster, "agent")
        .await
        .iter()
        .map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or_default().to_string())
        .collect();
    nodes.sort();
    assert_eq!(nodes, ["node-0", "node-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_may_be_renewed_by_hand() {
    let cluster = cluster().await;
    daemon(&cluster, json!({"updateStrategy": {"type": "OnDelete"}})).await;
    until(&cluster, "daemonsets/agent", SOON, daemons(3)).await;
    let update = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "web:2"}]}}}});
    cluster.patch("daemonsets/agent", update).await.expect("an update");
    cluster.pass(minutes(2)).await;
    let images = async || {
        let pods = pods(&cluster, "agent").await;
        pods.iter()
            .filter(|pod| pod["spec"]["containers"][0]["image"] == "web:2")
            .count()
    };
    assert_eq!(images().await, 0);
    let one = name(&pods(&cluster, "agent").await[0]);
    cluster
        .delete(&format!("pods/{one}"), "Background")
        .await
        .expect("a deletion");
    gone(&cluster, &format!("pods/{one}"), minutes(1)).await;
    until(&cluster, "daemonsets/agent", minutes(1), daemons(3)).await;
    assert_eq!(images().await, 1);
}

#[tokio::test(start_paused = true)]
async fn what_has_no_owner_left_goes() {
    let cluster = cluster().await;
    let owned = |name: &str, uid: &str| {
        json!({"metadata": {"name": name, "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]}})
    };
    let owner = cluster
        .create("configmaps", json!({"metadata": {"name": "owner"}}))
        .await
        .expect("an owner");
    let uid = owner["metadata"]["uid"].as_str().expect("a uid");
    cluster.create("secrets", owned("child", uid)).await.expect("a child");
    cluster
        .create("secrets", owned("dangling", "00000000-0000-0000-0000-000000000000"))
        .await
        .expect("a child of nobody");
    gone(&cluster, "secrets/dangling", minutes(2)).await;
    cluster.get("secrets/child").await.expect("its owner lives");
    cluster
        .delete("configmaps/owner", "Background")
        .await
        .expect("a deletion");
    gone(&cluster, "secrets/child", minutes(2)).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_owners_the_last_one_counts() {
    let cluster = cluster().await;
    let mut owners = Vec::new();
    for name in ["one", "two"] {
        let made = cluster
            .create("configmaps", json!({"metadata": {"name": name}}))
            .await
            .expect("an owner");
        owners.push(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"]}));
    }
    let child = json!({"metadata": {"name": "child", "ownerReferences": owners}});
    cluster.create("secrets", child).await.expect("a child");
    cluster
        .delete("configmaps/one", "Background")
        .await
        .expect("a deletion");
    let child = until(&cluster, "secrets/child", minutes(1), |child| {
        child["metadata"]["ownerReferences"].as_array().map(Vec::len) == Some(1)
    })
    .await;
    assert_eq!(owner(&child), "two");
    cluster
        .delete("configmaps/two", "Background")
        .await
        .expect("a deletion");
    gone(&cluster, "secrets/child", minutes(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_in_percent_is_rounded_up_and_follows_the_scale() {
    let cluster = cluster().await;
    replica_set(&cluster, 3, json!({})).await;
    let budget = json!({"metadata": {"name": "web"}, "spec": {"maxUnavailable": "50%", "selector": selector("web")}});
    cluster.create("poddisruptionbudgets", budget).await.expect("a budget");
    let allows = async |count: i64, healthy: i64| {
        until(&cluster, "poddisruptionbudgets/web", minutes(1), |budget| {
            budget["status"]["disruptionsAllowed"] == count && budget["status"]["currentHealthy"] == healthy
        })
        .await
    };
    allows(2, 3).await;
    cluster
        .patch("replicasets/web", json!({"spec": {"replicas": 5}}))
        .await
        .expect("a scale");
    allows(3, 5).await;
}

#[tokio::test(start_paused = true)]
async fn small_things_that_every_namespace_has_come_back() {
    let cluster = cluster_of(0).await;
    for what in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
        let before = until(&cluster, what, SOON, |_| true).await;
        cluster.delete(what, "Background").await.expect("a deletion");
        until(&cluster, what, SOON, |now| {
            now["metadata"]["uid"] != before["metadata"]["uid"]
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_gathers_the_rules_of_others() {
    let cluster = cluster_of(0).await;
    let rules = json!([{"apiGroups": ["x"], "resources": ["ys"], "verbs": ["get"]}]);
    let sum = json!({"metadata": {"name": "sum"}, "aggregationRule": {"clusterRoleSelectors": [
        {"matchLabels": {"to": "sum"}}]}, "rules": []});
    cluster.create("clusterroles", sum).await.expect("a role");
    let part = json!({"metadata": {"name": "part", "labels": {"to": "sum"}}, "rules": rules});
    cluster.create("clusterroles", part).await.expect("a role");
    until(&cluster, "clusterroles/sum", SOON, |role| role["rules"] == rules).await;
    cluster
        .delete("clusterroles/part", "Background")
        .await
        .expect("a deletion");
    until(&cluster, "clusterroles/sum", SOON, |role| {
        role["rules"].is_null() || role["rules"] == json!([])
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn events_are_forgotten_after_an_hour() {
    let cluster = cluster_of(0).await;
    let event = json!({"metadata": {"name": "once"}, "eventTime": "2026-01-01T00:00:00.000000Z", "action": "Testing",
        "reason": "Tested", "type": "Normal", "reportingController": "test", "reportingInstance": "one",
        "regarding": {"kind": "Pod", "name": "x", "namespace": "default"}});
    cluster.create("events", event).await.expect("an event");
    cluster.pass(minutes(55)).await;
    cluster.get("events/once").await.expect("it is young");
    cluster.pass(minutes(15)).await;
    gone(&cluster, "events/once", SOON).await;
}

#[tokio::test(start_paused = true)]
async fn an_account_has_tokens_for_as_long_as_it_lives() {
    let cluster = cluster_of(0).await;
    let secret = json!({"metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token"});
    let account = json!({"metadata": {"name": "robot"}});
    cluster.create("serviceaccounts", account).await.expect("an account");
    cluster.create("secrets", secret).await.expect("a secret");
    until(&cluster, "secrets/token", SOON, |secret| {
        secret["data"]["token"].is_string()
    })
    .await;
    cluster
        .delete("serviceaccounts/robot", "Background")
        .await
        .expect("a deletion");
    gone(&cluster, "secrets/token", minutes(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_stateful_pod_that_failed_is_made_anew_under_its_name() {
    let cluster = cluster().await;
    let spec = json!({"replicas": 2, "selector": selector("db"), "serviceName": "db", "minReadySeconds": 20,
        "template": template("db", json!({}))});
    let object = json!({"metadata": {"name": "db"}, "spec": spec});
    cluster.create("statefulsets", object).await.expect("a set");
    until(&cluster, "pods/db-0", SOON, |pod| condition(pod, "Ready", "True")).await;
    cluster.pass(Duration::from_secs(10)).await;
    let early = cluster.get("pods/db-1").await.map_err(|error| error.code);
    assert_eq!(early.unwrap_err(), 404, "the first has not been ready for long enough");
    until(&cluster, "statefulsets/db", minutes(2), |set| {
        set["status"]["availableReplicas"] == 2
    })
    .await;
    let before = cluster.get("pods/db-0").await.expect("it");
    let end = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
    cluster.patch("pods/db-0/status", end).await.expect("an end");
    until(&cluster, "pods/db-0", minutes(1), |pod| {
        pod["metadata"]["uid"] != before["metadata"]["uid"] && pod["status"]["phase"] == "Running"
    })
    .await;
}

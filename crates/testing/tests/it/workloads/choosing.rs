//! How the scheduler chooses: demands of pods on nodes and on each other, and wishes that weigh more or less.

use super::story::*;
use serde_json::{Value, json};
use stead_test::hollow_cluster::HollowCluster;

const HOST: &str = "kubernetes.io/hostname";

async fn put(cluster: &HollowCluster, name: &str, app: &str, spec: Value) {
    pod(cluster, name, app, json!({}), spec).await;
}

async fn node_of(cluster: &HollowCluster, name: &str) -> String {
    let pod = runs(cluster, name).await;
    pod["spec"]["nodeName"].as_str().unwrap_or_default().to_string()
}

async fn waits(cluster: &HollowCluster, name: &str) -> String {
    let pod = until(cluster, &format!("pods/{name}"), SOON, |pod| {
        condition(pod, "PodScheduled", "False")
    })
    .await;
    told(&pod, "PodScheduled")["message"]
        .as_str()
        .unwrap_or_default()
        .to_string()
}

async fn label(cluster: &HollowCluster, node: &str, labels: Value) {
    change(
        cluster,
        &format!("nodes/{node}"),
        json!({"metadata": {"labels": labels}}),
    )
    .await;
}

fn demand(side: &str, app: &str, more: Value) -> Value {
    let term = merged(
        json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST}),
        more,
    );
    json!({"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn wish(side: &str, app: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST});
    json!({"affinity": {side: {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "podAffinityTerm": term}]}}})
}

fn spread(app: &str, more: Value) -> Value {
    let constraint = json!({"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}}});
    json!({"topologySpreadConstraints": [merged(constraint, more)]})
}

#[tokio::test(start_paused = true)]
async fn each_operator_of_a_node_affinity_means_what_it_says() {
    let cluster = cluster().await;
    for (node, size) in [("node-0", "3"), ("node-1", "7"), ("node-2", "big")] {
        label(&cluster, node, json!({"size": size})).await;
    }
    label(&cluster, "node-2", json!({"spare": "yes"})).await;
    for (number, (operator, key, values, expected)) in [
        ("In", "size", json!(["7", "8"]), "node-1"),
        ("NotIn", "size", json!(["7", "big"]), "node-0"),
        ("Gt", "size", json!(["5"]), "node-1"),
        ("Lt", "size", json!(["5"]), "node-0"),
        ("Exists", "spare", Value::Null, "node-2"),
    ]
    .into_iter()
    .enumerate()
    {
        let need = json!({"key": key, "operator": operator, "values": values});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [need]}]}}});
        let name = format!("p{number}");
        put(&cluster, &name, "p", json!({"affinity": affinity})).await;
        assert_eq!(node_of(&cluster, &name).await, expected, "{operator}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_several_terms_is_enough_and_all_of_its_needs_have_to_hold() {
    let cluster = cluster().await;
    label(&cluster, "node-0", json!({"a": "1"})).await;
    label(&cluster, "node-1", json!({"a": "1", "b": "1"})).await;
    let has = |key: &str| json!({"key": key, "operator": "Exists"});
    let terms = |terms: Value| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": terms}}}})
    };
    put(
        &cluster,
        "both",
        "p",
        terms(json!([{"matchExpressions": [has("a"), has("b")]}])),
    )
    .await;
    assert_eq!(node_of(&cluster, "both").await, "node-1");
    let name = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-2"]}]});
    put(
        &cluster,
        "either",
        "p",
        terms(json!([{"matchExpressions": [has("nowhere")]}, name])),
    )
    .await;
    assert_eq!(node_of(&cluster, "either").await, "node-2");
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_company_is_granted_where_there_is_room() {
    let cluster = cluster().await;
    put(&cluster, "db", "db", json!({"nodeName": "node-2"})).await;
    runs(&cluster, "db").await;
    put(&cluster, "web", "web", wish("podAffinity", "db")).await;
    assert_eq!(node_of(&cluster, "web").await, "node-2");
    put(&cluster, "lonely", "web", wish("podAffinity", "nobody")).await;
    node_of(&cluster, "lonely").await;
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_distance_spreads_pods_and_never_keeps_one_from_running() {
    let cluster = cluster_of(2).await;
    let mut homes = Vec::new();
    for number in 0..2 {
        put(
            &cluster,
            &format!("web-{number}"),
            "web",
            wish("podAntiAffinity", "web"),
        )
        .await;
        homes.push(node_of(&cluster, &format!("web-{number}")).await);
    }
    homes.sort();
    assert_eq!(homes, ["node-0", "node-1"]);
    put(&cluster, "web-2", "web", wish("podAntiAffinity", "web")).await;
    node_of(&cluster, "web-2").await;
}

#[tokio::test(start_paused = true)]
async fn a_wish_of_those_who_are_there_counts_for_a_newcomer() {
    let cluster = cluster().await;
    let mut host = wish("podAffinity", "guest");
    host["nodeName"] = json!("node-1");
    put(&cluster, "host", "host", host).await;
    runs(&cluster, "host").await;
    put(&cluster, "guest", "guest", json!({})).await;
    assert_eq!(node_of(&cluster, "guest").await, "node-1");
}

#[tokio::test(start_paused = true)]
async fn who_keeps_others_away_keeps_those_away_too_who_do_not_mind() {
    let cluster = cluster_of(1).await;
    put(
        &cluster,
        "hermit",
        "hermit",
        demand("podAntiAffinity", "web", json!({})),
    )
    .await;
    node_of(&cluster, "hermit").await;
    put(&cluster, "web", "web", json!({})).await;
    let why = waits(&cluster, "web").await;
    assert!(
        why.starts_with("0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."),
        "{why}"
    );
    remove(&cluster, "pods/hermit").await;
    node_of(&cluster, "web").await;
}

#[tokio::test(start_paused = true)]
async fn affinity_looks_into_other_namespaces_by_name_or_by_label() {
    let cluster = cluster().await;
    let shop = json!({"metadata": {"name": "shop", "labels": {"team": "blue"}}});
    cluster.create("namespaces", shop).await.expect("a namespace");
    let path = "/api/v1/namespaces/shop/pods";
    let mut db = template("db", json!({}));
    db["metadata"]["name"] = json!("db");
    db["spec"]["nodeName"] = json!("node-1");
    until_made(&cluster, path, &db).await;
    for (number, scope) in [
        json!({"namespaces": ["shop"]}),
        json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}}),
        json!({"namespaceSelector": {}}),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("near-{number}");
        put(&cluster, &name, "near", demand("podAffinity", "db", scope.clone())).await;
        assert_eq!(node_of(&cluster, &name).await, "node-1", "{scope}");
    }
    for (number, scope) in [
        json!({}),
        json!({"namespaceSelector": {"matchLabels": {"team": "red"}}}),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("far-{number}");
        put(&cluster, &name, "far", demand("podAffinity", "db", scope)).await;
        let why = waits(&cluster, &name).await;
        assert!(why.contains("3 node(s) didn't match pod affinity rules"), "{why}");
    }
    change(
        &cluster,
        "namespaces/shop",
        json!({"metadata": {"labels": {"team": "red"}}}),
    )
    .await;
    assert_eq!(node_of(&cluster, "far-1").await, "node-1");
}

/// Creates an object as soon as its namespace is ready for it.
async fn until_made(cluster: &HollowCluster, path: &str, object: &Value) {
    let whole = merged(json!({"apiVersion": "v1", "kind": "Pod"}), object.clone());
    for _ in 0..100 {
        match cluster.request("POST", path, whole.clone()).await {
            Ok(_) => return,
            Err(_) => cluster.pass(std::time::Duration::from_millis(100)).await,
        }
    }
    panic!("{path}: never made");
}

#[tokio::test(start_paused = true)]
async fn the_first_of_a_group_that_wants_company_may_begin_anywhere() {
    let cluster = cluster().await;
    for number in 0..3 {
        put(
            &cluster,
            &format!("herd-{number}"),
            "herd",
            demand("podAffinity", "herd", json!({})),
        )
        .await;
    }
    let first = node_of(&cluster, "herd-0").await;
    for number in 1..3 {
        assert_eq!(node_of(&cluster, &format!("herd-{number}")).await, first);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_company_starts_when_it_comes() {
    let cluster = cluster().await;
    put(&cluster, "web", "web", demand("podAffinity", "db", json!({}))).await;
    waits(&cluster, "web").await;
    put(&cluster, "db", "db", json!({})).await;
    assert_eq!(node_of(&cluster, "web").await, node_of(&cluster, "db").await);
}

#[tokio::test(start_paused = true)]
async fn a_soft_spread_is_a_wish() {
    let cluster = cluster_of(2).await;
    change(&cluster, "nodes/node-1", json!({"spec": {"unschedulable": true}})).await;
    let soft = spread("web", json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    for number in 0..3 {
        put(&cluster, &format!("web-{number}"), "web", soft.clone()).await;
        assert_eq!(node_of(&cluster, &format!("web-{number}")).await, "node-0");
    }
    change(&cluster, "nodes/node-1", json!({"spec": {"unschedulable": null}})).await;
    put(&cluster, "web-3", "web", soft).await;
    assert_eq!(node_of(&cluster, "web-3").await, "node-1");
}

#[tokio::test(start_paused = true)]
async fn too_few_places_count_as_if_one_were_empty() {
    let cluster = cluster_of(2).await;
    let three = spread("web", json!({"minDomains": 3}));
    for number in 0..2 {
        put(&cluster, &format!("web-{number}"), "web", three.clone()).await;
        node_of(&cluster, &format!("web-{number}")).await;
    }
    put(&cluster, "web-2", "web", three).await;
    let why = waits(&cluster, "web-2").await;
    assert!(
        why.contains("2 node(s) didn't match pod topology spread constraints"),
        "{why}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_without_the_label_is_no_place_to_spread_to() {
    let cluster = cluster_of(2).await;
    label(&cluster, "node-0", json!({"rack": "a"})).await;
    put(&cluster, "web-0", "web", spread("web", json!({"topologyKey": "rack"}))).await;
    assert_eq!(node_of(&cluster, "web-0").await, "node-0");
    change(&cluster, "nodes/node-0", json!({"spec": {"unschedulable": true}})).await;
    put(&cluster, "web-1", "web", spread("web", json!({"topologyKey": "rack"}))).await;
    let why = waits(&cluster, "web-1").await;
    assert!(
        why.contains("1 node(s) didn't match pod topology spread constraints (missing required label)"),
        "{why}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_spread_heeds_taints_only_if_it_says_so() {
    for (policy, waits_) in [("Ignore", true), ("Honor", false)] {
        let cluster = cluster_of(2).await;
        change(
            &cluster,
            "nodes/node-1",
            json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
        )
        .await;
        let rule = spread("web", json!({"nodeTaintsPolicy": policy}));
        put(&cluster, "web-0", "web", rule.clone()).await;
        assert_eq!(node_of(&cluster, "web-0").await, "node-0");
        put(&cluster, "web-1", "web", rule).await;
        match waits_ {
            true => assert!(waits(&cluster, "web-1").await.contains("topology spread"), "{policy}"),
            false => assert_eq!(node_of(&cluster, "web-1").await, "node-0", "{policy}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_spread_counts_nodes_that_the_pod_cannot_use_only_if_it_says_so() {
    for (policy, waits_) in [("Honor", false), ("Ignore", true)] {
        let cluster = cluster_of(2).await;
        label(&cluster, "node-0", json!({"disk": "ssd"})).await;
        let rule = merged(
            spread("web", json!({"nodeAffinityPolicy": policy})),
            json!({"nodeSelector": {"disk": "ssd"}}),
        );
        put(&cluster, "web-0", "web", rule.clone()).await;
        assert_eq!(node_of(&cluster, "web-0").await, "node-0");
        put(&cluster, "web-1", "web", rule).await;
        match waits_ {
            true => assert!(waits(&cluster, "web-1").await.contains("topology spread"), "{policy}"),
            false => assert_eq!(node_of(&cluster, "web-1").await, "node-0", "{policy}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_spread_may_count_each_roll_out_for_itself() {
    let cluster = cluster_of(2).await;
    let rule = spread("web", json!({"matchLabelKeys": ["release"]}));
    let release = async |name: &str, release: &str, node: Value| {
        let mut pod = template("web", json!({}));
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["labels"]["release"] = json!(release);
        pod["spec"] = merged(pod["spec"].take(), merged(rule.clone(), json!({"nodeName": node})));
        cluster.create("pods", pod).await.expect("a pod");
    };
    release("old-0", "one", json!("node-0")).await;
    release("old-1", "one", json!("node-0")).await;
    runs(&cluster, "old-1").await;
    change(&cluster, "nodes/node-1", json!({"spec": {"unschedulable": true}})).await;
    release("new", "two", Value::Null).await;
    assert_eq!(
        node_of(&cluster, "new").await,
        "node-0",
        "those of the other release do not count"
    );
}

#[tokio::test(start_paused = true)]
async fn who_keeps_away_from_others_comes_when_those_are_others_no_more() {
    let cluster = cluster_of(1).await;
    put(&cluster, "rival", "rival", json!({})).await;
    runs(&cluster, "rival").await;
    put(&cluster, "shy", "shy", demand("podAntiAffinity", "rival", json!({}))).await;
    assert!(waits(&cluster, "shy").await.contains("anti-affinity"));
    change(
        &cluster,
        "pods/rival",
        json!({"metadata": {"labels": {"app": "friend"}}}),
    )
    .await;
    node_of(&cluster, "shy").await;
}

#[tokio::test(start_paused = true)]
async fn who_keeps_away_from_a_kind_of_namespace_comes_when_it_is_another_kind() {
    let cluster = cluster_of(1).await;
    put(&cluster, "rival", "rival", json!({})).await;
    runs(&cluster, "rival").await;
    let loud = json!({"namespaceSelector": {"matchLabels": {"kind": "loud"}}});
    change(
        &cluster,
        "namespaces/default",
        json!({"metadata": {"labels": {"kind": "loud"}}}),
    )
    .await;
    put(&cluster, "shy", "shy", demand("podAntiAffinity", "rival", loud)).await;
    assert!(waits(&cluster, "shy").await.contains("anti-affinity"));
    change(
        &cluster,
        "namespaces/default",
        json!({"metadata": {"labels": {"kind": null}}}),
    )
    .await;
    node_of(&cluster, "shy").await;
}

#[tokio::test(start_paused = true)]
async fn who_must_be_spread_comes_when_the_others_are() {
    let cluster = cluster_of(2).await;
    change(&cluster, "nodes/node-1", json!({"spec": {"unschedulable": true}})).await;
    let even = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector("even")}]});
    put(&cluster, "first", "even", even.clone()).await;
    assert_eq!(node_of(&cluster, "first").await, "node-0");
    put(&cluster, "second", "even", even).await;
    assert!(waits(&cluster, "second").await.contains("topology spread constraints"));
    put(&cluster, "third", "even", json!({"nodeName": "node-1"})).await;
    assert_eq!(node_of(&cluster, "second").await, "node-0");
}

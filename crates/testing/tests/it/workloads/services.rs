//! Services: their addresses, the ranges of these, and the endpoints behind them.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

async fn service(cluster: &HollowCluster, name: &str, extra: Value) -> Value {
    let spec = merged(json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}), extra);
    let object = json!({"metadata": {"name": name}, "spec": spec});
    cluster.create("services", object).await.expect("a service")
}

fn address_of(service: &Value) -> String {
    service["spec"]["clusterIP"].as_str().unwrap_or_default().to_string()
}

async fn web(cluster: &HollowCluster, replicas: i32, script: Value) {
    let spec = json!({"replicas": replicas, "selector": selector("web"), "template": template("web", script)});
    let object = json!({"metadata": {"name": "web"}, "spec": spec});
    cluster.create("replicasets", object).await.expect("a set");
}

/// Waits until the slices of a Service have so many endpoints that are ready, or not.
async fn endpoints(cluster: &HollowCluster, service: &str, ready: bool, count: usize) -> Vec<Value> {
    let what = format!("endpointslices?labelSelector=kubernetes.io/service-name={service}");
    let list = until(cluster, &what, minutes(2), |list| {
        let slices = list["items"].as_array().into_iter().flatten();
        let all = slices.flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
        all.filter(|endpoint| endpoint["conditions"]["ready"] == ready).count() == count
    })
    .await;
    list["items"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn an_address_that_was_lost_is_taken_again() {
    let cluster = cluster().await;
    let made = service(&cluster, "web", json!({})).await;
    let what = format!("ipaddresses/{}", address_of(&made));
    let before = until(&cluster, &what, SOON, |_| true).await;
    cluster.delete(&what, "Background").await.expect("a deletion");
    let after = until(&cluster, &what, SOON, |now| {
        now["metadata"]["uid"] != before["metadata"]["uid"]
    })
    .await;
    assert_eq!(after["spec"]["parentRef"]["name"], "web");
    assert_eq!(after["metadata"]["labels"], before["metadata"]["labels"]);
    until(&cluster, "events", SOON, |list| {
        let mut all = list["items"].as_array().into_iter().flatten();
        all.any(|event| event["reason"] == "ClusterIPNotAllocated" && event["regarding"]["name"] == "web")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_address_of_no_service_is_given_back_when_no_request_can_explain_it() {
    let cluster = cluster().await;
    let labels = json!({"ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"});
    for (address, labels) in [("10.96.7.1", labels), ("10.96.7.2", json!({}))] {
        let spec = json!({"parentRef": {"resource": "services", "namespace": "default", "name": "never"}});
        let object = json!({"metadata": {"name": address, "labels": labels}, "spec": spec});
        cluster.create("ipaddresses", object).await.expect("an address");
    }
    cluster.pass(Duration::from_secs(50)).await;
    cluster
        .get("ipaddresses/10.96.7.1")
        .await
        .expect("a request may still run");
    cluster.pass(Duration::from_secs(30)).await;
    gone(&cluster, "ipaddresses/10.96.7.1", SOON).await;
    cluster
        .get("ipaddresses/10.96.7.2")
        .await
        .expect("others' addresses are theirs");
}

#[tokio::test(start_paused = true)]
async fn a_range_gives_addresses_while_it_stays_and_goes_after_the_last_of_them() {
    let cluster = cluster().await;
    let refused = |error: stead_test::hollow_cluster::Refused| error.code;
    let asking = json!({"metadata": {"name": "far"}, "spec": {"clusterIP": "10.200.0.5", "ports": [{"port": 80}]}});
    let early = cluster.create("services", asking.clone()).await.map_err(refused);
    assert_eq!(early.unwrap_err(), 422, "no range has that address");
    let range = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.200.0.0/28"]}});
    cluster.create("servicecidrs", range).await.expect("a range");
    let ready = until(&cluster, "servicecidrs/more", SOON, |range| {
        condition(range, "Ready", "True")
    })
    .await;
    assert_eq!(
        ready["metadata"]["finalizers"],
        json!(["networking.k8s.io/service-cidr-finalizer"])
    );
    cluster.create("services", asking).await.expect("it has one now");
    cluster
        .delete("servicecidrs/more", "Background")
        .await
        .expect("a deletion");
    let held = until(&cluster, "servicecidrs/more", SOON, |range| {
        condition(range, "Ready", "False")
    })
    .await;
    assert_eq!(reason(&held, "Ready"), "Terminating");
    let another = json!({"metadata": {"name": "late"}, "spec": {"clusterIP": "10.200.0.6", "ports": [{"port": 80}]}});
    let late = cluster.create("services", another).await.map_err(refused);
    assert_eq!(late.unwrap_err(), 422, "a range that goes gives nothing");
    cluster.pass(minutes(2)).await;
    cluster.get("servicecidrs/more").await.expect("an address is in it");
    cluster.delete("services/far", "Background").await.expect("a deletion");
    gone(&cluster, "servicecidrs/more", minutes(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_has_an_address_exactly_while_its_type_has_one() {
    let cluster = cluster().await;
    let outside = json!({"type": "ExternalName", "externalName": "example.com", "selector": null});
    let made = service(&cluster, "web", outside).await;
    assert_eq!(address_of(&made), "");
    let inside = json!({"spec": {"type": "ClusterIP", "externalName": null}});
    let changed = cluster.patch("services/web", inside).await.expect("a change");
    let address = address_of(&changed);
    assert!(address.starts_with("10.96."), "{changed}");
    until(&cluster, &format!("ipaddresses/{address}"), SOON, |_| true).await;
    let back = json!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
    cluster.patch("services/web", back).await.expect("a change");
    gone(&cluster, &format!("ipaddresses/{address}"), SOON).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_port_is_given_kept_and_never_twice() {
    let cluster = cluster().await;
    let first = service(&cluster, "first", json!({"type": "NodePort"})).await;
    let port = first["spec"]["ports"][0]["nodePort"].as_u64().expect("a port");
    assert!((30000..=32767).contains(&port), "{port}");
    let change = json!({"spec": {"ports": [{"port": 80, "targetPort": 8080}]}});
    let changed = cluster.patch("services/first", change).await.expect("a change");
    assert_eq!(
        changed["spec"]["ports"][0]["nodePort"], port,
        "who does not say keeps it"
    );
    let same = json!({"metadata": {"name": "second"},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}});
    let refused = cluster.create("services", same).await.unwrap_err();
    assert!(
        refused.message.contains("provided port is already allocated"),
        "{refused}"
    );
    let plain = cluster
        .patch("services/first", json!({"spec": {"type": "ClusterIP"}}))
        .await
        .expect("a change");
    assert!(plain["spec"]["ports"][0]["nodePort"].is_null(), "{plain}");
}

#[tokio::test(start_paused = true)]
async fn endpoints_follow_readiness_and_large_services_have_several_slices() {
    let cluster = cluster().await;
    service(&cluster, "web", json!({})).await;
    web(&cluster, 120, json!({"ready-after": "10s"})).await;
    endpoints(&cluster, "web", false, 120).await;
    let slices = endpoints(&cluster, "web", true, 120).await;
    let sizes = slices
        .iter()
        .map(|slice| slice["endpoints"].as_array().map_or(0, Vec::len));
    let sizes: Vec<usize> = sizes.collect();
    // How they are shared out depends on who came first: nobody moves to make a slice full.
    assert_eq!((sizes.len(), sizes.iter().sum()), (2, 120), "{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 100), "{sizes:?}");
    cluster
        .patch("replicasets/web", json!({"spec": {"replicas": 3}}))
        .await
        .expect("a scale");
    endpoints(&cluster, "web", true, 3).await;
    cluster.delete("services/web", "Background").await.expect("a deletion");
    until(
        &cluster,
        "endpointslices?labelSelector=kubernetes.io/service-name=web",
        minutes(1),
        |list| list["items"].as_array().is_some_and(Vec::is_empty),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_publishes_unready_pods_has_them_as_ready() {
    let cluster = cluster().await;
    service(
        &cluster,
        "web",
        json!({"clusterIP": "None", "publishNotReadyAddresses": true}),
    )
    .await;
    web(&cluster, 2, json!({"ready-after": "never"})).await;
    let slices = endpoints(&cluster, "web", true, 2).await;
    assert_eq!(slices[0]["endpoints"][0]["conditions"]["serving"], false);
}

#[tokio::test(start_paused = true)]
async fn a_named_port_means_what_each_pod_calls_so() {
    let cluster = cluster().await;
    service(&cluster, "web", json!({"ports": [{"port": 80, "targetPort": "http"}]})).await;
    let mut pod = template("web", json!({}));
    pod["metadata"]["name"] = json!("web");
    pod["spec"]["containers"][0]["ports"] = json!([{"name": "http", "containerPort": 8123}]);
    cluster.create("pods", pod).await.expect("a pod");
    let slices = endpoints(&cluster, "web", true, 1).await;
    assert_eq!(slices[0]["ports"][0]["port"], 8123);
    assert_eq!(slices[0]["endpoints"][0]["targetRef"]["name"], "web");
}

#[tokio::test(start_paused = true)]
async fn endpoints_made_by_hand_are_mirrored() {
    let cluster = cluster().await;
    service(&cluster, "outside", json!({"selector": null})).await;
    let subsets = json!([{"addresses": [{"ip": "192.0.2.7"}], "ports": [{"port": 9000}]}]);
    let object = json!({"kind": "Endpoints", "apiVersion": "v1", "metadata": {"name": "outside"}, "subsets": subsets});
    let path = "/api/v1/namespaces/default/endpoints";
    cluster.request("POST", path, object).await.expect("endpoints");
    let slices = endpoints(&cluster, "outside", true, 1).await;
    assert_eq!(slices[0]["endpoints"][0]["addresses"], json!(["192.0.2.7"]));
    assert_eq!(slices[0]["ports"][0]["port"], 9000);
    let gone = format!("{path}/outside");
    cluster.request("DELETE", &gone, Value::Null).await.expect("a deletion");
    until(
        &cluster,
        "endpointslices?labelSelector=kubernetes.io/service-name=outside",
        minutes(1),
        |list| list["items"].as_array().is_some_and(Vec::is_empty),
    )
    .await;
}

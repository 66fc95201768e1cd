//! Endpoints in detail: who is behind a Service, in which state, and what is said of each.

use super::story::*;
use serde_json::{Value, json};
use stead_test::hollow_cluster::HollowCluster;

async fn service(cluster: &HollowCluster, extra: Value) -> Value {
    let spec = merged(json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}), extra);
    make(cluster, "services", "web", spec).await
}

const SLICES: &str = "endpointslices?labelSelector=kubernetes.io/service-name=web";

fn all(list: &Value) -> Vec<Value> {
    let slices = items(list).iter();
    slices
        .flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default())
        .collect()
}

/// Waits until the slices have so many endpoints, and gives the slices.
async fn slices(cluster: &HollowCluster, endpoints: usize) -> Vec<Value> {
    let list = until(cluster, SLICES, minutes(1), |list| {
        !items(list).is_empty() && all(list).len() == endpoints
    })
    .await;
    items(&list).to_vec()
}

async fn old_endpoints(cluster: &HollowCluster, is: impl Fn(&Value) -> bool) -> Value {
    let path = "/api/v1/namespaces/default/endpoints/web";
    let mut last = Value::Null;
    for _ in 0..100 {
        if let Ok(found) = cluster.request("GET", path, Value::Null).await {
            if is(&found) {
                return found;
            }
            last = found;
        }
        cluster.pass(std::time::Duration::from_millis(200)).await;
    }
    panic!("the endpoints are {last}");
}

async fn web(cluster: &HollowCluster, name: &str, script: Value, spec: Value) {
    pod(cluster, name, "web", script, spec).await;
    runs(cluster, name).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_its_way_out_still_serves_but_is_not_ready() {
    let cluster = cluster_of(1).await;
    service(&cluster, json!({})).await;
    web(&cluster, "a", json!({"stop-after": "20s"}), json!({})).await;
    slices(&cluster, 1).await;
    remove(&cluster, "pods/a").await;
    let list = until(&cluster, SLICES, SOON, |list| {
        all(list)
            .first()
            .is_some_and(|one| one["conditions"]["terminating"] == true)
    })
    .await;
    assert_eq!(
        all(&list)[0]["conditions"],
        json!({"ready": false, "serving": true, "terminating": true})
    );
    let old = old_endpoints(&cluster, |old| old["subsets"].is_null()).await;
    assert_eq!(name(&old), "web", "the older form leaves it out");
    slices(&cluster, 0).await;
}

#[tokio::test(start_paused = true)]
async fn each_endpoint_says_where_it_is_and_which_pod_it_is() {
    let cluster = cluster_of(3).await;
    service(&cluster, json!({})).await;
    web(&cluster, "a", json!({}), json!({"nodeName": "node-1"})).await;
    let slice = slices(&cluster, 1).await.remove(0);
    let endpoint = &slice["endpoints"][0];
    let (pod, node) = (
        cluster.get("pods/a").await.expect("it"),
        cluster.get("nodes/node-1").await.expect("it"),
    );
    assert_eq!(endpoint["nodeName"], "node-1");
    assert_eq!(
        endpoint["zone"],
        node["metadata"]["labels"]["topology.kubernetes.io/zone"]
    );
    assert_eq!(endpoint["addresses"], json!([pod["status"]["podIP"]]));
    assert_eq!(endpoint["targetRef"]["uid"], pod["metadata"]["uid"]);
    assert_eq!(slice["addressType"], "IPv4");
}

#[tokio::test(start_paused = true)]
async fn who_wants_to_stay_near_gets_hints() {
    for (wish, zones, nodes) in [
        (Value::Null, 0, 0),
        (json!("PreferSameZone"), 1, 0),
        (json!("PreferSameNode"), 1, 1),
    ] {
        let cluster = cluster_of(1).await;
        service(&cluster, json!({"trafficDistribution": wish})).await;
        web(&cluster, "a", json!({}), json!({})).await;
        let slice = slices(&cluster, 1).await.remove(0);
        let endpoint = &slice["endpoints"][0];
        let count = |field: &str| endpoint["hints"][field].as_array().map_or(0, Vec::len);
        assert_eq!((count("forZones"), count("forNodes")), (zones, nodes), "{wish}");
        if zones > 0 {
            assert_eq!(endpoint["hints"]["forZones"][0]["name"], endpoint["zone"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn labels_of_a_service_come_to_its_slices_and_change_with_it() {
    let cluster = cluster_of(1).await;
    service(&cluster, json!({"clusterIP": "None"})).await;
    change(
        &cluster,
        "services/web",
        json!({"metadata": {"labels": {"team": "blue"}}}),
    )
    .await;
    let list = until(&cluster, SLICES, SOON, |list| {
        items(list)
            .iter()
            .any(|slice| slice["metadata"]["labels"]["team"] == "blue")
    })
    .await;
    let labels = &items(&list)[0]["metadata"]["labels"];
    assert_eq!(labels["service.kubernetes.io/headless"], "");
    assert_eq!(
        labels["endpointslice.kubernetes.io/managed-by"],
        "endpointslice-controller.k8s.io"
    );
    change(
        &cluster,
        "services/web",
        json!({"metadata": {"labels": {"team": null}}}),
    )
    .await;
    until(&cluster, SLICES, SOON, |list| {
        items(list)
            .iter()
            .all(|slice| slice["metadata"]["labels"]["team"].is_null())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_port_is_told_with_its_name_and_its_protocols() {
    let cluster = cluster_of(1).await;
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080, "appProtocol": "kubernetes.io/h2c"},
        {"name": "dns", "port": 53, "protocol": "UDP"}]);
    service(&cluster, json!({"ports": ports})).await;
    web(&cluster, "a", json!({}), json!({})).await;
    let mut told = slices(&cluster, 1).await[0]["ports"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    told.sort_by_key(|port| port["port"].as_i64());
    assert_eq!(
        (&told[0]["name"], &told[0]["port"], &told[0]["protocol"]),
        (&json!("dns"), &json!(53), &json!("UDP"))
    );
    assert_eq!(
        (&told[1]["port"], &told[1]["appProtocol"]),
        (&json!(8080), &json!("kubernetes.io/h2c"))
    );
}

#[tokio::test(start_paused = true)]
async fn pods_that_call_different_ports_by_one_name_are_told_apart() {
    let cluster = cluster_of(1).await;
    service(&cluster, json!({"ports": [{"port": 80, "targetPort": "http"}]})).await;
    for (name, number) in [("old", 8080), ("new", 9090)] {
        let port = json!([{"name": "http", "containerPort": number}]);
        web(
            &cluster,
            name,
            json!({}),
            json!({"containers": [{"name": "main", "image": "web:1", "ports": port}]}),
        )
        .await;
    }
    let mut ports: Vec<_> = slices(&cluster, 2)
        .await
        .iter()
        .map(|slice| slice["ports"][0]["port"].as_i64())
        .collect();
    ports.sort();
    assert_eq!(ports, [Some(8080), Some(9090)]);
}

#[tokio::test(start_paused = true)]
async fn a_headless_service_needs_no_ports() {
    let cluster = cluster_of(1).await;
    let made = service(&cluster, json!({"clusterIP": "None", "ports": null})).await;
    assert_eq!(made["spec"]["clusterIP"], "None");
    web(&cluster, "a", json!({}), json!({})).await;
    let slice = slices(&cluster, 1).await.remove(0);
    assert!(slice["ports"].as_array().is_none_or(Vec::is_empty), "{slice}");
}

#[tokio::test(start_paused = true)]
async fn another_selector_means_other_pods() {
    let cluster = cluster_of(1).await;
    service(&cluster, json!({})).await;
    web(&cluster, "a", json!({}), json!({})).await;
    pod(&cluster, "b", "shop", json!({}), json!({})).await;
    slices(&cluster, 1).await;
    change(&cluster, "services/web", json!({"spec": {"selector": {"app": "shop"}}})).await;
    until(&cluster, SLICES, SOON, |list| {
        all(list).len() == 1 && all(list)[0]["targetRef"]["name"] == "b"
    })
    .await;
    change(&cluster, "pods/b", json!({"metadata": {"labels": {"app": "none"}}})).await;
    slices(&cluster, 0).await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_have_ended_or_have_no_address_are_not_behind_anything() {
    let cluster = cluster_of(1).await;
    service(&cluster, json!({"publishNotReadyAddresses": true})).await;
    ended_pod(&cluster, "done", "web").await;
    pod(
        &cluster,
        "nowhere",
        "web",
        json!({}),
        json!({"nodeSelector": {"none": "such"}}),
    )
    .await;
    slices(&cluster, 0).await;
    web(&cluster, "lame", json!({"ready-after": "never"}), json!({})).await;
    slices(&cluster, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_a_name_behind_its_own_service_is_told_by_it() {
    let cluster = cluster_of(1).await;
    service(&cluster, json!({"clusterIP": "None"})).await;
    web(
        &cluster,
        "a",
        json!({}),
        json!({"hostname": "alpha", "subdomain": "web"}),
    )
    .await;
    web(
        &cluster,
        "b",
        json!({}),
        json!({"hostname": "beta", "subdomain": "other"}),
    )
    .await;
    let slice = slices(&cluster, 2).await.remove(0);
    let hostname = |name: &str| {
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        let mut found = endpoints.filter(|one| one["targetRef"]["name"] == name);
        found.next().map(|one| one["hostname"].clone())
    };
    assert_eq!(
        (hostname("a"), hostname("b")),
        (Some(json!("alpha")), Some(Value::Null))
    );
}

#[tokio::test(start_paused = true)]
async fn slices_of_others_are_left_alone_and_ours_are_set_right() {
    let cluster = cluster_of(1).await;
    service(&cluster, json!({})).await;
    web(&cluster, "a", json!({}), json!({})).await;
    let ours = slices(&cluster, 1).await.remove(0);
    let theirs = json!({"metadata": {"name": "theirs", "labels": {"kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "other.example.com"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": []});
    cluster.create("endpointslices", theirs).await.expect("a slice");
    change(
        &cluster,
        &format!("endpointslices/{}", name(&ours)),
        json!({"endpoints": []}),
    )
    .await;
    slices(&cluster, 2).await;
    remove(&cluster, &format!("endpointslices/{}", name(&ours))).await;
    slices(&cluster, 2).await;
}

#[tokio::test(start_paused = true)]
async fn the_older_form_has_ready_and_unready_addresses_apart() {
    let cluster = cluster_of(1).await;
    service(&cluster, json!({})).await;
    web(&cluster, "well", json!({}), json!({})).await;
    web(&cluster, "lame", json!({"ready-after": "never"}), json!({})).await;
    let old = old_endpoints(&cluster, |old| old["subsets"][0]["notReadyAddresses"].is_array()).await;
    let subset = &old["subsets"][0];
    let target = |list: &str| subset[list][0]["targetRef"]["name"].clone();
    assert_eq!(
        (target("addresses"), target("notReadyAddresses")),
        (json!("well"), json!("lame"))
    );
    assert_eq!(
        old["metadata"]["labels"]["endpoints.kubernetes.io/managed-by"],
        "endpoint-controller"
    );
}

#[tokio::test(start_paused = true)]
async fn a_name_of_elsewhere_has_neither_address_nor_endpoints() {
    let cluster = cluster_of(1).await;
    let made = service(
        &cluster,
        json!({"type": "ExternalName", "externalName": "example.com", "ports": null}),
    )
    .await;
    assert!(made["spec"]["clusterIP"].is_null(), "{made}");
    web(&cluster, "a", json!({}), json!({})).await;
    cluster.pass(minutes(1)).await;
    assert!(items(&cluster.get(SLICES).await.expect("slices")).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_address_is_kept_for_as_long_as_its_service() {
    let cluster = cluster_of(1).await;
    let asked = json!({"clusterIP": "10.96.7.7", "sessionAffinity": "ClientIP"});
    let made = service(&cluster, asked.clone()).await;
    assert_eq!(made["spec"]["clusterIPs"], json!(["10.96.7.7"]));
    assert_eq!(
        made["spec"]["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"],
        10800
    );
    let twin = json!({"metadata": {"name": "twin"}, "spec": merged(json!({"ports": [{"port": 80}]}), asked)});
    let refused = cluster.create("services", twin.clone()).await.unwrap_err();
    assert!(
        refused.message.contains("provided IP is already allocated"),
        "{refused}"
    );
    let moved = cluster
        .patch("services/web", json!({"spec": {"clusterIP": "10.96.7.8"}}))
        .await
        .unwrap_err();
    assert_eq!(moved.code, 422, "{moved}");
    remove(&cluster, "services/web").await;
    gone(&cluster, "ipaddresses/10.96.7.7", SOON).await;
    cluster.create("services", twin).await.expect("it is free again");
}

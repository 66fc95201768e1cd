//! Services: addresses and ports.

use crate::api::Api;
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    object["spec"]["ports"] = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    object
}

#[tokio::test]
async fn a_service_gets_an_address_and_gives_it_back() {
    let api = Api::start().await;
    let created = api
        .post(SERVICES, service("a", json!({"selector": {"app": "a"}})))
        .await
        .ok();
    let address = created["spec"]["clusterIP"].as_str().unwrap().to_string();
    assert!(address.starts_with("10.96."), "{address}");
    assert_eq!(created["spec"]["clusterIPs"], json!([address]));
    assert_eq!(created["spec"]["ipFamilies"], json!(["IPv4"]));
    let path = format!("/apis/networking.k8s.io/v1/ipaddresses/{address}");
    let reserved = api.get(&path).await.ok();
    assert_eq!(
        reserved["spec"]["parentRef"],
        json!({"resource": "services", "namespace": "default", "name": "a"})
    );
    let mut other = service("b", json!({"clusterIP": address}));
    other["spec"]["selector"] = json!({"app": "b"});
    api.post(SERVICES, other).await.fails(
        422,
        "Invalid",
        &format!("Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"{address}\"]: failed to allocate IP {address}: provided IP is already allocated"),
    );
    api.delete(&format!("{SERVICES}/a")).await.ok();
    assert_eq!(api.get(&path).await.code, 404);
}

#[tokio::test]
async fn node_ports_are_given_kept_and_taken_away() {
    let api = Api::start().await;
    let created = api
        .post(
            SERVICES,
            service("a", json!({"type": "NodePort", "selector": {"app": "a"}})),
        )
        .await
        .ok();
    let port = created["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!((30000..=32767).contains(&port));
    let mut twin = service("b", json!({"type": "NodePort", "selector": {"app": "a"}}));
    twin["spec"]["ports"][0]["nodePort"] = port.into();
    api.post(SERVICES, twin.clone()).await.fails(
        422,
        "Invalid",
        &format!("Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: {port}: provided port is already allocated"),
    );
    let path = format!("{SERVICES}/a");
    let plain = api.merge(&path, json!({"spec": {"type": "ClusterIP"}})).await.ok();
    assert!(plain["spec"]["ports"][0].get("nodePort").is_none(), "{plain}");
    api.post(SERVICES, twin).await.ok();
}

#[tokio::test]
async fn headless_services_have_no_address() {
    let api = Api::start().await;
    let created = api
        .post(
            SERVICES,
            service("a", json!({"clusterIP": "None", "selector": {"app": "a"}})),
        )
        .await
        .ok();
    assert_eq!(created["spec"]["clusterIPs"], json!(["None"]));
    assert_eq!(created["spec"]["ipFamilyPolicy"], "SingleStack");
}

#[tokio::test]
async fn every_cluster_begins_with_its_own_service_and_classes() {
    let api = Api::start().await;
    let own = api.get(&format!("{SERVICES}/kubernetes")).await.ok();
    assert_eq!(own["spec"]["clusterIP"], "10.96.0.1");
    let classes = api.get("/apis/scheduling.k8s.io/v1/priorityclasses").await.ok();
    assert_eq!(classes["items"].as_array().unwrap().len(), 2);
    let flows = api.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas").await.ok();
    assert!(flows["items"].as_array().unwrap().len() >= 10);
    let ranges = api.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await.ok();
    assert_eq!(ranges["spec"]["cidrs"], json!(["10.96.0.0/16"]));
}

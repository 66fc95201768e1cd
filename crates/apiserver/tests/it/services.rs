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

fn ports(all: &[(i64, &str, i64)]) -> Value {
    let port = |(number, protocol, node): &(i64, &str, i64)| {
        let mut port = json!({"name": format!("{protocol}-{number}").to_lowercase(), "port": number,
            "protocol": protocol});
        if *node != 0 {
            port["nodePort"] = (*node).into();
        }
        port
    };
    all.iter().map(port).collect()
}

#[tokio::test]
async fn both_protocols_of_a_port_share_one_node_port() {
    let api = Api::start().await;
    let with = |name: &str, all: &[(i64, &str, i64)]| {
        let mut made = service(name, json!({"type": "NodePort", "selector": {"app": "a"}}));
        made["spec"]["ports"] = ports(all);
        made
    };
    let numbers = |made: &Value| -> Vec<i64> {
        let ports = made["spec"]["ports"].as_array().unwrap().iter();
        ports.map(|port| port["nodePort"].as_i64().unwrap()).collect()
    };
    let unsaid = api
        .post(SERVICES, with("dns", &[(53, "UDP", 0), (53, "TCP", 0)]))
        .await
        .ok();
    let given = numbers(&unsaid);
    assert_eq!(given[0], given[1]);
    let said = with("said", &[(53, "UDP", 30053), (53, "TCP", 30053), (80, "TCP", 30080)]);
    assert_eq!(numbers(&api.post(SERVICES, said).await.ok()), [30053, 30053, 30080]);
    let half = with("half", &[(54, "UDP", 0), (54, "TCP", 30054)]);
    assert_eq!(numbers(&api.post(SERVICES, half).await.ok()), [30054, 30054]);
    let apart = with("apart", &[(55, "UDP", 30055), (56, "TCP", 30055)]);
    api.post(SERVICES, apart).await.fails(
        422,
        "Invalid",
        "Service \"apart\" is invalid: spec.ports[1].nodePort: Invalid value: 30055: provided port is already allocated",
    );
    let path = format!("{SERVICES}/said");
    let moved = ports(&[(53, "UDP", 30153), (53, "TCP", 30153), (80, "TCP", 0)]);
    let moved = api.merge(&path, json!({"spec": {"ports": moved}})).await.ok();
    assert_eq!(numbers(&moved), [30153, 30153, 30080]);
}

#[tokio::test]
async fn a_service_without_address_and_pods_can_be_updated_and_choose_its_families() {
    let api = Api::start().await;
    let created = api
        .post(SERVICES, service("a", json!({"clusterIP": "None"})))
        .await
        .ok();
    assert_eq!(created["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!(created["spec"]["ipFamilyPolicy"], "RequireDualStack");
    let path = format!("{SERVICES}/a");
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    api.merge(&path, labelled).await.ok();
    api.merge(&path, json!({"spec": {"ipFamilies": ["IPv6"]}})).await.fails(
        422,
        "Invalid",
        "Service \"a\" is invalid: spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to release the secondary IP family",
    );
    let single = api
        .merge(&path, json!({"spec": {"ipFamilyPolicy": "SingleStack"}}))
        .await
        .ok();
    assert_eq!(single["spec"]["ipFamilies"], json!(["IPv4"]));
    let sixth = json!({"clusterIP": "None", "ipFamilies": ["IPv6"]});
    let sixth = api.post(SERVICES, service("b", sixth)).await.ok();
    assert_eq!(sixth["spec"]["ipFamilies"], json!(["IPv6", "IPv4"]));
    let selecting = json!({"spec": {"selector": {"a": "b"}}});
    let refused = api.merge(&format!("{SERVICES}/b"), selecting).await;
    assert_eq!(refused.code, 422, "{}", refused.json());
}

#[tokio::test]
async fn a_load_balancer_loses_what_its_type_or_policy_gave_it() {
    let api = Api::start().await;
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "loadBalancerClass": "example.com/b",
        "loadBalancerSourceRanges": [" 10.0.0.0/8 "], "selector": {"app": "a"}});
    let path = format!("{SERVICES}/a");
    let created = api.post(SERVICES, service("a", spec.clone())).await.ok();
    let checked = created["spec"]["healthCheckNodePort"].clone();
    assert!(checked.is_i64(), "{created}");
    let kept = api.put(&path, service("a", spec.clone())).await.ok();
    assert_eq!(kept["spec"]["healthCheckNodePort"], checked);
    api.merge(&path, json!({"spec": {"healthCheckNodePort": 31999}}))
        .await
        .fails(
            422,
            "Invalid",
            "Service \"a\" is invalid: spec.healthCheckNodePort: Forbidden: field is immutable",
        );
    let mut twin = service("b", spec);
    twin["spec"]["healthCheckNodePort"] = checked.clone();
    let twin = api.post(SERVICES, twin).await;
    assert_eq!(twin.code, 500, "{}", twin.json());
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    api.merge(&format!("{path}/status"), ingress).await.ok();
    let wide = api
        .merge(&path, json!({"spec": {"externalTrafficPolicy": "Cluster"}}))
        .await
        .ok();
    assert!(wide["spec"].get("healthCheckNodePort").is_none(), "{wide}");
    api.merge(&path, json!({"spec": {"externalTrafficPolicy": "Local"}}))
        .await
        .ok();
    let patch = json!({"spec": {"type": "ClusterIP", "loadBalancerSourceRanges": null}});
    let plain = api.merge(&path, patch).await.ok();
    for field in [
        "healthCheckNodePort",
        "loadBalancerClass",
        "externalTrafficPolicy",
        "allocateLoadBalancerNodePorts",
    ] {
        assert!(plain["spec"].get(field).is_none(), "{field}: {plain}");
    }
    assert_eq!(plain["status"]["loadBalancer"], json!({}));
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

#[tokio::test]
async fn addresses_are_judged_before_everything_else() {
    let api = Api::start().await;
    let refused = async |spec: Value| {
        let mut made = spec;
        made["selector"] = json!({"a": "b"});
        made["sessionAffinity"] = "Nonsense".into();
        api.post(SERVICES, service("a", made)).await.failure().2
    };
    for (spec, why) in [
        (
            json!({"clusterIP": "fd00::1"}),
            "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this cluster",
        ),
        (
            json!({"clusterIP": "10.96.0.9", "ipFamilies": ["IPv6"]}),
            "spec.clusterIPs[0]: Invalid value: \"10.96.0.9\": expected an IPv6 value as indicated by `ipFamilies[0]`",
        ),
        (
            json!({"ipFamilies": ["IPv4", "IPv6"]}),
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when \
             multiple IP families are specified",
        ),
        (
            json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.8"]}),
            "spec.clusterIPs: Invalid value: [\"10.96.0.8\"]: first value must match `clusterIP`",
        ),
    ] {
        assert_eq!(refused(spec).await, format!("Service \"a\" is invalid: {why}"));
    }
    let named = json!({"type": "ExternalName", "externalName": "a.b", "clusterIP": "10.96.0.9"});
    api.post(SERVICES, service("a", named)).await.fails(
        422,
        "Invalid",
        "Service \"a\" is invalid: spec.clusterIPs: Forbidden: may not be set for ExternalName services",
    );
    let balanced = json!({"type": "LoadBalancer", "clusterIP": "None"});
    let balanced = api.post(SERVICES, service("a", balanced)).await.failure().2;
    assert!(
        balanced.contains("may not be set to 'None' for LoadBalancer services"),
        "{balanced}"
    );
}

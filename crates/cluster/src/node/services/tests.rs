//! What the table says about Services, for the proxy and for DNS.

use super::dns::answer;
use super::{Key, Listen, Protocol, Table};
use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

fn table() -> Table {
    let mut table = Table::default();
    for (name, address) in [("web", "10.96.0.10"), ("db", "None")] {
        let service = json!({
            "metadata": { "name": name, "namespace": "ns" },
            "spec": { "clusterIP": address, "ports": [{ "name": "http", "port": 80, "nodePort": 30080 }] },
        });
        table.apply_service(Arc::new(serde_json::from_value(service).unwrap()));
        let slice = json!({
            "metadata": {
                "name": format!("{name}-1"), "namespace": "ns",
                "labels": { "kubernetes.io/service-name": name },
            },
            "addressType": "IPv4",
            "ports": [{ "name": "http", "port": 8080 }],
            "endpoints": [
                { "addresses": ["198.18.0.2"], "hostname": "db-0", "conditions": { "ready": true } },
                { "addresses": ["198.18.0.3"], "hostname": "db-1", "conditions": { "ready": false } },
            ],
        });
        table.apply_slice(Arc::new(serde_json::from_value(slice).unwrap()));
    }
    table
}

fn web() -> Key {
    ("ns".to_owned(), "web".to_owned())
}

fn ask(name: &str) -> (ResponseCode, Vec<Ipv4Addr>) {
    let mut question = Message::query();
    question.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    let answer = Message::from_vec(&answer(&table(), &question.to_vec().unwrap()).unwrap()).unwrap();
    let addresses = answer.answers.iter().filter_map(|record| match &record.data {
        RData::A(address) => Some(address.0),
        _ => None,
    });
    (answer.metadata.response_code, addresses.collect())
}

#[test]
fn connections_go_to_ready_endpoints_only() {
    let node = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let routes = table().routes(&web(), &[node]);
    let cluster = Listen::Cluster(Ipv4Addr::new(10, 96, 0, 10), 80, Protocol::Tcp);
    assert_eq!(routes[&cluster].endpoints, ["198.18.0.2:8080".parse().unwrap()]);
    let node = Listen::NodePort(node, 30080, Protocol::Tcp);
    assert_eq!(routes[&node].endpoints, ["198.18.0.2:8080".parse().unwrap()]);
}

#[test]
fn a_change_is_told_of_the_services_that_it_is_of() {
    let mut table = table();
    let db: Key = ("ns".to_owned(), "db".to_owned());
    assert_eq!(Vec::from_iter(table.take_changed()), [db.clone(), web()]);
    assert!(table.take_changed().is_empty());
    // A slice that is now another Service's leaves one without endpoints, and gives them to the other.
    let moved = json!({
        "metadata": {"name": "web-1", "namespace": "ns", "labels": {"kubernetes.io/service-name": "db"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}], "endpoints": [{"addresses": ["198.18.0.9"]}],
    });
    table.apply_slice(Arc::new(serde_json::from_value(moved.clone()).unwrap()));
    assert_eq!(Vec::from_iter(table.take_changed()), [db.clone(), web()]);
    assert!(table.endpoints("ns", "web").is_empty());
    assert_eq!(table.endpoints("ns", "db").len(), 2);
    table.remove_slice(&serde_json::from_value(moved).unwrap());
    assert_eq!(Vec::from_iter(table.take_changed()), [db]);
    assert_eq!(table.endpoints("ns", "db").len(), 1);
    let service = json!({"metadata": {"name": "web", "namespace": "ns"}});
    table.remove_service(&serde_json::from_value(service).unwrap());
    assert_eq!(Vec::from_iter(table.take_changed()), [web()]);
    assert!(table.routes(&web(), &[]).is_empty());
}

#[test]
fn one_number_may_serve_both_protocols_with_endpoints_of_their_own() {
    let mut table = Table::default();
    let ports = |number: u16| {
        json!([{"name": "t", "port": number, "protocol": "TCP"},
        {"name": "u", "port": number + 1, "protocol": "UDP"}, {"name": "s", "port": number, "protocol": "SCTP"}])
    };
    let service = json!({
        "metadata": {"name": "dns", "namespace": "ns"},
        "spec": {"clusterIP": "10.96.0.10", "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 9}},
            "ports": [{"name": "t", "port": 53}, {"name": "u", "port": 53, "protocol": "UDP"},
                {"name": "s", "port": 53, "protocol": "SCTP"}]},
    });
    table.apply_service(Arc::new(serde_json::from_value(service).unwrap()));
    let slice = json!({
        "metadata": {"name": "dns-1", "namespace": "ns", "labels": {"kubernetes.io/service-name": "dns"}},
        "addressType": "IPv4", "ports": ports(5300), "endpoints": [{"addresses": ["198.18.0.2"]}],
    });
    table.apply_slice(Arc::new(serde_json::from_value(slice).unwrap()));
    let routes = table.routes(&("ns".to_owned(), "dns".to_owned()), &[]);
    assert_eq!(routes.len(), 2, "{routes:?}");
    let address = Ipv4Addr::new(10, 96, 0, 10);
    let ends = |protocol| &routes[&Listen::Cluster(address, 53, protocol)].endpoints;
    assert_eq!(*ends(Protocol::Tcp), ["198.18.0.2:5300".parse().unwrap()]);
    assert_eq!(*ends(Protocol::Udp), ["198.18.0.2:5301".parse().unwrap()]);
    let kept = routes.values().map(|route| route.affinity);
    assert!(
        kept.into_iter()
            .all(|kept| kept == Some(std::time::Duration::from_secs(9)))
    );
}

#[test]
fn a_service_that_is_another_name_is_answered_with_it_and_with_what_it_stands_for() {
    let mut table = table();
    for (name, to) in [
        ("far", "example.org"),
        ("near", "web.ns.svc.cluster.local."),
        ("round", "round.ns.svc.cluster.local"),
    ] {
        let service = json!({
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"type": "ExternalName", "externalName": to},
        });
        table.apply_service(Arc::new(serde_json::from_value(service).unwrap()));
    }
    let ask = |name: &str| {
        let mut question = Message::query();
        let name = Name::from_ascii(format!("{name}.ns.svc.cluster.local.")).unwrap();
        question.add_query(Query::query(name, RecordType::A));
        let answer = Message::from_vec(&answer(&table, &question.to_vec().unwrap()).unwrap()).unwrap();
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
        let shown = answer
            .answers
            .iter()
            .map(|record| format!("{} {}", record.name, record.data));
        shown.collect::<Vec<_>>()
    };
    assert_eq!(ask("far"), ["far.ns.svc.cluster.local. example.org."]);
    assert_eq!(
        ask("near"),
        [
            "near.ns.svc.cluster.local. web.ns.svc.cluster.local.",
            "web.ns.svc.cluster.local. 10.96.0.10"
        ]
    );
    assert_eq!(ask("round").len(), 8);
}

#[test]
fn a_service_has_its_cluster_address_by_name() {
    assert_eq!(
        ask("web.ns.svc.cluster.local."),
        (ResponseCode::NoError, vec![Ipv4Addr::new(10, 96, 0, 10)])
    );
    assert_eq!(ask("none.ns.svc.cluster.local.").0, ResponseCode::NXDomain);
    assert_eq!(ask("example.com.").0, ResponseCode::NXDomain);
}

#[test]
fn a_headless_service_has_its_pods_and_their_names() {
    assert_eq!(ask("db.ns.svc.cluster.local.").1, [Ipv4Addr::new(198, 18, 0, 2)]);
    assert_eq!(ask("db-0.db.ns.svc.cluster.local.").1, [Ipv4Addr::new(198, 18, 0, 2)]);
    assert_eq!(ask("db-1.db.ns.svc.cluster.local.").0, ResponseCode::NXDomain);
}

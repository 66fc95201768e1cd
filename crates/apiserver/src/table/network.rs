//! How services, endpoints and what routes to them are printed.

use super::cells::{NONE, cut, labels, plain, selector, texts};
use super::columns::{AGE, NAME, text, wide};
use super::{Printer, Row};
use serde_json::Value;
use std::collections::BTreeSet;

pub const PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        plural: "services",
        columns: &[
            NAME,
            text("Type"),
            text("Cluster-IP"),
            text("External-IP"),
            text("Port(s)"),
            AGE,
            wide("Selector"),
        ],
        cells: service,
    },
    Printer {
        group: "",
        plural: "endpoints",
        columns: &[NAME, text("Endpoints"), AGE],
        cells: |row| vec![row.name(), endpoints(row).into(), row.age()],
    },
    Printer {
        group: "discovery.k8s.io",
        plural: "endpointslices",
        columns: &[NAME, text("AddressType"), text("Ports"), text("Endpoints"), AGE],
        cells: slice,
    },
    Printer {
        group: "networking.k8s.io",
        plural: "ingresses",
        columns: &[NAME, text("Class"), text("Hosts"), text("Address"), text("Ports"), AGE],
        cells: ingress,
    },
    Printer {
        group: "networking.k8s.io",
        plural: "ingressclasses",
        columns: &[NAME, text("Controller"), text("Parameters"), AGE],
        cells: ingress_class,
    },
    Printer {
        group: "networking.k8s.io",
        plural: "networkpolicies",
        columns: &[NAME, text("Pod-Selector"), AGE],
        cells: |row| vec![row.name(), selector(row.at("/spec/podSelector")).into(), row.age()],
    },
    Printer {
        group: "networking.k8s.io",
        plural: "servicecidrs",
        columns: &[NAME, text("CIDRs"), AGE],
        cells: |row| vec![row.name(), texts(row.at("/spec/cidrs")).join(",").into(), row.age()],
    },
    Printer {
        group: "networking.k8s.io",
        plural: "ipaddresses",
        columns: &[NAME, text("ParentRef")],
        cells: |row| vec![row.name(), parent(row).into()],
    },
];

/// Items of a list of endpoints that are shown.
const SHOWN: usize = 3;

fn service(row: &Row<'_>) -> Vec<Value> {
    let ports: Vec<String> = row
        .list("/spec/ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (plain(&port["port"]), plain(&port["protocol"]));
            match port["nodePort"].as_i64() {
                Some(node) if node > 0 => format!("{number}:{node}/{protocol}"),
                _ => format!("{number}/{protocol}"),
            }
        })
        .collect();
    let ports = if ports.is_empty() {
        NONE.to_string()
    } else {
        ports.join(",")
    };
    vec![
        row.name(),
        row.text("/spec/type").into(),
        row.text_or("/spec/clusterIPs/0", NONE),
        external(row).into(),
        ports.into(),
        row.age(),
        labels(row.at("/spec/selector")).into(),
    ]
}

fn external(row: &Row<'_>) -> String {
    let own = texts(row.at("/spec/externalIPs"));
    let joined = |otherwise: &str| {
        if own.is_empty() {
            otherwise.to_string()
        } else {
            own.join(",")
        }
    };
    match row.text("/spec/type") {
        "ClusterIP" | "NodePort" => joined(NONE),
        "ExternalName" => row.text("/spec/externalName").to_string(),
        "LoadBalancer" => {
            let mut all = balancer(row);
            all.extend(own.iter().map(|ip| ip.to_string()));
            match all.is_empty() {
                true => "<pending>".to_string(),
                false => all.join(","),
            }
        }
        _ => "<unknown>".to_string(),
    }
}

fn balancer(row: &Row<'_>) -> Vec<String> {
    let addresses: BTreeSet<String> = row
        .list("/status/loadBalancer/ingress")
        .iter()
        .filter_map(|i| i["ip"].as_str().filter(|ip| !ip.is_empty()).or(i["hostname"].as_str()))
        .filter(|address| !address.is_empty())
        .map(String::from)
        .collect();
    addresses.into_iter().collect()
}

fn endpoints(row: &Row<'_>) -> String {
    let subsets = row.list("/subsets");
    let mut all: Vec<String> = Vec::new();
    for subset in subsets {
        let addresses = subset["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ports = subset["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ips = addresses.iter().map(|a| a["ip"].as_str().unwrap_or_default());
        if ports.is_empty() {
            all.extend(ips.map(String::from));
            continue;
        }
        for port in ports {
            for ip in ips.clone() {
                let host = if ip.contains(':') {
                    format!("[{ip}]")
                } else {
                    ip.to_string()
                };
                all.push(format!("{host}:{}", plain(&port["port"])));
            }
        }
    }
    match (subsets.is_empty(), all.is_empty()) {
        (true, _) => NONE.to_string(),
        (false, true) => String::new(),
        (false, false) => cut(&all, SHOWN),
    }
}

fn slice(row: &Row<'_>) -> Vec<Value> {
    let ports: Vec<String> = row
        .list("/ports")
        .iter()
        .map(|port| match (&port["port"], &port["name"]) {
            (Value::Null, Value::Null) => "*".to_string(),
            (Value::Null, name) => plain(name),
            (number, _) => plain(number),
        })
        .collect();
    let addresses: Vec<String> = row
        .list("/endpoints")
        .iter()
        .flat_map(|endpoint| texts(&endpoint["addresses"]))
        .map(String::from)
        .collect();
    vec![
        row.name(),
        row.text("/addressType").into(),
        cut(&ports, SHOWN).into(),
        cut(&addresses, SHOWN).into(),
        row.age(),
    ]
}

fn ingress(row: &Row<'_>) -> Vec<Value> {
    let hosts: Vec<String> = row
        .list("/spec/rules")
        .iter()
        .filter_map(|rule| rule["host"].as_str().filter(|host| !host.is_empty()))
        .map(String::from)
        .collect();
    let hosts = if hosts.is_empty() {
        "*".to_string()
    } else {
        cut(&hosts, SHOWN)
    };
    let ports = if row.list("/spec/tls").is_empty() {
        "80"
    } else {
        "80, 443"
    };
    vec![
        row.name(),
        row.text_or("/spec/ingressClassName", NONE),
        hosts.into(),
        balancer(row).join(",").into(),
        ports.into(),
        row.age(),
    ]
}

fn ingress_class(row: &Row<'_>) -> Vec<Value> {
    let mut name = row.text("/metadata/name").to_string();
    if row.at("/metadata/annotations")["ingressclass.kubernetes.io/is-default-class"] == "true" {
        name.push_str(" (default)");
    }
    let parameters = match row.at("/spec/parameters") {
        Value::Null => NONE.to_string(),
        parameters => {
            let mut text = plain(&parameters["kind"]);
            if let Some(group) = parameters["apiGroup"].as_str() {
                text = format!("{text}.{group}");
            }
            format!("{text}/{}", plain(&parameters["name"]))
        }
    };
    vec![
        name.into(),
        row.text("/spec/controller").into(),
        parameters.into(),
        row.age(),
    ]
}

fn parent(row: &Row<'_>) -> String {
    let part = |field: &str| row.text(&format!("/spec/parentRef/{field}"));
    if row.at("/spec/parentRef").is_null() {
        return NONE.to_string();
    }
    let resource = match part("group") {
        "" => part("resource").to_lowercase(),
        group => format!("{}.{group}", part("resource")).to_lowercase(),
    };
    match part("namespace") {
        "" => format!("{resource}/{}", part("name")),
        namespace => format!("{resource}/{namespace}/{}", part("name")),
    }
}

//! What apply and rules cost: an apply that changes nothing, and a write of a kind with fifty rules.

use super::http::Connection;
use super::servers::Server;
use super::work::{Plan, Rate, config_map, rate};
use anyhow::Result;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Rules of the kind that has them.
const RULES: usize = 50;
/// A new definition is served long before this.
const SERVED_LIMIT: Duration = Duration::from_secs(30);
/// Between two looks at a definition that is not served yet.
const GLANCE: Duration = Duration::from_millis(20);

/// Applies what is there already, by the manager that applied it before.
pub fn applies(server: &Server, plan: &Plan) -> Result<[Rate; 2]> {
    let apply = |connection: &mut Connection, index: usize| {
        let name = format!("a{}", index % plan.objects);
        let path = format!("/api/v1/namespaces/bench/configmaps/{name}?fieldManager=bench");
        connection.expect("PATCH", &path, &applied(&name)).map(drop)
    };
    rate(server, plan, plan.objects, apply)?;
    Ok([
        rate(server, plan, plan.objects, apply)?,
        rate(server, plan, plan.objects, apply)?,
    ])
}

/// Gets of the same objects, to compare with.
pub fn gets(server: &Server, plan: &Plan) -> Result<Rate> {
    rate(server, plan, plan.objects, |connection, index| {
        let path = format!("/api/v1/namespaces/bench/configmaps/a{}", index % plan.objects);
        connection.expect("GET", &path, b"").map(drop)
    })
}

fn applied(name: &str) -> Vec<u8> {
    let mut object: Value = serde_json::from_slice(&config_map(name, "")).unwrap_or_default();
    object["metadata"]["labels"] = json!({"app": "bench"});
    object.to_string().into_bytes()
}

/// Creates of a custom kind without rules, and of the same kind with them.
pub fn customs(server: &Server, plan: &Plan) -> Result<(Rate, Rate)> {
    Ok((custom(server, plan, "plain", 0)?, custom(server, plan, "ruled", RULES)?))
}

fn custom(server: &Server, plan: &Plan, plural: &str, rules: usize) -> Result<Rate> {
    let mut connection = server.target.connect()?;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    connection.expect("POST", definitions, definition(plural, rules).to_string().as_bytes())?;
    let path = format!("/apis/bench.example.com/v1/namespaces/bench/{plural}");
    let started = Instant::now();
    while connection.call("GET", &path, b"")?.status == 404 && started.elapsed() < SERVED_LIMIT {
        std::thread::sleep(GLANCE);
    }
    rate(server, plan, plan.objects, |connection, index| {
        let object = json!({
            "apiVersion": "bench.example.com/v1", "kind": kind(plural), "metadata": {"name": format!("o{index}")},
            "spec": {"count": 7, "name": "some name", "items": ["a", "b", "c"]},
        });
        connection
            .expect("POST", &path, object.to_string().as_bytes())
            .map(drop)
    })
}

fn kind(plural: &str) -> String {
    let mut name = plural.to_string();
    name[..1].make_ascii_uppercase();
    name
}

fn definition(plural: &str, rules: usize) -> Value {
    let shapes = [
        "self.count > ",
        "self.name.size() > ",
        "self.items.size() + 100 > ",
        "self.items.all(item, item.size() < 20) || self.count > ",
        "!self.name.startsWith('x') || self.count > ",
    ];
    let rules: Vec<Value> = (0..rules)
        .map(|index| json!({"rule": format!("{}{}", shapes[index % shapes.len()], index % 3)}))
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.bench.example.com")},
        "spec": {
            "group": "bench.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind(plural)},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {
                    "type": "object", "required": ["count", "name", "items"], "x-kubernetes-validations": rules,
                    "properties": {
                        "count": {"type": "integer"},
                        "name": {"type": "string", "maxLength": 50},
                        "items": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 50}},
                    },
                }},
            }}}],
        },
    })
}

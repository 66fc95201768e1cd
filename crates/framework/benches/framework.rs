//! How fast the framework's hot parts are: `cargo bench -p stead`.
//!
//! No framework measures this for us: the loops are plain, and each prints one line.

#![allow(clippy::print_stdout)]

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use std::hint::black_box;
use std::time::Duration;
use stead::Key;
use stead::apply::{Verdict, compare};
use stead::queue::{Class, Ledger, Next, Settings, Verdict as Ended, Wake};
use tokio::time::Instant;

fn main() {
    for keys in [1_000, 100_000, 1_000_000] {
        queue(keys);
    }
    decode();
    comparison();
}

/// A million adds and gets.
fn queue(keys: usize) {
    const OPERATIONS: usize = 1_000_000;
    let names: Vec<Key> = (0..keys)
        .map(|number| Key::namespaced("bench", &format!("key-{number}")))
        .collect();
    let mut ledger = Ledger::new(Settings::default());
    let (start, mut now) = (Instant::now(), Instant::now());
    let (mut added, mut served) = (0, 0);
    while served < OPERATIONS {
        for _ in 0..keys.min(1_000).min(OPERATIONS - added) {
            ledger.add(names[added % keys].clone(), Class::Normal, Wake::Resync, now);
            added += 1;
        }
        now += Duration::from_micros(10);
        while let Next::Ready(job) = ledger.next(now) {
            ledger.done(&job.key, Ended::Settled, now);
            served += 1;
        }
        if added >= OPERATIONS {
            break;
        }
    }
    let each = start.elapsed().as_nanos() as f64 / served.max(1) as f64;
    println!("queue: {keys} keys, {served} served, {each:.0} ns for add, get and done");
}

#[derive(Deserialize)]
#[allow(dead_code)]
struct Projected {
    metadata: kube::core::ObjectMeta,
}

/// A pod from its bytes, in full and projected.
fn decode() {
    let pod = serde_json::json!({
        "metadata": {"name": "web-1", "namespace": "bench", "uid": "u", "resourceVersion": "7", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web:1", "env": [{"name": "A", "value": "b"}]}], "nodeName": "n"},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    })
    .to_string();
    const ROUNDS: u32 = 20_000;
    let start = Instant::now();
    for _ in 0..ROUNDS {
        black_box(serde_json::from_str::<Pod>(&pod).ok());
    }
    let full = start.elapsed() / ROUNDS;
    let start = Instant::now();
    for _ in 0..ROUNDS {
        black_box(serde_json::from_str::<Projected>(&pod).ok());
    }
    println!(
        "decode: {} bytes, in full {full:?}, projected {:?}",
        pod.len(),
        start.elapsed() / ROUNDS
    );
}

/// Whether an unchanged child needs a write.
fn comparison() {
    let live = serde_json::json!({
        "metadata": {"name": "web", "managedFields": [{"manager": "us", "operation": "Apply", "fieldsV1": {
            "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
                "k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}}}}}}}}]},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "web", "image": "web:1", "tty": false}]}}},
    });
    let wish = serde_json::json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "web", "image": "web:1"}]}}},
    });
    const ROUNDS: u32 = 50_000;
    let start = Instant::now();
    for _ in 0..ROUNDS {
        assert_eq!(black_box(compare(&wish, &live, "us")), Verdict::Same);
    }
    println!("no-op detection: {:?} for a small Deployment", start.elapsed() / ROUNDS);
}

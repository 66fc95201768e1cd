//! One small Deployment at a time: how soon its pods have nodes, and how soon they are ready.

use super::planes::{is_ready, until};
use super::{deployment, deployments_path, pods_path};
use crate::bench::http::Connection;
use crate::bench::servers::Server;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

/// Pods of the Deployment.
const REPLICAS: usize = 3;

/// How long a cluster is left alone before each round: what the end of the last one leaves to do is not measured.
const REST: Duration = Duration::from_secs(1);

/// From the create of the Deployment until all of its pods are so far.
#[derive(Clone, Copy)]
pub struct Times {
    pub bound: Duration,
    pub ready: Duration,
}

/// The medians of several rounds. A first one is not counted: it warms caches and connections up.
pub fn measure(server: &Server, rounds: usize) -> Result<Times> {
    let mut connection = server.target.connect()?;
    let mut all = Vec::new();
    for round in 0..=rounds.max(1) {
        std::thread::sleep(REST);
        let times = one(server, &mut connection, &format!("web-{round}"))?;
        if round > 0 {
            all.push(times);
        }
    }
    Ok(Times {
        bound: median(all.iter().map(|times| times.bound)),
        ready: median(all.iter().map(|times| times.ready)),
    })
}

fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn one(server: &Server, connection: &mut Connection, name: &str) -> Result<Times> {
    let list = connection.expect("GET", &format!("{}?limit=1", pods_path()), b"")?;
    let list: Value = serde_json::from_slice(&list)?;
    let version = list["metadata"]["resourceVersion"]
        .as_str()
        .context("no resourceVersion")?;
    let mut watch = server.target.connect()?;
    let path = format!(
        "{}?watch=1&labelSelector=app%3D{name}&resourceVersion={version}",
        pods_path()
    );
    let (status, events) = watch.open("GET", &path, b"")?;
    if status != 200 {
        bail!("the watch was answered with {status}");
    }
    let started = Instant::now();
    connection.expect("POST", &deployments_path(), &deployment(name, REPLICAS))?;
    let times = follow(BufReader::new(events), started)?;
    connection.expect("DELETE", &format!("{}/{name}", deployments_path()), b"")?;
    until("the pods are gone", || {
        let list = connection.expect("GET", &pods_path(), b"")?;
        let list: Value = serde_json::from_slice(&list)?;
        Ok(list["items"].as_array().is_some_and(Vec::is_empty))
    })?;
    Ok(times)
}

/// Reads changes of pods until all are bound and ready.
fn follow(events: impl BufRead, started: Instant) -> Result<Times> {
    let (mut bound, mut ready) = (BTreeSet::new(), BTreeSet::new());
    let mut all_bound = None;
    for line in events.lines() {
        let event: Value = serde_json::from_str(&line?)?;
        let pod = &event["object"];
        let name = pod["metadata"]["name"]
            .as_str()
            .context("a pod has a name")?
            .to_string();
        if pod["spec"]["nodeName"].is_string() {
            bound.insert(name.clone());
        }
        if is_ready(pod) {
            ready.insert(name);
        }
        if bound.len() == REPLICAS {
            all_bound.get_or_insert_with(|| started.elapsed());
        }
        if let Some(bound) = all_bound.filter(|_| ready.len() == REPLICAS) {
            let ready = started.elapsed();
            return Ok(Times { bound, ready });
        }
    }
    bail!("the watch ended before all pods were ready")
}

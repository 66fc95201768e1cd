//! Many pods at once: how many a second get as far as being ready, and what each of them costs.

use super::{deployment, deployments_path};
use crate::bench::servers::Server;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Pods of each Deployment.
const EACH: usize = 100;
/// How long all of them may take.
const LIMIT: Duration = Duration::from_secs(1_800);
/// Between two looks at the Deployments: rare enough to cost nothing beside what is measured.
const GLANCE: Duration = Duration::from_millis(200);
/// Before memory is read: garbage of the rush has been let go of.
const REST: Duration = Duration::from_secs(10);

/// What many pods cost.
pub struct Figures {
    pub per_second: f64,
    /// Resident bytes.
    pub memory_each: f64,
    /// Seconds.
    pub processor_each: f64,
}

pub fn measure(server: &Server, pods: usize) -> Result<Figures> {
    let mut connection = server.target.connect()?;
    let (memory, processor) = (server.memory()?, server.processor()?);
    let started = Instant::now();
    let mut left = pods;
    while left > 0 {
        let replicas = left.min(EACH);
        let name = format!("many-{left}");
        connection.expect("POST", &deployments_path(), &deployment(&name, replicas))?;
        left -= replicas;
    }
    loop {
        let body = connection.expect("GET", &deployments_path(), b"")?;
        let list: Value = serde_json::from_slice(&body)?;
        let items = list["items"].as_array().context("a list has items")?;
        let ready: u64 = items
            .iter()
            .filter_map(|item| item["status"]["readyReplicas"].as_u64())
            .sum();
        if ready >= pods as u64 {
            break;
        }
        if started.elapsed() > LIMIT {
            bail!("only {ready} of {pods} pods were ready in time");
        }
        std::thread::sleep(GLANCE);
    }
    let took = started.elapsed();
    let used = server.processor()? - processor;
    std::thread::sleep(REST);
    let grown = server.memory()?.saturating_sub(memory);
    Ok(Figures {
        per_second: pods as f64 / took.as_secs_f64(),
        memory_each: grown as f64 / pods as f64,
        processor_each: used / pods as f64,
    })
}

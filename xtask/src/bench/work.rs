//! The work that both servers do.

use super::http::{Connection, Target};
use super::servers::Server;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const WATCHERS: usize = 100;
const UPDATES_PER_SECOND: usize = 1_000;

/// Objects that the updates go round.
const UPDATED: usize = 100;

/// How often the list is read; the fastest counts.
const LISTS: usize = 5;

/// Writes that are measured at each size of a filled store.
const SAMPLE: usize = 1_000;

/// How much work there is.
pub struct Plan {
    pub objects: usize,
    pub pods: usize,
    pub seconds: usize,
    pub connections: usize,
}

/// How one server did.
pub struct Results {
    pub processor: f64,
    pub ready: Duration,
    pub idle: u64,
    pub creates: Rate,
    pub gets: Rate,
    /// Applies that change nothing, the first and the second time, and gets of the same objects.
    pub applies: ([Rate; 2], Rate),
    /// Creates of a custom kind without rules, and with fifty.
    pub customs: (Rate, Rate),
    pub list: List,
    pub watch: Watch,
    pub filled: Vec<Filled>,
}

/// Requests a second, and what each cost the server.
#[derive(Clone, Copy)]
pub struct Rate {
    pub per_second: f64,
    pub processor_each: Duration,
}

pub struct List {
    pub took: Duration,
    pub bytes: usize,
    /// Memory above what it was before.
    pub spike: u64,
}

pub struct Watch {
    pub updates_per_second: f64,
    /// Watches that the server ended because they were too slow for it.
    pub ended: usize,
    pub median: Duration,
    pub p99: Duration,
}

/// What one watcher saw.
struct Followed {
    delays: Vec<Duration>,
    ended: usize,
}

/// The cost of a write with so many objects stored.
pub struct Filled {
    pub objects: usize,
    pub rate: Rate,
}

/// Does all the work on one server.
pub fn measure(server: &Server, plan: &Plan) -> Result<Results> {
    prepare(&server.target)?;
    let before = server.processor()?;
    let mut part = Part::begin(server)?;
    let creates = rate(server, plan, plan.objects, |connection, index| {
        let body = config_map(&format!("c{index}"), "");
        connection
            .expect("POST", "/api/v1/namespaces/bench/configmaps", &body)
            .map(drop)
    })?;
    part.end("creates")?;
    let gets = rate(server, plan, plan.objects * 5, |connection, index| {
        let path = format!("/api/v1/namespaces/bench/configmaps/c{}", index % plan.objects);
        connection.expect("GET", &path, b"").map(drop)
    })?;
    part.end("gets")?;
    let applies = (super::rules::applies(server, plan)?, super::rules::gets(server, plan)?);
    let customs = super::rules::customs(server, plan)?;
    part.end("applies and rules")?;
    rate(server, plan, plan.pods, |connection, index| {
        let body = pod(&format!("p{index}"));
        connection
            .expect("POST", "/api/v1/namespaces/bench/pods", &body)
            .map(drop)
    })?;
    part.end("pods")?;
    let list = list(server)?;
    part.end("lists")?;
    let watch = watch(server, plan)?;
    part.end("watches")?;
    Ok(Results {
        processor: server.processor()? - before,
        ready: server.ready,
        idle: server.idle,
        creates,
        gets,
        applies,
        customs,
        list,
        watch,
        filled: Vec::new(),
    })
}

/// A part of the work, told with what it cost the server when it is done.
struct Part<'a> {
    server: &'a Server,
    since: f64,
}

impl<'a> Part<'a> {
    fn begin(server: &'a Server) -> Result<Self> {
        let since = server.processor()?;
        Ok(Part { server, since })
    }

    fn end(&mut self, name: &str) -> Result<()> {
        let now = self.server.processor()?;
        eprintln!("  {name}: {:.1} s of processor time", now - self.since);
        self.since = now;
        Ok(())
    }
}

/// Fills the store, and measures a sample of creates at each power of ten.
pub fn fill(server: &Server, plan: &Plan, most: usize) -> Result<Vec<Filled>> {
    let mut connection = server.target.connect()?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fill"}});
    connection.expect("POST", "/api/v1/namespaces", namespace.to_string().as_bytes())?;
    let create = |connection: &mut Connection, index: usize| {
        let body = config_map(&format!("f{index}"), "");
        connection
            .expect("POST", "/api/v1/namespaces/fill/configmaps", &body)
            .map(drop)
    };
    let mut filled = Vec::new();
    let mut present = 0;
    let mut next = 1_000;
    while next <= most {
        let start = present;
        rate(server, plan, next - start, |connection, index| {
            create(connection, start + index)
        })?;
        let sample = rate(server, plan, SAMPLE, |connection, index| {
            create(connection, next + index)
        })?;
        filled.push(Filled {
            objects: next,
            rate: sample,
        });
        present = next + SAMPLE;
        next *= 10;
    }
    Ok(filled)
}

fn prepare(target: &Target) -> Result<()> {
    let mut connection = target.connect()?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}});
    connection.expect("POST", "/api/v1/namespaces", namespace.to_string().as_bytes())?;
    // Pods need one, and no controller is there to make it.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let path = "/api/v1/namespaces/bench/serviceaccounts";
    let answer = connection.call("POST", path, account.to_string().as_bytes())?;
    if !matches!(answer.status, 201 | 409) {
        bail!("no service account: {}", answer.status);
    }
    Ok(())
}

/// Does something many times on many connections.
pub fn rate(
    server: &Server,
    plan: &Plan,
    count: usize,
    each: impl Fn(&mut Connection, usize) -> Result<()> + Sync,
) -> Result<Rate> {
    let mut connections = Vec::new();
    for _ in 0..plan.connections {
        let mut connection = server.target.connect()?;
        connection.expect("GET", "/version", b"")?;
        connections.push(connection);
    }
    let next = AtomicUsize::new(0);
    let processor = server.processor()?;
    let started = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = connections
            .iter_mut()
            .map(|connection| {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= count {
                            return Ok(());
                        }
                        each(connection, index)?;
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(done) => done,
            Err(_) => bail!("a worker panicked"),
        })
    })?;
    let took = started.elapsed().as_secs_f64();
    let processor = server.processor()? - processor;
    Ok(Rate {
        per_second: count as f64 / took,
        processor_each: Duration::from_secs_f64(processor.max(0.0) / count as f64),
    })
}

fn list(server: &Server) -> Result<List> {
    let mut connection = server.target.connect()?;
    connection.expect("GET", "/version", b"")?;
    let before = server.memory()?;
    server.forget_peak()?;
    let mut best: Option<(Duration, usize)> = None;
    let mut buffer = vec![0; 256 << 10];
    for _ in 0..LISTS {
        let started = Instant::now();
        let (status, mut body) = connection.open("GET", "/api/v1/pods", b"")?;
        let mut bytes = 0;
        loop {
            match body.read(&mut buffer)? {
                0 => break,
                count => bytes += count,
            }
        }
        if status != 200 {
            bail!("the list was answered with {status}");
        }
        let took = started.elapsed();
        best = Some(best.map_or((took, bytes), |best| best.min((took, bytes))));
    }
    let (took, bytes) = best.context("there was no list")?;
    let spike = server.peak()?.saturating_sub(before);
    Ok(List { took, bytes, spike })
}

/// Updates at a steady pace, each with the time it was sent; watchers note how old it is when it arrives.
fn watch(server: &Server, plan: &Plan) -> Result<Watch> {
    let mut connection = server.target.connect()?;
    for index in 0..UPDATED {
        let body = config_map(&format!("w{index}"), "");
        connection.expect("POST", "/api/v1/namespaces/bench/configmaps", &body)?;
    }
    let body = connection.expect("GET", "/api/v1/namespaces/bench/configmaps?limit=1", b"")?;
    let list: Value = serde_json::from_slice(&body)?;
    let from = list["metadata"]["resourceVersion"]
        .as_str()
        .context("no resourceVersion")?
        .to_string();
    let epoch = Instant::now();
    let count = plan.seconds * UPDATES_PER_SECOND;
    let (ready, opened) = mpsc::channel();
    let next = AtomicUsize::new(0);
    let (target, from, next) = (&server.target, from.as_str(), &next);
    std::thread::scope(|scope| {
        let watchers: Vec<_> = (0..WATCHERS)
            .map(|_| {
                let ready = ready.clone();
                scope.spawn(move || follow(target, from, epoch, count, &ready))
            })
            .collect();
        for _ in 0..WATCHERS {
            opened
                .recv_timeout(Duration::from_secs(60))
                .context("a watch was not opened")?;
        }
        let started = Instant::now();
        let writers: Vec<_> = (0..plan.connections)
            .map(|_| scope.spawn(move || update(target, started, epoch, count, next)))
            .collect();
        for writer in writers {
            writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
        }
        let updates_per_second = count as f64 / started.elapsed().as_secs_f64();
        let mut delays = Vec::new();
        let mut ended = 0;
        for watcher in watchers {
            let followed = watcher.join().map_err(|_| anyhow::anyhow!("a watcher panicked"))??;
            delays.extend(followed.delays);
            ended += followed.ended;
        }
        delays.sort();
        let at = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize];
        Ok(Watch {
            updates_per_second,
            ended,
            median: at(0.5),
            p99: at(0.99),
        })
    })
}

fn update(target: &Target, started: Instant, epoch: Instant, count: usize, next: &AtomicUsize) -> Result<()> {
    let mut connection = target.connect()?;
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= count {
            return Ok(());
        }
        let due = Duration::from_secs_f64(index as f64 / UPDATES_PER_SECOND as f64);
        if let Some(early) = due.checked_sub(started.elapsed()) {
            std::thread::sleep(early);
        }
        let name = format!("w{}", index % UPDATED);
        let sent = epoch.elapsed().as_nanos().to_string();
        let path = format!("/api/v1/namespaces/bench/configmaps/{name}");
        connection.expect("PUT", &path, &config_map(&name, &sent))?;
    }
}

/// One watcher: how long each update took to arrive. One that the server ends goes on from where it was, as every
/// client does.
fn follow(target: &Target, from: &str, epoch: Instant, count: usize, ready: &mpsc::Sender<()>) -> Result<Followed> {
    let mut followed = Followed {
        delays: Vec::with_capacity(count),
        ended: 0,
    };
    let mut from = from.to_string();
    loop {
        let mut connection = target.connect()?;
        let path = format!("/api/v1/namespaces/bench/configmaps?watch=1&resourceVersion={from}");
        let (status, body) = connection.open("GET", &path, b"")?;
        if status != 200 {
            bail!("the watch was answered with {status}");
        }
        if followed.ended == 0 {
            // Nobody may be left who minds.
            let _ = ready.send(());
        }
        let mut lines = BufReader::with_capacity(64 << 10, body);
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 {
            let Some(version) = field(&line, "resourceVersion") else {
                bail!("no change: {line}");
            };
            from = version.to_string();
            if let Some(sent) = field(&line, "sent").and_then(|sent| sent.parse().ok()) {
                let delay = epoch.elapsed().saturating_sub(Duration::from_nanos(sent));
                followed.delays.push(delay);
            }
            if followed.delays.len() == count {
                return Ok(followed);
            }
            line.clear();
        }
        followed.ended += 1;
    }
}

/// Finds a field. Searched, not parsed: a hundred parsers would take the processor from what is measured.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let start = line.find(&format!("\"{name}\":\""))? + name.len() + 4;
    line[start..].split('"').next()
}

pub fn config_map(name: &str, sent: &str) -> Vec<u8> {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": "bench"}},
        "data": {"sent": sent, "text": "some configuration that is neither long nor short ".repeat(10)},
    })
    .to_string()
    .into_bytes()
}

fn pod(name: &str) -> Vec<u8> {
    let variables: Vec<_> = (0..10)
        .map(|index| json!({"name": format!("VARIABLE_{index}"), "value": "value"}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "bench", "tier": "web"}},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main", "image": "registry.example/app:1.0", "env": variables,
                "ports": [{"containerPort": 8080}],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
            }],
        },
    })
    .to_string()
    .into_bytes()
}

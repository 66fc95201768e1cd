//! A reconcile that finds everything as it should be: four children and a status.

use super::server::Server;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use stead::status::{Conditions, Progress};
use stead::{Context, Controller, Error, Key, Manager, Operator, Plan};

const ROOTS: usize = 1_000;
const CHILDREN: usize = 4;
const ROUNDS: usize = 50;
/// A round that takes longer has been stopped by something: a request that is refused, for one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Wants what is there.
#[derive(Clone, Default)]
struct Content {
    planned: Arc<AtomicUsize>,
}

impl Operator for Content {
    type Root = PodDisruptionBudget;
    type Seen = ();

    async fn observe(&self, _: &Context, _: &Arc<PodDisruptionBudget>) -> Result<(), Error> {
        Ok(())
    }

    fn plan(&self, root: &PodDisruptionBudget, _: &(), now: Timestamp) -> Plan {
        self.planned.fetch_add(1, Ordering::SeqCst);
        let name = root.metadata.name.clone().unwrap_or_default();
        let mut plan = Plan::new();
        for number in 0..CHILDREN {
            let mut child = ConfigMap::default();
            child.metadata.name = Some(format!("{name}-{number}"));
            child.data = Some(settings());
            plan = plan.child(child);
        }
        let mut conditions = Conditions::new(Some(1), now);
        conditions.progress(Progress::Ready {
            reason: "Full".to_owned(),
            message: "all there".to_owned(),
        });
        plan.status(json!({
            "currentHealthy": CHILDREN, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
            "observedGeneration": 1, "conditions": conditions.list(),
        }))
    }
}

pub async fn unchanged() {
    let server = Server::default()
        .with("poddisruptionbudgets", ROOTS, Arc::new(root))
        .with("configmaps", ROOTS * CHILDREN, Arc::new(child));
    let manager = Manager::builder(server.client()).name("bench").build();
    let operator = Content::default();
    let planned = operator.planned.clone();
    let mut controller = Controller::operator("bench", operator)
        .owns::<ConfigMap>()
        .without_resync();
    controller = controller.concurrency(1);
    let trigger = controller.trigger();
    manager.add(controller);
    let running = tokio::spawn(manager.run(std::future::pending()));
    wait_for(&planned, ROOTS).await;
    let asked = server.asked.load(Ordering::SeqCst);
    let start = Instant::now();
    for round in 1..=ROUNDS {
        for number in 0..ROOTS {
            trigger.wake(Key::namespaced("bench", &format!("root-{number}")), "bench");
        }
        wait_for(&planned, ROOTS * (round + 1)).await;
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / (ROOTS * ROUNDS) as f64;
    let sent = server.asked.load(Ordering::SeqCst) - asked;
    assert_eq!(sent, 0, "a reconcile that changes nothing asks nobody");
    println!("| a reconcile that changes nothing ({CHILDREN} children and a status) | {each:.1} µs, {sent} requests |");
    running.abort();
}

async fn wait_for(planned: &AtomicUsize, many: usize) {
    let start = Instant::now();
    while planned.load(Ordering::SeqCst) < many {
        assert!(
            start.elapsed() < PATIENCE,
            "the reconciles of {ROOTS} roots did not end"
        );
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

fn uid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

fn settings() -> std::collections::BTreeMap<String, String> {
    (0..5)
        .map(|number| (format!("key-{number}"), "a value".to_owned()))
        .collect()
}

fn root(number: usize) -> Value {
    json!({
        "metadata": {"name": format!("root-{number}"), "namespace": "bench", "uid": uid(number), "generation": 1,
            "resourceVersion": (number + 1).to_string()},
        "spec": {"minAvailable": CHILDREN},
        "status": {"currentHealthy": CHILDREN, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
            "observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True", "reason": "Full",
            "message": "all there", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

fn child(number: usize) -> Value {
    let owner = number / CHILDREN;
    let fields: serde_json::Map<String, Value> = settings().keys().map(|key| (format!("f:{key}"), json!({}))).collect();
    json!({
        "metadata": {
            "name": format!("root-{owner}-{}", number % CHILDREN), "namespace": "bench", "uid": uid(ROOTS + number),
            "resourceVersion": (number + 1).to_string(),
            "ownerReferences": [{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "name": format!("root-{owner}"),
                "uid": uid(owner), "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [{"manager": "bench", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": fields, "f:metadata": {"f:ownerReferences": {
                    format!("k:{{\"uid\":\"{}\"}}", uid(owner)): {}}}}}],
        },
        "data": settings(),
    })
}

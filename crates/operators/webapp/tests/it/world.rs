//! A world small enough to hold in a value: it takes plans as a cluster would and shows what came of them.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment, DeploymentCondition, DeploymentStatus};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use stead::{Plan, Prune};
use stead_apis::webapp::Phase;
use stead_apis::{WebApp, WebAppStatus};
use stead_machinery::conditions::{self, Condition};
use stead_webapp::resources::revision::Revision;
use stead_webapp::seen::Seen;

/// One WebApp and its children.
pub struct World {
    pub app: WebApp,
    pub seen: Seen,
    pub now: Timestamp,
    /// Every child by kind and name.
    pub children: BTreeMap<(String, String), Value>,
    /// What was told to people.
    pub events: Vec<String>,
    /// How often the world was really changed.
    pub writes: usize,
}

impl World {
    pub fn new(spec: Value) -> Self {
        let app = serde_json::from_value(json!({
            "apiVersion": "stead.dev/v1", "kind": "WebApp",
            "metadata": {"name": "shop", "namespace": "default", "uid": "u1", "generation": 1},
            "spec": spec,
        }))
        .unwrap();
        World {
            app,
            seen: Seen::default(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            children: BTreeMap::new(),
            events: Vec::new(),
            writes: 0,
        }
    }

    /// A world in which the app is ready.
    pub fn ready(spec: Value) -> Self {
        let mut world = World::new(spec);
        world.settle();
        world.pods_become_available();
        world.settle();
        assert_eq!(world.phase(), Phase::Ready, "{:?}", world.ready_condition());
        world
    }

    /// Changes the spec as a user would.
    pub fn edit(&mut self, change: impl FnOnce(&mut stead_apis::WebAppSpec)) {
        change(&mut self.app.spec);
        *self.app.metadata.generation.get_or_insert(0) += 1;
    }

    /// The plan, not carried out.
    pub fn plan(&self) -> Plan {
        stead_webapp::plan::webapp(&self.app, &self.seen, self.now)
    }

    /// One look of the operator.
    pub fn look(&mut self) -> Plan {
        let plan = self.plan();
        assert!(plan.mistakes.is_empty(), "{:?}", plan.mistakes);
        let mut kept: Vec<(String, String)> = Vec::new();
        for child in &plan.children {
            let place = (child.kind.to_string(), child.key.name().to_string());
            if self.children.get(&place) != Some(&child.object) {
                self.writes += 1;
                self.children.insert(place.clone(), child.object.clone());
            }
            kept.push(place);
        }
        if plan.prune == Prune::Absent {
            let before = self.children.len();
            self.children.retain(|place, _| kept.contains(place));
            self.writes += before - self.children.len();
        }
        for note in &plan.events {
            self.events.push(note.reason.clone());
        }
        if let Some(status) = plan.status.clone() {
            let status: WebAppStatus = serde_json::from_value(status).unwrap();
            if self.app.status.as_ref() != Some(&status) {
                self.writes += 1;
                self.app.status = Some(status);
            }
        }
        self.see();
        plan
    }

    /// Looks until nothing changes any more.
    pub fn settle(&mut self) {
        for _ in 0..20 {
            let before = self.writes;
            self.look();
            if self.writes == before {
                return;
            }
        }
        panic!("it never settles: {}", self.plan());
    }

    /// The Deployment controller did its work and every pod is available.
    pub fn pods_become_available(&mut self) {
        self.set_status(|deployment, wanted| DeploymentStatus {
            observed_generation: deployment.metadata.generation,
            replicas: Some(wanted),
            ready_replicas: Some(wanted),
            available_replicas: Some(wanted),
            updated_replicas: Some(wanted),
            ..DeploymentStatus::default()
        });
    }

    /// Some pods are gone.
    pub fn pods_are_lost(&mut self, count: i32) {
        self.set_status(|deployment, wanted| DeploymentStatus {
            observed_generation: deployment.metadata.generation,
            replicas: Some(wanted),
            ready_replicas: Some(wanted - count),
            available_replicas: Some(wanted - count),
            updated_replicas: Some(wanted),
            ..DeploymentStatus::default()
        });
    }

    /// The newest template makes no progress within its deadline.
    pub fn rollout_is_stuck(&mut self) {
        self.no_pod_comes_up();
        self.look();
        self.pass(self.app.spec.strategy.progress_deadline_seconds.into());
    }

    /// The Deployment controller made the first pod of the newest template, and it does not come up.
    pub fn no_pod_comes_up(&mut self) {
        self.set_status(|deployment, wanted| DeploymentStatus {
            observed_generation: deployment.metadata.generation,
            replicas: Some(wanted + 1),
            ready_replicas: Some(wanted),
            available_replicas: Some(wanted),
            updated_replicas: Some(1),
            ..DeploymentStatus::default()
        });
    }

    /// All pods are of the newest template, and so many of them are available. What is said of the Deployment's own
    /// deadline stays, as it does with Kubernetes.
    pub fn pods_available(&mut self, available: i32) {
        self.set_status(|deployment, wanted| DeploymentStatus {
            observed_generation: deployment.metadata.generation,
            replicas: Some(wanted),
            ready_replicas: Some(available.min(wanted)),
            available_replicas: Some(available.min(wanted)),
            updated_replicas: Some(wanted),
            conditions: deployment.status.as_ref().and_then(|status| status.conditions.clone()),
            ..DeploymentStatus::default()
        });
    }

    /// The Deployments say that they have made no progress in time.
    pub fn deployments_are_late(&mut self) {
        self.set_status(|deployment, _| DeploymentStatus {
            conditions: Some(vec![DeploymentCondition {
                type_: "Progressing".to_string(),
                status: "False".to_string(),
                reason: Some("ProgressDeadlineExceeded".to_string()),
                ..DeploymentCondition::default()
            }]),
            ..deployment.status.clone().unwrap_or_default()
        });
    }

    /// An autoscaler writes the number of pods, and the Deployment's controller has not looked at it yet. This is seen
    /// until the next look.
    pub fn is_scaled_to(&mut self, replicas: i32) {
        let stable = Arc::make_mut(self.seen.stable.as_mut().unwrap());
        stable.spec.as_mut().unwrap().replicas = Some(replicas);
        *stable.metadata.generation.as_mut().unwrap() += 1;
        let entry = json!({"manager": "autoscaler", "operation": "Update", "apiVersion": "apps/v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        stable.metadata.managed_fields = Some(vec![serde_json::from_value(entry).unwrap()]);
    }

    /// A Secret of which the cache knows this digest.
    pub fn put_secret(&mut self, name: &str, digest: &str) {
        self.seen.digests.secrets.insert(name.to_string(), digest.to_string());
    }

    pub fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    pub fn phase(&self) -> Phase {
        self.app.status.as_ref().unwrap().phase.unwrap()
    }

    pub fn ready_condition(&self) -> Condition {
        conditions::get(&self.app.status.as_ref().unwrap().conditions, "Ready")
            .unwrap()
            .clone()
    }

    pub fn child(&self, kind: &str, name: &str) -> Option<&Value> {
        self.children.get(&(kind.to_string(), name.to_string()))
    }

    pub fn deployment(&self) -> &Value {
        self.child("Deployment", "shop").unwrap()
    }

    pub fn image(&self) -> &str {
        self.deployment()["spec"]["template"]["spec"]["containers"][0]["image"]
            .as_str()
            .unwrap()
    }

    fn set_status(&mut self, status: impl Fn(&Deployment, i32) -> DeploymentStatus) {
        for deployment in [&mut self.seen.stable, &mut self.seen.canary].into_iter().flatten() {
            let mut changed = Deployment::clone(deployment);
            let wanted = changed.spec.as_ref().unwrap().replicas.unwrap_or(1);
            changed.status = Some(status(&changed, wanted));
            *deployment = Arc::new(changed);
        }
    }

    /// What the cache shows after the writes: statuses stay, specs are new, generations count.
    pub fn see(&mut self) {
        let (stable, canary) = (self.seen.stable.take(), self.seen.canary.take());
        self.seen.stable = self.seen_deployment("shop", stable);
        self.seen.canary = self.seen_deployment("shop-canary", canary);
        self.seen.service = self
            .child("Service", "shop")
            .map(|service| Arc::new(serde_json::from_value::<Service>(service.clone()).unwrap()));
        let revisions = self
            .children
            .iter()
            .filter(|((kind, _), _)| kind == "ControllerRevision");
        self.seen.revisions = revisions
            .filter_map(|(_, object)| {
                let stored: ControllerRevision = serde_json::from_value(object.clone()).unwrap();
                Revision::read(&stored)
            })
            .collect();
    }

    fn seen_deployment(&self, name: &str, before: Option<Arc<Deployment>>) -> Option<Arc<Deployment>> {
        let mut now: Deployment = serde_json::from_value(self.child("Deployment", name)?.clone()).unwrap();
        let same = before.as_ref().is_some_and(|before| before.spec == now.spec);
        let generation = before
            .as_ref()
            .and_then(|before| before.metadata.generation)
            .unwrap_or(0);
        now.metadata.generation = Some(if same { generation } else { generation + 1 });
        now.status = before.and_then(|before| before.status.clone());
        Some(Arc::new(now))
    }

    /// The ConfigMap that the pods of a Deployment mount as their files.
    pub fn files(&self, deployment: &str) -> Option<ConfigMap> {
        let template = &self.child("Deployment", deployment)?["spec"]["template"];
        let mounted = template["spec"]["volumes"][0]["configMap"]["name"].as_str()?;
        self.child("ConfigMap", mounted)
            .map(|map| serde_json::from_value(map.clone()).unwrap())
    }

    /// What the pods of a Deployment find in their first file.
    pub fn file(&self, deployment: &str) -> Option<String> {
        self.files(deployment)?.data?.remove("file-0")
    }
}

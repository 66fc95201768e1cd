//! PodDisruptionBudgets: how many pods may be taken away right now. The eviction API spends what is counted here.

use super::{job, ownership, pods};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Rule, Store};

/// A pod whose eviction was granted this long ago and that is still there was not evicted after all.
const GRANTED_FOR: SignedDuration = SignedDuration::from_secs(120);
const CONDITION: &str = "DisruptionAllowed";

/// Adds the controller of disruption budgets.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let budgets = cache.store::<PodDisruptionBudget>();
    let reconciler = Budgets {
        budgets: budgets.clone(),
        pods: cache.store(),
        deployments: cache.store(),
        replica_sets: cache.store(),
        stateful_sets: cache.store(),
        controllers: cache.store(),
    };
    let controller = Controller::new("disruption", reconciler)
        .for_::<PodDisruptionBudget>()
        .watches::<Pod>(move |pod| {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let all = budgets.in_namespace(namespace);
            all.iter()
                .filter(|budget| covers(budget, pod))
                .map(|budget| Key::of(&**budget))
                .collect()
        })
        .may(Rule::root::<PodDisruptionBudget>())
        .may(Rule::read::<Deployment>())
        .may(Rule::read::<ReplicaSet>())
        .may(Rule::read::<StatefulSet>())
        .may(Rule::read::<ReplicationController>())
        .without_resync()
        .concurrency(4);
    manager.add(controller);
}

struct Budgets {
    budgets: Store<PodDisruptionBudget>,
    pods: Store<Pod>,
    deployments: Store<Deployment>,
    replica_sets: Store<ReplicaSet>,
    stateful_sets: Store<StatefulSet>,
    controllers: Store<ReplicationController>,
}

fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget
        .spec
        .as_ref()
        .and_then(|spec| pods::selector(spec.selector.as_ref()?));
    selector.is_some_and(|selector| pods::matches(&selector, pod))
}

impl Reconciler for Budgets {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(budget) = self.budgets.get(key) else {
            return Ok(Outcome::Settled);
        };
        let Some(spec) = &budget.spec else {
            return Ok(Outcome::Settled);
        };
        let all = self.pods.in_namespace(key.namespace().unwrap_or_default());
        let covered: Vec<Arc<Pod>> = all
            .into_iter()
            .filter(|pod| covers(&budget, pod) && !pods::has_ended(pod))
            .collect();
        let scale = self.scale(&covered);
        let now = context.now();
        let before = budget.status.clone().unwrap_or_default();
        let after = status(&budget, spec, &covered, scale, now);
        let waits = after.disrupted_pods.as_ref().is_some_and(|pods| !pods.is_empty());
        if let Some(patch) = job::difference(&json!(before), &json!(after)) {
            context
                .writer()
                .patch_status(&*budget, json!({"status": patch}))
                .await?;
        }
        Ok(match waits {
            true => Outcome::CheckAgain(Duration::from_secs(GRANTED_FOR.as_secs().unsigned_abs())),
            false => Outcome::Settled,
        })
    }
}

impl Budgets {
    /// How many pods the controllers of these pods want; a pod without one counts for itself.
    fn scale(&self, covered: &[Arc<Pod>]) -> i32 {
        let mut wanted: BTreeMap<String, i32> = BTreeMap::new();
        for pod in covered {
            let namespace = pod.metadata.namespace.as_deref();
            let owner = ownership::controller_of(&pod.metadata);
            let found = owner.and_then(|owner| {
                let replicas = match owner.kind.as_str() {
                    "ReplicaSet" => {
                        let set = self.replica_sets.named(namespace, &owner.name)?;
                        let above = ownership::controller_of(&set.metadata);
                        let deployment = above.and_then(|above| self.deployments.named(namespace, &above.name));
                        match deployment {
                            Some(deployment) => {
                                let uid = deployment.metadata.uid.clone().unwrap_or_default();
                                return Some((uid, deployment.spec.as_ref()?.replicas));
                            }
                            None => set.spec.as_ref()?.replicas,
                        }
                    }
                    "StatefulSet" => {
                        self.stateful_sets
                            .named(namespace, &owner.name)?
                            .spec
                            .as_ref()?
                            .replicas
                    }
                    "ReplicationController" => self.controllers.named(namespace, &owner.name)?.spec.as_ref()?.replicas,
                    _ => return None,
                };
                Some((owner.uid.clone(), replicas))
            });
            let (uid, replicas) = found.unwrap_or((pod.metadata.uid.clone().unwrap_or_default(), Some(1)));
            wanted.insert(uid, replicas.unwrap_or(1));
        }
        wanted.values().fold(0, |sum: i32, one| sum.saturating_add(*one))
    }
}

/// The status that these pods make, of which `scale` are wanted by their controllers.
fn status(
    budget: &PodDisruptionBudget,
    spec: &PodDisruptionBudgetSpec,
    covered: &[Arc<Pod>],
    scale: i32,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    let before = budget.status.clone().unwrap_or_default();
    let size = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let (expected, desired) = match (&spec.max_unavailable, &spec.min_available) {
        (Some(limit), _) => (scale, (scale - pods::share(limit, scale)).max(0)),
        (None, Some(limit @ IntOrString::String(_))) => (scale, pods::share(limit, scale)),
        (None, Some(IntOrString::Int(count))) => (size(covered.len()), *count),
        (None, None) => (size(covered.len()), 0),
    };
    // An eviction that was granted counts as done until the pod shows it, or too much time has gone by.
    let pending = |(name, at): &(String, Time)| {
        let still = covered
            .iter()
            .any(|pod| pod.metadata.name.as_ref() == Some(name) && pod.metadata.deletion_timestamp.is_none());
        still && at.0 + GRANTED_FOR > now
    };
    let disrupted: BTreeMap<String, Time> = before
        .disrupted_pods
        .clone()
        .unwrap_or_default()
        .into_iter()
        .filter(pending)
        .collect();
    let healthy = covered.iter().filter(|pod| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        pod.metadata.deletion_timestamp.is_none() && !disrupted.contains_key(name) && pods::is_ready(pod)
    });
    let healthy = size(healthy.count());
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    let (value, reason) = match allowed {
        0 => ("False", "InsufficientPods"),
        _ => ("True", "SufficientPods"),
    };
    let mut conditions = before.conditions.clone().unwrap_or_default();
    let known = conditions
        .iter()
        .find(|one| one.type_ == CONDITION && one.status == value);
    let since = known.map_or(Time(now), |one| one.last_transition_time.clone());
    conditions.retain(|one| one.type_ != CONDITION);
    conditions.push(Condition {
        type_: CONDITION.to_string(),
        status: value.to_string(),
        reason: reason.to_string(),
        message: String::new(),
        last_transition_time: since,
        observed_generation: budget.metadata.generation,
    });
    PodDisruptionBudgetStatus {
        conditions: Some(conditions),
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(expected),
        observed_generation: budget.metadata.generation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn check(spec: Value, disrupted: Value, ready: usize, scale: i32) -> [i32; 4] {
        let budget: PodDisruptionBudget =
            serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": {"disruptedPods": disrupted}}))
                .unwrap();
        let pod = |index: usize| -> Arc<Pod> {
            let conditions = json!([{"type": "Ready", "status": if index < ready { "True" } else { "False" }}]);
            let pod = json!({"metadata": {"name": format!("p{index}")}, "status": {"conditions": conditions}});
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let covered: Vec<_> = (0..3).map(pod).collect();
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let status = status(&budget, budget.spec.as_ref().unwrap(), &covered, scale, now);
        [
            status.expected_pods.unwrap(),
            status.desired_healthy.unwrap(),
            status.current_healthy.unwrap(),
            status.disruptions_allowed.unwrap(),
        ]
    }

    #[test]
    fn what_may_go_is_what_is_healthy_beyond_what_must_stay() {
        assert_eq!(check(json!({"minAvailable": 2}), json!({}), 3, 3), [3, 2, 3, 1]);
        assert_eq!(check(json!({"minAvailable": 2}), json!({}), 1, 3), [3, 2, 1, 0]);
        assert_eq!(check(json!({"minAvailable": "50%"}), json!({}), 3, 4), [4, 2, 3, 1]);
        assert_eq!(check(json!({"maxUnavailable": 1}), json!({}), 3, 4), [4, 3, 3, 0]);
        assert_eq!(check(json!({"maxUnavailable": "50%"}), json!({}), 3, 4), [4, 2, 3, 1]);
    }

    #[test]
    fn a_granted_eviction_counts_until_it_shows_or_is_too_old() {
        let minimum = || json!({"minAvailable": 1});
        assert_eq!(
            check(minimum(), json!({"p0": "2026-01-01T00:00:30Z"}), 3, 3),
            [3, 1, 2, 1]
        );
        assert_eq!(
            check(minimum(), json!({"p0": "2025-12-31T23:50:00Z"}), 3, 3),
            [3, 1, 3, 2]
        );
        assert_eq!(
            check(minimum(), json!({"gone": "2026-01-01T00:00:30Z"}), 3, 3),
            [3, 1, 3, 2]
        );
    }
}

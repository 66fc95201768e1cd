//! HorizontalPodAutoscalers: the size of a workload follows what its pods use.
//!
//! Every fifteen seconds the metrics API is asked. What follows from its numbers is computed in [`usage`], how fast
//! it may be done in [`pace`]; both know no clock and no client.

mod metrics;
mod pace;
mod status;
#[cfg(test)]
mod tests;
mod usage;

use super::{discovery, job, ownership};
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, MetricStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use metrics::Proposal;
use pace::Memory;
use parking_lot::Mutex;
use serde_json::{Value, json};
use status::Told;
use std::collections::HashMap;
use std::time::Duration;
use stead::{
    Context, Controller, Draft, Error, Key, Kind, Manager, Outcome, Reconciler, Rule, Scope, Severity, Source, Store,
    Verb, predicates,
};

/// How often the metrics are looked at.
const PERIOD: Duration = Duration::from_secs(15);

/// Adds the controller of autoscalers.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let reconciler = Autoscalers {
        autoscalers: cache.store(),
        pods: cache.store(),
        memories: Mutex::default(),
    };
    // Its own status shall not wake it: the next look is due when the period is over.
    let roots = Source::<HorizontalPodAutoscaler>::all().when(predicates::generation_changed());
    let controller = Controller::new("horizontal-pod-autoscaler", reconciler)
        .for_source(roots)
        .may(Rule::root::<HorizontalPodAutoscaler>())
        .may(Rule::read::<Pod>())
        .may(Rule::new("*", &["*/scale"], &["get", "update"]))
        .may(Rule::new("metrics.k8s.io", &["pods"], &["list"]))
        .may(Rule::new("custom.metrics.k8s.io", &["*"], &["get", "list"]))
        .may(Rule::new("external.metrics.k8s.io", &["*"], &["get", "list"]))
        .without_resync()
        .concurrency(4);
    manager.add(controller);
}

struct Autoscalers {
    autoscalers: Store<HorizontalPodAutoscaler>,
    pods: Store<Pod>,
    memories: Mutex<HashMap<Key, Memory>>,
}

/// The scale of a workload as the API shows it.
struct Target {
    kind: Kind,
    key: Key,
    scale: Value,
}

impl Target {
    fn current(&self) -> i32 {
        let replicas = self.scale["spec"]["replicas"].as_i64().unwrap_or(0);
        i32::try_from(replicas).unwrap_or(i32::MAX)
    }
}

/// A size that was decided on.
struct Decision {
    replicas: i32,
    why: String,
}

impl Reconciler for Autoscalers {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(autoscaler) = self.autoscalers.get(key) else {
            self.memories.lock().remove(key);
            return Ok(Outcome::Settled);
        };
        if autoscaler.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Settled);
        }
        let spec = &autoscaler.spec;
        let mut told = Told::new(&autoscaler, context.now());
        self.look(context, key, &autoscaler, spec, &mut told).await?;
        let before = json!(autoscaler.status.clone().unwrap_or_default());
        if let Some(patch) = job::difference(&before, &json!(told.status)) {
            context
                .writer()
                .patch_status(&*autoscaler, json!({"status": patch}))
                .await?;
        }
        Ok(Outcome::CheckAgain(PERIOD))
    }
}

impl Autoscalers {
    /// Looks at the target and its metrics, changes its size if that is called for, and notes what was found.
    async fn look(
        &self,
        context: &Context,
        key: &Key,
        autoscaler: &HorizontalPodAutoscaler,
        spec: &HorizontalPodAutoscalerSpec,
        told: &mut Told,
    ) -> Result<(), Error> {
        let warn = |reason: &str, note: &str| tell(context, autoscaler, Severity::Warning, reason, note);
        let target = match find(context, key, spec).await? {
            Ok(target) => target,
            Err(why) => {
                warn("FailedGetScale", &why);
                let message = format!("the HPA controller was unable to get the target's current scale: {why}");
                told.set("AbleToScale", "False", "FailedGetScale", &message);
                return Ok(());
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        told.set("AbleToScale", "True", "SucceededGetScale", message);
        let current = target.current();
        let mut memory = self.memories.lock().get(key).cloned().unwrap_or_default();
        memory.begin(current, context.now());
        let least = spec.min_replicas.unwrap_or(1);
        let decision = if current == 0 && least != 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            told.set("ScalingActive", "False", "ScalingDisabled", message);
            Some(Decision {
                replicas: 0,
                why: String::new(),
            })
        } else if current > spec.max_replicas {
            Some(Decision {
                replicas: spec.max_replicas,
                why: "Current number of replicas above Spec.MaxReplicas".to_string(),
            })
        } else if current < least {
            Some(Decision {
                replicas: least,
                why: "Current number of replicas below Spec.MinReplicas".to_string(),
            })
        } else {
            let measured = metrics::all(context, &self.pods, key, spec, &target.scale).await;
            self.decide(context, spec, current, measured, &mut memory, told)
                .map_err(|why| warn("FailedComputeMetricsReplicas", &why))
                .ok()
        };
        let wanted = decision.as_ref().map_or(current, |decision| decision.replicas);
        told.status.current_replicas = Some(current);
        if let Some(decision) = decision.filter(|decision| decision.replicas != current) {
            self.rescale(context, autoscaler, &target, &decision, told).await?;
            memory.changed(current, decision.replicas, context.now());
            told.status.last_scale_time = Some(Time(context.now()));
        }
        told.status.desired_replicas = wanted;
        self.memories.lock().insert(key.clone(), memory);
        Ok(())
    }

    /// The size that the metrics call for, at the pace that is allowed.
    fn decide(
        &self,
        context: &Context,
        spec: &HorizontalPodAutoscalerSpec,
        current: i32,
        measured: Vec<Result<Proposal, metrics::Failure>>,
        memory: &mut Memory,
        told: &mut Told,
    ) -> Result<Decision, String> {
        let total = measured.len();
        let mut failures = Vec::new();
        let mut best: Option<Proposal> = None;
        let mut statuses: Vec<MetricStatus> = Vec::new();
        for proposal in measured {
            match proposal {
                Ok(proposal) => {
                    statuses.push(proposal.status.clone());
                    if best.as_ref().is_none_or(|best| proposal.replicas > best.replicas) {
                        best = Some(proposal);
                    }
                }
                Err(failure) => failures.push(failure),
            }
        }
        told.status.current_metrics = (!statuses.is_empty()).then_some(statuses);
        let first = failures.first();
        let best = match (best, first) {
            (Some(best), None) => best,
            // What cannot be measured might want more: only growth is safe.
            (Some(best), Some(_)) if best.replicas >= current => best,
            (_, first) => {
                let (reason, why) = first.map_or(("FailedGetResourceMetric", "there are no metrics"), |first| {
                    (first.reason, first.why.as_str())
                });
                let message = format!("the HPA was unable to compute the replica count: {why}");
                told.set("ScalingActive", "False", reason, &message);
                let count = failures.len();
                return Err(format!(
                    "invalid metrics ({count} invalid out of {total}), first error is: {why}"
                ));
            }
        };
        let message = format!(
            "the HPA was able to successfully calculate a replica count from {}",
            best.name
        );
        told.set("ScalingActive", "True", "ValidMetricFound", &message);
        let why = match best.replicas > current {
            true => format!("{} above target", best.name),
            false => "All metrics below target".to_string(),
        };
        let paced = pace::pace(memory, spec, current, best.replicas, context.now());
        told.set("AbleToScale", "True", paced.able.0, paced.able.1);
        told.set("ScalingLimited", paced.limited.0, paced.limited.1, paced.limited.2);
        Ok(Decision {
            replicas: paced.replicas,
            why,
        })
    }

    async fn rescale(
        &self,
        context: &Context,
        autoscaler: &HorizontalPodAutoscaler,
        target: &Target,
        decision: &Decision,
        told: &mut Told,
    ) -> Result<(), Error> {
        let size = decision.replicas;
        let mut scale = target.scale.clone();
        scale["spec"]["replicas"] = json!(size);
        let draft = Draft::new(Verb::Update, target.kind.clone(), target.key.clone(), scale);
        if let Err(error) = context.writer().send(draft.subresource("scale")).await {
            let note = format!("New size: {size}; reason: {}; error: {error}", decision.why);
            tell(context, autoscaler, Severity::Warning, "FailedRescale", &note);
            return Err(error);
        }
        let message = format!("the HPA controller was able to update the target scale to {size}");
        told.set("AbleToScale", "True", "SucceededRescale", &message);
        let note = format!("New size: {size}; reason: {}", decision.why);
        tell(context, autoscaler, Severity::Normal, "SuccessfulRescale", &note);
        Ok(())
    }
}

fn tell(context: &Context, about: &HorizontalPodAutoscaler, severity: Severity, reason: &str, note: &str) {
    context
        .events()
        .tell(ownership::about(about), severity, reason, "Scaling", note);
}

/// Reads the scale of the workload; the inner error is in words for the user.
async fn find(
    context: &Context,
    key: &Key,
    spec: &HorizontalPodAutoscalerSpec,
) -> Result<Result<Target, String>, Error> {
    let wanted = &spec.scale_target_ref;
    let version = wanted.api_version.as_deref().unwrap_or("apps/v1");
    let client = context.client();
    let Some(kind) = kind_of(&client, version, &wanted.kind).await? else {
        let group = version.split_once('/').map_or("", |(group, _)| group);
        return Ok(Err(format!(
            "no matches for kind \"{}\" in group \"{group}\"",
            wanted.kind
        )));
    };
    let target = Key::new(key.namespace(), &wanted.name);
    let scale = discovery::get(&client, &format!("{}/scale", kind.path_of(&target))).await?;
    if scale.is_null() {
        return Ok(Err(format!("{} \"{}\" not found", kind.resource(), wanted.name)));
    }
    Ok(Ok(Target {
        kind,
        key: target,
        scale,
    }))
}

/// The kind that a reference means. The usual ones are known, others are asked for.
async fn kind_of(client: &kube::Client, version: &str, name: &str) -> Result<Option<Kind>, Error> {
    let known = match (version, name) {
        ("apps/v1", "Deployment") => Some("deployments"),
        ("apps/v1", "ReplicaSet") => Some("replicasets"),
        ("apps/v1", "StatefulSet") => Some("statefulsets"),
        ("v1", "ReplicationController") => Some("replicationcontrollers"),
        _ => None,
    };
    if let Some(plural) = known {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        return Ok(Some(Kind {
            group: group.to_string().into(),
            version: version.to_string().into(),
            kind: name.to_string().into(),
            plural: plural.into(),
            scope: Scope::Namespaced,
        }));
    }
    let served = discovery::kinds(client).await?;
    let found = served.into_iter().find(|served| served.kind.is(version, name));
    Ok(found.map(|served| served.kind))
}

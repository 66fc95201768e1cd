//! The status of a WebApp: where in its life it is, and why.

use crate::address;
use crate::advice;
use crate::names;
use crate::replicas::Replicas;
use crate::resources::revision::Verdict;
use crate::rollout::{Progress, Rollout, progress, revision_of};
use crate::seen::Seen;
use crate::situation::Situation;
use crate::trouble::trouble;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use stead_apis::WebApp;
use stead_apis::webapp::autopilot::Advice;
use stead_apis::webapp::{Phase, WebAppStatus};
use stead_machinery::conditions::{self, Condition, Status};

/// What the Ready condition says.
struct Readiness {
    status: Status,
    reason: &'static str,
    message: String,
    /// Nothing will change without somebody changing something.
    stalled: bool,
}

/// What the status said when it was last written.
#[derive(Clone, Copy)]
struct Before {
    phase: Option<Phase>,
    replicas: i32,
}

/// The status of a WebApp that was never looked at before.
pub fn created(app: &WebApp, now: Timestamp) -> WebAppStatus {
    let mut status = base(app);
    status.phase = Some(Phase::Created);
    let readiness = waiting("Created", "nothing has been done yet".to_string());
    set_conditions(&mut status, app, readiness, now);
    status
}

/// The status of a WebApp that is going away.
pub fn deleting(app: &WebApp, now: Timestamp) -> WebAppStatus {
    let mut status = base(app);
    status.phase = Some(Phase::Deleting);
    // The deletion itself is a new generation, and this speaks of it.
    status.observed_generation = app.metadata.generation;
    let held: Vec<_> = app.metadata.finalizers.iter().flatten().map(String::as_str).collect();
    let message = if held.is_empty() {
        "it is being deleted".to_string()
    } else {
        format!("its deletion waits for {}", held.join(", "))
    };
    set_conditions(&mut status, app, waiting("Deleting", message), now);
    status
}

/// The status of a WebApp whose spec cannot be carried out.
pub fn refused(app: &WebApp, mistakes: &[String], now: Timestamp) -> WebAppStatus {
    let mut status = base(app);
    // It was seen, and nothing more.
    status.phase.get_or_insert(Phase::Created);
    status.observed_generation = app.metadata.generation;
    let message = mistakes.join("; ");
    let readiness = Readiness {
        status: Status::False,
        reason: "InvalidSpec",
        message,
        stalled: true,
    };
    set_conditions(&mut status, app, readiness, now);
    status
}

/// Whether the status says this already of the spec as it is now, so that nobody needs to be told again.
pub fn says(app: &WebApp, reason: &str, message: &str) -> bool {
    let ready = app
        .status
        .as_ref()
        .and_then(|status| conditions::get(&status.conditions, "Ready"));
    ready.is_some_and(|ready| {
        ready.reason == reason && ready.message == message && ready.observed_generation == app.metadata.generation
    })
}

/// The status of a WebApp that is being kept.
pub fn observed(app: &WebApp, situation: &Situation<'_>, now: Timestamp) -> WebAppStatus {
    let seen = situation.seen;
    let mut status = base(app);
    let before = Before {
        phase: status.phase,
        replicas: status.replicas,
    };
    let stable = seen.stable.as_deref();
    let sum = |pick: fn(&k8s_openapi::api::apps::v1::DeploymentStatus) -> Option<i32>| -> i32 {
        [stable, seen.canary.as_deref()]
            .into_iter()
            .flatten()
            .filter_map(|d| pick(d.status.as_ref()?))
            .sum()
    };
    status.observed_generation = app.metadata.generation;
    status.replicas = sum(|s| s.replicas);
    status.ready_replicas = sum(|s| s.ready_replicas);
    status.available_replicas = sum(|s| s.available_replicas);
    status.updated_replicas = sum(|s| s.updated_replicas);
    status.summary = Some(format!("{}/{}", status.available_replicas, situation.replicas.count()));
    status.selector = Some(names::selector_text(app));
    status.url = Some(address::url(&situation.running));
    status.resolved_image = resolved_image(situation).or(status.resolved_image);
    status.revision = situation.decision.revisions.last().map(|revision| revision.number);
    let good = situation
        .decision
        .revisions
        .iter()
        .rev()
        .find(|revision| revision.verdict == Verdict::Good);
    status.last_good_revision = good.map(|revision| revision.number);
    let failed = situation.decision.revisions.last();
    let failed = failed.filter(|wanted| wanted.verdict == Verdict::Failed);
    status.failed_revision = failed.map(|wanted| wanted.number);
    status.canary = match &situation.decision.rollout {
        Rollout::Trial { progress, .. } | Rollout::Promotion { progress, .. } => Some(progress.clone()),
        Rollout::Whole { .. } | Rollout::RolledBack { .. } => None,
    };
    status.rollout = situation.decision.deadline.clone();
    status.advice = match app.spec.advice {
        Advice::Off => None,
        Advice::Report | Advice::Apply => advice::from_usage(&seen.usage, status.advice.as_ref()),
    };
    status.phase = Some(phase(situation, before));
    let readiness = readiness(app, situation, &status, now);
    set_conditions(&mut status, app, readiness, now);
    note_what_does_not_work(&mut status, app, situation.seen, now);
    status
}

/// What an application is told whose name and path are another's already.
pub fn taken(app: &WebApp, seen: &Seen) -> Option<String> {
    let (ingress, older) = (app.spec.ingress.as_ref()?, seen.taken_by.as_ref()?);
    Some(format!(
        "webapp {older} is older and has {}{} already, and which of the two answers is chance: choose another spec.ingress.host or path",
        ingress.host, ingress.path
    ))
}

/// Whether the status says already that the name is another's.
pub fn says_taken(app: &WebApp, message: &str) -> bool {
    let said = app.status.as_ref();
    let exposed = said.and_then(|status| conditions::get(&status.conditions, "Exposed"));
    exposed.is_some_and(|exposed| exposed.reason == HOST_TAKEN && exposed.message == message)
}

/// Says what of the spec cannot be carried out: the cluster does not have the kind, or another application was first. Gone
/// when it can.
fn note_what_does_not_work(status: &mut WebAppStatus, app: &WebApp, seen: &Seen, now: Timestamp) {
    let route = app.spec.route.is_some() && !seen.optional.gateway;
    let exposed = match taken(app, seen) {
        Some(message) => Some((HOST_TAKEN, message)),
        None => route.then(|| ("GatewayMissing", GATEWAY_MISSING.to_string())),
    };
    let monitoring = app.spec.monitoring.is_some() && !seen.optional.monitoring;
    let monitored = monitoring.then(|| ("PrometheusMissing", PROMETHEUS_MISSING.to_string()));
    for (kind, note) in [("Exposed", exposed), ("Monitored", monitored)] {
        if let Some((reason, message)) = note {
            let generation = app.metadata.generation.unwrap_or_default();
            let condition = Condition::new(kind, Status::False, reason, message, now).observed(generation);
            conditions::set(&mut status.conditions, condition);
        } else {
            conditions::remove(&mut status.conditions, kind);
        }
    }
}

/// Why an application is not reached that another one stands in front of.
pub const HOST_TAKEN: &str = "HostTaken";
const GATEWAY_MISSING: &str =
    "the cluster has no HTTPRoute: install the Gateway API, or use spec.ingress instead of spec.route";
const PROMETHEUS_MISSING: &str =
    "the cluster has no ServiceMonitor and PrometheusRule: install the Prometheus operator, or remove spec.monitoring";

fn base(app: &WebApp) -> WebAppStatus {
    app.status.clone().unwrap_or_default()
}

/// Where in its life the application is. Each arm is one legal state; what was before only tells a change of scale
/// from pods that were lost.
fn phase(situation: &Situation<'_>, before: Before) -> Phase {
    let Some(deployment) = situation.seen.stable.as_deref() else {
        return Phase::Reconciling;
    };
    let as_planned = revision_of(deployment) == Some(situation.stable_revision())
        && config_of(deployment) == situation.references.hash.as_deref();
    if !as_planned || situation.seen.service.is_none() {
        return Phase::Reconciling;
    }
    let scaling = matches!(before.phase, Some(Phase::Ready | Phase::Scaling));
    let current = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    if situation
        .stable_replicas()
        .is_some_and(|wanted| current != Some(wanted))
    {
        return if scaling { Phase::Scaling } else { Phase::Reconciling };
    }
    // A trial waits for its application to wake up; until then no pod is all that is wanted.
    let trial_under_way = situation.replicas.count() > 0
        && matches!(
            situation.decision.rollout,
            Rollout::Trial { .. } | Rollout::Promotion { .. }
        );
    // An autoscaler changes the Deployment without us. When all was well there were as many pods as were wanted then.
    let rescaled = before.phase == Some(Phase::Ready) && before.replicas != situation.replicas.count();
    match progress(deployment) {
        Progress::Complete if !trial_under_way => Phase::Ready,
        _ if rescaled || before.phase == Some(Phase::Scaling) => Phase::Scaling,
        _ => Phase::WaitingForPods,
    }
}

/// The hash of what the pods of a Deployment read at their start.
pub fn config_of(deployment: &Deployment) -> Option<&str> {
    let template = deployment.spec.as_ref()?.template.metadata.as_ref()?;
    template
        .annotations
        .as_ref()?
        .get(names::CONFIG_ANNOTATION)
        .map(String::as_str)
}

fn readiness(app: &WebApp, situation: &Situation<'_>, status: &WebAppStatus, now: Timestamp) -> Readiness {
    let missing = situation.missing();
    if !missing.is_empty() {
        let message = format!("waiting for {} to be created", missing.join(", "));
        return waiting("ReferenceMissing", message);
    }
    match &situation.decision.rollout {
        Rollout::RolledBack { failed, good } => {
            let message = format!(
                "{}; revision {} runs until the spec changes{}",
                failed.failure(),
                good.number,
                trouble(app, situation, now)
                    .map(|why| format!(" ({why})"))
                    .unwrap_or_default(),
            );
            return Readiness {
                status: Status::False,
                reason: "RolledBack",
                message,
                stalled: true,
            };
        }
        Rollout::Whole { revision } if revision.verdict == Verdict::Failed => {
            let why = trouble(app, situation, now).unwrap_or_else(|| "no pod became available in time".to_string());
            let message = format!("{}: {why}", revision.failure());
            return Readiness {
                status: Status::False,
                reason: "RolloutFailed",
                message,
                stalled: true,
            };
        }
        Rollout::Trial { trial, progress, .. } if trial.verdict == Verdict::Failed => {
            let message = format!(
                "{}; it stays on {} % of the pods until the spec changes",
                trial.failure(),
                progress.percent
            );
            return Readiness {
                status: Status::False,
                reason: "RolloutFailed",
                message,
                stalled: true,
            };
        }
        Rollout::Whole { .. } | Rollout::Trial { .. } | Rollout::Promotion { .. } => {}
    }
    let summary = status.summary.clone().unwrap_or_default();
    if let Some(why) = unseen(situation) {
        let message = format!(
            "{summary} pods are available; the canary goes no further while its requests cannot be counted: {why}"
        );
        return waiting("MetricsUnreadable", message);
    }
    match (status.phase, situation.replicas) {
        (Some(Phase::Ready), Replicas::Suspended) => ready("Suspended", "suspended: no pod runs".to_string()),
        (Some(Phase::Ready), Replicas::Asleep { until }) => ready("Asleep", format!("asleep until {until}")),
        (Some(Phase::Ready), _) => ready("Available", format!("{summary} pods are available")),
        (Some(Phase::Reconciling), _) => waiting("Reconciling", "its children are being made or changed".to_string()),
        (phase, _) => {
            let reason = match phase {
                Some(Phase::Scaling) => "Scaling",
                _ => "WaitingForPods",
            };
            let why = trouble(app, situation, now)
                .map(|why| format!("; {why}"))
                .unwrap_or_default();
            waiting(reason, format!("{summary} pods are available{why}"))
        }
    }
}

/// Why the requests to a canary whose pods are ready cannot be counted, where they should be.
fn unseen<'a>(situation: &'a Situation<'_>) -> Option<&'a str> {
    let Rollout::Trial { progress, .. } = &situation.decision.rollout else {
        return None;
    };
    progress.ready_since.as_ref()?;
    situation.seen.requests.as_ref()?.silent.as_deref()
}

fn ready(reason: &'static str, message: String) -> Readiness {
    Readiness {
        status: Status::True,
        reason,
        message,
        stalled: false,
    }
}

fn waiting(reason: &'static str, message: String) -> Readiness {
    Readiness {
        status: Status::False,
        reason,
        message,
        stalled: false,
    }
}

/// Ready, and kstatus's Reconciling and Stalled, which are there only while they hold.
fn set_conditions(status: &mut WebAppStatus, app: &WebApp, readiness: Readiness, now: Timestamp) {
    let generation = app.metadata.generation.unwrap_or_default();
    let is_ready = readiness.status == Status::True;
    let condition = |kind: &str, value: Status| {
        Condition::new(kind, value, readiness.reason, readiness.message.clone(), now).observed(generation)
    };
    conditions::set(&mut status.conditions, condition("Ready", readiness.status));
    let (there, gone) = match (is_ready, readiness.stalled) {
        (true, _) => (None, vec!["Reconciling", "Stalled"]),
        (false, true) => (Some("Stalled"), vec!["Reconciling"]),
        (false, false) => (Some("Reconciling"), vec!["Stalled"]),
    };
    if let Some(kind) = there {
        conditions::set(&mut status.conditions, condition(kind, Status::True));
    }
    for kind in gone {
        conditions::remove(&mut status.conditions, kind);
    }
}

/// The image with its digest, as the first running pod of the stable revision has it.
fn resolved_image(situation: &Situation<'_>) -> Option<String> {
    let mut pods: Vec<&Pod> = situation.seen.pods.iter().map(AsRef::as_ref).collect();
    pods.sort_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
    let newest_first = pods.into_iter().rev();
    newest_first
        .filter_map(|pod| {
            let wanted = pod.spec.as_ref()?.containers.first()?.image.as_deref()?;
            let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
            let main = statuses
                .iter()
                .find(|status| status.name == stead_apis::webapp::validate::CONTAINER)?;
            (wanted == situation.running.spec.image && !main.image_id.is_empty()).then(|| main.image_id.clone())
        })
        .next()
}

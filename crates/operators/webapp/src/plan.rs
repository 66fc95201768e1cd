//! What shall be: the plan for one WebApp, from what was seen and the time. Pure.

use crate::deadline;
use crate::foreign::{Foreign, HttpRoute, PrometheusRule, ServiceMonitor};
use crate::names::Track;
use crate::recovery;
use crate::replicas::{self, Replicas};
use crate::resources::deployment::{self, Wanted};
use crate::resources::revision::Verdict;
use crate::resources::{autoscaler, disruption_budget, files, ingress, monitor, network_policy, route, service};
use crate::rollout::{self, Rollout};
use crate::seen::Seen;
use crate::situation::Situation;
use crate::status;
use crate::trouble;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;
use std::time::Duration;
use stead::{Dependency, Key, Kind, Ownership, Plan, Prune};
use stead_apis::WebApp;
use stead_apis::webapp::validate;

/// However quiet it is, every WebApp is looked at again after this long.
pub const RESYNC: Duration = Duration::from_secs(30);

/// How often the requests to a canary are counted, in seconds: a bad version must not serve longer than it has to.
const MEASURE_EVERY: i64 = 5;

/// The plan for one WebApp.
pub fn webapp(app: &WebApp, seen: &Seen, now: Timestamp) -> Plan {
    if app.metadata.deletion_timestamp.is_some() {
        // Its children go with it, by their owner references.
        return Plan::new().prune(Prune::Nothing).status(status::deleting(app, now));
    }
    let mistakes: Vec<String> = validate::errors(&app.spec).iter().map(ToString::to_string).collect();
    if !mistakes.is_empty() {
        let plan = Plan::new()
            .prune(Prune::Nothing)
            .status(status::refused(app, &mistakes, now));
        let text = mistakes.join("; ");
        return match status::says(app, "InvalidSpec", &text) {
            true => plan,
            false => plan.warning("InvalidSpec", text),
        };
    }
    if app.status.as_ref().is_none_or(|status| status.phase.is_none()) {
        return Plan::new()
            .prune(Prune::Nothing)
            .status(status::created(app, now))
            .check_again(Duration::ZERO);
    }
    let replicas = replicas::wanted(app, seen.stable.as_deref(), now);
    let decision = rollout::decide(app, seen, replicas, now);
    let situation = Situation::of(app, seen, replicas, decision);
    let plan = children(app, &situation);
    let plan = news(app, &situation, plan);
    let plan = match status::taken(app, seen).filter(|message| !status::says_taken(app, message)) {
        Some(message) => plan.warning(status::HOST_TAKEN, message),
        None => plan,
    };
    let plan = recovery::recover(app, &situation, now, plan);
    plan.status(status::observed(app, &situation, now))
        // A step of a canary that could not be taken has not passed, and what was not done was not told.
        .when_done(&["canary", "lastGoodRevision", "failedRevision"])
        .check_again(next_look(app, &situation, now))
}

/// Every child that shall exist. What is not here and was ours goes.
fn children(app: &WebApp, situation: &Situation<'_>) -> Plan {
    let mut plan = Plan::new();
    for revision in &situation.decision.revisions {
        plan = plan.child(revision.object(app));
    }
    // What leads to the pods fits those that run.
    let beside = situation.beside.as_ref();
    plan = plan.child(service::build(&situation.running, beside));
    for files in all_files(app, situation) {
        plan = plan.child(files);
    }
    plan = deployments(app, situation, plan);
    let app = &situation.running;
    if let Some(budget) = disruption_budget::build(app) {
        plan = plan.child(budget);
    }
    if let Some(scaler) = autoscaler::build(app).filter(|_| matches!(situation.replicas, Replicas::Scaled(_))) {
        plan = plan.child(scaler);
    }
    if let Some(ingress) = ingress::build(app) {
        plan = plan.child(ingress);
    }
    if let Some(policy) = network_policy::build(app, beside, situation.seen.home.as_deref()) {
        plan = plan.child(policy);
    }
    let optional = situation.seen.optional;
    if let Some(route) = route::build(app).filter(|_| optional.gateway) {
        plan = dynamic(plan, Kind::of::<Foreign<HttpRoute>>(), route);
    }
    if optional.monitoring {
        for (kind, object) in [
            (Kind::of::<Foreign<ServiceMonitor>>(), monitor::service_monitor(app)),
            (Kind::of::<Foreign<PrometheusRule>>(), monitor::rules(app)),
        ] {
            if let Some(object) = object {
                plan = dynamic(plan, kind, object);
            }
        }
    }
    plan
}

/// The files of every revision of which there are pods, or may be again.
fn all_files(app: &WebApp, situation: &Situation<'_>) -> Vec<ConfigMap> {
    let decision = &situation.decision;
    let good = decision
        .revisions
        .iter()
        .rfind(|revision| revision.verdict == Verdict::Good);
    let tried = situation.trial().or(situation.leaving()).map(|(tried, _)| tried);
    let revisions = [Some(situation.stable()), tried, good].into_iter().flatten();
    let mut all = revisions
        .filter_map(|revision| files::config_map(&revision.as_of(app), &revision.template()))
        .collect::<Vec<_>>();
    all.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    all.dedup_by(|one, other| one.metadata.name == other.metadata.name);
    all
}

/// The Deployments. While something that the pods need is missing, pods stay what they are and nothing new is rolled out:
/// the pods would only fail, and roll a second time when it appears. How many there are is another question.
fn deployments(app: &WebApp, situation: &Situation<'_>, mut plan: Plan) -> Plan {
    let missing = situation.missing();
    if !missing.is_empty() {
        return as_they_are(app, situation, plan)
            .prune(Prune::Nothing)
            .wait_for(Dependency::condition(missing.join(", ")));
    }
    let stable = situation.stable();
    plan = plan.child(deployment::build(
        app,
        Wanted {
            track: Track::Stable,
            replicas: situation.stable_replicas(),
            revision: stable.hash.clone(),
            template: stable.template(),
            config: situation.references.hash.clone(),
        },
    ));
    let trial = situation.trial();
    let config = match trial {
        Some(_) => situation.trial_references.hash.clone(),
        // What is over reads nothing new: its pods only get fewer.
        None => situation
            .seen
            .canary
            .as_deref()
            .and_then(status::config_of)
            .map(str::to_string),
    };
    if let Some((tried, count)) = trial.or(situation.leaving()) {
        let wanted = Wanted {
            track: Track::Canary,
            replicas: Some(count),
            revision: tried.hash.clone(),
            template: tried.template(),
            config,
        };
        plan = plan.child(deployment::build(app, wanted));
    }
    plan
}

/// The Deployments as they are, with as many pods as are wanted now.
fn as_they_are(app: &WebApp, situation: &Situation<'_>, mut plan: Plan) -> Plan {
    let seen = situation.seen;
    let stable = seen
        .stable
        .as_deref()
        .map(|found| (Track::Stable, found, situation.stable_replicas()));
    let canary = seen.canary.as_deref().filter(|found| match situation.trial() {
        Some((trial, _)) => rollout::revision_of(found) == Some(trial.hash.as_str()),
        None => true,
    });
    let canary = canary.map(|found| {
        let count = situation.trial().or(situation.leaving()).map_or(0, |(_, count)| count);
        (Track::Canary, found, Some(count))
    });
    for (track, found, replicas) in stable.into_iter().chain(canary) {
        let runs = rollout::revision_of(found);
        let revisions = &situation.decision.revisions;
        // One whose revision is not kept any more is left alone.
        if let Some(revision) = revisions.iter().find(|revision| Some(revision.hash.as_str()) == runs) {
            let wanted = Wanted {
                track,
                replicas,
                revision: revision.hash.clone(),
                template: revision.template(),
                config: status::config_of(found).map(str::to_string),
            };
            plan = plan.child(deployment::build(app, wanted));
        }
    }
    plan
}

/// What people should hear of: a revision's verdict. What the status says was told; the verdict itself is noted before
/// anything else is done, and what comes after it may fail, or nobody be left to tell it.
fn news(app: &WebApp, situation: &Situation<'_>, plan: Plan) -> Plan {
    let Some(wanted) = situation.decision.revisions.last() else {
        return plan;
    };
    let told = app.status.as_ref().and_then(|status| match wanted.verdict {
        Verdict::Open => None,
        Verdict::Good => status.last_good_revision,
        Verdict::Failed => status.failed_revision,
    });
    if told == Some(wanted.number) {
        return plan;
    }
    match (wanted.verdict, &situation.decision.rollout) {
        (Verdict::Good, _) => plan.event(
            "RolledOut",
            format!("revision {} runs: {}", wanted.number, app.spec.image),
        ),
        (Verdict::Failed, Rollout::RolledBack { good, .. }) => plan.warning(
            "RolledBack",
            format!("{}; revision {} runs again", wanted.failure(), good.number),
        ),
        (Verdict::Failed, _) => plan.warning("RolloutFailed", wanted.failure()),
        (Verdict::Open, _) => plan,
    }
}

/// When to look again: at the next thing that time alone brings about, at the latest after the usual pause.
fn next_look(app: &WebApp, situation: &Situation<'_>, now: Timestamp) -> Duration {
    let mut next = RESYNC;
    // What time has brought about already was looked at just now. What is held up by something else waits for that: to
    // look again and again would not help it.
    let mut at = |time: Timestamp| {
        if time > now {
            let left = Duration::try_from(time.duration_since(now)).unwrap_or(RESYNC);
            next = next.min(left.max(Duration::from_secs(1)));
        }
    };
    if let Some(change) = replicas::next_change(app, now) {
        at(change);
    }
    if let Some(trouble) = trouble::next_trouble(situation, now) {
        at(trouble);
    }
    if let Some(rollout) = &situation.decision.deadline {
        at(deadline::due(app, rollout));
    }
    if let Rollout::Trial { trial, progress, .. } = &situation.decision.rollout
        && trial.verdict != Verdict::Failed
    {
        let measured = app
            .spec
            .strategy
            .canary
            .as_ref()
            .is_some_and(|canary| canary.error_rate.is_some());
        if measured {
            at(now + SignedDuration::from_secs(MEASURE_EVERY));
        }
        let step = usize::try_from(progress.step - 1).ok();
        let steps = app.spec.strategy.canary.as_ref().map(|canary| &canary.steps);
        let pause = steps
            .zip(step)
            .and_then(|(steps, step)| steps.get(step))
            .map_or(0, |step| step.pause_seconds);
        if let Some(since) = &progress.ready_since {
            at(since.0 + SignedDuration::from_secs(i64::from(pause)));
        }
    }
    next
}

fn dynamic(plan: Plan, kind: Kind, object: Value) -> Plan {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_string();
    let key = Key::namespaced(&text("namespace"), &text("name"));
    plan.child_dynamic(kind, key, object, Ownership::Controlled)
}

//! Which revision runs where: a whole roll-out, a canary, or the last good one after a failure.
//!
//! The decision looks only at the revisions and at how far their Deployments are. Nothing is remembered between
//! two looks that is not in the API, so the operator may die at any point of a roll-out and go on.

use crate::names::{REVISION_LABEL, TRACK_LABEL, Track};
use crate::resources::revision::{DID_NOT_COME_UP, Revision, Verdict, wanted_hash};
use crate::seen::Seen;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use stead_apis::WebApp;
use stead_apis::webapp::status::CanaryStatus;
use stead_apis::webapp::strategy::{Canary, CanaryStep, OnFailure, StrategyType};

/// What runs, and why.
#[derive(Debug, Clone, PartialEq)]
pub enum Rollout {
    /// One revision runs on all pods.
    Whole { revision: Revision },
    /// The wanted revision failed and the last good one runs again.
    RolledBack { failed: Revision, good: Revision },
    /// The wanted revision is tried on some pods beside the good one.
    Trial {
        good: Revision,
        trial: Revision,
        percent: i32,
        progress: CanaryStatus,
    },
    /// The trial went well; the wanted revision replaces the good one while the trial pods still help.
    Promotion {
        trial: Revision,
        percent: i32,
        progress: CanaryStatus,
    },
}

/// The decision, and every revision that is to be kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub rollout: Rollout,
    /// Newest last; the wanted one is among them.
    pub revisions: Vec<Revision>,
}

/// Decides what runs.
pub fn decide(app: &WebApp, seen: &Seen, now: Timestamp) -> Decision {
    let mut revisions = seen.revisions.clone();
    revisions.sort_by_key(|revision| revision.number);
    let mut wanted = take_wanted(app, seen, &mut revisions);
    let good = last_good(&revisions, &wanted.hash).cloned();
    let canary = app.spec.strategy.canary.as_ref();
    let canary = canary.filter(|_| app.spec.strategy.kind == StrategyType::Canary);
    let rollout = match (&good, canary, wanted.verdict) {
        (Some(good), Some(canary), Verdict::Open) => trial(app, seen, canary, good.clone(), &mut wanted, now),
        (Some(good), Some(canary), Verdict::Failed) => stopped(app, seen, canary, good, &wanted),
        _ => {
            judge(&mut wanted, seen.stable.as_deref());
            None
        }
    };
    let rollout = rollout.unwrap_or_else(|| settled(app, &wanted, good));
    revisions.push(wanted);
    forget_oldest(app, &mut revisions);
    Decision { rollout, revisions }
}

/// The newest revision that came up well, other than the one of this hash.
pub fn last_good<'a>(revisions: &'a [Revision], other_than: &str) -> Option<&'a Revision> {
    let good = revisions
        .iter()
        .filter(|revision| revision.verdict == Verdict::Good && revision.hash != other_than);
    good.max_by_key(|revision| revision.number)
}

/// Whether a pod is one of those on which the revision of this hash is tried.
pub fn is_on_trial(pod: &Pod, hash: &str) -> bool {
    let label = |name: &str| pod.metadata.labels.as_ref()?.get(name).map(String::as_str);
    label(TRACK_LABEL) == Some(Track::Canary.label()) && label(REVISION_LABEL) == Some(hash)
}

/// How far a Deployment is with the template it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Its controller has not looked at the newest template yet, or works on it.
    Under,
    /// All pods are of the newest template and available.
    Complete,
    /// It made no progress within its deadline.
    Stuck,
}

/// How far this Deployment is.
pub fn progress(deployment: &Deployment) -> Progress {
    let Some((spec, status)) = deployment.spec.as_ref().zip(deployment.status.as_ref()) else {
        return Progress::Under;
    };
    if status.observed_generation < deployment.metadata.generation {
        return Progress::Under;
    }
    let wanted = spec.replicas.unwrap_or(1);
    let all = |count: Option<i32>| count.unwrap_or(0) == wanted;
    if all(status.updated_replicas) && all(status.replicas) && all(status.available_replicas) {
        return Progress::Complete;
    }
    let stuck = status.conditions.iter().flatten().any(|condition| {
        condition.type_ == "Progressing" && condition.reason.as_deref() == Some("ProgressDeadlineExceeded")
    });
    if stuck { Progress::Stuck } else { Progress::Under }
}

/// The revision that a Deployment runs.
pub fn revision_of(deployment: &Deployment) -> Option<&str> {
    deployment
        .metadata
        .labels
        .as_ref()?
        .get(REVISION_LABEL)
        .map(String::as_str)
}

/// How often the containers of a pod started anew.
pub fn restarts(pod: &Pod) -> i32 {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    statuses
        .into_iter()
        .flatten()
        .map(|container| container.restart_count)
        .sum()
}

/// Takes the wanted revision out of the stored ones, or renders it. An old one that is wanted again starts anew: with
/// a number of its own, and without the verdict of last time, unless that was good and it is what runs.
fn take_wanted(app: &WebApp, seen: &Seen, revisions: &mut Vec<Revision>) -> Revision {
    let hash = wanted_hash(app);
    let newest = revisions.last().map_or(0, |revision| revision.number);
    let Some(position) = revisions.iter().position(|revision| revision.hash == hash) else {
        return Revision::render(app, newest + 1);
    };
    let mut wanted = revisions.remove(position);
    if wanted.number < newest {
        wanted.number = newest + 1;
        // Whoever takes back a version that failed asks for what runs already. To try it again beside a still older one
        // would replace every pod by that.
        let runs = seen.stable.as_deref().and_then(revision_of) == Some(wanted.hash.as_str());
        if !(runs && wanted.verdict == Verdict::Good) {
            wanted.verdict = Verdict::Open;
            wanted.why = None;
        }
    }
    wanted
}

/// Notes how the wanted revision turned out, once that is known. A verdict is never taken back.
fn judge(wanted: &mut Revision, deployment: Option<&Deployment>) {
    let Some(deployment) = deployment.filter(|found| revision_of(found) == Some(wanted.hash.as_str())) else {
        return;
    };
    if wanted.verdict == Verdict::Open && runs_at_all(deployment) {
        match progress(deployment) {
            Progress::Under => {}
            Progress::Complete => wanted.verdict = Verdict::Good,
            Progress::Stuck => wanted.fail(DID_NOT_COME_UP.to_string()),
        }
    }
}

/// Whether the Deployment is to have pods: one that has none proves nothing.
fn runs_at_all(deployment: &Deployment) -> bool {
    let spec = deployment.spec.as_ref();
    spec.is_some_and(|spec| spec.replicas.unwrap_or(1) > 0)
}

/// What runs when no trial is on.
fn settled(app: &WebApp, wanted: &Revision, good: Option<Revision>) -> Rollout {
    let goes_back = wanted.verdict == Verdict::Failed && app.spec.strategy.on_failure == OnFailure::RollBack;
    match good {
        Some(good) if goes_back => Rollout::RolledBack {
            failed: wanted.clone(),
            good,
        },
        _ => Rollout::Whole {
            revision: wanted.clone(),
        },
    }
}

/// A trial that failed where the spec says to leave it so: its pods stay, and it goes no further. `None` where the good
/// revision takes over again, or where the failed one already had.
fn stopped(app: &WebApp, seen: &Seen, canary: &Canary, good: &Revision, wanted: &Revision) -> Option<Rollout> {
    let took_over = seen.stable.as_deref().and_then(revision_of) == Some(wanted.hash.as_str());
    if took_over || app.spec.strategy.on_failure == OnFailure::RollBack {
        return None;
    }
    let progress = progress_of(app, wanted);
    let step = step(canary, &progress).or(canary.steps.last())?;
    Some(Rollout::Trial {
        good: good.clone(),
        trial: wanted.clone(),
        percent: step.percent,
        progress,
    })
}

/// How far the trial of this revision is, by the status; at its beginning where that says nothing.
fn progress_of(app: &WebApp, wanted: &Revision) -> CanaryStatus {
    let noted = app.status.as_ref().and_then(|status| status.canary.clone());
    noted
        .filter(|progress| progress.revision == wanted.number)
        .unwrap_or(CanaryStatus {
            revision: wanted.number,
            step: 1,
            ready_since: None,
        })
}

fn step<'a>(canary: &'a Canary, progress: &CanaryStatus) -> Option<&'a CanaryStep> {
    canary.steps.get(usize::try_from(progress.step - 1).ok()?)
}

/// The next state of a canary; `None` once it has failed.
fn trial(
    app: &WebApp,
    seen: &Seen,
    canary: &Canary,
    good: Revision,
    wanted: &mut Revision,
    now: Timestamp,
) -> Option<Rollout> {
    let mut progress = progress_of(app, wanted);
    let steps = canary.steps.len() as i32;
    if progress.step > steps {
        judge(wanted, seen.stable.as_deref());
        let percent = canary.steps.last().map_or(100, |step| step.percent);
        return (wanted.verdict == Verdict::Open).then(|| Rollout::Promotion {
            trial: wanted.clone(),
            percent,
            progress,
        });
    }
    let deployment = seen
        .canary
        .as_deref()
        .filter(|found| revision_of(found) == Some(wanted.hash.as_str()));
    if let Some(why) = condemned(seen, canary, deployment, &wanted.hash) {
        wanted.fail(why);
        return stopped(app, seen, canary, &good, wanted);
    }
    // Asleep or suspended it has no pods, and what nobody tried has not passed.
    let ready = deployment.is_some_and(|found| runs_at_all(found) && self::progress(found) == Progress::Complete);
    progress.ready_since = match (ready, progress.ready_since) {
        (false, _) => None,
        (true, since) => since.or(Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now))),
    };
    let step = step(canary, &progress)?;
    let pause = SignedDuration::from_secs(i64::from(step.pause_seconds));
    if progress
        .ready_since
        .as_ref()
        .is_some_and(|since| now.duration_since(since.0) >= pause)
    {
        progress = CanaryStatus {
            revision: wanted.number,
            step: progress.step + 1,
            ready_since: None,
        };
    }
    let percent = self::step(canary, &progress).map(|step| step.percent);
    Some(match percent {
        Some(percent) => Rollout::Trial {
            good,
            trial: wanted.clone(),
            percent,
            progress,
        },
        None => Rollout::Promotion {
            trial: wanted.clone(),
            percent: step.percent,
            progress,
        },
    })
}

/// What condemns the revision of this hash, of all that is seen of its trial pods.
fn condemned(seen: &Seen, canary: &Canary, deployment: Option<&Deployment>, hash: &str) -> Option<String> {
    if progress(deployment?) == Progress::Stuck {
        return Some(DID_NOT_COME_UP.to_string());
    }
    let trial_pods = seen.pods.iter().filter(|pod| is_on_trial(pod, hash));
    let most = trial_pods.map(|pod| restarts(pod)).max().unwrap_or(0);
    if most > canary.max_restarts {
        return Some(format!("restarted {most} times on trial"));
    }
    let (limit, failed) = canary.error_rate.as_ref().zip(seen.failed_requests)?;
    let most = limit.max_percent;
    (failed > f64::from(most)).then(|| format!("failed {failed:.1} % of the requests to it, where {most} % are borne"))
}

/// Drops the oldest revisions beyond the limit. The last good one stays whatever its age: it is the way back.
fn forget_oldest(app: &WebApp, revisions: &mut Vec<Revision>) {
    let keep = usize::try_from(app.spec.revision_history_limit).unwrap_or(0) + 1;
    let good = revisions.iter().rposition(|revision| revision.verdict == Verdict::Good);
    let surplus = revisions.len().saturating_sub(keep);
    let mut position = 0;
    revisions.retain(|_| {
        let stays = position >= surplus || Some(position) == good;
        position += 1;
        stays
    });
}

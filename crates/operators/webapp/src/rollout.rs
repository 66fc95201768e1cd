//! Which revision runs where: a whole roll-out, a canary, or the last good one after a failure.
//!
//! The decision looks only at the revisions and at how far their Deployments are. Nothing is remembered between
//! two looks that is not in the API, so the operator may die at any point of a roll-out and go on.

use crate::deadline::{self, Deadline};
use crate::names::{REVISION_LABEL, TRACK_LABEL, Track};
use crate::references;
use crate::replicas::Replicas;
use crate::requests::Told;
use crate::resources::revision::{DID_NOT_COME_UP, Revision, Verdict, wanted_hash};
use crate::seen::Seen;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use stead_apis::WebApp;
use stead_apis::webapp::status::{CanaryStatus, RolloutStatus};
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
        progress: CanaryStatus,
    },
    /// The trial went well; the wanted revision replaces the good one while the trial pods still help.
    Promotion { trial: Revision, progress: CanaryStatus },
}

/// The decision, and every revision that is to be kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub rollout: Rollout,
    /// Newest last; the wanted one is among them.
    pub revisions: Vec<Revision>,
    /// What the deadline of the wanted one is counted from, while that is open and runs.
    pub deadline: Option<RolloutStatus>,
}

/// What decisions are made from.
struct Look<'a> {
    app: &'a WebApp,
    seen: &'a Seen,
    replicas: Replicas,
    now: Timestamp,
}

/// Decides what runs.
pub fn decide(app: &WebApp, seen: &Seen, replicas: Replicas, now: Timestamp) -> Decision {
    let look = Look {
        app,
        seen,
        replicas,
        now,
    };
    let mut revisions = seen.revisions.clone();
    revisions.sort_by_key(|revision| revision.number);
    let mut wanted = take_wanted(app, seen, &mut revisions);
    let good = last_good(&revisions, &wanted.hash).cloned();
    let canary = app.spec.strategy.canary.as_ref();
    let canary = canary.filter(|_| app.spec.strategy.kind == StrategyType::Canary);
    let (rollout, deadline) = match (&good, canary, wanted.verdict) {
        (Some(good), Some(canary), Verdict::Open) => look.trial(canary, good, &mut wanted),
        (Some(good), Some(canary), Verdict::Failed) if !look.has_taken_over(&wanted) => {
            (look.stopped(canary, good, &wanted), None)
        }
        _ => (None, look.judge(&mut wanted)),
    };
    let rollout = rollout.unwrap_or_else(|| settled(app, &wanted, good));
    revisions.push(wanted);
    forget_oldest(app, seen, &mut revisions);
    Decision {
        rollout,
        revisions,
        deadline,
    }
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
    Progress::Under
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
/// a number of its own, and without the verdict of last time, unless that was good and it is what runs. One that failed
/// is tried again when it is to be rolled out in another way.
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
            wanted.reopen();
        }
    }
    if wanted.failed_in_another_way(app) {
        wanted.reopen();
    }
    wanted
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

/// How far the trial of this revision is, by the status; at its beginning where that says nothing.
fn progress_of(app: &WebApp, wanted: &Revision) -> CanaryStatus {
    let noted = app.status.as_ref().and_then(|status| status.canary.clone());
    noted
        .filter(|progress| progress.revision == wanted.number)
        .unwrap_or(CanaryStatus {
            revision: wanted.number,
            step: 1,
            percent: 0,
            pods: 0,
            ready_since: None,
        })
}

/// The step in which a trial is; `None` once it has passed the last one.
fn step<'a>(canary: &'a Canary, progress: &CanaryStatus) -> Option<&'a CanaryStep> {
    canary.steps.get(usize::try_from(progress.step - 1).unwrap_or(0))
}

impl Look<'_> {
    /// Notes how the wanted revision turned out once that is known, and says from when its deadline is counted until
    /// then. What came up is good, even where it took longer than was allowed.
    fn judge(&self, wanted: &mut Revision) -> Option<RolloutStatus> {
        let stable = self.seen.stable.as_deref();
        let deployment = stable.filter(|found| self.has_taken_over(wanted) && runs_at_all(found))?;
        match (progress(deployment), wanted.verdict) {
            (_, Verdict::Good) | (Progress::Under, Verdict::Failed) => None,
            (Progress::Complete, Verdict::Open | Verdict::Failed) => {
                wanted.succeed();
                None
            }
            (Progress::Under, Verdict::Open) => match self.deadline(wanted, 0, deployment) {
                Deadline::NotCounted => None,
                Deadline::Running(rollout) => Some(rollout),
                Deadline::Over => {
                    wanted.fail(DID_NOT_COME_UP.to_string(), self.app);
                    None
                }
            },
        }
    }

    /// Whether the stable Deployment is that of this revision.
    fn has_taken_over(&self, revision: &Revision) -> bool {
        self.seen.stable.as_deref().and_then(revision_of) == Some(revision.hash.as_str())
    }

    /// The deadline of a Deployment that runs the wanted revision and is not complete.
    fn deadline(&self, wanted: &Revision, step: i32, deployment: &Deployment) -> Deadline {
        // Pods cannot start without what they read. That is said, and waited for however long it takes.
        let missing = references::summary(&self.app.spec, &self.seen.digests).missing;
        match missing.is_empty() {
            true => deadline::of(self.app, wanted.number, step, deployment, self.now),
            false => Deadline::NotCounted,
        }
    }

    /// A trial that failed where the spec says to leave it so: its pods stay, and it goes no further. `None` where the
    /// good revision takes over again.
    fn stopped(&self, canary: &Canary, good: &Revision, wanted: &Revision) -> Option<Rollout> {
        if self.app.spec.strategy.on_failure == OnFailure::RollBack {
            return None;
        }
        let progress = progress_of(self.app, wanted);
        let step = step(canary, &progress).or(canary.steps.last())?;
        Some(Rollout::Trial {
            good: good.clone(),
            trial: wanted.clone(),
            progress: self.sized(progress, step.percent),
        })
    }

    /// The same with the number of its pods. A step keeps the number that it began with where an autoscaler decides how
    /// many pods there are: one that changes its mind all the time would let no step ever pass.
    fn sized(&self, progress: CanaryStatus, percent: i32) -> CanaryStatus {
        let began = progress.percent == percent && progress.pods > 0;
        let pods = match self.replicas {
            Replicas::Scaled(_) if began => progress.pods,
            other => share(other.count(), percent),
        };
        CanaryStatus {
            percent,
            pods,
            ..progress
        }
    }

    /// The next state of a canary, `None` once it is over; and what its deadline is counted from.
    fn trial(
        &self,
        canary: &Canary,
        good: &Revision,
        wanted: &mut Revision,
    ) -> (Option<Rollout>, Option<RolloutStatus>) {
        let progress = progress_of(self.app, wanted);
        let Some(now) = step(canary, &progress) else {
            let deadline = self.judge(wanted);
            let percent = canary.steps.last().map_or(100, |step| step.percent);
            let promotion = (wanted.verdict == Verdict::Open).then(|| Rollout::Promotion {
                trial: wanted.clone(),
                progress: self.sized(progress, percent),
            });
            return (promotion, deadline);
        };
        let progress = self.sized(progress, now.percent);
        let deployment = self.seen.canary.as_deref();
        let deployment = deployment.filter(|found| revision_of(found) == Some(wanted.hash.as_str()));
        // Asleep or suspended it has no pods, and what nobody tried has not passed. Neither has a step of which the
        // Deployment knows nothing yet.
        let ready = deployment.is_some_and(|found| {
            let size = found.spec.as_ref().and_then(|spec| spec.replicas);
            runs_at_all(found) && size == Some(progress.pods) && self::progress(found) == Progress::Complete
        });
        let deadline = match deployment.filter(|_| !ready) {
            Some(found) => self.deadline(wanted, progress.step, found),
            None => Deadline::NotCounted,
        };
        let late = (deadline == Deadline::Over).then(|| DID_NOT_COME_UP.to_string());
        if let Some(why) = late.or_else(|| self.condemned(canary, &wanted.hash)) {
            wanted.fail(why, self.app);
            return (self.stopped(canary, good, wanted), None);
        }
        let since = progress.ready_since.clone().or(Some(Time(self.now))).filter(|_| ready);
        let next = self.stepped(
            canary,
            now,
            CanaryStatus {
                ready_since: since,
                ..progress
            },
        );
        let rollout = match step(canary, &next) {
            Some(_) => Rollout::Trial {
                good: good.clone(),
                trial: wanted.clone(),
                progress: next,
            },
            None => Rollout::Promotion {
                trial: wanted.clone(),
                progress: next,
            },
        };
        let deadline = match deadline {
            Deadline::Running(rollout) => Some(rollout),
            Deadline::NotCounted | Deadline::Over => None,
        };
        (Some(rollout), deadline)
    }

    /// How far the trial is now: in the same step, or in the next one if its pods have been ready for long enough.
    fn stepped(&self, canary: &Canary, now: &CanaryStep, progress: CanaryStatus) -> CanaryStatus {
        let pause = SignedDuration::from_secs(i64::from(now.pause_seconds));
        let since = progress.ready_since.as_ref();
        if since.is_none_or(|since| self.now.duration_since(since.0) < pause) {
            return progress;
        }
        // What nobody could see has not passed.
        let told = self.seen.requests.as_ref();
        if canary.error_rate.is_some() && told.is_none_or(|told| told.silent.is_some()) {
            return progress;
        }
        let next = CanaryStatus {
            step: progress.step + 1,
            ready_since: None,
            ..progress
        };
        match step(canary, &next) {
            Some(step) => self.sized(next, step.percent),
            None => next,
        }
    }

    /// What condemns the revision of this hash, of all that is seen of its trial pods.
    fn condemned(&self, canary: &Canary, hash: &str) -> Option<String> {
        let trial_pods = self.seen.pods.iter().filter(|pod| is_on_trial(pod, hash));
        let most = trial_pods.map(|pod| restarts(pod)).max().unwrap_or(0);
        if most > canary.max_restarts {
            return Some(format!("restarted {most} times on trial"));
        }
        let told = self.seen.requests.as_ref();
        let (limit, failed) = canary.error_rate.as_ref().zip(told.and_then(Told::failed_percent))?;
        let most = limit.max_percent;
        (failed > f64::from(most))
            .then(|| format!("failed {failed:.1} % of the requests to it, where {most} % are borne"))
    }
}

/// A part of the pods, at least one.
pub fn share(all: i32, percent: i32) -> i32 {
    let part = (i64::from(all) * i64::from(percent) + 99) / 100;
    i32::try_from(part).unwrap_or(all).clamp(i32::from(all > 0), all.max(0))
}

/// Drops the oldest revisions beyond the limit. The last good one stays whatever its age: it is the way back. So does one
/// that still has pods of a canary: they could not get fewer one by one without it.
fn forget_oldest(app: &WebApp, seen: &Seen, revisions: &mut Vec<Revision>) {
    let tried = seen.canary.as_deref().and_then(revision_of);
    let keep = usize::try_from(app.spec.revision_history_limit).unwrap_or(0) + 1;
    let good = revisions.iter().rposition(|revision| revision.verdict == Verdict::Good);
    let surplus = revisions.len().saturating_sub(keep);
    let mut position = 0;
    revisions.retain(|revision| {
        let stays = position >= surplus || Some(position) == good || Some(revision.hash.as_str()) == tried;
        position += 1;
        stays
    });
}

//! What was decided for one WebApp before its children are built: which revision runs where, on how many pods, and what
//! they read. Pure.
//!
//! The plan builds children from it and the status tells it, so both speak of the same decision.

use crate::references;
use crate::replicas::Replicas;
use crate::resources::revision::{Revision, Verdict};
use crate::rollout::{self, Decision, Rollout};
use crate::seen::{References, Seen};
use crate::status;
use k8s_openapi::api::apps::v1::Deployment;
use stead_apis::WebApp;
use stead_apis::webapp::strategy::StrategyType;

/// Everything that was decided before the children are built.
pub struct Situation<'a> {
    pub seen: &'a Seen,
    pub replicas: Replicas,
    pub decision: Decision,
    /// The application as its stable pods run it: of another revision than the spec's during a trial and after going back.
    pub running: WebApp,
    /// The application as pods of another version run it beside them: in a trial, and until a new version is complete.
    pub beside: Option<WebApp>,
    /// What the stable pods read at their start.
    pub references: References,
    /// What the pods on trial read, while there is a trial.
    pub trial_references: References,
}

impl<'a> Situation<'a> {
    /// What follows for this application from the decisions.
    pub fn of(app: &WebApp, seen: &'a Seen, replicas: Replicas, decision: Decision) -> Self {
        let mut situation = Situation {
            seen,
            replicas,
            decision,
            running: app.clone(),
            beside: None,
            references: References::default(),
            trial_references: References::default(),
        };
        situation.running = situation.stable().as_of(app);
        let leaving = situation.leaving().map(|(revision, _)| revision);
        situation.beside = situation.other().or(leaving).map(|revision| revision.as_of(app));
        situation.references = references::summary(&situation.running.spec, &seen.digests);
        match &situation.decision.rollout {
            Rollout::Whole { .. } => {}
            Rollout::RolledBack { .. } => situation.read_what_runs(),
            Rollout::Trial { .. } => {
                situation.trial_references = references::summary(&app.spec, &seen.digests);
                situation.read_what_runs();
            }
            Rollout::Promotion { .. } => situation.trial_references = situation.references.clone(),
        }
        situation
    }

    /// What the wanted version does not refer to any more may be gone already. The pods of the good one that have read it
    /// run on, and what is to happen beside them does not wait for it: least of all that a failed version goes.
    fn read_what_runs(&mut self) {
        let stable = self.seen.stable.as_deref();
        let runs = stable.filter(|found| rollout::revision_of(found) == Some(self.stable_revision()));
        if let Some(found) = runs.filter(|_| !self.references.missing.is_empty()) {
            self.references = References {
                hash: status::config_of(found).map(str::to_string),
                missing: Vec::new(),
            };
        }
    }
}

impl Situation<'_> {
    /// The revision that the stable pods shall run.
    pub fn stable(&self) -> &Revision {
        match &self.decision.rollout {
            Rollout::Whole { revision } => revision,
            Rollout::RolledBack { good, .. } | Rollout::Trial { good, .. } => good,
            Rollout::Promotion { trial, .. } => trial,
        }
    }

    /// The other revision of which there are pods, or may be.
    fn other(&self) -> Option<&Revision> {
        match &self.decision.rollout {
            Rollout::Trial { trial, .. } => Some(trial),
            Rollout::Whole { revision } | Rollout::Promotion { trial: revision, .. } => {
                let complete = revision.verdict == Verdict::Good;
                rollout::last_good(&self.decision.revisions, &revision.hash).filter(|_| !complete)
            }
            Rollout::RolledBack { .. } => None,
        }
    }

    /// The hash of that revision.
    pub fn stable_revision(&self) -> &str {
        &self.stable().hash
    }

    /// How many stable pods to apply; `None` where an autoscaler decides.
    pub fn stable_replicas(&self) -> Option<i32> {
        let all = self.replicas.to_apply(self.seen.stable.as_deref())?;
        match &self.decision.rollout {
            // An autoscaler counts its own pods; trial pods come on top of them.
            Rollout::Trial { trial, progress, .. } if !matches!(self.replicas, Replicas::Scaled(_)) => {
                // A pod makes way for one that serves, not for one that perhaps never will; and of both versions there
                // is at least one until the trial is of all.
                let least = i32::from(all > 0 && progress.percent < 100);
                let helping = self.serving_on_trial(&trial.hash).min(progress.pods);
                Some((all - helping).max(least))
            }
            _ => Some(all),
        }
    }

    /// How many pods on trial serve.
    fn serving_on_trial(&self, hash: &str) -> i32 {
        let deployment = self.seen.canary.as_deref();
        available(deployment.filter(|found| rollout::revision_of(found) == Some(hash)))
    }

    /// What is needed and not there.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = [
            self.references.missing.as_slice(),
            self.trial_references.missing.as_slice(),
        ]
        .concat();
        missing.sort();
        missing.dedup();
        missing
    }

    /// The trial: its revision and how many pods.
    pub fn trial(&self) -> Option<(&Revision, i32)> {
        match &self.decision.rollout {
            Rollout::Trial { trial, progress, .. } | Rollout::Promotion { trial, progress } => {
                Some((trial, progress.pods))
            }
            Rollout::Whole { .. } | Rollout::RolledBack { .. } => None,
        }
    }

    /// A canary that is over, failed or taken back: its revision, and how many of its pods that serve are still needed.
    /// They go as those that take their place become available: all at once, nobody would serve in between.
    pub fn leaving(&self) -> Option<(&Revision, i32)> {
        let found = self.seen.canary.as_deref().filter(|_| self.trial().is_none())?;
        // Where two versions must never run at once, what is not wanted goes first.
        let apart = self.running.spec.strategy.kind == StrategyType::Recreate;
        if apart || found.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let hash = rollout::revision_of(found)?;
        let revision = self.decision.revisions.iter().find(|revision| revision.hash == hash)?;
        let (wanted, staying) = (self.replicas.count(), self.staying());
        // One may be missing, or there would perhaps be no room for those that are to come. What failed people serves only
        // while few others do: the good version may never be complete again.
        let enough = match revision.verdict {
            Verdict::Failed => (wanted + 1) / 2,
            Verdict::Open | Verdict::Good => wanted - 1,
        };
        if staying >= enough.max(1) {
            return None;
        }
        let alone = i32::from(staying == 0 && wanted > 0);
        let count = (wanted - 1 - staying).max(alone).min(available(Some(found)));
        (count > 0).then_some((revision, count))
    }

    /// How many stable pods serve and are to go on serving. Those that were counted before the Deployment's last change
    /// may be on their way out.
    fn staying(&self) -> i32 {
        let stable = self.seen.stable.as_deref().filter(|stable| {
            let counted = stable.status.as_ref().and_then(|status| status.observed_generation);
            counted >= stable.metadata.generation
        });
        let wanted = stable.and_then(|stable| stable.spec.as_ref()?.replicas);
        available(stable).min(wanted.unwrap_or(1))
    }
}

/// How many pods of a Deployment serve, or did when they were last counted.
fn available(deployment: Option<&Deployment>) -> i32 {
    let status = deployment.and_then(|found| found.status.as_ref());
    status.and_then(|status| status.available_replicas).unwrap_or(0)
}

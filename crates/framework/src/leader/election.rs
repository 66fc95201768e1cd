//! The Lease, read and written.
//!
//! It has a client of its own: its traffic is not fenced (that would be a circle) and does not queue behind
//! the reconciles'.

use super::{Candidate, Decision, Fence, Seen};
use crate::clock::Clock;
use crate::metrics::Metrics;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How a leader is elected.
#[derive(Clone, Debug)]
pub struct LeaderElection {
    /// The name of the Lease.
    pub name: String,
    /// Where the Lease is.
    pub namespace: String,
    /// How long others wait for a leader that is silent.
    pub lease: Duration,
    /// A leader that could not renew for so long stops writing. Shorter than `lease`, so that it has stopped
    /// before anyone else starts.
    pub renew_deadline: Duration,
    /// The pause between attempts.
    pub retry: Duration,
}

impl LeaderElection {
    /// The usual times: 15 s, 10 s and 2 s.
    pub fn new(name: &str, namespace: &str) -> Self {
        LeaderElection {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }

    /// Whether a leader has always stopped before another one starts, and tries often enough to go on. What is wrong, if
    /// not.
    pub fn check(&self) -> Result<(), TimesError> {
        let LeaderElection {
            lease,
            renew_deadline,
            retry,
            ..
        } = *self;
        match lease > renew_deadline && renew_deadline > retry && !retry.is_zero() {
            true => Ok(()),
            false => Err(TimesError {
                lease,
                renew_deadline,
                retry,
            }),
        }
    }
}

/// Times with which two could lead at once, or nobody for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lease ({lease:?}) must be longer than the renew deadline ({renew_deadline:?}), and that longer than the pause \
     between attempts ({retry:?})"
)]
pub struct TimesError {
    lease: Duration,
    renew_deadline: Duration,
    retry: Duration,
}

/// One replica's part in the election.
pub struct Election {
    settings: LeaderElection,
    identity: String,
    leases: Api<Lease>,
    fence: Fence,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    candidate: Candidate,
    /// Whether the last attempt left us leading.
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Leading,
    Following,
}

impl Election {
    /// A part in an election that has not begun.
    pub fn new(
        client: Client,
        settings: LeaderElection,
        identity: &str,
        fence: Fence,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Self {
        metrics.leading(&settings.name, 0.0);
        Election {
            leases: Api::namespaced(client, &settings.namespace),
            candidate: Candidate::new(identity),
            identity: identity.to_owned(),
            settings,
            fence,
            clock,
            metrics,
            standing: Standing::Following,
        }
    }

    /// Takes part until `stop`, then gives the Lease back, so that another need not wait for it to expire. Call
    /// `stop` only when nothing works any more.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let started = Instant::now();
            let limit = self.limit();
            let attempt = tokio::select! {
                () = stop.cancelled() => break,
                attempt = tokio::time::timeout(limit, self.attempt(started)) => attempt,
            };
            match attempt {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the Lease could not be read or written"),
                Err(_) => tracing::warn!("the API server did not answer about the Lease within {limit:?}"),
            }
            if self.standing == Standing::Leading && self.fence.check().is_err() {
                self.step_down("it could not be renewed in time");
            }
            // Whoever waits looks twice as often as a leader renews: a Lease that was given back is taken within
            // the time of one attempt.
            let pause = match self.standing {
                Standing::Leading => self.settings.retry,
                Standing::Following => self.settings.retry / 2,
            };
            let pause = pause.mul_f64(rand::random_range(0.9..1.1));
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.release().await;
    }

    /// How long an answer about the Lease is waited for: a second try must fit before the deadline.
    fn limit(&self) -> Duration {
        self.settings.renew_deadline / 2
    }

    async fn attempt(&mut self, started: Instant) -> Result<(), kube::Error> {
        let lease = self.leases.get_opt(&self.settings.name).await?;
        let seen = lease.as_ref().map(seen);
        let decision = self.candidate.decide(seen, Instant::now());
        if self.standing == Standing::Leading && decision != Decision::Renew {
            // Deleted or stolen. Whoever did that may lead already: stop first, ask afterwards.
            self.step_down("somebody deleted or took it");
            return Ok(());
        }
        let written = match decision {
            Decision::Wait => return Ok(()),
            Decision::Create => self.leases.create(&PostParams::default(), &self.lease(None)).await,
            // The body carries the version that was read, so of two that try only one succeeds.
            Decision::Take | Decision::Renew => {
                let body = self.lease(lease.as_ref());
                self.leases
                    .replace(&self.settings.name, &PostParams::default(), &body)
                    .await
            }
        };
        match written {
            Ok(_) => {
                // Others count from when they see the write, which is not before we started.
                self.fence.open_until(started + self.settings.renew_deadline);
                if self.standing == Standing::Following {
                    tracing::info!(identity = self.identity, lease = self.settings.name, "leading");
                    self.standing = Standing::Leading;
                    self.metrics.leading(&self.settings.name, 1.0);
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn step_down(&mut self, why: &str) {
        self.fence.close();
        self.standing = Standing::Following;
        self.metrics.leading(&self.settings.name, 0.0);
        tracing::warn!(
            identity = self.identity,
            lease = self.settings.name,
            why,
            "not leading any more"
        );
    }

    async fn release(&mut self) {
        let led = self.standing == Standing::Leading;
        self.fence.close();
        self.metrics.leading(&self.settings.name, 0.0);
        if !led {
            return;
        }
        let released = async {
            loop {
                let Some(lease) = self.leases.get_opt(&self.settings.name).await? else {
                    return Ok(());
                };
                if seen(&lease).holder != self.identity {
                    return Ok(());
                }
                let mut body = self.lease(Some(&lease));
                let spec = body.spec.get_or_insert_default();
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
                let name = &self.settings.name;
                match self.leases.replace(name, &PostParams::default(), &body).await {
                    // A renewal of ours that was on its way when the stop came has arrived after all.
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    other => return other.map(|_| ()),
                }
            }
        };
        match tokio::time::timeout(self.limit(), released).await {
            Ok(Ok(())) => tracing::info!(lease = self.settings.name, "gave the Lease back"),
            // It expires by itself.
            Ok(Err::<(), kube::Error>(error)) => tracing::warn!(%error, "the Lease could not be given back"),
            Err(_) => tracing::warn!("the Lease could not be given back in time"),
        }
    }

    /// The Lease as it shall be when we hold it.
    fn lease(&self, current: Option<&Lease>) -> Lease {
        let now = MicroTime(self.clock.now());
        let before = current.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let ours = before.holder_identity.as_deref() == Some(&self.identity);
        let transitions = before.lease_transitions.unwrap_or(0);
        let seconds = whole_seconds(self.settings.lease);
        Lease {
            metadata: current
                .map(|lease| lease.metadata.clone())
                .unwrap_or_else(|| ObjectMeta {
                    name: Some(self.settings.name.clone()),
                    namespace: Some(self.settings.namespace.clone()),
                    ..ObjectMeta::default()
                }),
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: Some(seconds),
                acquire_time: before.acquire_time.clone().filter(|_| ours).or(Some(now.clone())),
                renew_time: Some(now),
                lease_transitions: Some(if ours || current.is_none() {
                    transitions
                } else {
                    transitions + 1
                }),
                ..before
            }),
        }
    }
}

/// How long others shall wait. A Lease has whole seconds only: never fewer than the holder counts on.
pub(super) fn whole_seconds(lease: Duration) -> i32 {
    let whole = lease.as_secs() + u64::from(lease.subsec_nanos() > 0);
    i32::try_from(whole.max(1)).unwrap_or(i32::MAX)
}

fn seen(lease: &Lease) -> Seen {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.unwrap_or(15).max(1);
    Seen {
        holder: spec.holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(u64::try_from(seconds).unwrap_or(15)),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

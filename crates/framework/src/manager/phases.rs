//! The order in which things start, and stop.

use super::Manager;
use crate::cache::Cache;
use crate::leader::{Election, Fence};
use crate::server::{self, Facts};
use crate::webhook::{self, Keeper, Reloading};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// How long the start waits for the first certificate of the webhooks.
const CERTIFICATE_WAIT: Duration = Duration::from_secs(10);
/// How long events that are not posted yet may hold up the end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What is started, one after the other; stopping goes the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Probes and metrics first: a process that hangs in a later phase must be seen to be alive and not
    /// ready.
    Probes,
    /// Webhooks before caches: filling a cache may need a conversion webhook that this very process serves.
    Webhooks,
    /// Caches before leadership: a standby is warm, and whoever wins starts to work at once.
    Caches,
    /// Leadership before controllers, and given back after they have drained: two must never work at the same
    /// time.
    Leader,
    /// Controllers last: everything that they use is there.
    Controllers,
}

impl Phase {
    /// In the order of starting.
    pub const ALL: [Phase; 5] = [
        Phase::Probes,
        Phase::Webhooks,
        Phase::Caches,
        Phase::Leader,
        Phase::Controllers,
    ];
}

impl Manager {
    /// Runs everything until `shutdown` is ready, then drains. A leader that loses its Lease stops working and
    /// becomes a standby again, with its caches warm.
    ///
    /// Dropping the future ends everything that it started, at once and without a word to anybody, as a crash
    /// would: the Lease is not given back.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), crate::Error> {
        if let Some(election) = &self.options.election {
            election
                .check()
                .map_err(|error| crate::Error::new(crate::Class::UserMistake, error.to_string()))?;
        }
        let mut running = Running::new(&self);
        let working = async {
            for phase in [Phase::Probes, Phase::Webhooks, Phase::Caches] {
                self.start(phase, &mut running).await;
            }
            loop {
                self.start(Phase::Leader, &mut running).await;
                self.start(Phase::Controllers, &mut running).await;
                self.fence.lost().await;
                // Whoever leads now may be at work: what runs here has been cancelled by the fence, and is only
                // waited for.
                self.stop(Phase::Controllers, &mut running).await;
            }
        };
        tokio::select! {
            () = shutdown => {}
            () = working => {}
        }
        for phase in Phase::ALL.into_iter().rev() {
            self.stop(phase, &mut running).await;
        }
        Ok(())
    }

    async fn start(&self, phase: Phase, running: &mut Running) {
        tracing::debug!(?phase, "starting");
        match phase {
            Phase::Probes => self.start_probes(running),
            Phase::Webhooks => self.start_webhooks(running).await,
            Phase::Caches => {
                self.cache.start();
                self.cache.wait_for_sync().await;
            }
            Phase::Leader => {
                if let (Some(settings), None) = (&self.options.election, &running.election) {
                    let election = Election::new(
                        self.unfenced.clone(),
                        settings.clone(),
                        &self.options.identity,
                        self.fence.clone(),
                        self.options.clock.clone(),
                        self.metrics.clone(),
                    );
                    let task = tokio::spawn(election.run(running.stop_election.clone()));
                    running.election = Some(AbortOnDropHandle::new(task));
                }
                self.fence.won().await;
            }
            Phase::Controllers => {
                running.stop_controllers = CancellationToken::new();
                for controller in self.controllers.lock().iter() {
                    running
                        .controllers
                        .spawn(controller.clone().run(running.stop_controllers.clone()));
                }
            }
        }
    }

    fn start_probes(&self, running: &mut Running) {
        if let Some(poster) = self.poster.lock().take() {
            running.background.spawn(poster.run());
        }
        let facts = Facts {
            cache: self.cache.clone(),
            metrics: self.metrics.clone(),
            controllers: self.handles.clone(),
        };
        let mut listeners = self.listeners.lock();
        if let Some(listener) = listeners.probes.take() {
            running.background.spawn(server::serve(
                listener,
                server::probes(facts.clone()),
                running.stop_servers.clone(),
            ));
        }
        if let Some(listener) = listeners.metrics.take() {
            running.background.spawn(server::serve(
                listener,
                server::metrics(facts),
                running.stop_servers.clone(),
            ));
        }
    }

    /// Webhooks are served once a certificate is there. Without an API server there is none, and the manager waits
    /// for it anyway.
    async fn start_webhooks(&self, running: &mut Running) {
        let Some(hooks) = self.listeners.lock().webhooks.take() else {
            return;
        };
        let certificate = Arc::new(Reloading::default());
        let keeper = Keeper {
            client: self.unfenced.clone(),
            options: hooks.options,
            certificate: certificate.clone(),
            clock: self.options.clock.clone(),
        };
        let stop = running.stop_webhooks.clone();
        let (ready, loaded) = tokio::sync::oneshot::channel();
        running.background.spawn(keeper.run(ready, stop.clone()));
        let router = hooks.webhooks.router(self.metrics.clone());
        running
            .background
            .spawn(webhook::serve(hooks.listener, router, certificate, stop));
        // Configurations that are not reachable must not keep the operator from starting, or it could not repair
        // what it needs itself.
        let _ = tokio::time::timeout(CERTIFICATE_WAIT, loaded).await;
    }

    async fn stop(&self, phase: Phase, running: &mut Running) {
        tracing::debug!(?phase, "stopping");
        match phase {
            Phase::Controllers => {
                running.stop_controllers.cancel();
                let drained = async { while running.controllers.join_next().await.is_some() {} };
                if tokio::time::timeout(self.options.drain, drained).await.is_err() {
                    tracing::warn!(
                        "some reconciles did not end within {:?}; they are cancelled",
                        self.options.drain
                    );
                    running.controllers.shutdown().await;
                }
                // What the last looks had to say is told while this is still the leader; an API that does not answer is
                // not waited for.
                let _ = tokio::time::timeout(LAST_WORDS, self.recorder.flush()).await;
            }
            // Only now that nothing works any more, the Lease goes back.
            Phase::Leader => {
                running.stop_election.cancel();
                if let Some(election) = running.election.take() {
                    // A task that panicked holds no Lease worth giving back.
                    let _ = election.await;
                }
                self.fence.close();
            }
            Phase::Caches => self.cache.stop().await,
            Phase::Webhooks => running.stop_webhooks.cancel(),
            Phase::Probes => {
                running.stop_servers.cancel();
                running.background.shutdown().await;
            }
        }
    }
}

/// What runs. When it is dropped, nothing of it goes on: a manager whose future is gone must not renew a Lease.
struct Running {
    cache: Cache,
    fence: Fence,
    stop_controllers: CancellationToken,
    stop_election: CancellationToken,
    stop_servers: CancellationToken,
    stop_webhooks: CancellationToken,
    controllers: JoinSet<()>,
    election: Option<AbortOnDropHandle<()>>,
    background: JoinSet<()>,
}

impl Running {
    fn new(manager: &Manager) -> Self {
        Running {
            cache: manager.cache.clone(),
            fence: manager.fence.clone(),
            stop_controllers: CancellationToken::new(),
            stop_election: CancellationToken::new(),
            stop_servers: CancellationToken::new(),
            stop_webhooks: CancellationToken::new(),
            controllers: JoinSet::new(),
            election: None,
            background: JoinSet::new(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The sets and the election abort their tasks by themselves. Connections that were accepted, and the
        // cache's watches, are tasks of their own and listen to these.
        self.fence.close();
        self.cache.end();
        for stop in [&self.stop_controllers, &self.stop_servers, &self.stop_webhooks] {
            stop.cancel();
        }
    }
}

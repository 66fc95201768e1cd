//! The order in which things start, and stop.

use super::Manager;
use std::future::Future;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

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
    /// Runs everything until `shutdown` is ready, then drains.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), crate::Error> {
        let mut running = Running::default();
        let started = async {
            for phase in Phase::ALL {
                tracing::debug!(?phase, "starting");
                self.start(phase, &mut running).await;
            }
            // Everything runs; only the shutdown ends it.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = shutdown => {}
            () = started => {}
        }
        for phase in Phase::ALL.into_iter().rev() {
            tracing::debug!(?phase, "stopping");
            self.stop(phase, &mut running).await;
        }
        Ok(())
    }

    async fn start(&self, phase: Phase, running: &mut Running) {
        match phase {
            Phase::Probes => {
                if let Some(poster) = self.poster.lock().take() {
                    running.posting.spawn(poster.run());
                }
            }
            Phase::Webhooks => {}
            Phase::Caches => {
                self.cache.start();
                self.cache.wait_for_sync().await;
            }
            Phase::Leader => self.fence.won().await,
            Phase::Controllers => {
                for controller in self.controllers.lock().iter() {
                    running.controllers.spawn(controller.clone().run(running.stop.clone()));
                }
            }
        }
    }

    async fn stop(&self, phase: Phase, running: &mut Running) {
        match phase {
            Phase::Controllers => {
                running.stop.cancel();
                let drained = async { while running.controllers.join_next().await.is_some() {} };
                if tokio::time::timeout(self.options.drain, drained).await.is_err() {
                    tracing::warn!(
                        "some reconciles did not end within {:?}; they are cancelled",
                        self.options.drain
                    );
                    running.controllers.shutdown().await;
                }
            }
            Phase::Leader => self.fence.close(),
            Phase::Caches => self.cache.stop().await,
            Phase::Webhooks => {}
            Phase::Probes => running.posting.abort_all(),
        }
    }
}

/// What runs.
#[derive(Default)]
struct Running {
    stop: CancellationToken,
    controllers: JoinSet<()>,
    posting: JoinSet<()>,
}

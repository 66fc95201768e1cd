//! Whether a name is free for a node that wants to join.
//!
//! Two agents under one name would take each other's pods for leftovers and end them. An agent cannot be asked who it is:
//! the Lease of a node holds the node's own name, whoever renews it. So we look whether somebody does while we do not.

use crate::failure::Hint;
use crate::terminal::{Line, tell};
use anyhow::{Context, Result, anyhow};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use std::time::Duration;
use stead_cluster::node::registration::LEASE_RENEWAL;
use tokio::time::{Instant, sleep};

/// How much later than it should an agent that lives may renew its Lease.
const LATENESS: Duration = Duration::from_secs(5);
/// How often we look.
const LOOK: Duration = Duration::from_secs(1);

/// Refuses a name whose Lease somebody renews. One that was held a moment ago may be our own from before a crash: it takes
/// as long as a renewal to know.
pub async fn check(client: kube::Client, name: &str) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    let look = async || {
        let found = leases.get_opt(name).await;
        found
            .with_context(|| format!("cannot read the lease of node {name}"))
            .hint(
                "check that the cluster runs and that the account of the kubeconfig may read leases in kube-node-lease",
            )
    };
    let Some(first) = look().await?.filter(|lease| may_be_held(lease, Timestamp::now())) else {
        return Ok(());
    };
    let patience = LEASE_RENEWAL + LATENESS;
    tell(
        Line::Note,
        &format!(
            "node {name} was there a moment ago; looking for {} s whether it still is",
            patience.as_secs()
        ),
    );
    let started = Instant::now();
    while started.elapsed() < patience {
        sleep(LOOK).await;
        match look().await? {
            Some(lease) if is_renewed(&first, &lease) => {
                return Err(anyhow!("another agent runs node {name}"))
                    .hint("join under another name, or end the other agent first");
            }
            Some(_) => {}
            None => return Ok(()),
        }
    }
    Ok(())
}

/// Whether a Lease is young enough that its holder may live.
fn may_be_held(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let lasts = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into());
    spec.renew_time
        .as_ref()
        .is_some_and(|renewed| now.duration_since(renewed.0) < lasts)
}

fn is_renewed(first: &Lease, later: &Lease) -> bool {
    let time = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
    time(first) != time(later)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lease(renewed: &str) -> Lease {
        let spec = json!({"holderIdentity": "a", "leaseDurationSeconds": 40, "renewTime": renewed});
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).expect("a Lease")
    }

    #[test]
    fn only_a_lease_that_has_not_run_out_is_worth_a_wait() {
        let now = |text: &str| text.parse::<Timestamp>().expect("a time");
        let held = lease("2026-01-01T00:00:00.000000Z");
        assert!(may_be_held(&held, now("2026-01-01T00:00:39Z")));
        assert!(!may_be_held(&held, now("2026-01-01T00:00:40Z")));
        assert!(!may_be_held(&Lease::default(), now("2026-01-01T00:00:00Z")));
    }

    #[test]
    fn a_holder_lives_when_its_lease_is_renewed_without_us() {
        let first = lease("2026-01-01T00:00:00.000000Z");
        assert!(!is_renewed(&first, &first.clone()));
        assert!(is_renewed(&first, &lease("2026-01-01T00:00:10.000000Z")));
    }
}

//! Whether a name is free for a node that wants to join.
//!
//! Two agents under one name would take each other's pods for leftovers and end them. An agent cannot be asked who it is:
//! the Lease of a node holds the node's own name, whoever renews it. So we look whether somebody does while we do not.

use crate::failure::Hint;
use crate::terminal::{Line, tell};
use anyhow::{Context, Result, anyhow};
use futures::{StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;
use stead_cluster::node::fault::Power;
use stead_cluster::node::registration::LEASE_RENEWAL;
use stead_cluster::node::voices::Voices;
use tokio::time::{Instant, sleep};

/// How much later than it should an agent that lives may renew its Lease.
const LATENESS: Duration = Duration::from_secs(5);
/// How often we look.
const LOOK: Duration = Duration::from_secs(1);
/// How many names are looked at together.
const AT_ONCE: usize = 64;
/// How long letting go may take: a cluster that is gone too must not keep the agent.
const LETTING_GO: Duration = Duration::from_secs(3);

fn leases(voices: &Voices, name: &str) -> Api<Lease> {
    Api::namespaced(voices.node(name), "kube-node-lease")
}

/// Refuses names whose Leases somebody renews. One that was held a moment ago may be our own from before a crash: it takes
/// as long as a renewal to know.
pub async fn check(voices: &Voices, names: &[String]) -> Result<()> {
    let looked = futures::stream::iter(names.iter().cloned().map(|name| look(voices, name)));
    let held: Vec<Option<(String, Lease)>> = looked.buffer_unordered(AT_ONCE).try_collect().await?;
    let held: Vec<(String, Lease)> = held.into_iter().flatten().collect();
    let first = match held.as_slice() {
        [] => return Ok(()),
        [(only, _)] => format!("node {only} was"),
        [(first, _), rest @ ..] => format!("node {first} and {} others were", rest.len()),
    };
    let patience = LEASE_RENEWAL + LATENESS;
    tell(
        Line::Note,
        &format!(
            "{first} there a moment ago; looking for {} s whether an agent still lives",
            patience.as_secs()
        ),
    );
    let started = Instant::now();
    while started.elapsed() < patience {
        sleep(LOOK).await;
        let again = held.iter().map(|(name, first)| still_held(voices, name, first));
        let again = futures::stream::iter(again.collect::<Vec<_>>());
        again.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    }
    Ok(())
}

/// A name and its Lease, if that may be held. An agent whose node is off or cut from the API renews nothing, and comes
/// back with it: such a name is refused.
async fn look(voices: &Voices, name: String) -> Result<Option<(String, Lease)>> {
    let nodes: Api<Node> = Api::all(voices.node(&name));
    let node = nodes
        .get_opt(&name)
        .await
        .with_context(|| format!("cannot read node {name}"));
    let node = node.hint("check that the cluster runs and that the account of the kubeconfig may read nodes")?;
    let fault = match node.map_or(Power::On, |node| Power::asked_of(&node)) {
        Power::On => None,
        Power::Off => Some(("off", "start")),
        Power::Partitioned => Some(("cut from the API", "heal")),
    };
    if let Some((what, verb)) = fault {
        return Err(anyhow!("node {name} is {what}, and an agent may wait for it"))
            .hint(format!("`stead node {verb} {name}` first, or join under another name"));
    }
    let found = read(voices, &name)
        .await?
        .filter(|lease| may_be_held(lease, Timestamp::now()));
    Ok(found.map(|lease| (name, lease)))
}

async fn read(voices: &Voices, name: &str) -> Result<Option<Lease>> {
    let found = leases(voices, name).get_opt(name).await;
    found
        .with_context(|| format!("cannot read the lease of node {name}"))
        .hint("check that the cluster runs and that the account of the kubeconfig may read leases in kube-node-lease")
}

/// Refuses a name whose Lease was renewed since it was seen first.
async fn still_held(voices: &Voices, name: &str, first: &Lease) -> Result<()> {
    match read(voices, name).await? {
        Some(lease) if is_renewed(first, &lease) => {
            Err(anyhow!("another agent runs node {name}")).hint("join under another name, or end the other agent first")
        }
        Some(_) | None => Ok(()),
    }
}

/// Says that nobody holds the names any more, so that the next to join need not wait. When the nodes were last alive stays
/// written: the cluster must notice that they are gone.
pub async fn let_go(voices: &Voices, names: &[String]) {
    let patch = json!({"spec": {"holderIdentity": null}});
    let each = names.iter().map(async |name| {
        let leases = leases(voices, name);
        // One that cannot be let go is waited for, as after a crash.
        let _ = leases.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    });
    let all = futures::stream::iter(each.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
    let _ = tokio::time::timeout(LETTING_GO, all.collect::<Vec<()>>()).await;
}

/// Whether a Lease is young enough that its holder may live.
fn may_be_held(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = lease.spec.as_ref().filter(|spec| spec.holder_identity.is_some()) else {
        return false;
    };
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
        let mut let_go = held;
        let_go.spec.as_mut().expect("it has one").holder_identity = None;
        assert!(!may_be_held(&let_go, now("2026-01-01T00:00:01Z")));
    }

    #[test]
    fn a_holder_lives_when_its_lease_is_renewed_without_us() {
        let first = lease("2026-01-01T00:00:00.000000Z");
        assert!(!is_renewed(&first, &first.clone()));
        assert!(is_renewed(&first, &lease("2026-01-01T00:00:10.000000Z")));
    }
}

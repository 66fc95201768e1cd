//! Whether a name is free for a node that wants to join, and taking it.
//!
//! Two agents under one name would take each other's pods for leftovers and end them. An agent cannot be asked who it is:
//! the Lease of a node holds the node's own name, whoever renews it. So we look whether somebody does while we do not, and
//! then renew it ourselves, as it was when we looked: of two that have seen the same, the API server refuses one.

use crate::failure::Hint;
use crate::terminal::{Line, tell};
use anyhow::{Context, Result, anyhow};
use futures::{StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use std::time::Duration;
use stead_cluster::node::fault::Power;
use stead_cluster::node::registration::{self, LEASE_RENEWAL};
use stead_cluster::node::voices::Voices;
use tokio::time::{Instant, sleep};

/// How much later than it should an agent that lives may renew its Lease.
const LATENESS: Duration = Duration::from_secs(5);
/// How often we look.
const LOOK: Duration = Duration::from_secs(1);
/// How many names are looked at together.
const AT_ONCE: usize = 64;
/// How often others may write a Lease, and not to renew it, while its name is taken.
const TRIES: usize = 5;
/// What to do where a name is another's.
const ELSEWHERE: &str = "join under another name, or end the other agent first";
/// How long letting go may take: a cluster that is gone too must not keep the agent.
const LETTING_GO: Duration = Duration::from_secs(3);

fn leases(voices: &Voices, name: &str) -> Api<Lease> {
    Api::namespaced(voices.node(name), "kube-node-lease")
}

/// A name and its Lease when it was found free.
#[derive(Clone, Debug)]
pub struct Free {
    name: String,
    lease: Option<Lease>,
}

/// Refuses names whose Leases somebody renews. One that was held a moment ago may be our own from before a crash: it takes
/// as long as a renewal to know.
pub async fn check(voices: &Voices, names: &[String]) -> Result<Vec<Free>> {
    let looked = futures::stream::iter(names.iter().cloned().map(|name| look(voices, name)));
    let free: Vec<Free> = looked.buffered(AT_ONCE).try_collect().await?;
    let now = Timestamp::now();
    let held = free.iter().filter_map(|free| Some((&free.name, free.lease.as_ref()?)));
    let held: Vec<(&String, &Lease)> = held.filter(|(_, lease)| may_be_held(lease, now)).collect();
    let first = match held.as_slice() {
        [] => return Ok(free),
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
    Ok(free)
}

/// A name and its Lease. An agent whose node is off or cut from the API renews nothing, and comes back with it: such a
/// name is refused.
async fn look(voices: &Voices, name: String) -> Result<Free> {
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
    let lease = read(voices, &name).await?;
    Ok(Free { name, lease })
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
        Some(lease) if is_renewed(Some(first), &lease) => Err(another(name)).hint(ELSEWHERE),
        Some(_) | None => Ok(()),
    }
}

fn another(name: &str) -> anyhow::Error {
    anyhow!("another agent runs node {name}")
}

/// Takes names that were free: from now on others find them held. One that somebody took since then is refused, and the
/// others are let go again.
pub async fn take(voices: &Voices, free: Vec<Free>) -> Result<()> {
    let names: Vec<String> = free.iter().map(|free| free.name.clone()).collect();
    let mut free = free.into_iter();
    // One before the others: of two agents that want the same names, one gets them all.
    if let Some(first) = free.next() {
        take_one(voices, first).await?;
    }
    let taking = futures::stream::iter(free.map(|free| take_one(voices, free)));
    let taken: Vec<Result<()>> = taking.buffered(AT_ONCE).collect().await;
    let ours = names.iter().skip(1).zip(&taken).filter(|(_, taken)| taken.is_ok());
    let ours: Vec<String> = names
        .iter()
        .take(1)
        .chain(ours.map(|(name, _)| name))
        .cloned()
        .collect();
    let all = taken.into_iter().collect::<Result<()>>();
    if all.is_err() {
        let_go(voices, &ours).await;
    }
    all
}

async fn take_one(voices: &Voices, Free { name, lease: mut seen }: Free) -> Result<()> {
    let (leases, how) = (leases(voices, &name), PostParams::default());
    for _ in 0..TRIES {
        let mut lease = seen.clone().unwrap_or_default();
        lease.metadata.name = Some(name.clone());
        lease.spec = Some(registration::lease_spec(&name, Timestamp::now()));
        // With the version that was seen: of two that write at once, this or the other fails.
        let written = match &seen {
            Some(_) => leases.replace(&name, &how, &lease).await,
            None => leases.create(&how, &lease).await,
        };
        match written {
            Ok(_) => return Ok(()),
            // It was changed, made or deleted in between, perhaps by somebody who does not want the name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot write the lease of node {name}"))
                    .hint("check that the account of the kubeconfig may write leases in kube-node-lease");
            }
        }
        let now = read(voices, &name).await?;
        if now.as_ref().is_some_and(|lease| is_renewed(seen.as_ref(), lease)) {
            return Err(another(&name)).hint(ELSEWHERE);
        }
        seen = now;
    }
    Err(anyhow!("others write the lease of node {name} all the time")).hint(ELSEWHERE)
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

/// Whether somebody has renewed a Lease, or made it, since it was seen.
fn is_renewed(first: Option<&Lease>, later: &Lease) -> bool {
    let time = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
    first.and_then(time) != time(later)
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
        assert!(!is_renewed(Some(&first), &first.clone()));
        assert!(is_renewed(Some(&first), &lease("2026-01-01T00:00:10.000000Z")));
        assert!(is_renewed(None, &first), "somebody made it");
        assert!(!is_renewed(None, &Lease::default()));
    }

    async fn cluster() -> Voices {
        use stead_apiserver::catalogue::Catalogue;
        use stead_apiserver::environment::Environment;
        use stead_apiserver::server::{ApiServer, Config};
        use stead_apiserver::store::{History, Store};
        let environment = Environment::real();
        let store = Store::in_memory(environment.clock.clone(), History::default());
        let config = Config::new(store, environment, Catalogue::with_usage());
        let server = ApiServer::new(config).await.expect("it starts");
        Voices::one(kube::Client::new(server, "default"))
    }

    #[tokio::test]
    async fn of_two_agents_that_find_a_name_free_at_one_moment_one_gets_it() {
        let voices = cluster().await;
        let names = ["a", "b"].map(str::to_owned);
        let free = check(&voices, &names).await.expect("nobody has them");
        let (one, other) = tokio::join!(take(&voices, free.clone()), take(&voices, free));
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
        let refused = one.and(other).expect_err("one of them");
        assert!(refused.to_string().contains("another agent runs node"), "{refused:?}");

        // The same where there is a Lease already, that of an agent that has ended.
        let_go(&voices, &names).await;
        let free = check(&voices, &names).await.expect("nobody has them");
        assert!(free.iter().all(|free| free.lease.is_some()));
        take(&voices, free.clone()).await.expect("nobody was faster");
        take(&voices, free[1..].to_vec())
            .await
            .expect_err("somebody was faster");
        let lease = read(&voices, "b").await.expect("it is read");
        let spec = lease.and_then(|lease| lease.spec).expect("it has one");
        assert_eq!(spec.holder_identity.as_deref(), Some("b"), "it is still held");
    }

    #[tokio::test]
    async fn a_lease_that_was_changed_by_somebody_who_does_not_want_the_name_is_taken_all_the_same() {
        let voices = cluster().await;
        let names = ["a".to_owned()];
        let free = check(&voices, &names).await.expect("nobody has it");
        take(&voices, free).await.expect("nobody was faster");
        let_go(&voices, &names).await;
        let free = check(&voices, &names).await.expect("nobody has it");
        let label = json!({"metadata": {"labels": {"seen": "yes"}}});
        let written = leases(&voices, "a")
            .patch("a", &PatchParams::default(), &Patch::Merge(&label))
            .await;
        written.expect("it is written");
        take(&voices, free.clone()).await.expect("nobody was faster");
        let_go(&voices, &names).await;
        let free = check(&voices, &names).await.expect("nobody has it");
        let deleted = leases(&voices, "a").delete("a", &Default::default()).await;
        deleted.expect("it is deleted");
        take(&voices, free).await.expect("nobody was faster");
    }
}

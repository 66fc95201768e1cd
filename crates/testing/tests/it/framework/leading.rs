//! Stories about two replicas.

use super::world::{SOON, World};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;
use stead::LeaderElection;
use stead_test::faults::{Fault, Faults, Sent};
use stead_test::wait;

fn election() -> LeaderElection {
    LeaderElection {
        lease: Duration::from_secs(2),
        renew_deadline: Duration::from_millis(1200),
        retry: Duration::from_millis(150),
        ..LeaderElection::new("librarian", "default")
    }
}

fn leases(world: &World) -> Api<Lease> {
    Api::namespaced(world.client.clone(), "default")
}

async fn expect_holder(world: &World, holder: &str) {
    wait::until("the Lease has this holder", SOON, || async {
        let lease = leases(world)
            .get_opt("librarian")
            .await
            .map_err(|error| error.to_string())?;
        let held = lease.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity);
        if held.as_deref() == Some(holder) {
            Ok(())
        } else {
            Err(format!("{held:?}"))
        }
    })
    .await
    .expect("the Lease changes hands in time");
}

fn work(sent: &Sent) -> bool {
    sent.is_write() && !sent.is_about("leases") && !sent.is_about("events")
}

#[tokio::test(flavor = "multi_thread")]
async fn f21_a_leader_that_is_asked_to_stop_finishes_its_step_and_then_gives_the_lease_back() {
    let world = World::start().await;
    let (first, second) = (Faults::default(), Faults::default());
    let one = world.operator_with("one", &first, |manager| manager.leader_election(election()));
    expect_holder(&world, "one").await;
    let two = world.operator_with("two", &second, |manager| manager.leader_election(election()));
    // The write takes a while; the stop comes in the middle of it.
    first.next(1, Fault::Delay(Duration::from_millis(300)), |sent| {
        work(sent) && sent.is_about("poems-0")
    });
    world.create_shelf("poems", 1).await;
    wait::until("the write is under way", SOON, || async {
        if first.sent().iter().any(work) {
            Ok(())
        } else {
            Err("not yet")
        }
    })
    .await
    .unwrap();
    one.stop().await;
    let sent = first.sent();
    let last_work = sent.iter().rposition(work).unwrap();
    let released = sent
        .iter()
        .rposition(|sent| sent.is_write() && sent.is_about("leases"))
        .unwrap();
    assert!(last_work < released, "the Lease was given back while work ran");
    assert_eq!(
        sent[last_work].code,
        Some(200).or(sent[last_work].code),
        "{:?}",
        sent[last_work]
    );
    let started = tokio::time::Instant::now();
    expect_holder(&world, "two").await;
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    world.expect_full("poems", 1).await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f20_a_leader_that_is_cut_off_stops_before_another_starts() {
    let world = World::start().await;
    let (first, second) = (Faults::default(), Faults::default());
    let one = world.operator_with("one", &first, |manager| manager.leader_election(election()));
    expect_holder(&world, "one").await;
    let two = world.operator_with("two", &second, |manager| manager.leader_election(election()));
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    first.cut();
    expect_holder(&world, "two").await;
    world.resize("poems", 3).await;
    world.expect_full("poems", 3).await;
    // The first hears of the cluster again. It is a standby now and writes nothing.
    first.forget();
    first.heal();
    wait::until("the first looks at the Lease again", SOON, || async {
        let looked = first
            .sent()
            .iter()
            .filter(|sent| sent.is_about("leases") && sent.code == Some(200))
            .count();
        if looked >= 3 { Ok(()) } else { Err(looked) }
    })
    .await
    .unwrap();
    assert_eq!(first.effective_writes().len(), 0);
    expect_holder(&world, "two").await;
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f16_a_write_that_was_under_way_when_leadership_was_lost_is_cancelled_and_refused() {
    let world = World::start().await;
    let (first, second) = (Faults::default(), Faults::default());
    let one = world.operator_with("one", &first, |manager| manager.leader_election(election()));
    expect_holder(&world, "one").await;
    // The first leader's writes hang, and its renewals are lost, as in a process that is paused.
    first.next(usize::MAX, Fault::LoseRequest, |sent| sent.is_about("leases"));
    first.next(usize::MAX, Fault::Delay(Duration::from_secs(4)), work);
    world.create_shelf("poems", 1).await;
    let two = world.operator_with("two", &second, |manager| manager.leader_election(election()));
    expect_holder(&world, "two").await;
    world.expect_full("poems", 1).await;
    // Nothing that the first wanted reached the server: its requests were dropped when the fence closed.
    assert_eq!(first.effective_writes().len(), 0);
    one.kill().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f19_a_leader_whose_lease_is_deleted_or_stolen_steps_down_first() {
    let world = World::start().await;
    let one = world.operator_with("one", &world.faults, |manager| manager.leader_election(election()));
    expect_holder(&world, "one").await;
    leases(&world)
        .delete("librarian", &DeleteParams::default())
        .await
        .unwrap();
    expect_holder(&world, "one").await;
    let stolen = json!({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 2}});
    leases(&world)
        .patch("librarian", &PatchParams::default(), &Patch::Merge(stolen))
        .await
        .unwrap();
    world.create_shelf("poems", 1).await;
    // The thief never renews, so after its time the Lease is taken again, and only then work goes on.
    expect_holder(&world, "one").await;
    world.expect_full("poems", 1).await;
    one.stop().await;
}

//! Stories about two replicas.

use super::world::{SOON, World};
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;
use stead_test::faults::{Fault, Faults, Sent};
use stead_test::{VirtualClock, wait};

fn leases(world: &World) -> Api<Lease> {
    Api::namespaced(world.client.clone(), &world.namespace)
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

pub async fn f21_a_leader_that_is_asked_to_stop_finishes_its_step_and_then_gives_the_lease_back(world: World) {
    let (first, second) = (Faults::default(), Faults::default());
    let one = world.operator_with("one", &first, |manager| manager.leader_election(world.election()));
    expect_holder(&world, "one").await;
    let two = world.operator_with("two", &second, |manager| manager.leader_election(world.election()));
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
    .expect("the cluster does its part");
    one.stop().await;
    let sent = first.sent();
    let last_work = sent.iter().rposition(work).expect("the cluster does its part");
    let released = sent
        .iter()
        .rposition(|sent| sent.is_write() && sent.is_about("leases"))
        .expect("the cluster does its part");
    assert!(last_work < released, "the Lease was given back while work ran");
    assert!(
        sent[last_work].code.is_some_and(|code| code < 300),
        "{:?}",
        sent[last_work]
    );
    assert!(
        sent[released].code.is_some_and(|code| code < 300),
        "{:?}",
        sent[released]
    );
    let body: serde_json::Value = serde_json::from_slice(&sent[released].body).expect("a Lease");
    assert_eq!(body["spec"]["holderIdentity"], "", "{body}");
    let started = tokio::time::Instant::now();
    expect_holder(&world, "two").await;
    // On a machine whose time is real, any of it may be somebody else's.
    let soon = world.long(Duration::from_secs(2), SOON);
    assert!(started.elapsed() < soon, "{:?}", started.elapsed());
    world.expect_full("poems", 1).await;
    two.stop().await;
}

pub async fn f20_a_leader_that_is_cut_off_stops_before_another_starts(world: World) {
    let (first, second) = (Faults::default(), Faults::default());
    let one = world.operator_with("one", &first, |manager| manager.leader_election(world.election()));
    expect_holder(&world, "one").await;
    let two = world.operator_with("two", &second, |manager| manager.leader_election(world.election()));
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
    .expect("the cluster does its part");
    assert_eq!(first.effective_writes().len(), 0);
    expect_holder(&world, "two").await;
    one.stop().await;
    two.stop().await;
}

/// Chooses the write of a leader that is on its way when it is paused.
type Choice = fn(&Sent) -> bool;

/// A leader is paused with a write already on its way: it cannot renew, and the write arrives when it likes.
fn pause_at(first: &Faults, pause: Duration, write: Choice) {
    first.next(usize::MAX, Fault::LoseRequest, |sent| sent.is_about("leases"));
    first.next(1, Fault::Late(pause), move |sent| work(sent) && write(sent));
    let log = first.clone();
    let asleep = move |_: &Sent| log.sent().iter().any(|sent| work(sent) && write(sent));
    first.next(usize::MAX, Fault::Silence, move |sent| work(sent) && asleep(sent));
}

pub async fn f16_writes_of_a_leader_that_was_paused_arrive_late_and_are_refused(world: World) {
    let pause = world.long(Duration::from_secs(60), Duration::from_secs(12));
    let variants: [(&str, i32, Choice); 3] = [
        // An update, a delete, and the create of a book that another will have made.
        ("updates", 3, |sent| sent.path.ends_with("-0")),
        ("deletes", 1, |sent| sent.method == http::Method::DELETE),
        ("creates", 3, |sent| sent.path.ends_with("-2")),
    ];
    for (shelf, size, write) in variants {
        let (first, second) = (Faults::default(), Faults::default());
        let one = world.operator_with("one", &first, |manager| manager.leader_election(world.election()));
        expect_holder(&world, "one").await;
        let two = world.operator_with("two", &second, |manager| manager.leader_election(world.election()));
        world.create_shelf(shelf, 2).await;
        world.expect_full(shelf, 2).await;
        first.forget();
        pause_at(&first, pause, write);
        world.resize(shelf, size).await;
        expect_holder(&world, "two").await;
        world.expect_full(shelf, size).await;
        let late = wait::until("the old leader's write arrives", pause * 2, || async {
            let sent = first
                .sent()
                .into_iter()
                .find(|sent| work(sent) && write(sent))
                .ok_or("nothing was sent")?;
            sent.code.ok_or("it is on its way")
        });
        let code = late.await.expect("a write that arrives");
        assert!(code >= 400, "{shelf}: the old leader's write was accepted: {code}");
        world.expect_full(shelf, size).await;
        one.kill().await;
        two.stop().await;
    }
}

pub async fn f17_a_wall_clock_that_jumps_by_an_hour_moves_no_lease(world: World) {
    let (first, second) = (Faults::default(), Faults::default());
    let clock = std::sync::Arc::new(VirtualClock::new());
    let one = world.operator_with("one", &first, |manager| {
        manager.leader_election(world.election()).clock(clock.clone())
    });
    expect_holder(&world, "one").await;
    let two = world.operator_with("two", &second, |manager| manager.leader_election(world.election()));
    for hours in [1, -2, 25] {
        clock.jump(SignedDuration::from_hours(hours));
        tokio::time::sleep(world.election().lease * 2).await;
        let lease = leases(&world)
            .get("librarian")
            .await
            .expect("the cluster does its part")
            .spec
            .expect("the cluster does its part");
        assert_eq!(lease.holder_identity.as_deref(), Some("one"));
        assert_eq!(lease.lease_transitions, Some(0));
    }
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    assert_eq!(second.effective_writes().len(), 0);
    one.stop().await;
    two.stop().await;
}

pub async fn f19_a_leader_whose_lease_is_deleted_or_stolen_steps_down_first(world: World) {
    let one = world.operator_with("one", &world.faults, |manager| {
        manager.leader_election(world.election())
    });
    expect_holder(&world, "one").await;
    leases(&world)
        .delete("librarian", &DeleteParams::default())
        .await
        .expect("the cluster does its part");
    expect_holder(&world, "one").await;
    let stolen = json!({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 2}});
    leases(&world)
        .patch("librarian", &PatchParams::default(), &Patch::Merge(stolen))
        .await
        .expect("the cluster does its part");
    world.create_shelf("poems", 1).await;
    // The thief never renews, so after its time the Lease is taken again, and only then work goes on.
    expect_holder(&world, "one").await;
    world.expect_full("poems", 1).await;
    one.stop().await;
}

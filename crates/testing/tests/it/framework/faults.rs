//! Stories about an operator whose connection, server or own process fails.

use super::shelf::{CALM, HANGS, Librarian, MOODY, PANICS, WAITS};
use super::world::{LONGEST_BACKOFF, SOON, World};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use std::sync::atomic::Ordering;
use std::time::Duration;
use stead_test::faults::{Fault, Refusal, Sent};
use stead_test::wait;

/// The operator's own work: not its events.
fn work(sent: &Sent) -> bool {
    sent.is_write() && !sent.is_about("events")
}

pub async fn f3_a_storm_of_conflicts_ends_and_starves_nobody(world: World) {
    let operator = world.operator();
    let conflict = Refusal::new(409, "Conflict", "the object has been modified");
    world.faults.next(30, Fault::Refuse(conflict), |sent| {
        work(sent) && sent.is_about("stormy-0")
    });
    world.create_shelf("stormy", 1).await;
    world.create_shelf("calm", 2).await;
    world.expect_full("calm", 2).await;
    world.expect_full("stormy", 1).await;
    operator.stop().await;
}

pub async fn f4_a_busy_server_that_says_when_to_come_back_is_obeyed(world: World) {
    let operator = world.operator();
    let busy = Refusal {
        retry_after: Some(1),
        ..Refusal::new(429, "TooManyRequests", "busy")
    };
    world
        .faults
        .next(1, Fault::Refuse(busy), |sent| work(sent) && sent.is_about("poems-0"));
    let started = tokio::time::Instant::now();
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
    operator.stop().await;
}

pub async fn f4_a_busy_server_does_not_cost_the_lease(world: World) {
    let election = world.election();
    let operator = world.operator_with("one", &world.faults, |manager| manager.leader_election(election));
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    let busy = Refusal {
        retry_after: Some(1),
        ..Refusal::new(429, "TooManyRequests", "busy")
    };
    world.faults.next(usize::MAX, Fault::Refuse(busy), |sent| {
        work(sent) && !sent.is_about("leases")
    });
    world.resize("poems", 2).await;
    tokio::time::sleep(world.election().lease * 2).await;
    world.faults.heal();
    world.expect_full("poems", 2).await;
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
    let lease = leases
        .get("librarian")
        .await
        .expect("the cluster does its part")
        .spec
        .expect("the cluster does its part");
    assert_eq!(lease.lease_transitions, Some(0), "{lease:?}");
    operator.stop().await;
}

pub async fn f5_a_server_that_fails_for_a_while_is_retried_with_growing_pauses(world: World) {
    let operator = world.operator();
    let broken = Refusal::new(
        503,
        "ServiceUnavailable",
        "the server is currently unable to handle the request",
    );
    world.faults.next(usize::MAX, Fault::Refuse(broken), |sent| {
        work(sent) && sent.is_about("configmaps")
    });
    world.create_shelf("poems", 2).await;
    let attempts = || -> Vec<_> {
        let sent = world.faults.sent().into_iter();
        sent.filter(|sent| work(sent) && sent.is_about("configmaps"))
            .map(|sent| sent.at)
            .collect()
    };
    let outage = world.long(Duration::from_secs(600), Duration::from_secs(3));
    let started = tokio::time::Instant::now();
    tokio::time::sleep(outage).await;
    world.expect("it goes on trying", || attempts().len() > 6).await;
    let (attempts, outage) = (attempts(), started.elapsed());
    let pauses: Vec<_> = attempts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (shortest, last) = (pauses.iter().min().copied(), pauses.last().copied());
    assert!(
        last >= Some(LONGEST_BACKOFF) && shortest < last,
        "the pauses do not grow: {pauses:?}"
    );
    // Where time is real, a busy machine makes any pause longer; shorter it makes none.
    let slack = world.long(Duration::from_millis(100), outage);
    assert!(
        pauses.iter().all(|pause| *pause <= LONGEST_BACKOFF + slack),
        "{pauses:?}"
    );
    let capped = usize::try_from(outage.as_millis() / LONGEST_BACKOFF.as_millis()).expect("the cluster does its part");
    assert!(
        attempts.len() <= capped + 6,
        "{} attempts in {outage:?}",
        attempts.len()
    );
    world.faults.heal();
    world.expect_full("poems", 2).await;
    world.expect_quiet(&operator).await;
    operator.stop().await;
}

pub async fn f6_a_child_deleted_while_the_watch_expired_is_noticed(world: World) {
    let operator = world.operator();
    world.create_shelf("poems", 2).await;
    world.expect_full("poems", 2).await;
    world.faults.freeze("configmaps");
    world
        .books()
        .delete("poems-1", &DeleteParams::default())
        .await
        .expect("the cluster does its part");
    // The silent watch is opened anew and finds its revision gone.
    world
        .faults
        .next(1, Fault::Expire, |sent| sent.is_watch() && sent.is_about("configmaps"));
    wait::until("the watch was opened anew", SOON, || async {
        let watches = world
            .faults
            .sent()
            .iter()
            .filter(|sent| sent.is_watch() && sent.is_about("configmaps"))
            .count();
        if watches >= 2 { Ok(()) } else { Err(watches) }
    })
    .await
    .expect("the cluster does its part");
    world.faults.heal();
    world.expect_full("poems", 2).await;
    operator.stop().await;
}

pub async fn f8_a_watch_that_fell_silent_is_opened_anew(world: World) {
    world.faults.next(1, Fault::Silence, |sent| {
        sent.is_watch() && sent.is_about("poddisruptionbudgets")
    });
    let operator = world.operator();
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    operator.stop().await;
}

pub async fn f15_a_key_waits_until_the_cache_has_seen_its_own_writes(world: World) {
    let librarian = Librarian::default();
    let operator = world.librarian(librarian.clone(), "one", &world.faults, |manager| manager);
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    world.expect_quiet(&operator).await;
    world.faults.freeze("configmaps");
    world.resize("poems", 2).await;
    wait::until("the second book is written", SOON, || async {
        let books = world.books_on("poems").await;
        if books.len() == 2 {
            Ok(())
        } else {
            Err(format!("{books:?}"))
        }
    })
    .await
    .expect("the cluster does its part");
    let before = librarian.observed.load(Ordering::SeqCst);
    world.faults.forget();
    world.resize("poems", 3).await;
    // The third book is wanted, but the cache does not know the second one yet.
    let deferred = || async {
        let waiting = operator
            .controller
            .queue
            .inspect(|ledger| ledger.pending_reasons(&world.key("poems")).len());
        if waiting > 0 { Ok(()) } else { Err(waiting) }
    };
    wait::until("the key waits", SOON, deferred)
        .await
        .expect("the cluster does its part");
    assert_eq!(
        librarian.observed.load(Ordering::SeqCst),
        before,
        "it ran on an old cache"
    );
    world.faults.heal();
    world.expect_full("poems", 3).await;
    operator.stop().await;
}

pub async fn f10_events_that_arrive_twice_cause_no_write(world: World) {
    let operator = world.operator();
    world.create_shelf("poems", 2).await;
    world.expect_full("poems", 2).await;
    world.expect_quiet(&operator).await;
    let before = world.faults.effective_writes().len();
    // Every watch starts again from a new list, so that everything is told once more.
    for round in 1..=3 {
        let watches = || world.faults.sent().iter().filter(|sent| sent.is_watch()).count();
        let open = watches();
        world.faults.next(2, Fault::Expire, Sent::is_watch);
        world.faults.hang_up();
        world
            .expect(&format!("everything is listed again, round {round}"), || {
                watches() >= open + 4
            })
            .await;
        world.expect_quiet(&operator).await;
    }
    assert_eq!(world.faults.effective_writes().len(), before);
    world.resize("poems", 3).await;
    world.expect_full("poems", 3).await;
    operator.stop().await;
}

pub async fn f11_a_child_deleted_and_created_between_two_looks_is_another_one(world: World) {
    let operator = world.operator();
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    world.expect_quiet(&operator).await;
    world.faults.freeze("configmaps");
    let ours = world.books().get("poems-0").await.expect("the cluster does its part");
    world
        .books()
        .delete("poems-0", &DeleteParams::default())
        .await
        .expect("the cluster does its part");
    let mut theirs = ConfigMap::default();
    theirs.metadata.name = Some("poems-0".to_owned());
    let theirs = world
        .books()
        .create(&PostParams::default(), &theirs)
        .await
        .expect("the cluster does its part");
    assert_ne!(ours.metadata.uid, theirs.metadata.uid);
    // The operator sees only the end: the watch expires, and the new list has another object of that name.
    world
        .faults
        .next(1, Fault::Expire, |sent| sent.is_watch() && sent.is_about("configmaps"));
    world.faults.hang_up();
    world.expect_condition("poems", "Stalled", "NameTaken").await;
    let left = world.books().get("poems-0").await.expect("the cluster does its part");
    assert_eq!((left.metadata.uid, left.data), (theirs.metadata.uid, None));
    operator.stop().await;
}

pub async fn f22_a_run_whose_root_was_created_again_meanwhile_writes_nothing(world: World) {
    let librarian = Librarian::default();
    librarian.mood.store(WAITS, Ordering::SeqCst);
    let operator = world.librarian(librarian.clone(), "one", &world.faults, |manager| manager);
    let first = world.create_shelf(MOODY, 1).await;
    world
        .expect("the first shelf is looked at", || {
            librarian.observed.load(Ordering::SeqCst) == 1
        })
        .await;
    world
        .shelves()
        .delete(MOODY, &DeleteParams::default())
        .await
        .expect("the cluster does its part");
    let second = world.create_shelf(MOODY, 2).await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
    let key = world.key(MOODY);
    world
        .expect("the operator has heard of the second", || {
            let reasons = operator.controller.queue.inspect(|ledger| ledger.pending_reasons(&key));
            reasons.iter().any(|reason| reason.to_string().ends_with("created"))
        })
        .await;
    librarian.mood.store(CALM, Ordering::SeqCst);
    librarian.door.add_permits(1);
    world.expect_full(MOODY, 2).await;
    world.expect_quiet(&operator).await;
    let old = first.metadata.uid.expect("the cluster does its part");
    let sent = world.faults.sent();
    let written = sent.iter().filter(|sent| work(sent));
    for sent in written {
        let body = String::from_utf8_lossy(&sent.body).into_owned();
        assert!(!body.contains(&old), "the old run wrote {}", sent.path);
    }
    let story = operator.controller.history.of(&key).expect("the cluster does its part");
    let aborted = story
        .notable
        .iter()
        .any(|run| run.outcome.contains("is not the object any more"));
    assert!(aborted, "{story:?}");
    operator.stop().await;
}

pub async fn f28_a_refusal_by_quota_is_a_condition_and_recovers_unaided(world: World) {
    let operator = world.operator();
    let quota = Refusal::new(
        403,
        "Forbidden",
        "configmaps \"poems-1\" is forbidden: exceeded quota: books",
    );
    world.faults.next(usize::MAX, Fault::Refuse(quota), |sent| {
        work(sent) && sent.is_about("poems-1")
    });
    world.create_shelf("poems", 2).await;
    world.expect_condition("poems", "Reconciling", "QuotaExceeded").await;
    world.faults.heal();
    world.expect_full("poems", 2).await;
    world.expect_condition("poems", "Ready", "Full").await;
    operator.stop().await;
}

pub async fn f30_a_spec_that_the_server_rejects_is_reported_and_its_revert_recovers_at_once(world: World) {
    let operator = world.operator();
    let rejected = Refusal::new(422, "Invalid", "ConfigMap \"poems-1\" is invalid: data: no");
    world.faults.next(usize::MAX, Fault::Refuse(rejected), |sent| {
        work(sent) && sent.is_about("poems-1")
    });
    world.create_shelf("poems", 2).await;
    world.expect_condition("poems", "Stalled", "Rejected").await;
    world.resize("poems", 1).await;
    world.expect_full("poems", 1).await;
    operator.stop().await;
}

pub async fn f37_a_panic_concerns_its_own_object_alone(world: World) {
    let librarian = Librarian::default();
    let operator = world.librarian(librarian.clone(), "one", &world.faults, |manager| manager);
    librarian.mood.store(PANICS, Ordering::SeqCst);
    world.create_shelf("moody", 1).await;
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    let key = world.key("moody");
    wait::until("it failed more than once", SOON, || async {
        match operator.controller.queue.inspect(|ledger| ledger.failures(&key)) {
            failures if failures >= 2 => Ok(()),
            failures => Err(failures),
        }
    })
    .await
    .expect("the cluster does its part");
    let story = operator.controller.history.of(&key).expect("the cluster does its part");
    assert!(
        story
            .last
            .expect("the cluster does its part")
            .outcome
            .contains("the librarian dropped a book")
    );
    librarian.mood.store(CALM, Ordering::SeqCst);
    world.expect_full("moody", 1).await;
    operator.stop().await;
}

pub async fn f38_a_hung_reconcile_is_cancelled_and_tried_again(world: World) {
    let librarian = Librarian::default();
    let operator = world.librarian(librarian.clone(), "one", &world.faults, |manager| manager);
    librarian.mood.store(HANGS, Ordering::SeqCst);
    world.create_shelf("moody", 1).await;
    let key = world.key("moody");
    wait::until("it timed out", SOON, || async {
        let story = operator.controller.history.of(&key);
        let outcome = story
            .and_then(|story| story.last)
            .map(|run| run.outcome.clone())
            .unwrap_or_default();
        if outcome.contains("longer than") {
            Ok(())
        } else {
            Err(outcome)
        }
    })
    .await
    .expect("the cluster does its part");
    librarian.mood.store(CALM, Ordering::SeqCst);
    world.expect_full("moody", 1).await;
    operator.stop().await;
}

pub async fn f43_a_revoked_permission_is_a_condition_that_names_verb_and_resource(world: World) {
    let operator = world.operator();
    let message = "configmaps \"poems-0\" is forbidden: User \"librarian\" cannot patch resource \"configmaps\" in API group \"\"";
    let refusal = Refusal::new(403, "Forbidden", message);
    world.faults.next(usize::MAX, Fault::Refuse(refusal), |sent| {
        work(sent) && sent.is_about("configmaps")
    });
    world.create_shelf("poems", 1).await;
    let told = world.expect_condition("poems", "Stalled", "Forbidden").await;
    assert!(told.contains("cannot patch resource \"configmaps\""), "{told}");
    world.faults.heal();
    world.expect_full("poems", 1).await;
    operator.stop().await;
}

pub async fn what_holds_only_once_a_plan_is_carried_out_is_not_said_before(world: World) {
    let operator = world.operator();
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    let refusal = Refusal::new(403, "Forbidden", "configmaps are forbidden");
    world.faults.next(usize::MAX, Fault::Refuse(refusal), |sent| {
        work(sent) && sent.is_about("configmaps")
    });
    world.resize("poems", 2).await;
    world.expect_condition("poems", "Stalled", "Forbidden").await;
    let expected = || async {
        let shelf = world.shelves().get("poems").await.expect("the cluster does its part");
        let status = shelf.status.expect("a status");
        (status.expected_pods, status.desired_healthy)
    };
    assert_eq!(
        expected().await,
        (Some(1), Some(2)),
        "the one waits for the plan, the other was seen"
    );
    world.faults.heal();
    world.expect_full("poems", 2).await;
    assert_eq!(expected().await, (Some(2), Some(2)));
    operator.stop().await;
}

pub async fn f14_nothing_is_deleted_by_a_plan_that_an_old_cache_made(world: World) {
    let operator = world.operator();
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    world.expect_quiet(&operator).await;
    // The shelf grows, but the operator's view of shelves stays where it was; then it hears of a second book that
    // its old view does not want.
    world.faults.freeze("poddisruptionbudgets");
    world.resize("poems", 2).await;
    let mut book = world.books().get("poems-0").await.expect("the cluster does its part");
    book.metadata.name = Some("poems-1".to_owned());
    book.metadata.resource_version = None;
    book.metadata.managed_fields = None;
    world
        .books()
        .create(&PostParams::default(), &book)
        .await
        .expect("the cluster does its part");
    let reads = || async {
        let sent = world.faults.sent();
        let read = sent
            .iter()
            .any(|sent| !sent.is_write() && sent.path.ends_with("/poddisruptionbudgets/poems"));
        if read {
            Ok(())
        } else {
            Err("the root was not read again")
        }
    };
    wait::until("the operator wants to prune and reads the root first", SOON, reads)
        .await
        .expect("the cluster does its part");
    let deleted = world
        .faults
        .sent()
        .into_iter()
        .filter(|sent| sent.method == http::Method::DELETE)
        .count();
    assert_eq!(deleted, 0, "it deleted on an old cache");
    world.faults.heal();
    operator.stop().await;
}

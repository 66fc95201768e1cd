//! Stories about an operator whose connection, server or own process fails.

use super::shelf::{CALM, HANGS, PANICS};
use super::world::{SOON, World};
use kube::api::{DeleteParams, PostParams};
use std::sync::atomic::Ordering;
use std::time::Duration;
use stead_test::faults::{Fault, Refusal, Sent};
use stead_test::wait;

/// The operator's own work: not its events.
fn work(sent: &Sent) -> bool {
    sent.is_write() && !sent.is_about("events")
}

#[tokio::test(flavor = "multi_thread")]
async fn f1_killed_after_every_write_it_comes_to_the_same_end() {
    for survived in 0..4 {
        let world = World::start().await;
        let operator = world.operator();
        // Every write after the first few is answered late, so the process dies with it unanswered.
        world.faults.next(survived, Fault::Delay(Duration::ZERO), work);
        world.faults.next(1, Fault::LoseAnswer, work);
        world.faults.next(usize::MAX, Fault::Silence, work);
        world.create_shelf("poems", 3).await;
        wait::until("so many writes", SOON, || async {
            let writes = world.faults.sent().iter().filter(|sent| work(sent)).count();
            if writes > survived { Ok(()) } else { Err(writes) }
        })
        .await
        .unwrap();
        operator.kill().await;
        world.faults.heal();
        let operator = world.operator();
        world.expect_full("poems", 3).await;
        world.expect_quiet(&operator).await;
        operator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f2_a_lost_answer_is_retried_without_a_second_effect() {
    for lost in 0..4 {
        let world = World::start().await;
        world.faults.next(lost, Fault::Delay(Duration::ZERO), work);
        world.faults.next(1, Fault::LoseAnswer, work);
        let operator = world.operator();
        world.create_shelf("poems", 3).await;
        world.expect_full("poems", 3).await;
        world.expect_quiet(&operator).await;
        operator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f3_a_storm_of_conflicts_ends_and_starves_nobody() {
    let world = World::start().await;
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

#[tokio::test(flavor = "multi_thread")]
async fn f4_a_busy_server_that_says_when_to_come_back_is_obeyed() {
    let world = World::start().await;
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

#[tokio::test(flavor = "multi_thread")]
async fn f5_a_server_that_fails_for_a_while_is_retried_with_growing_pauses() {
    let world = World::start().await;
    let operator = world.operator();
    let broken = Refusal::new(
        503,
        "ServiceUnavailable",
        "the server is currently unable to handle the request",
    );
    world.faults.next(6, Fault::Refuse(broken), work);
    world.create_shelf("poems", 2).await;
    world.expect_full("poems", 2).await;
    world.expect_quiet(&operator).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f6_a_child_deleted_while_the_watch_expired_is_noticed() {
    let world = World::start().await;
    let operator = world.operator();
    world.create_shelf("poems", 2).await;
    world.expect_full("poems", 2).await;
    world.faults.freeze("configmaps");
    world.books().delete("poems-1", &DeleteParams::default()).await.unwrap();
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
    .unwrap();
    world.faults.heal();
    world.expect_full("poems", 2).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f8_a_watch_that_fell_silent_is_opened_anew() {
    let world = World::start().await;
    world.faults.next(1, Fault::Silence, |sent| {
        sent.is_watch() && sent.is_about("poddisruptionbudgets")
    });
    let operator = world.operator();
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f15_a_key_waits_until_the_cache_has_seen_its_own_writes() {
    let world = World::start().await;
    let operator = world.operator();
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
    .unwrap();
    let before = operator.librarian.observed.load(Ordering::SeqCst);
    world.faults.forget();
    world.resize("poems", 3).await;
    // The third book is wanted, but the cache does not know the second one yet.
    let deferred = || async {
        let waiting = operator.controller.queue.inspect(|ledger| {
            ledger
                .pending_reasons(&stead::Key::namespaced("default", "poems"))
                .len()
        });
        if waiting > 0 { Ok(()) } else { Err(waiting) }
    };
    wait::until("the key waits", SOON, deferred).await.unwrap();
    assert_eq!(
        operator.librarian.observed.load(Ordering::SeqCst),
        before,
        "it ran on an old cache"
    );
    world.faults.heal();
    world.expect_full("poems", 3).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f22_a_root_created_again_is_another_root() {
    let world = World::start().await;
    let operator = world.operator();
    let first = world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    world.faults.next(1, Fault::Delay(Duration::from_millis(400)), |sent| {
        work(sent) && sent.is_about("poems-1")
    });
    world.resize("poems", 2).await;
    world.shelves().delete("poems", &DeleteParams::default()).await.unwrap();
    for book in ["poems-0", "poems-1"] {
        // What garbage collection does where it runs.
        let _ = world.books().delete(book, &DeleteParams::default()).await;
    }
    let second = world.create_shelf("poems", 1).await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
    wait::until("every book belongs to the new shelf", SOON, || async {
        // Leftovers of the first shelf are collected.
        for book in world.books().list(&Default::default()).await.unwrap() {
            let owner = book
                .metadata
                .owner_references
                .iter()
                .flatten()
                .next()
                .map(|owner| owner.uid.clone());
            if owner.is_some() && owner == first.metadata.uid {
                let name = book.metadata.name.unwrap_or_default();
                let _ = world.books().delete(&name, &DeleteParams::default()).await;
            }
        }
        let books = world.books_on("poems").await;
        if books == ["poems-0 of 1"] {
            Ok(())
        } else {
            Err(format!("{books:?}"))
        }
    })
    .await
    .unwrap();
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f28_a_refusal_by_quota_is_a_condition_and_recovers_unaided() {
    let world = World::start().await;
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

#[tokio::test(flavor = "multi_thread")]
async fn f30_a_spec_that_the_server_rejects_is_reported_and_its_revert_recovers_at_once() {
    let world = World::start().await;
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

#[tokio::test(flavor = "multi_thread")]
async fn f37_a_panic_concerns_its_own_object_alone() {
    let world = World::start().await;
    let operator = world.operator();
    operator.librarian.mood.store(PANICS, Ordering::SeqCst);
    world.create_shelf("moody", 1).await;
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    let key = stead::Key::namespaced("default", "moody");
    wait::until("it failed more than once", SOON, || async {
        match operator.controller.queue.inspect(|ledger| ledger.failures(&key)) {
            failures if failures >= 2 => Ok(()),
            failures => Err(failures),
        }
    })
    .await
    .unwrap();
    let story = operator.controller.history.of(&key).unwrap();
    assert!(story.last.unwrap().outcome.contains("the librarian dropped a book"));
    operator.librarian.mood.store(CALM, Ordering::SeqCst);
    world.expect_full("moody", 1).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f38_a_hung_reconcile_is_cancelled_and_tried_again() {
    let world = World::start().await;
    let operator = world.operator();
    operator.librarian.mood.store(HANGS, Ordering::SeqCst);
    world.create_shelf("moody", 1).await;
    let key = stead::Key::namespaced("default", "moody");
    wait::until("it timed out", SOON, || async {
        let story = operator.controller.history.of(&key);
        let outcome = story
            .and_then(|story| story.last)
            .map(|run| run.outcome)
            .unwrap_or_default();
        if outcome.contains("longer than") {
            Ok(())
        } else {
            Err(outcome)
        }
    })
    .await
    .unwrap();
    operator.librarian.mood.store(CALM, Ordering::SeqCst);
    world.expect_full("moody", 1).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f43_a_revoked_permission_is_a_condition_that_names_verb_and_resource() {
    let world = World::start().await;
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

#[tokio::test(flavor = "multi_thread")]
async fn f14_nothing_is_deleted_by_a_plan_that_an_old_cache_made() {
    let world = World::start().await;
    let operator = world.operator();
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    world.expect_quiet(&operator).await;
    // The shelf grows, but the operator's view of shelves stays where it was; then it hears of a second book that
    // its old view does not want.
    world.faults.freeze("poddisruptionbudgets");
    world.resize("poems", 2).await;
    let mut book = world.books().get("poems-0").await.unwrap();
    book.metadata.name = Some("poems-1".to_owned());
    book.metadata.resource_version = None;
    book.metadata.managed_fields = None;
    world.books().create(&PostParams::default(), &book).await.unwrap();
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
        .unwrap();
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

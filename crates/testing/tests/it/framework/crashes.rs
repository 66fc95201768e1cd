//! Stories about a process that dies, and about requests whose fate nobody knows.

use super::shelf::Librarian;
use super::world::{Running, SOON, World};
use http::Method;
use std::collections::BTreeMap;
use stead_test::faults::{Fault, Faults, Sent};
use stead_test::wait;
use tokio::time::{Duration, timeout};

/// The operator's own work: not its events.
fn work(sent: &Sent) -> bool {
    sent.is_write() && !sent.is_about("events")
}

/// What became of the write around which the process was killed.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It never reached the server.
    Lost,
    /// The server did it, and the answer never came.
    Unanswered,
    /// It was answered, and then the process died.
    Answered,
}

/// What a shelf goes through: it is filled, then it shrinks. Creates, updates, a delete and statuses are in it.
const BEFORE: i32 = 2;
const AFTER: i32 = 1;

pub async fn f1_killed_around_every_write_it_comes_to_the_same_end(world: World) {
    let undisturbed = {
        let operator = world.operator();
        world.create_shelf("undisturbed", BEFORE).await;
        world.expect_full("undisturbed", BEFORE).await;
        world.resize("undisturbed", AFTER).await;
        world.expect_full("undisturbed", AFTER).await;
        world.expect_quiet(&operator).await;
        operator.stop().await;
        world.faults.sent().iter().filter(|sent| work(sent)).count()
    };
    assert!(
        undisturbed >= 6,
        "creates, an update, a delete, statuses: {undisturbed}"
    );
    for survived in 0..undisturbed {
        for fate in [Fate::Lost, Fate::Unanswered, Fate::Answered] {
            killed_around(&world, survived, fate).await;
        }
    }
}

async fn killed_around(world: &World, survived: usize, fate: Fate) {
    let shelf = format!("shelf-{survived}-{fate:?}").to_lowercase();
    let doomed = Faults::default();
    doomed.next(survived, Fault::Delay(Duration::ZERO), work);
    match fate {
        Fate::Lost => doomed.next(1, Fault::LoseRequest, work),
        Fate::Unanswered => doomed.next(1, Fault::LoseAnswer, work),
        Fate::Answered => doomed.next(1, Fault::Delay(Duration::ZERO), work),
    }
    // The process is dead from here on: whatever it still sends goes nowhere.
    doomed.next(usize::MAX, Fault::Silence, work);
    let operator = world.operator_with("doomed", &doomed, |manager| manager);
    let struck = || {
        let sent = doomed.sent();
        let writes: Vec<_> = sent.iter().filter(|sent| work(sent)).collect();
        let last = writes.get(survived);
        match fate {
            Fate::Lost | Fate::Unanswered => last.is_some(),
            Fate::Answered => last.is_some_and(|last| last.code.is_some()),
        }
    };
    world.create_shelf(&shelf, BEFORE).await;
    let mut size = BEFORE;
    let filled = world.expect_full(&shelf, BEFORE);
    let stuck = world.expect("the process dies", struck);
    tokio::select! {
        biased;
        () = stuck => {}
        () = filled => {
            world.resize(&shelf, AFTER).await;
            size = AFTER;
            world.expect("the process dies", struck).await;
        }
    }
    operator.kill().await;
    let successor = world.operator();
    world.expect_full(&shelf, size).await;
    if size == BEFORE {
        world.resize(&shelf, AFTER).await;
        world.expect_full(&shelf, AFTER).await;
    }
    world.expect_quiet(&successor).await;
    successor.stop().await;
    let mut creates: BTreeMap<String, usize> = BTreeMap::new();
    for sent in doomed.sent().into_iter().chain(world.faults.sent()) {
        if sent.code == Some(201) && work(&sent) {
            *creates.entry(sent.path).or_default() += 1;
        }
    }
    let twice: Vec<_> = creates.iter().filter(|(_, times)| **times > 1).collect();
    assert!(
        twice.is_empty(),
        "created twice after write {survived} was {fate:?}: {twice:?}"
    );
}

pub async fn f2_a_lost_answer_is_retried_without_a_second_effect(world: World) {
    for lost in 0..4 {
        let shelf = format!("poems-{lost}");
        world.faults.heal();
        world.faults.next(lost, Fault::Delay(Duration::ZERO), work);
        world.faults.next(1, Fault::LoseAnswer, work);
        let operator = world.operator();
        world.create_shelf(&shelf, 3).await;
        world.expect_full(&shelf, 3).await;
        world.expect_quiet(&operator).await;
        operator.stop().await;
    }
}

pub async fn f2_a_request_that_arrives_twice_has_one_effect(world: World) {
    world.faults.next(usize::MAX, Fault::Double, work);
    let operator = world.operator();
    world.create_shelf("poems", 2).await;
    world.expect_full("poems", 2).await;
    world.resize("poems", 1).await;
    world.expect_full("poems", 1).await;
    world.expect_quiet(&operator).await;
    let deleted = world.faults.sent();
    let deleted = deleted.iter().filter(|sent| sent.method == Method::DELETE);
    assert!(deleted.count() >= 1);
    operator.stop().await;
}

pub async fn a_manager_whose_future_is_dropped_leaves_nothing_running(world: World) {
    let doomed = Faults::default();
    let election = world.election();
    let operator = world.librarian(Librarian::default(), "doomed", &doomed, |manager| {
        manager.leader_election(election)
    });
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    operator.kill().await;
    doomed.forget();
    world.resize("poems", 2).await;
    // Longer than a renewal, a watch's silence and any retry.
    let long = world.election().lease * 2;
    let moved = wait::until("anything is sent", long, || async {
        match doomed.sent().is_empty() {
            true => Err("nothing"),
            false => Ok(()),
        }
    });
    assert!(moved.await.is_err(), "still at work: {:?}", doomed.sent());
    let next: Running = world.operator();
    let full = timeout(SOON, world.expect_full("poems", 2)).await;
    assert!(full.is_ok());
    next.stop().await;
}

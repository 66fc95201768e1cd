//! Stories about what an operator does to its children when nothing is broken but people.

use super::shelf::{Librarian, REPRINTED, SEALED};
use super::world::{SOON, World, book_name};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use stead_test::wait;

pub async fn an_unchanged_object_costs_no_writes_and_a_removed_child_is_pruned(world: World) {
    let operator = world.operator();
    world.create_shelf("poems", 3).await;
    world.expect_full("poems", 3).await;
    world.expect_quiet(&operator).await;
    let writes = world.faults.effective_writes();
    assert_eq!(writes.len(), 4, "three books and a status: {writes:#?}");
    world.resize("poems", 1).await;
    world.expect_full("poems", 1).await;
    world.expect_quiet(&operator).await;
    operator.stop().await;
}

pub async fn a_restarted_operator_finds_its_work_done_and_writes_nothing(world: World) {
    let operator = world.operator();
    world.create_shelf("poems", 2).await;
    world.expect_full("poems", 2).await;
    world.expect_quiet(&operator).await;
    operator.stop().await;
    world.faults.forget();
    let librarian = Librarian::default();
    let operator = world.librarian(librarian.clone(), "one", &world.faults, |manager| manager);
    let observed = || async {
        match librarian.observed.load(std::sync::atomic::Ordering::SeqCst) {
            0 => Err("nothing observed"),
            _ => Ok(()),
        }
    };
    wait::until("the shelf was looked at", SOON, observed)
        .await
        .expect("the cluster does its part");
    world.expect_quiet(&operator).await;
    assert_eq!(world.faults.effective_writes().len(), 0);
    operator.stop().await;
}

pub async fn f23_only_our_fields_of_an_edited_child_are_reverted(world: World) {
    let operator = world.operator();
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    let patch = json!({"data": {"of": "a hundred", "note": "mine"}, "metadata": {"labels": {"keep": "me"}}});
    world
        .books()
        .patch("poems-0", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .expect("the cluster does its part");
    world.expect_full("poems", 1).await;
    let book = world.books().get("poems-0").await.expect("the cluster does its part");
    assert_eq!(book.data.as_ref().expect("the cluster does its part")["note"], "mine");
    assert_eq!(book.labels()["keep"], "me");
    operator.stop().await;
}

pub async fn f24_a_deleted_child_comes_back(world: World) {
    let operator = world.operator();
    world.create_shelf("poems", 2).await;
    world.expect_full("poems", 2).await;
    world
        .books()
        .delete("poems-1", &DeleteParams::default())
        .await
        .expect("the cluster does its part");
    world.expect_full("poems", 2).await;
    operator.stop().await;
}

pub async fn f26_an_object_that_is_not_ours_is_left_alone_and_named_in_a_condition(world: World) {
    let mut theirs = ConfigMap::default();
    theirs.metadata.name = Some("poems-0".to_owned());
    theirs.data = Some([("of".to_owned(), "somebody".to_owned())].into());
    world
        .books()
        .create(&PostParams::default(), &theirs)
        .await
        .expect("the cluster does its part");
    let operator = world.operator();
    world.create_shelf("poems", 2).await;
    let message = world.expect_condition("poems", "Stalled", "NameTaken").await;
    assert!(
        message.contains(&format!("ConfigMap {}/poems-0", world.namespace)),
        "{message}"
    );
    let book = world.books().get("poems-0").await.expect("the cluster does its part");
    assert_eq!(book.data.expect("the cluster does its part")["of"], "somebody");
    // Once the name is free the operator gets on by itself.
    world
        .books()
        .delete("poems-0", &DeleteParams::default())
        .await
        .expect("the cluster does its part");
    world.expect_full("poems", 2).await;
    operator.stop().await;
}

pub async fn f26_a_name_that_is_taken_behind_the_caches_back_is_not_taken_over(world: World) {
    let operator = world.operator();
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    world.faults.freeze("configmaps");
    let mut theirs = ConfigMap::default();
    theirs.metadata.name = Some("poems-1".to_owned());
    theirs.data = Some([("of".to_owned(), "somebody".to_owned())].into());
    world
        .books()
        .create(&PostParams::default(), &theirs)
        .await
        .expect("the cluster does its part");
    world.resize("poems", 2).await;
    // The cache says that the name is free, so the operator tries, and the server refuses.
    wait::until("a refused write", SOON, || async {
        let refused = world
            .faults
            .sent()
            .iter()
            .any(|sent| sent.code == Some(409) && sent.is_about("poems-1"));
        if refused { Ok(()) } else { Err("none yet") }
    })
    .await
    .expect("the cluster does its part");
    world.faults.heal();
    world.expect_condition("poems", "Stalled", "NameTaken").await;
    let book = world.books().get("poems-1").await.expect("the cluster does its part");
    assert_eq!(book.data.expect("the cluster does its part")["of"], "somebody");
    operator.stop().await;
}

pub async fn f27_a_child_that_another_root_controls_is_refused_to_the_second(world: World) {
    let mut root = ConfigMap::default();
    root.metadata.name = Some("another-root".to_owned());
    let root = world
        .books()
        .create(&PostParams::default(), &root)
        .await
        .expect("the cluster does its part");
    let mut child = ConfigMap::default();
    child.metadata.name = Some("poems-0".to_owned());
    child.metadata.owner_references = Some(root.controller_owner_ref(&()).into_iter().collect());
    world
        .books()
        .create(&PostParams::default(), &child)
        .await
        .expect("the cluster does its part");
    let operator = world.operator();
    world.create_shelf("poems", 1).await;
    let message = world.expect_condition("poems", "Stalled", "NameTaken").await;
    assert!(message.contains("controlled by ConfigMap another-root"), "{message}");
    let child = world.books().get("poems-0").await.expect("the cluster does its part");
    assert_eq!(
        child.owner_references()[0].uid,
        root.metadata.uid.expect("the cluster does its part")
    );
    operator.stop().await;
}

pub async fn f29_a_field_that_cannot_be_changed_is_refused_and_said(world: World) {
    let operator = world.operator();
    world.create_shelf(SEALED, 1).await;
    world.expect_full(SEALED, 1).await;
    let sealed = book_name(SEALED, 0);
    let before = world.books().get(&sealed).await.expect("the cluster does its part");
    world.resize(SEALED, 2).await;
    let message = world.expect_condition(SEALED, "Stalled", "Rejected").await;
    assert!(message.contains("immutable"), "{message}");
    world.expect_event(SEALED, "Rejected").await;
    let after = world.books().get(&sealed).await.expect("the cluster does its part");
    assert_eq!(after.metadata.uid, before.metadata.uid, "it was replaced in silence");
    // The old spec again, and all is well at once.
    world.resize(SEALED, 1).await;
    world.expect_condition(SEALED, "Ready", "Full").await;
    operator.stop().await;
}

pub async fn f29_a_child_that_may_be_replaced_is_and_an_event_says_so(world: World) {
    let operator = world.operator();
    world.create_shelf(REPRINTED, 1).await;
    world.expect_full(REPRINTED, 1).await;
    let reprinted = book_name(REPRINTED, 0);
    let before = world.books().get(&reprinted).await.expect("the cluster does its part");
    world.resize(REPRINTED, 2).await;
    world.expect_full(REPRINTED, 2).await;
    let after = world.books().get(&reprinted).await.expect("the cluster does its part");
    assert_ne!(after.metadata.uid, before.metadata.uid);
    let told = world.expect_event(REPRINTED, "Replaced").await;
    assert!(told.contains(&reprinted), "{told}");
    world.expect_quiet(&operator).await;
    operator.stop().await;
}

pub async fn f36_names_of_253_characters_and_with_dots_have_valid_children(world: World) {
    let operator = world.operator();
    let long = "a".repeat(253);
    let longer_by_one_letter = "a".repeat(252) + "b";
    for (name, books) in [(long.as_str(), 2), (&longer_by_one_letter, 1), ("poems.of.the-sea", 1)] {
        world.create_shelf(name, books).await;
        world.expect_full(name, books).await;
    }
    world.expect_full(&long, 2).await;
    world.expect_quiet(&operator).await;
    operator.stop().await;
}

pub async fn f44_a_field_that_somebody_takes_back_again_and_again_is_left_to_them(world: World) {
    let operator = world.operator();
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    let mut rounds = 0;
    wait::until("the operator gives in", SOON, || {
        rounds += 1;
        let patch = json!({"data": {"of": format!("round {rounds}")}});
        let books = world.books();
        let shelves = world.shelves();
        async move {
            let rival = PatchParams {
                field_manager: Some("rival".to_owned()),
                ..PatchParams::default()
            };
            books
                .patch("poems-0", &rival, &Patch::Merge(patch))
                .await
                .map_err(|error| error.to_string())?;
            let shelf = shelves.get("poems").await.map_err(|error| error.to_string())?;
            let conditions = shelf.status.and_then(|status| status.conditions).unwrap_or_default();
            match conditions.iter().any(|condition| condition.type_ == "Contested") {
                true => Ok(()),
                false => Err(format!("{conditions:?}")),
            }
        }
    })
    .await
    .expect("the cluster does its part");
    world.expect_quiet(&operator).await;
    let before = world.faults.effective_writes().len();
    let patch = json!({"data": {"of": "the rival's"}});
    world
        .books()
        .patch("poems-0", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .expect("the cluster does its part");
    world.expect_quiet(&operator).await;
    assert_eq!(world.faults.effective_writes().len(), before, "the war goes on");
    let told = || {
        let sent = world.faults.sent();
        sent.iter()
            .filter(|sent| sent.is_write() && sent.is_about("events"))
            .count()
    };
    world.expect("people are told", || told() > 0).await;
    for note in ["one", "two", "three"] {
        let patch = json!({"metadata": {"labels": {"note": note}}});
        world
            .shelves()
            .patch("poems", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .expect("the cluster does its part");
        world.expect_quiet(&operator).await;
    }
    assert_eq!(told(), 1, "people are told once, and the condition stays");
    // A new wish is a new question.
    world.resize("poems", 2).await;
    world.expect_full("poems", 2).await;
    let shelf = world.shelves().get("poems").await.expect("the cluster does its part");
    let conditions = shelf.status.and_then(|status| status.conditions).unwrap_or_default();
    assert!(
        !conditions.iter().any(|each| each.type_ == "Contested"),
        "{conditions:?}"
    );
    operator.stop().await;
}

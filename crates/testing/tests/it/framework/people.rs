//! Stories about what people take away from under an operator.

use super::shelf::{Archivist, shelf};
use super::world::{SOON, World};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use stead::Namespaces;
use stead_test::faults::Sent;
use stead_test::wait;

pub async fn f32_a_namespace_that_ends_gets_nothing_new_and_is_let_go(world: World) {
    let doomed = format!("{}-doomed", world.namespace);
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(doomed.clone());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .expect("a namespace");
    let shelves: Api<PodDisruptionBudget> = Api::namespaced(world.client.clone(), &doomed);
    let books: Api<ConfigMap> = Api::namespaced(world.client.clone(), &doomed);
    let only = Namespaces::Only(vec![doomed.clone()]);
    let operator = world.librarian(Archivist::default(), "one", &world.faults, |manager| {
        manager.namespaces(only)
    });
    shelves
        .create(&PostParams::default(), &shelf("poems", 2))
        .await
        .expect("a shelf");
    wait::until("the shelf is full", SOON, || async {
        let shelf = shelves.get("poems").await.map_err(|error| error.to_string())?;
        let healthy = shelf.status.and_then(|status| status.current_healthy);
        (healthy == Some(2)).then_some(()).ok_or(format!("{healthy:?}"))
    })
    .await
    .expect("a full shelf");
    world.expect_quiet(&operator).await;
    namespaces
        .delete(&doomed, &DeleteParams::default())
        .await
        .expect("a deletion");
    world.faults.forget();
    // What the namespace controller does, one object after the other: first a book goes.
    books
        .delete("poems-1", &DeleteParams::default())
        .await
        .expect("a deletion");
    let condition = wait::until("the shelf says why its book does not come back", SOON, || async {
        let shelf = shelves.get("poems").await.map_err(|error| error.to_string())?;
        let conditions = shelf.status.and_then(|status| status.conditions).unwrap_or_default();
        let found = conditions.iter().find(|each| each.reason == "NamespaceTerminating");
        found
            .map(|found| found.type_.clone())
            .ok_or_else(|| format!("{conditions:?}"))
    })
    .await
    .expect("a reason");
    assert!(["Ready", "Reconciling"].contains(&condition.as_str()), "{condition}");
    // Then the shelf: the finalizer must not hold the namespace up.
    shelves
        .delete("poems", &DeleteParams::default())
        .await
        .expect("a deletion");
    wait::until("the shelf is let go", SOON, || async {
        match shelves.get_opt("poems").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .expect("a shelf that goes");
    let created = |sent: &Sent| sent.code == Some(201) && !sent.is_about("events");
    let created: Vec<_> = world.faults.sent().into_iter().filter(created).collect();
    assert!(created.is_empty(), "created in a namespace that ends: {created:?}");
    operator.stop().await;
}

pub async fn a_root_that_others_hold_back_says_that_it_goes_and_nothing_is_done_for_it(world: World) {
    let operator = world.operator();
    let mut held = shelf("poems", 2);
    held.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    world
        .shelves()
        .create(&PostParams::default(), &held)
        .await
        .expect("a shelf");
    world.expect_full("poems", 2).await;
    world
        .shelves()
        .delete("poems", &DeleteParams::default())
        .await
        .expect("a deletion");
    world.expect_condition("poems", "Reconciling", "Leaving").await;
    world
        .books()
        .delete("poems-1", &DeleteParams::default())
        .await
        .expect("a deletion");
    world.expect_quiet(&operator).await;
    assert_eq!(world.books_on("poems").await, ["poems-0 of 2"], "no book comes back");
    let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world
        .shelves()
        .patch("poems", &PatchParams::default(), &released)
        .await
        .expect("an accepted change");
    wait::until("the shelf is gone", SOON, || async {
        match world.shelves().get_opt("poems").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .expect("a shelf that goes");
    world.expect_quiet(&operator).await;
    operator.stop().await;
}

//! Stories about finding out what an operator did, and why.

use super::world::{SOON, World};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use stead_test::wait;

pub async fn a_hot_loop_is_a_condition_an_event_and_a_metric(world: World) {
    let operator = world.operator();
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    // Somebody deletes the book whenever it is there: the same write, without end.
    wait::until("the operator calls it a loop", SOON, || {
        let (books, counted) = (world.books(), operator.metrics.render());
        async move {
            // It may not be there yet.
            let _ = books.delete("poems-0", &DeleteParams::default()).await;
            match counted.contains("stead_hot_loops_total{controller=\"shelves\"}") {
                true => Ok(()),
                false => Err("not yet"),
            }
        }
    })
    .await
    .expect("a loop that is noticed");
    let message = world.expect_condition("poems", "Stalled", "HotLoop").await;
    assert!(message.contains("poems-0"), "{message}");
    world.expect_event("poems", "HotLoop").await;
    operator.stop().await;
}

pub async fn every_write_is_remembered_with_what_it_changed(world: World) {
    let operator = world.operator();
    world.create_shelf("poems", 1).await;
    world.expect_full("poems", 1).await;
    let patch = json!({"data": {"of": "a hundred"}});
    world
        .books()
        .patch("poems-0", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .expect("a patch");
    world.expect_full("poems", 1).await;
    world.expect_quiet(&operator).await;
    let story = operator.controller.history.of(&world.key("poems")).expect("a story");
    let run = story.notable.back().expect("the run that put it right");
    let why: Vec<_> = run.reasons.iter().map(ToString::to_string).collect();
    assert_eq!(why, [format!("ConfigMap {}/poems-0 updated", world.namespace)]);
    let write = run.writes.first().expect("a write");
    let changes = serde_json::to_value(&write.changes).expect("JSON");
    assert_eq!(
        changes,
        json!([{"field": "/data/of", "before": "a hundred", "after": "1"}])
    );
    operator.stop().await;
}

//! What the definition does not offer of Kubernetes' own types, Kubernetes does not take.
//!
//! A property that is not offered is not mutated either, so one that is left out by mistake would be missed without a
//! word. Here the definition offers all that the types have, and the API server says what it thinks of the rest.

use super::super::stage::{Stage, foreign, install};
use super::make_references;
use super::schema::{self, Place, shown};
use super::search::Judge;
use kube::CustomResourceExt;
use stead_apis::WebApp;

#[tokio::test(flavor = "multi_thread")]
async fn w12_what_the_definition_leaves_out_kubernetes_refuses_by_name() {
    let everything = WebApp::crd();
    let Some(stage) = Stage::either_api(std::slice::from_ref(&everything)).await else {
        return;
    };
    install(&stage.client, &foreign()).await;
    let digests = make_references(&stage.client).await;
    let judge = Judge::new(&stage, &digests);
    let everything = schema::of_the_spec(&everything);
    let offered = schema::of_the_spec(&stead_apis::definitions::all()[0]);
    // How many steps of the way are offered as they are in Kubernetes' types.
    let same = |place: &Place| {
        let gone = (1..=place.len()).find(|end| {
            let way = &place[..*end];
            let narrowed = schema::has_one_value(&offered, way) && !schema::has_one_value(&everything, way);
            schema::at(&offered, way).is_null() || narrowed
        });
        gone.map(|end| end - 1)
    };
    let all = schema::properties(&everything);
    let mut taken = Vec::new();
    let mut left_out = 0;
    for place in schema::leaves(&all) {
        let Some(part) = same(place) else { continue };
        left_out += 1;
        match judge.refusal(&everything, place, part).await {
            Ok(why) => println!("{} is refused: {why}", shown(place)),
            Err(why) => taken.push(format!("{}: {why}", shown(place))),
        }
    }
    println!("{left_out} properties are left out");
    assert!(
        left_out > 0,
        "the definition offers everything: this test is not needed"
    );
    assert!(taken.is_empty(), "left out, and not refused: {taken:#?}");
}

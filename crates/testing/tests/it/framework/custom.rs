//! Stories about kinds that are not Kubernetes' own: they come and go, and hold what nobody expected.

use super::parcel::{Clerk, Letter, Parcel, ParcelSpec, Postcard, api, install, uninstall};
use super::world::{SOON, World};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use std::marker::PhantomData;
use stead::Controller;
use stead_test::wait;

async fn expect_receipt(world: &World, name: &str, weight: &str) {
    wait::until("the receipt is written", SOON, || async {
        let receipt = world.books().get_opt(name).await.map_err(|error| error.to_string())?;
        let says = receipt.and_then(|receipt| receipt.data).unwrap_or_default();
        match says.get("weight").map(String::as_str) == Some(weight) {
            true => Ok(()),
            false => Err(format!("{says:?}")),
        }
    })
    .await
    .expect("a receipt");
}

/// The same kind, as somebody sees it who does not know our type.
fn raw<K: Resource<DynamicType = ()>>(world: &World) -> Api<DynamicObject> {
    Api::namespaced_with(world.client.clone(), &world.namespace, &ApiResource::erase::<K>(&()))
}

fn object<K: Resource<DynamicType = ()>>(name: &str, spec: Value) -> DynamicObject {
    let mut object = DynamicObject::new(name, &ApiResource::erase::<K>(&()));
    object.data = json!({ "spec": spec });
    object
}

pub async fn f33_a_definition_that_is_deleted_and_installed_again_is_survived(world: World) {
    // The operator is there first: it waits for its kind.
    let controller = Controller::operator("clerk", Clerk::<Parcel> { posted: PhantomData });
    let operator = world.run(controller.owns::<ConfigMap>(), "one", &world.faults, |manager| manager);
    install::<Parcel>(&world).await;
    let parcels: Api<Parcel> = api(&world);
    let first = Parcel::new("first", ParcelSpec { weight: 1 });
    parcels.create(&PostParams::default(), &first).await.expect("a parcel");
    expect_receipt(&world, "first", "1").await;
    uninstall::<Parcel>(&world).await;
    install::<Parcel>(&world).await;
    let second = Parcel::new("second", ParcelSpec { weight: 2 });
    parcels.create(&PostParams::default(), &second).await.expect("a parcel");
    expect_receipt(&world, "second", "2").await;
    assert!(parcels.get_opt("first").await.expect("an answer").is_none());
    operator.stop().await;
}

pub async fn f34_an_object_that_cannot_be_read_is_degraded_alone(world: World) {
    install::<Letter>(&world).await;
    let letters = raw::<Letter>(&world);
    for (name, weight) in [("fine", json!(3)), ("broken", json!("heavy"))] {
        let letter = object::<Letter>(name, json!({ "weight": weight }));
        letters.create(&PostParams::default(), &letter).await.expect("a letter");
    }
    let controller = Controller::operator("clerk", Clerk::<Letter> { posted: PhantomData });
    let operator = world.run(controller.owns::<ConfigMap>(), "one", &world.faults, |manager| manager);
    expect_receipt(&world, "fine", "3").await;
    let told = world.expect_event("broken", "Undecodable").await;
    assert!(told.contains("invalid type"), "{told}");
    let key = world.key("broken");
    world
        .expect("it is remembered as failed", || {
            operator.last_outcome(&key).contains("cannot be read")
        })
        .await;
    assert!(operator.metrics.render().contains("stead_cache_undecodable_objects"));
    assert!(world.books().get_opt("broken").await.expect("an answer").is_none());
    // One that was fine and is spoilt keeps what it has, and nothing is done to it.
    let patch = Patch::Merge(json!({"spec": {"weight": "a lot"}}));
    letters
        .patch("fine", &PatchParams::default(), &patch)
        .await
        .expect("a patch");
    world.expect_event("fine", "Undecodable").await;
    expect_receipt(&world, "fine", "3").await;
    for (name, weight) in [("fine", 4), ("broken", 5)] {
        let patch = Patch::Merge(json!({"spec": {"weight": weight}}));
        letters
            .patch(name, &PatchParams::default(), &patch)
            .await
            .expect("a patch");
        expect_receipt(&world, name, &weight.to_string()).await;
    }
    operator.stop().await;
}

pub async fn f46_fields_that_our_type_does_not_know_are_kept(world: World) {
    install::<Postcard>(&world).await;
    let postcards = raw::<Postcard>(&world);
    let spec = json!({"weight": 1, "picture": {"of": "the sea"}});
    postcards
        .create(&PostParams::default(), &object::<Postcard>("hello", spec.clone()))
        .await
        .expect("a postcard");
    let controller = Controller::operator("clerk", Clerk::<Postcard> { posted: PhantomData });
    let operator = world.run(controller.owns::<ConfigMap>(), "one", &world.faults, |manager| manager);
    expect_receipt(&world, "hello", "1").await;
    let postcard = postcards.get("hello").await.expect("the postcard");
    assert_eq!(postcard.finalizers(), ["stories.stead.dev/clerk"]);
    assert_eq!(postcard.data["spec"], spec);
    operator.stop().await;
}

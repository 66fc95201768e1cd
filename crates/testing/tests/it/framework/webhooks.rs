//! Stories about webhooks that the operator serves itself.

use super::world::{SOON, World};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use std::net::TcpListener;
use std::time::Duration;
use stead::webhook::{Asked, Denial, Target, WebhookOptions, Webhooks};
use stead_test::wait;

fn configurations(world: &World) -> Api<ValidatingWebhookConfiguration> {
    Api::all(world.client.clone())
}

/// A webhook for the shelves of this world, at an address where nobody may be listening.
async fn register(world: &World, name: &str, port: u16) {
    let configuration = json!({
        "metadata": {"name": name},
        "webhooks": [{
            "name": "shelves.stories.stead.dev",
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 2,
            "clientConfig": {"url": format!("https://127.0.0.1:{port}/validate")},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            "rules": [{"apiGroups": ["policy"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                       "resources": ["poddisruptionbudgets"]}],
        }],
    });
    let configuration = serde_json::from_value(configuration).expect("a configuration");
    configurations(world)
        .create(&PostParams::default(), &configuration)
        .await
        .expect("a configuration that is accepted");
}

fn options(world: &World, name: &str) -> WebhookOptions {
    WebhookOptions {
        names: vec!["127.0.0.1".to_owned()],
        every: Duration::from_millis(200),
        ..WebhookOptions::service(&world.namespace, name).target(Target::Validating(name.to_owned()))
    }
}

fn hooks() -> Webhooks {
    Webhooks::new().validate("/validate", |asked: &Asked<PodDisruptionBudget>| {
        match asked.name.starts_with("forbidden") {
            true => Err(Denial::new("no such shelves here")),
            false => Ok(Vec::new()),
        }
    })
}

async fn expect_shelf_accepted(world: &World, name: &str, books: i32) {
    let shelf = super::shelf::shelf(name, books);
    wait::until("a shelf is accepted", SOON, || async {
        world
            .shelves()
            .create(&PostParams::default(), &shelf)
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    })
    .await
    .expect("a webhook that answers");
}

pub async fn f40_a_webhook_that_is_down_stops_neither_what_runs_nor_the_operator(world: World) {
    let name = format!("f40-{}", world.namespace);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    let operator = world.operator();
    world.create_shelf("poems", 2).await;
    world.expect_full("poems", 2).await;
    operator.stop().await;
    // Nobody accepts on the port: the operator that should is not there.
    register(&world, &name, port).await;
    wait::until("new shelves are refused", SOON, || async {
        let refused = world
            .shelves()
            .create(&PostParams::default(), &super::shelf::shelf("too-early", 1))
            .await;
        match refused {
            Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => Ok(()),
            other => Err(format!("{:?}", other.map(|shelf| shelf.metadata.name))),
        }
    })
    .await
    .expect("a webhook that is asked");
    let unharmed = world.books_on("poems").await;
    assert_eq!(unharmed, ["poems-0 of 2", "poems-1 of 2"]);
    let (options, hooks) = (options(&world, &name), hooks());
    let operator = world.operator_with("two", &world.faults, |manager| {
        // Whoever checks a certificate looks at the machine's clock.
        manager.clock(stead::clock::system()).webhooks(listener, options, hooks)
    });
    // It starts, repairs, and puts its own authority where the API server looks for it.
    world
        .books()
        .delete("poems-1", &DeleteParams::default())
        .await
        .expect("a deletion");
    world.expect_full("poems", 2).await;
    expect_shelf_accepted(&world, "prose", 1).await;
    world.expect_full("prose", 1).await;
    let denied = world
        .shelves()
        .create(&PostParams::default(), &super::shelf::shelf("forbidden-books", 1))
        .await;
    assert!(denied.is_err_and(|error| error.to_string().contains("no such shelves here")));
    operator.stop().await;
    let _ = configurations(&world).delete(&name, &DeleteParams::default()).await;
}

pub async fn f41_a_certificate_made_anew_is_served_and_known_at_once(world: World) {
    let name = format!("f41-{}", world.namespace);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    register(&world, &name, port).await;
    let (options, hooks) = (options(&world, &name), hooks());
    let secret = options.secret.clone();
    let operator = world.operator_with("one", &world.faults, |manager| {
        // Whoever checks a certificate looks at the machine's clock.
        manager.clock(stead::clock::system()).webhooks(listener, options, hooks)
    });
    let bundle = async || {
        let configuration = configurations(&world).get(&name).await.expect("the configuration");
        let mut webhooks = configuration.webhooks.unwrap_or_default();
        webhooks.pop().and_then(|webhook| webhook.client_config.ca_bundle)
    };
    // Until the API server knows of the webhook, it accepts everything: that proves nothing yet.
    let before = wait::until("the configuration has a bundle", SOON, || async {
        bundle().await.ok_or("none")
    });
    let before = before.await.expect("a bundle");
    expect_shelf_accepted(&world, "poems", 1).await;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    secrets
        .delete(&secret, &DeleteParams::default())
        .await
        .expect("a deletion");
    wait::until("the configuration has another bundle", SOON, || async {
        let now = bundle().await;
        now.is_some_and(|now| now != before).then_some(()).ok_or("the old one")
    })
    .await
    .expect("a new bundle");
    expect_shelf_accepted(&world, "prose", 1).await;
    world.expect_full("prose", 1).await;
    operator.stop().await;
    let _ = configurations(&world).delete(&name, &DeleteParams::default()).await;
}

//! What the webhook would refuse, refused by the definition: a cluster may have no webhook.

use super::stage::Stage;
use kube::api::PostParams;
use serde_json::{Value, json};
use stead_apis::WebApp;
use stead_apis::webapp::validate;

/// A mistake: the field and what is wrong with it.
type Complaint = (String, String);

fn app(path: &str, hostnames: &[&str]) -> WebApp {
    let route = json!({"gateway": {"name": "door"}, "hostnames": hostnames, "path": path});
    let app: Value = json!({"apiVersion": "stead.dev/v1", "kind": "WebApp", "metadata": {"name": "shop"},
        "spec": {"image": "nginx:1.25", "route": route}});
    serde_json::from_value(app).expect("a WebApp")
}

/// The same with an Ingress for one name.
fn behind_ingress(host: &str) -> WebApp {
    let mut app = app("/", &[]);
    app.spec.route = None;
    app.spec.ingress = Some(serde_json::from_value(json!({"host": host})).expect("an Ingress"));
    app
}

/// What the API server says of it. The words before the detail say which value it was, which differs between versions.
async fn said(stage: &Stage, app: &WebApp) -> Vec<Complaint> {
    let trial = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let Err(error) = stage.apps().create(&trial, app).await else {
        return Vec::new();
    };
    let kube::Error::Api(status) = error else {
        panic!("no answer: {error}");
    };
    let causes = status.details.into_iter().flat_map(|details| details.causes);
    let told = |message: String| match message.split_once("\": ") {
        Some((_, detail)) => detail.to_string(),
        None => message,
    };
    causes.map(|cause| (cause.field, told(cause.message))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_no_gateway_could_make_is_refused_by_the_api_server_in_the_webhooks_words() {
    let Some(stage) = Stage::either_api(&stead_apis::definitions::all()).await else {
        return;
    };
    let names = [
        "shop.example.com",
        "*.example.com",
        "shop",
        "1.example.com",
        "a--b.example",
        "",
        "*",
        "*.",
        "*shop.example.com",
        "shop.*.com",
        "*.*.example.com",
        "Shop_1",
        "shop.example.com.",
        ".example.com",
        "-shop.example.com",
        "shop-.example.com",
        "größe.example.com",
        "shop.example.com:80",
        // Addresses, and what only looks like one.
        "10.0.0.1",
        "255.255.255.255",
        "*.10.0.0.1",
        "256.0.0.1",
        "010.0.0.1",
        "10.0.0",
        "10.0.0.0.1",
        "::1",
        "fe80::1",
    ];
    let wholes = names.iter().map(|name| app("/", &["good.example.com", name]));
    let paths = ["/", "/shop", "shop", "*", " /", "//"];
    let wholes = wholes.chain(paths.iter().map(|path| app(path, &[])));
    let wholes = wholes.chain([app("shop", &["Shop_1", "shop.example.com", "10.0.0.1"])]);
    // One without a name has none to be wrong: the schema counts its letters.
    let wholes = wholes.chain(
        names
            .iter()
            .filter(|name| !name.is_empty())
            .map(|name| behind_ingress(name)),
    );
    let mut refused = 0;
    for app in wholes {
        let wanted: Vec<Complaint> = validate::errors(&app.spec)
            .into_iter()
            .map(|mistake| (mistake.field, mistake.detail))
            .collect();
        let mut said = said(&stage, &app).await;
        said.sort_by_key(|(field, _)| wanted.iter().position(|(wanted, _)| wanted == field));
        assert_eq!(said, wanted, "{:?} {:?}", app.spec.route, app.spec.ingress);
        refused += usize::from(!wanted.is_empty());
    }
    assert!(refused > 30, "{refused}");
    // What is longer than any name is too long for the schema as well, which then asks no rule.
    let too_long = said(&stage, &app("/", &[&"a".repeat(254)])).await;
    let fields: Vec<&str> = too_long.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(fields.first(), Some(&"spec.route.hostnames[0]"), "{too_long:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_pod_or_clock_could_keep_is_refused_by_the_api_server_in_the_webhooks_words() {
    let Some(stage) = Stage::either_api(&stead_apis::definitions::all()).await else {
        return;
    };
    let port = |name: &str, protocol: &str| json!({"name": name, "containerPort": 8080, "protocol": protocol});
    let steps = |percents: [i32; 2]| {
        let steps = percents.map(|percent| json!({"percent": percent}));
        json!({"strategy": {"type": "Canary", "canary": {"steps": steps}}})
    };
    let night = |until: &str| json!({"sleep": [{"from": "0 20 * * *", "until": until}]});
    let specs = [
        (json!({"ports": [port("a", "TCP"), port("b", "TCP")]}), "spec.ports"),
        (json!({"ports": [port("a", "TCP"), port("b", "UDP")]}), ""),
        (steps([50, 10]), "spec.strategy.canary.steps"),
        (steps([50, 50]), "spec.strategy.canary.steps"),
        (steps([10, 50]), ""),
        (night("0 20 * * *"), "spec.sleep[0].until"),
        (night("0 6 * * MON-FRI"), ""),
    ];
    for (mut spec, field) in specs {
        spec["image"] = json!("nginx:1.25");
        let app = json!({"apiVersion": "stead.dev/v1", "kind": "WebApp", "metadata": {"name": "shop"}, "spec": spec});
        let app: WebApp = serde_json::from_value(app).expect("a WebApp");
        let wanted = validate::errors(&app.spec);
        let said = said(&stage, &app).await;
        assert_eq!(said.len(), wanted.len(), "{said:?}");
        for ((at, words), mistake) in said.iter().zip(&wanted) {
            // A rule sees a whole list, and names it; the webhook names the entry.
            assert_eq!(at, field);
            assert!(mistake.field.starts_with(field), "{mistake:?}");
            assert!(words.ends_with(&mistake.detail), "{words}");
        }
        assert_eq!(wanted.is_empty(), field.is_empty());
    }
}

//! Webhooks: refuse what is wrong, fill in what is missing, convert between versions, with certificates of their own.
//!
//! The manager makes an authority and a certificate, keeps them in a Secret, rotates them, and writes the `caBundle` of
//! every target that it finds. For development against a remote cluster put your machine's address into `names` and a
//! `url` into the webhook's `clientConfig`.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use serde_json::{Value, json};
use std::net::TcpListener;
use stead::webhook::{Asked, Denial, Target, WebhookOptions, Webhooks};
use stead::{Error, Manager};

/// Settings must name a mode.
fn check(asked: &Asked<ConfigMap>) -> Result<Vec<String>, Denial> {
    let data = asked.object.as_ref().and_then(|object| object.data.as_ref());
    match data.and_then(|data| data.get("mode")).map(String::as_str) {
        Some("calm" | "quick") => Ok(Vec::new()),
        Some(other) => Ok(vec![format!(
            "data.mode: `{other}` is not known; it is taken for `calm`"
        )]),
        None => Err(Denial::new("data.mode is missing: set it to `calm` or `quick`")),
    }
}

/// Settings without a mode are calm.
fn fill_in(object: &mut ConfigMap, _: &Asked<ConfigMap>) -> Result<(), Denial> {
    object
        .data
        .get_or_insert_default()
        .entry("mode".to_owned())
        .or_insert("calm".to_owned());
    Ok(())
}

/// Version 2 calls `size` what version 1 called `width` and `height`.
fn convert(mut object: Value, version: &str) -> Result<Value, String> {
    let spec = object["spec"].take();
    object["spec"] = match version.rsplit('/').next() {
        Some("v2") => json!({"size": [spec["width"], spec["height"]]}),
        Some("v1") => json!({"width": spec["size"][0], "height": spec["size"][1]}),
        _ => return Err(format!("no such version: {version}")),
    };
    Ok(object)
}

/// The webhooks of this operator.
pub fn webhooks() -> Webhooks {
    Webhooks::new()
        .validate("/validate", check)
        .mutate("/mutate", fill_in)
        .convert("/convert", convert)
}

/// Behind a Service of this name, and known to these configurations.
pub fn options() -> WebhookOptions {
    WebhookOptions::service("default", "settings")
        .target(Target::Validating("settings".to_owned()))
        .target(Target::Mutating("settings".to_owned()))
        .target(Target::Conversion("sheets.example.com".to_owned()))
}

/// Serves them until `shutdown` is ready.
pub async fn run(
    client: Client,
    listener: TcpListener,
    options: WebhookOptions,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let manager = Manager::builder(client)
        .name("settings")
        .webhooks(listener, options, webhooks())
        .build();
    manager.run(shutdown).await
}

#[tokio::main]
#[allow(dead_code)]
async fn main() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:9443")?;
    let interrupted = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    Ok(run(Client::try_default().await?, listener, options(), interrupted).await?)
}

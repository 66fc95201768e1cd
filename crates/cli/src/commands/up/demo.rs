//! `stead up --demo`: a sample application, its way to Ready, and an answer from it.

use crate::failure::Hint;
use crate::terminal::{Colour, Paint, progress};
use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;
use stead_apis::WebApp;
use stead_machinery::conditions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// The sample's name.
const NAME: &str = "hello";
/// How long the sample may take before we say that something is wrong.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// Applies the sample, shows its progress, and gives its address once it answers.
pub async fn show(client: &kube::Client) -> Result<String> {
    let apps: Api<WebApp> = Api::default_namespaced(client.clone());
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let how = PatchParams::apply("stead-demo").force();
    apps.patch(NAME, &how, &Patch::Apply(sample()))
        .await
        .context("cannot apply the sample")?;
    let outside = services
        .patch("hello-outside", &how, &Patch::Apply(door()))
        .await
        .context("cannot apply the sample")?;
    let port = outside
        .spec
        .and_then(|spec| spec.ports?.first()?.node_port)
        .context("the Service got no port")?;
    let deadline = Instant::now() + LIMIT;
    follow(&apps, deadline).await?;
    let address = format!("127.0.0.1:{port}");
    while !answers(&address).await {
        if Instant::now() > deadline {
            return Err(anyhow!("the sample is ready and does not answer on {address}"))
                .hint("look with: kubectl get pods,endpointslices");
        }
        sleep(PAUSE).await;
    }
    Ok(format!("http://{address}"))
}

/// Three servers that say hello.
fn sample() -> serde_json::Value {
    json!({
        "apiVersion": "stead.dev/v1",
        "kind": "WebApp",
        "metadata": {"name": NAME},
        "spec": {
            "image": format!("stead/hello:{}", env!("CARGO_PKG_VERSION")),
            "replicas": 3,
            "ports": [{"name": "http", "containerPort": 8080}],
        },
    })
}

/// A way in from this machine: the WebApp's own Service is for the inside of the cluster.
fn door() -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "hello-outside"},
        "spec": {
            "type": "NodePort",
            "selector": {"app.kubernetes.io/name": "webapp", "app.kubernetes.io/instance": NAME},
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
        },
    })
}

/// Tells each step of the application's life as it happens, until it is Ready.
async fn follow(apps: &Api<WebApp>, deadline: Instant) -> Result<()> {
    let started = Instant::now();
    let mut last = String::new();
    let paint = Paint::of_errors();
    loop {
        let app = apps.get(NAME).await.context("cannot read the sample")?;
        let status = app.status.unwrap_or_default();
        let ready = conditions::get(&status.conditions, "Ready");
        let phase = status.phase.map(|phase| format!("{phase:?}")).unwrap_or_default();
        let words = ready.map(|ready| ready.message.clone()).unwrap_or_default();
        let is_ready = conditions::is_true(&status.conditions, "Ready");
        let line = format!("{phase:<15} {words}");
        if line != last && !phase.is_empty() {
            let elapsed = paint.colour(Colour::Quiet, &format!("{:>5.1} s", started.elapsed().as_secs_f32()));
            let colour = if is_ready { Colour::Good } else { Colour::Waiting };
            let phase = paint.colour(colour, &format!("{phase:<15}"));
            progress(&format!("{elapsed}  webapp/{NAME}  {phase} {words}"));
            last = line;
        }
        if is_ready {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(anyhow!("the sample is not ready after {} s: {words}", LIMIT.as_secs()))
                .hint("look with: kubectl describe webapp hello; kubectl get pods");
        }
        sleep(PAUSE).await;
    }
}

/// Whether an HTTP server gives a good answer there.
async fn answers(address: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address).await else {
        return false;
    };
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    if stream.write_all(request.as_bytes()).await.is_err() {
        return false;
    }
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.is_ok() && answer.ends_with(b" 200")
}

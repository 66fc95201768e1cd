//! Finding out what an operator did: `stead explain`, and traces at a collector of our own.

use crate::binary::{Up, command, stead, succeeded};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stead_apis::WebApp;
use stead_test::children::{Process, Program};
use stead_test::kubernetes::client_for;
use stead_test::wait::until;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_explains_itself_and_sends_traces() {
    let Some(binary) = stead() else { return };
    let Some(up) = Up::start(&["--ephemeral"]) else { return };
    let client = client_for(&up.kubeconfig).await.expect("a client");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in stead_apis::definitions::all() {
        let created = definitions.create(&PostParams::default(), &definition).await;
        created.expect("a definition");
    }
    let (spans, collector) = collector().await;
    let probes = free_address();
    let _operator = operator(&binary, &up, &probes, &collector);
    let apps: Api<WebApp> = Api::default_namespaced(client);
    let app = json!({"apiVersion": "stead.dev/v1", "kind": "WebApp", "metadata": {"name": "shop"},
        "spec": {"image": "nginx:1.25", "replicas": 1}});
    let app: WebApp = serde_json::from_value(app).expect("a WebApp");
    apps.create(&PostParams::default(), &app).await.expect("an application");
    let explain = |output: &str| {
        let mut asked = command(&binary, up.place.path());
        asked.env("KUBECONFIG", &up.kubeconfig);
        asked.args(["explain", "webapp", "shop", "--operator", &probes, "--output", output]);
        asked
    };
    until("the operator has looked at it", PATIENCE, || async {
        let output = explain("json").output().expect("the program starts");
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    })
    .await
    .expect("an explanation");
    let change = Patch::Merge(json!({"spec": {"replicas": 4}}));
    apps.patch("shop", &PatchParams::default(), &change)
        .await
        .expect("a patch");
    until("the explanation has the change", PATIENCE, || async {
        let text = succeeded(&mut explain("table"));
        let told = [
            "spec changed (generation 2)",
            "Deployment.apps/v1 default/shop",
            "/spec/replicas: 1 -> 4",
        ];
        match told.iter().all(|words| text.contains(words)) {
            true => Ok(()),
            false => Err(text),
        }
    })
    .await
    .expect("a complete explanation");
    let told: Value = serde_json::from_str(&succeeded(&mut explain("json"))).expect("JSON");
    let id = told[0]["story"]["notable"][0]["id"]
        .as_str()
        .expect("a reconcile id")
        .to_owned();
    until("the collector has that reconcile", PATIENCE, || async {
        let spans = spans.lock().expect("a collector").join("\n");
        match spans.contains(&id) && spans.contains("\"reconcile_id\"") {
            true => Ok(()),
            false => Err(format!("{} bytes without {id}", spans.len())),
        }
    })
    .await
    .expect("a trace");
    let Some(other) = Up::start(&["--ephemeral"]) else {
        return;
    };
    let foreign = explain("table").env("KUBECONFIG", &other.kubeconfig).output();
    let noted = String::from_utf8_lossy(&foreign.expect("the program starts").stderr).into_owned();
    assert!(noted.contains("looks after another cluster"), "{noted}");
    let own = explain("table").output().expect("the program starts");
    assert!(
        !String::from_utf8_lossy(&own.stderr).contains("another cluster"),
        "{own:?}"
    );
    let unknown = command(&binary, up.place.path())
        .env("KUBECONFIG", &up.kubeconfig)
        .args(["explain", "webapp", "nobody", "--operator", &probes])
        .output()
        .expect("the program starts");
    assert_eq!(unknown.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        complaint.contains("error: ") && complaint.contains("hint: "),
        "{complaint}"
    );
}

fn operator(binary: &Path, up: &Up, probes: &str, collector: &str) -> Process {
    let arguments = [
        "operator",
        "--metrics-bind-address=0",
        "--health-probe-bind-address",
        probes,
    ];
    Process::start(Program {
        path: binary.to_path_buf(),
        arguments: arguments.iter().map(Into::into).collect(),
        environment: vec![
            ("KUBECONFIG".into(), (&up.kubeconfig).into()),
            ("OTEL_EXPORTER_OTLP_ENDPOINT".into(), collector.into()),
        ],
        log: up.place.path().join("operator.log"),
    })
    .expect("the binary starts")
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("a port").to_string()
}

/// A collector of traces that keeps every body it gets, and its address.
async fn collector() -> (Arc<Mutex<Vec<String>>>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("a port"));
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let kept = bodies.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(body) = take(stream).await {
                kept.lock().expect("a collector").push(body);
            }
        }
    });
    (bodies, address)
}

/// One request of HTTP, answered.
async fn take(stream: TcpStream) -> std::io::Result<String> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        let line = line.trim().to_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await?;
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    reader.get_mut().write_all(answer).await?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

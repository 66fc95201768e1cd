//! Stories of webhooks, with a real one behind TLS.

use super::api::Api;
use base64::Engine;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const BASE: &str = "/apis/admissionregistration.k8s.io/v1";

/// What the webhook answers to a request; `uid` is filled in.
pub type Respond = fn(&Value) -> Value;

pub struct Hook {
    pub url: String,
    pub authorities: String,
    pub asked: Arc<AtomicUsize>,
}

impl Hook {
    /// A webhook of admission.
    pub async fn serve(respond: Respond) -> Hook {
        Hook::serve_whole(move |review| {
            let mut response = respond(&review["request"]);
            response["uid"] = review["request"]["uid"].clone();
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
        })
        .await
    }

    /// A webhook that answers whole reviews.
    pub async fn serve_whole(respond: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Hook {
        let respond = Arc::new(respond);
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_string(), "hook.default.svc".to_string()];
        let certificate = CertificateParams::new(names)
            .unwrap()
            .signed_by(&key, &authority)
            .unwrap();
        let private = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private.into())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, counter, respond) = (acceptor.clone(), counter.clone(), respond.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        let (counter, respond) = (counter.clone(), respond.clone());
                        async move {
                            counter.fetch_add(1, Ordering::SeqCst);
                            let body = request.into_body().collect().await.unwrap().to_bytes();
                            let review: Value = serde_json::from_slice(&body).unwrap();
                            let answer = respond(&review);
                            Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(Bytes::from(
                                answer.to_string(),
                            ))))
                        }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Hook {
            url: format!("https://127.0.0.1:{port}/ask"),
            authorities: base64::engine::general_purpose::STANDARD.encode(authority.pem()),
            asked,
        }
    }

    pub fn configuration(&self, name: &str) -> Value {
        json!({"metadata": {"name": name}, "webhooks": [{
            "name": format!("{name}.stead.dev"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": self.url, "caBundle": self.authorities},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        }]})
    }
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

pub fn patch(operations: Value) -> String {
    base64::engine::general_purpose::STANDARD.encode(operations.to_string())
}

#[tokio::test]
async fn a_validating_webhook_denies_with_its_own_words() {
    let api = Api::start().await;
    let hook = Hook::serve(|request| match request["name"] == "bad" {
        true => json!({"allowed": false, "status": {"code": 403, "message": "no bad names"}, "warnings": ["careful"]}),
        false => json!({"allowed": true}),
    })
    .await;
    let mut configuration = hook.configuration("names");
    configuration["webhooks"][0]["matchConditions"] =
        json!([{"name": "asked", "expression": "object.metadata.name != 'skipped'"}]);
    api.post(&format!("{BASE}/validatingwebhookconfigurations"), configuration)
        .await
        .ok();
    api.post(MAPS, map("good")).await.ok();
    api.post(MAPS, map("skipped")).await.ok();
    assert_eq!(hook.asked.load(Ordering::SeqCst), 1);
    let refused = api.post(MAPS, map("bad")).await;
    let (code, _, message) = refused.failure();
    assert_eq!(code, 403);
    assert_eq!(
        message,
        "admission webhook \"names.stead.dev\" denied the request: no bad names"
    );
    assert!(refused.headers.get("warning").is_some());
}

#[tokio::test]
async fn mutating_webhooks_patch_one_after_the_other_and_again_when_needed() {
    let api = Api::start().await;
    let first = Hook::serve(|request| {
        let seen = request["object"]["data"]
            .as_object()
            .map_or(0, serde_json::Map::len)
            .to_string();
        let operations = json!([{"op": "add", "path": "/data/first", "value": seen}]);
        json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(operations)})
    })
    .await;
    let second = Hook::serve(|_| {
        let operations = json!([{"op": "add", "path": "/data/second", "value": "2"}]);
        json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(operations)})
    })
    .await;
    let mut configuration = first.configuration("a");
    configuration["webhooks"][0]["reinvocationPolicy"] = "IfNeeded".into();
    let path = format!("{BASE}/mutatingwebhookconfigurations");
    api.post(&path, configuration).await.ok();
    api.post(&path, second.configuration("b")).await.ok();
    let made = api.post(MAPS, map("m")).await.ok();
    assert_eq!(made["data"], json!({"k": "v", "first": "3", "second": "2"}));
    assert_eq!(first.asked.load(Ordering::SeqCst), 2);
    assert_eq!(second.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn match_conditions_see_an_object_in_the_version_that_the_rules_name() {
    let api = Api::start().await;
    let hook = Hook::serve(|_| json!({"allowed": true})).await;
    let mut configuration = hook.configuration("scalers");
    configuration["webhooks"][0]["rules"] = json!([{"apiGroups": ["autoscaling"], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["horizontalpodautoscalers"]}]);
    configuration["webhooks"][0]["matchConditions"] = json!([
        {"name": "object", "expression": "object.spec.targetCPUUtilizationPercentage == 60"},
        {"name": "kind", "expression": "request.kind.version == 'v1' && request.requestKind.version == 'v2'"},
        {"name": "resource", "expression": "request.resource.version == 'v2'"},
    ]);
    api.post(&format!("{BASE}/validatingwebhookconfigurations"), configuration)
        .await
        .ok();
    for (name, used, asked) in [("low", 40, 0), ("high", 60, 1)] {
        let target = json!({"type": "Utilization", "averageUtilization": used});
        let scaler = json!({"metadata": {"name": name}, "spec": {"maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]}});
        api.post(
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            scaler,
        )
        .await
        .ok();
        assert_eq!(hook.asked.load(Ordering::SeqCst), asked, "{name}");
    }
}

#[tokio::test]
async fn a_webhook_that_cannot_be_reached_follows_its_failure_policy() {
    let api = Api::start().await;
    let hook = Hook::serve(|_| json!({"allowed": true})).await;
    let mut configuration = hook.configuration("gone");
    configuration["webhooks"][0]["clientConfig"] = json!({"url": "https://127.0.0.1:1/ask"});
    let path = format!("{BASE}/validatingwebhookconfigurations");
    api.post(&path, configuration.clone()).await.ok();
    api.post(MAPS, map("m")).await.fails(
        500,
        "InternalError",
        "Internal error occurred: failed calling webhook \"gone.stead.dev\": failed to call webhook: Post \
         \"https://127.0.0.1:1/ask?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused",
    );
    api.merge(
        &format!("{path}/gone"),
        json!({"webhooks": [{
        "name": "gone.stead.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
        "clientConfig": {"url": "https://127.0.0.1:1/ask"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}]}]}),
    )
    .await
    .ok();
    api.post(MAPS, map("m")).await.ok();
}

#[tokio::test]
async fn a_stranger_s_certificate_is_not_trusted() {
    let api = Api::start().await;
    let hook = Hook::serve(|_| json!({"allowed": true})).await;
    let other = Hook::serve(|_| json!({"allowed": true})).await;
    let mut configuration = hook.configuration("strange");
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = other.authorities.clone().into();
    api.post(&format!("{BASE}/validatingwebhookconfigurations"), configuration)
        .await
        .ok();
    let (code, _, message) = api.post(MAPS, map("m")).await.failure();
    assert_eq!(code, 500);
    assert!(message.contains("failed to verify certificate: x509"), "{message}");
    assert_eq!(hook.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_webhook_with_side_effects_on_dry_runs_is_refused() {
    let api = Api::start().await;
    let hook = Hook::serve(|_| json!({"allowed": true})).await;
    let mut configuration = hook.configuration("effects");
    configuration["webhooks"][0]["sideEffects"] = "Some".into();
    let answer = api
        .post(&format!("{BASE}/validatingwebhookconfigurations"), configuration)
        .await;
    let (code, reason, message) = answer.failure();
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
    let complaint =
        "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"";
    assert!(message.ends_with(complaint), "{message}");
}

#[tokio::test]
async fn a_service_leads_to_its_endpoint() {
    let api = Api::start().await;
    let hook = Hook::serve(|_| json!({"allowed": false, "status": {"reason": "Because"}})).await;
    let port: u16 = hook
        .url
        .trim_end_matches("/ask")
        .rsplit(':')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let service =
        json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port}]}});
    api.post("/api/v1/namespaces/default/services", service).await.ok();
    let slice = json!({"metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}]});
    api.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice)
        .await
        .ok();
    let mut configuration = hook.configuration("service");
    configuration["webhooks"][0]["clientConfig"] =
        json!({"service": {"namespace": "default", "name": "hook", "path": "/ask"}, "caBundle": hook.authorities});
    api.post(&format!("{BASE}/validatingwebhookconfigurations"), configuration)
        .await
        .ok();
    let (code, _, message) = api.post(MAPS, map("m")).await.failure();
    assert_eq!(
        (code, message.as_str()),
        (
            400,
            "admission webhook \"service.stead.dev\" denied the request: Because"
        )
    );
}

#[tokio::test]
async fn what_a_webhook_adds_gets_its_defaults() {
    let api = Api::start().await;
    let hook = Hook::serve(|_| {
        let added = json!([{"name": "added", "image": "web:1"}]);
        let operations = json!([{"op": "add", "path": "/spec/initContainers", "value": added}]);
        json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(operations)})
    })
    .await;
    let mut configuration = hook.configuration("adds");
    configuration["webhooks"][0]["rules"][0]["resources"] = json!(["pods"]);
    let path = format!("{BASE}/mutatingwebhookconfigurations");
    api.post(&path, configuration).await.ok();
    let account = json!({"metadata": {"name": "default"}});
    api.post("/api/v1/namespaces/default/serviceaccounts", account).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}});
    let made = api.post("/api/v1/namespaces/default/pods", pod).await.ok();
    let added = &made["spec"]["initContainers"][0];
    assert_eq!(added["imagePullPolicy"], "IfNotPresent");
    assert_eq!(added["terminationMessagePolicy"], "File");
}

#[tokio::test]
async fn conditions_that_make_no_sense_are_refused() {
    let api = Api::start().await;
    let hook = Hook::serve(|_| json!({"allowed": true})).await;
    for kind in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
        for (expression, words) in [
            ("... [] bad expression", "compilation failed"),
            ("'text'", "must evaluate to bool"),
        ] {
            let mut configuration = hook.configuration("odd");
            configuration["webhooks"][0]["matchConditions"] = json!([{"name": "odd", "expression": expression}]);
            let refused = api.post(&format!("{BASE}/{kind}"), configuration).await;
            let (code, _, message) = refused.failure();
            assert_eq!(code, 422, "{message}");
            assert!(
                message.contains("webhooks[0].matchConditions[0].expression"),
                "{message}"
            );
            assert!(message.contains(words), "{message}");
        }
    }
}

#[tokio::test]
async fn a_connection_to_a_pod_may_be_refused() {
    let api = Api::start().await;
    let hook = Hook::serve(|request| {
        let asked = &request["object"];
        let refuse = request["operation"] == "CONNECT"
            && asked["kind"] == "PodAttachOptions"
            && asked["stdin"] == true
            && asked["container"] == "c";
        json!({"allowed": !refuse, "status": {"message": "no visitors"}})
    })
    .await;
    let account = json!({"metadata": {"name": "default"}});
    api.post("/api/v1/namespaces/default/serviceaccounts", account).await;
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "web:1"}]});
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    api.post("/api/v1/namespaces/default/pods", pod).await.ok();
    let mut configuration = hook.configuration("doors");
    configuration["webhooks"][0]["rules"][0]["operations"] = json!(["CONNECT"]);
    configuration["webhooks"][0]["rules"][0]["resources"] = json!(["pods/attach"]);
    let path = format!("{BASE}/validatingwebhookconfigurations");
    api.post(&path, configuration).await.ok();
    let attach = "/api/v1/namespaces/default/pods/p/attach?container=c&stdin=true";
    let (code, _, message) = api.get(attach).await.failure();
    assert!(code >= 400 && message.contains("no visitors"), "{code} {message}");
    assert_eq!(hook.asked.load(Ordering::SeqCst), 1);
}

//! `webhook` and `crd-conversion-webhook`: servers that an API server asks about objects, for tests of admission and
//! conversion.
//!
//! What each path answers is fixed by the tests that ask it: they look for these words and these fields.

use super::{Flags, until_told};
use crate::node::process::web::{self, Answer, Request};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Serves admission reviews.
pub fn admission(flags: &Flags) -> ExitCode {
    let sidecar = flags.text("sidecar-image").unwrap_or_default().to_owned();
    serve(flags, move |request| match request.path.as_str() {
        "/readyz" => Answer::text(200, "ok"),
        path => {
            let Ok(review) = serde_json::from_str::<Value>(&request.body) else {
                return Answer::text(400, "the body is no review");
            };
            let mut response = judge(path, &review["request"], &sidecar);
            response["uid"] = review["request"]["uid"].clone();
            Answer::json(&json!({
                "kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response,
            }))
        }
    })
}

/// Serves conversions between the two versions of a kind that keeps a host and a port in one field or in two.
pub fn conversion(flags: &Flags) -> ExitCode {
    serve(flags, |request| {
        if request.path == "/readyz" {
            return Answer::text(200, "ok");
        }
        let Ok(review) = serde_json::from_str::<Value>(&request.body) else {
            return Answer::text(400, "the body is no review");
        };
        let asked = &review["request"];
        let wanted = asked["desiredAPIVersion"].as_str().unwrap_or_default();
        let objects = asked["objects"].as_array().cloned().unwrap_or_default();
        let converted: Result<Vec<Value>, String> =
            objects.into_iter().map(|object| converted(object, wanted)).collect();
        let response = match converted {
            Ok(objects) => json!({"uid": asked["uid"], "convertedObjects": objects, "result": {"status": "Success"}}),
            Err(why) => json!({"uid": asked["uid"], "result": {"status": "Failure", "message": why}}),
        };
        Answer::json(&json!({
            "kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": response,
        }))
    })
}

fn serve(flags: &Flags, answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> ExitCode {
    let started = (|| {
        let file = |name: &str| {
            flags
                .text(name)
                .ok_or_else(|| io::Error::other(format!("--{name} is missing")))
        };
        let certificates = CertificateDer::pem_file_iter(file("tls-cert-file")?).map_err(io::Error::other)?;
        let certificates: Result<Vec<_>, _> = certificates.collect();
        let key = PrivateKeyDer::from_pem_file(file("tls-private-key-file")?).map_err(io::Error::other)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(certificates.map_err(io::Error::other)?, key)
            .map_err(io::Error::other)?;
        web::serve_tls(flags.number("port", 443), Arc::new(tls), Arc::new(answer))
    })();
    until_told(started)
}

/// What a path says to a request.
fn judge(path: &str, request: &Value, sidecar: &str) -> Value {
    let object = &request["object"];
    match path {
        "/always-allow-delay-5s" => {
            std::thread::sleep(Duration::from_secs(5));
            json!({"allowed": true})
        }
        "/always-deny" => json!({"allowed": false, "status": {"message": "this webhook denies all requests"}}),
        "/add-label" => added_label(object),
        "/pods" => pods(object),
        "/pods/attach" => attach(request),
        "/mutating-pods" => {
            let added =
                json!([{"image": "webhook-added-image", "name": "webhook-added-init-container", "resources": {}}]);
            let wanted = object["metadata"]["name"] == "webhook-to-be-mutated";
            let there = has_container(&object["spec"]["initContainers"], "webhook-added-init-container");
            match wanted && !there {
                true => patched(&json!([{"op": "add", "path": "/spec/initContainers", "value": added}])),
                false => json!({"allowed": true}),
            }
        }
        "/mutating-pods-sidecar" if sidecar.is_empty() => {
            let message = "No image specified by the sidecar-image parameter";
            json!({"allowed": false, "status": {"status": "Failure", "message": message, "code": 500}})
        }
        "/mutating-pods-sidecar" => {
            let added = json!({"image": sidecar, "name": "webhook-added-sidecar", "resources": {}});
            match has_container(&object["spec"]["containers"], "webhook-added-sidecar") {
                true => json!({"allowed": true}),
                false => patched(&json!([{"op": "add", "path": "/spec/containers/-", "value": added}])),
            }
        }
        "/configmaps" => {
            let never = "the configmap contains unwanted key and value";
            let stays = "the configmap cannot be deleted because it contains unwanted key and value";
            data(request, never, stays)
        }
        "/custom-resource" => {
            let never = "the custom resource contains unwanted data";
            let stays = "the custom resource cannot be deleted because it contains unwanted key and value";
            data(request, never, stays)
        }
        "/mutating-configmaps" | "/mutating-custom-resource" => stages(object),
        "/crd" => match object["metadata"]["labels"]["webhook-e2e-test"] == "webhook-disallow" {
            true => json!({"allowed": false, "status": {"message": "the crd contains unwanted label"}}),
            false => json!({"allowed": true}),
        },
        other => json!({"allowed": false, "status": {"message": format!("nothing is known of {other}"), "code": 404}}),
    }
}

fn patched(patch: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())})
}

fn has_container(list: &Value, name: &str) -> bool {
    list.as_array()
        .into_iter()
        .flatten()
        .any(|container| container["name"] == name)
}

fn added_label(object: &Value) -> Value {
    let labels = object["metadata"]["labels"].as_object();
    let place = "/metadata/labels/added-label";
    match labels.map(|labels| labels.get("added-label")) {
        None => patched(&json!([{"op": "add", "path": "/metadata/labels", "value": {"added-label": "yes"}}])),
        Some(None) => patched(&json!([{"op": "add", "path": place, "value": "yes"}])),
        Some(Some(value)) if value != "yes" => patched(&json!([{"op": "replace", "path": place, "value": "yes"}])),
        Some(Some(_)) => json!({"allowed": true}),
    }
}

fn pods(pod: &Value) -> Value {
    let mut wrong = Vec::new();
    match pod["metadata"]["labels"]["webhook-e2e-test"].as_str() {
        Some("webhook-disallow") => wrong.push("the pod contains unwanted label;"),
        Some("wait-forever") => loop {
            std::thread::park();
        },
        _ => {}
    }
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    for container in containers {
        if container["name"]
            .as_str()
            .is_some_and(|name| name.contains("webhook-disallow"))
        {
            wrong.push("the pod contains unwanted container name;");
        }
    }
    match wrong.is_empty() {
        true => json!({"allowed": true}),
        false => json!({"allowed": false, "status": {"message": wrong.join(" ")}}),
    }
}

fn attach(request: &Value) -> Value {
    let options = &request["object"];
    let this = request["name"] == "to-be-attached-pod" && request["subResource"] == "attach";
    match this && options["stdin"] == true && options["container"] == "container1" {
        true => {
            let message = "attaching to pod 'to-be-attached-pod' is not allowed";
            json!({"allowed": false, "status": {"message": message}})
        }
        false => json!({"allowed": true}),
    }
}

/// Judges what an object holds: one value may never be written, another never be deleted.
fn data(request: &Value, never: &str, stays: &str) -> Value {
    let operation = request["operation"].as_str().unwrap_or_default();
    let object = match operation {
        "DELETE" => &request["oldObject"],
        _ => &request["object"],
    };
    let why = match (object["data"]["webhook-e2e-test"].as_str(), operation) {
        (Some("webhook-disallow"), "CREATE" | "UPDATE") => never,
        (Some("webhook-nondeletable"), "DELETE") => stays,
        _ => return json!({"allowed": true}),
    };
    json!({"allowed": false, "status": {"reason": why}})
}

/// Each stage follows the one before, so that a test sees whether webhooks run in order.
fn stages(object: &Value) -> Value {
    let has = |stage: &str| object["data"][stage] == "yes";
    let next = match (has("mutation-stage-1"), has("mutation-start")) {
        (true, _) => "/data/mutation-stage-2",
        (false, true) => "/data/mutation-stage-1",
        (false, false) => return json!({"allowed": true}),
    };
    patched(&json!([{"op": "add", "path": next, "value": "yes"}]))
}

fn converted(mut object: Value, wanted: &str) -> Result<Value, String> {
    let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let map = object.as_object_mut().ok_or("an object was expected")?;
    let mut take = |field: &str| map.remove(field).and_then(|value| value.as_str().map(str::to_owned));
    match (from.as_str(), wanted) {
        ("stable.example.com/v1", "stable.example.com/v2") => {
            if let Some(both) = take("hostPort") {
                let (host, port) = both.split_once(':').ok_or(format!("invalid hostPort value `{both}`"))?;
                map.insert("host".to_owned(), host.into());
                map.insert("port".to_owned(), port.into());
            }
        }
        ("stable.example.com/v2", "stable.example.com/v1") => {
            let (host, port) = (take("host"), take("port"));
            if host.is_some() || port.is_some() {
                let both = format!("{}:{}", host.unwrap_or_default(), port.unwrap_or_default());
                map.insert("hostPort".to_owned(), both.into());
            }
        }
        _ => return Err(format!("unexpected conversion version {wanted:?}")),
    }
    map.insert("apiVersion".to_owned(), wanted.into());
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch_of(answer: &Value) -> Value {
        let bytes = STANDARD.decode(answer["patch"].as_str().unwrap()).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn objects_are_judged_and_changed_by_what_they_hold() {
        let create = |object: Value| json!({"operation": "CREATE", "object": object});
        let says = |path: &str, object: Value| judge(path, &create(object), "side:1");
        let bad = json!({"data": {"webhook-e2e-test": "webhook-disallow"}});
        assert_eq!(says("/configmaps", bad)["allowed"], false);
        assert_eq!(says("/configmaps", json!({}))["allowed"], true);
        let kept = json!({"operation": "DELETE", "oldObject": {"data": {"webhook-e2e-test": "webhook-nondeletable"}}});
        assert_eq!(judge("/custom-resource", &kept, "")["allowed"], false);
        let first = says("/mutating-configmaps", json!({"data": {"mutation-start": "yes"}}));
        assert_eq!(patch_of(&first)[0]["path"], "/data/mutation-stage-1");
        let label = says("/add-label", json!({"metadata": {"labels": {"a": "b"}}}));
        assert_eq!(patch_of(&label)[0]["path"], "/metadata/labels/added-label");
        let side = says("/mutating-pods-sidecar", json!({"spec": {"containers": []}}));
        assert_eq!(patch_of(&side)[0]["value"]["image"], "side:1");
        assert_eq!(says("/nonsense", json!({}))["allowed"], false);
    }

    #[test]
    fn a_port_is_taken_from_its_host_and_put_back() {
        let one = json!({"apiVersion": "stable.example.com/v1", "hostPort": "localhost:80", "kept": 1});
        let two = converted(one.clone(), "stable.example.com/v2").unwrap();
        assert_eq!((&two["host"], &two["port"]), (&json!("localhost"), &json!("80")));
        assert_eq!(converted(two, "stable.example.com/v1").unwrap(), one);
        assert!(converted(one, "stable.example.com/v3").is_err());
    }
}

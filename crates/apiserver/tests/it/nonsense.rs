//! Nonsense of every kind: it is answered, and the server goes on.

use crate::api::Api;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use proptest::prelude::*;
use serde_json::{Value, json};
use stead_apiserver::server::Limits;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Any JSON, with the names that objects have among its keys.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z0-9./=-]{0,12}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let key = prop_oneof![
        prop::sample::select(vec![
            "metadata",
            "name",
            "namespace",
            "labels",
            "annotations",
            "finalizers",
            "ownerReferences",
            "managedFields",
            "uid",
            "resourceVersion",
            "generateName",
            "deletionTimestamp",
            "data",
            "spec",
            "status",
            "kind",
            "apiVersion",
            "$patch",
            "$retainKeys",
            "op",
            "path",
            "value",
            "from",
            "containers",
            "ports",
            "template",
        ])
        .prop_map(str::to_string),
        "[a-zA-Z$/~]{0,6}",
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Sends one request, and asks afterwards whether the server still answers.
fn survives(method: &str, path: &str, content_type: &str, body: Vec<u8>) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let api = Api::start().await;
        api.post(
            MAPS,
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"a": "1"}}),
        )
        .await
        .ok();
        let Ok(request) = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(Full::new(Bytes::from(body)))
        else {
            return Ok(());
        };
        let answer = api.answer(request).await;
        prop_assert!((200..=599).contains(&answer.code));
        prop_assert_ne!(answer.code, 500, "{}", String::from_utf8_lossy(&answer.body));
        prop_assert_eq!(api.get("/livez").await.code, 200);
        Ok(())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_document_may_be_sent_as_an_object(mut document in document()) {
        if let Value::Object(map) = &mut document {
            // Kubernetes answers these two mistakes with 500, which is not what is looked for here.
            if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
                metadata.remove("resourceVersion");
            }
            map.insert("kind".to_string(), "ConfigMap".into());
            map.insert("apiVersion".to_string(), "v1".into());
        }
        survives("POST", MAPS, "application/json", document.to_string().into_bytes())?;
    }

    #[test]
    fn any_bytes_may_be_sent_in_any_encoding(bytes in prop::collection::vec(any::<u8>(), 0..200), media in 0..3usize) {
        let media = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"][media];
        let bytes = match media {
            "application/vnd.kubernetes.protobuf" => [b"k8s\0".as_slice(), &bytes].concat(),
            _ => bytes,
        };
        survives("POST", MAPS, media, bytes)?;
    }

    #[test]
    fn any_patch_may_be_sent(mut document in document(), kind in 0..3usize) {
        let media = ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"][kind];
        if kind == 0 {
            document = json!([{"op": "add", "path": "/data", "value": document.clone()}, document]);
        } else if let Value::Object(map) = &mut document {
            map.remove("metadata");
        }
        // A list item without its merge key is an internal error in Kubernetes too.
        if kind < 2 {
            survives("PATCH", &format!("{MAPS}/a"), media, document.to_string().into_bytes())?;
        }
    }

    #[test]
    fn any_selector_may_be_asked_for(selector in "[a-z!=(),. -]{0,24}", name in 0..4usize) {
        let name = ["labelSelector", "fieldSelector", "continue", "limit"][name];
        let query: String = selector.bytes().map(|byte| format!("%{byte:02X}")).collect();
        survives("GET", &format!("{MAPS}?{name}={query}"), "", Vec::new())?;
    }
}

#[tokio::test]
async fn too_much_is_refused_before_it_is_read() {
    let api = Api::start().await;
    let body = vec![b'x'; 3 * 1024 * 1024 + 1];
    api.call("POST", MAPS, "application/json", body).await.fails(
        413,
        "RequestEntityTooLarge",
        "Request entity too large: limit is 3145728",
    );
}

#[tokio::test]
async fn more_requests_than_places_are_told_to_come_back() {
    let limits = Limits {
        reads: 0,
        ..Limits::default()
    };
    let api = Api::with_limits(limits).await;
    let refused = api.get(MAPS).await;
    refused.fails(429, "TooManyRequests", "Too many requests, please try again later.");
    assert_eq!(refused.headers["retry-after"], "1");
}

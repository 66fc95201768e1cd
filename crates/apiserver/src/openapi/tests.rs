use super::*;
use crate::catalogue::{Origin, Resource, Subresource, built_in};
use crate::custom::CustomKind;
use crate::protobuf::wire::Reader;

fn crontabs() -> Resource {
    let schema = json!({
        "type": "object", "description": "A cron table",
        "properties": {
            "spec": {
                "type": "object", "description": "What is wanted", "required": ["cronSpec"],
                "properties": {
                    "cronSpec": {"type": "string", "pattern": "^\\d+$", "nullable": true},
                    "port": {"x-kubernetes-int-or-string": true},
                    "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "embedded": {
                        "type": "object", "x-kubernetes-embedded-resource": true,
                        "x-kubernetes-preserve-unknown-fields": true,
                    },
                },
            },
        },
    });
    let sub = |name: &str, group: &str, version: &str, kind: &str| Subresource {
        name: name.into(),
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        verbs: vec!["get".into(), "patch".into(), "update".into()],
    };
    Resource {
        group: "stable.example.com".into(),
        version: "v1".into(),
        plural: "crontabs".into(),
        singular: "crontab".into(),
        kind: "CronTab".into(),
        list_kind: "CronTabList".into(),
        short_names: vec!["ct".into()],
        categories: Vec::new(),
        namespaced: true,
        verbs: ["delete", "get", "list", "patch", "create", "update", "watch"]
            .map(String::from)
            .into(),
        subresources: vec![
            sub("status", "stable.example.com", "v1", "CronTab"),
            sub("scale", "autoscaling", "v1", "Scale"),
        ],
        schemas: built_in::schemas().clone(),
        root: built_in::kind("", "v1", "Pod").expect("a kind").id(),
        origin: Origin::Custom(Arc::new(CustomKind {
            definition: "crontabs.stable.example.com".into(),
            schema,
            ..CustomKind::default()
        })),
    }
}

fn with_crontabs() -> OpenApi {
    let mut catalogue = Catalogue::built_in();
    catalogue.insert(crontabs());
    OpenApi::new(Arc::new(catalogue))
}

fn value(openapi: &OpenApi, path: &str) -> Value {
    let page = openapi.page(path, None).unwrap_or_else(|| panic!("{path} is served"));
    serde_json::from_slice(&page.body).expect("JSON")
}

#[test]
fn the_root_lists_every_document_with_a_hash() {
    let root = value(&with_crontabs(), "/openapi/v3");
    for path in ["api/v1", "apis/apps/v1", "apis/stable.example.com/v1", "version"] {
        let url = root["paths"][path]["serverRelativeURL"].as_str().unwrap_or_default();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{path}: {url}");
    }
}

#[test]
fn a_built_in_document_has_what_explain_and_apply_need() {
    let apps = value(&with_crontabs(), "/openapi/v3/apis/apps/v1");
    let deployment = &apps["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(deployment["x-kubernetes-group-version-kind"][0]["kind"], "Deployment");
    assert!(
        deployment["description"]
            .as_str()
            .is_some_and(|d| d.contains("declarative updates"))
    );
    let patch = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    let parameters = patch["parameters"].as_array().expect("parameters");
    assert!(parameters.iter().any(|p| p["name"] == "fieldValidation"));
}

#[test]
fn a_custom_resource_is_published_as_its_definition_says() {
    let openapi = with_crontabs();
    let document = value(&openapi, "/openapi/v3/apis/stable.example.com/v1");
    let schema = &document["components"]["schemas"]["com.example.stable.v1.CronTab"];
    assert_eq!(schema["description"], "A cron table");
    assert_eq!(schema["properties"]["spec"]["properties"]["cronSpec"]["nullable"], true);
    assert_eq!(
        schema["properties"]["spec"]["properties"]["port"]["anyOf"][0]["type"],
        "integer"
    );
    let embedded = &schema["properties"]["spec"]["properties"]["embedded"];
    assert_eq!(embedded["required"], json!(["kind", "apiVersion"]));
    assert!(
        schema["properties"]["metadata"]["allOf"][0]["$ref"]
            .as_str()
            .is_some_and(|r| r.ends_with("ObjectMeta"))
    );
    let item = &document["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"];
    assert_eq!(item["patch"]["operationId"], "patchStableExampleComV1NamespacedCronTab");
    assert_eq!(item["patch"]["tags"], json!(["stableExampleCom_v1"]));
    assert!(
        item["patch"]["parameters"]
            .as_array()
            .is_some_and(|p| p.iter().any(|p| p["name"] == "fieldValidation"))
    );
}

#[test]
fn version_two_says_only_what_kubectl_reads_rightly() {
    let openapi = with_crontabs();
    let document = value(&openapi, "/openapi/v2");
    let schema = &document["definitions"]["com.example.stable.v1.CronTab"];
    let spec = &schema["properties"]["spec"];
    assert_eq!(spec["required"], Value::Null);
    assert_eq!(spec["properties"]["cronSpec"], json!({"pattern": "^\\d+$"}));
    assert_eq!(spec["properties"]["port"], json!({"x-kubernetes-int-or-string": true}));
    assert_eq!(
        spec["properties"]["anything"],
        json!({"x-kubernetes-preserve-unknown-fields": true})
    );
    let metadata = &schema["properties"]["metadata"]["$ref"];
    assert_eq!(
        metadata,
        "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    let quantity = &document["definitions"]["io.k8s.apimachinery.pkg.api.resource.Quantity"];
    assert_eq!(quantity["type"], "string");
    let pod = &document["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"];
    assert_eq!(
        pod["parameters"][0]["schema"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.Pod"
    );
}

#[test]
fn version_two_as_protobuf_names_every_definition() {
    let openapi = with_crontabs();
    let page = openapi.page("/openapi/v2", Some(V2_PROTOBUF)).expect("served");
    assert_eq!(page.content_type, V2_PROTOBUF_ANSWER);
    let mut names = Vec::new();
    let mut document = Reader::new(&page.body);
    while let Some((number, raw)) = document.next().expect("well formed") {
        if number != 9 {
            continue;
        }
        let mut definitions = Reader::new(raw.bytes(9).expect("a message"));
        while let Some((_, raw)) = definitions.next().expect("well formed") {
            let mut named = Reader::new(raw.bytes(1).expect("a message"));
            if let Some((1, name)) = named.next().expect("well formed") {
                names.push(name.text(1).expect("a name"));
            }
        }
    }
    assert!(names.contains(&"io.k8s.api.core.v1.Pod".to_string()));
    assert!(names.contains(&"com.example.stable.v1.CronTab".to_string()));
    assert!(names.len() > 500);
}

#[test]
fn a_path_that_is_no_document_is_not_found() {
    let openapi = with_crontabs();
    for path in [
        "/openapi",
        "/openapi/v4",
        "/openapi/v3/apis/nonsense/v1",
        "/openapi/v2/x",
    ] {
        assert!(openapi.page(path, None).is_none(), "{path}");
    }
}

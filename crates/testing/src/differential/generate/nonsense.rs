//! Requests that no good client makes.

use super::super::sequence::Step;
use super::{Story, Subject};
use serde_json::{Value, json};

pub fn request(story: &mut Story, subject: &Subject) {
    let name = story.name(subject);
    let object = story.object(subject, &name);
    let place = format!("{}/{name}", subject.collection);
    let all = &subject.collection;
    let changed = |field: &str, value: Value| {
        let mut object = object.clone();
        super::put(&mut object, field, &value);
        object
    };
    let text = |step: Step, text: &str| Step {
        text: Some(text.to_string()),
        ..step
    };
    let steps = [
        Step::new("POST", all).with(changed("/kind", json!("Nonsense"))),
        Step::new("POST", all).with(changed("/kind", json!("Secret"))),
        Step::new("POST", all).with(changed("/kind", Value::Null)),
        Step::new("POST", all).with(changed("/apiVersion", json!("nonsense/v9"))),
        Step::new("POST", all).with(changed("/apiVersion", Value::Null)),
        Step::new("POST", all).with(changed("/metadata/namespace", json!("elsewhere"))),
        Step::new("POST", all).with(changed("/metadata/name", json!("Not A Name"))),
        Step::new("POST", all).with(changed("/metadata/name", json!("a/b"))),
        Step::new("POST", all).with(changed("/metadata/name", json!(""))),
        Step::new("POST", all).with(changed("/metadata/name", json!(7))),
        Step::new("POST", all).with(changed("/metadata/resourceVersion", json!("5"))),
        Step::new("POST", all).with(changed("/metadata/labels", json!(["a"]))),
        Step::new("POST", all).with(changed("/metadata", json!("text"))),
        Step::new("POST", all).with(changed("/nonsense", json!({"a": 1}))),
        Step::new("POST", format!("{all}?fieldValidation=Strict")).with(changed("/nonsense", json!(1))),
        Step::new("POST", format!("{all}?fieldValidation=Warn")).with(changed("/metadata/nonsense", json!(1))),
        Step::new("POST", format!("{all}?fieldValidation=Wrong")).with(object.clone()),
        Step::new("POST", format!("{all}?dryRun=Wrong")).with(object.clone()),
        Step::new("POST", format!("{all}?fieldManager={}", "m".repeat(129))).with(object.clone()),
        Step::new("POST", format!("{all}?fieldManager=a%07b")).with(object.clone()),
        Step::new("POST", all).with(json!([])),
        Step::new("POST", all).with(json!("text")),
        Step::new("POST", all).with(json!(null)),
        text(Step::new("POST", all), "{"),
        text(Step::new("POST", all), ""),
        text(
            Step::new("POST", all),
            "{\"kind\": \"ConfigMap\", \"apiVersion\": \"v1\", \"metadata\": {\"name\": \"a\"}, \"data\": {\"x\": }}",
        ),
        text(
            Step::new("POST", all),
            "{\"metadata\": {\"name\": \"a\", \"name\": \"b\"}}",
        ),
        text(Step::new("POST", all).of_type("text/plain"), "hello"),
        Step::new("POST", all).of_type("application/xml").with(object.clone()),
        Step::new("POST", &place).with(object.clone()),
        Step::new("PUT", all).with(object.clone()),
        Step::new("PUT", &place).with(changed("/metadata/name", json!("other"))),
        Step::new("PUT", &place).with(changed("/metadata/uid", json!("other"))),
        Step::new("PUT", &place).with(changed("/metadata/resourceVersion", json!("1"))),
        Step::new("PUT", &place).with(changed("/metadata/resourceVersion", json!("x"))),
        Step::new("PATCH", &place).with(json!({})),
        Step::new("PATCH", &place).of_type("text/plain").with(json!({})),
        Step::new("PATCH", &place)
            .of_type("application/merge-patch+json")
            .with(json!([])),
        Step::new("PATCH", &place)
            .of_type("application/merge-patch+json")
            .with(json!("text")),
        Step::new("PATCH", &place)
            .of_type("application/merge-patch+json")
            .with(json!({"metadata": {"name": "other"}})),
        Step::new("PATCH", &place)
            .of_type("application/merge-patch+json")
            .with(json!({"metadata": null})),
        Step::new("PATCH", &place)
            .of_type("application/merge-patch+json")
            .with(json!({"kind": "Other"})),
        Step::new("PATCH", &place)
            .of_type("application/merge-patch+json")
            .with(json!({"apiVersion": "v7"})),
        Step::new("PATCH", &place)
            .of_type("application/merge-patch+json")
            .with(json!({"metadata": {"uid": "other"}})),
        text(
            Step::new("PATCH", &place).of_type("application/merge-patch+json"),
            "{\"a\":",
        ),
        text(
            Step::new("PATCH", &place).of_type("application/json-patch+json"),
            "{\"a\":",
        ),
        Step::new("PATCH", &place)
            .of_type("application/json-patch+json")
            .with(json!({})),
        Step::new("PATCH", &place)
            .of_type("application/json-patch+json")
            .with(json!([{"op": "fly", "path": "/a"}])),
        Step::new("PATCH", &place)
            .of_type("application/json-patch+json")
            .with(json!([{"op": "add", "path": "a", "value": 1}])),
        Step::new("PATCH", &place)
            .of_type("application/json-patch+json")
            .with(json!([{"op": "remove", "path": "/nowhere"}])),
        Step::new("PATCH", &place)
            .of_type("application/json-patch+json")
            .with(json!([{"op": "add", "path": "/metadata/labels/x"}])),
        Step::new("PATCH", &place)
            .of_type("application/json-patch+json")
            .with(json!([])),
        Step::new("PATCH", format!("{place}?force=true"))
            .of_type("application/merge-patch+json")
            .with(json!({})),
        Step::new("PATCH", &place)
            .of_type("application/apply-patch+yaml")
            .with(object.clone()),
        Step::new("PATCH", format!("{place}?fieldManager=alice"))
            .of_type("application/apply-patch+yaml")
            .with(changed("/metadata/name", json!("other"))),
        Step::new("PATCH", format!("{place}?fieldManager=alice"))
            .of_type("application/apply-patch+yaml")
            .with(changed("/metadata/managedFields", json!([{}]))),
        Step::new("PATCH", format!("{place}?fieldManager=alice"))
            .of_type("application/apply-patch+yaml")
            .with(changed("/metadata/resourceVersion", json!("1"))),
        Step::new("PATCH", format!("{place}?fieldManager=alice"))
            .of_type("application/apply-patch+yaml")
            .with(changed("/nonsense", json!(1))),
        Step::new("PATCH", format!("{place}?fieldManager=alice"))
            .of_type("application/apply-patch+yaml")
            .with(changed("/kind", json!("Other"))),
        Step::new("PATCH", format!("{place}?fieldManager=alice&force=maybe"))
            .of_type("application/apply-patch+yaml")
            .with(object.clone()),
        text(
            Step::new("PATCH", format!("{place}?fieldManager=alice")).of_type("application/apply-patch+yaml"),
            "a: [b",
        ),
        Step::new("DELETE", format!("{all}/never-there")),
        Step::new("GET", format!("{all}/never-there")),
        Step::new("GET", format!("{place}/nonsense")),
        Step::new("GET", "/apis/nonsense.example.com/v1/things"),
        Step::new("GET", "/api/v1/namespaces/{ns}/nonsense"),
        Step::new("GET", "/nonsense"),
        Step::new("POST", &place),
        text(Step::new("DELETE", &place), "{\"a\":"),
        text(Step::new("DELETE", &place), "[]"),
    ];
    let step = story.pick(&steps).clone();
    story.step(step);
}

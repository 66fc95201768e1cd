use super::*;
use crate::catalogue::Catalogue;
use proptest::prelude::*;
use serde_json::json;

fn messages(group: &str, plural: &str, object: Value) -> Vec<String> {
    let catalogue = Catalogue::built_in();
    let version = if group == "autoscaling" { "v2" } else { "v1" };
    let resource = catalogue.get(group, version, plural).expect("served");
    let mut object = object;
    crate::defaults::apply(resource, &mut object);
    create(resource, &object).iter().map(ToString::to_string).collect()
}

#[test]
fn a_selector_that_does_not_match_its_template_is_refused_in_kubernetes_words() {
    let deployment = json!({"spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "c"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    assert_eq!(
        messages("apps", "deployments", deployment),
        ["spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match template `labels`"]
    );
}

#[test]
fn containers_of_a_stateful_set_may_mount_its_claims_and_nothing_that_is_not_there() {
    let set = |mount: &str| {
        let container = json!({"name": "c", "image": "i", "volumeMounts": [{"name": mount, "mountPath": "/data"}]});
        json!({"spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}],
        }})
    };
    assert_eq!(messages("apps", "statefulsets", set("data")), Vec::<String>::new());
    assert_eq!(
        messages("apps", "statefulsets", set("other")),
        ["spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"other\""]
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z/.%0-9]{0,6}".prop_map(Value::from),
    ];
    let name = prop_oneof![
        Just("spec"),
        Just("template"),
        Just("containers"),
        Just("selector"),
        Just("metadata"),
        Just("labels"),
        Just("ports"),
        Just("volumes"),
        Just("env"),
        Just("name"),
        Just("rules"),
        Just("webhooks"),
        Just("data"),
        Just("tolerations"),
        Just("limits"),
        Just("resources"),
        Just("strategy"),
        Just("clusterIPs"),
    ];
    leaf.prop_recursive(6, 60, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(name.clone().prop_map(String::from), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_object_of_any_kind_makes_defaults_or_validation_panic(object in any_json(), old in any_json()) {
        for resource in Catalogue::built_in().iter() {
            let mut object = object.clone();
            crate::defaults::apply(resource, &mut object);
            create(resource, &object);
            update(resource, &object, &old);
        }
    }
}

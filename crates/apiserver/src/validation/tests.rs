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

fn changes(group: &str, plural: &str, object: Value, old: Value) -> Vec<String> {
    let catalogue = Catalogue::built_in();
    let resource = catalogue.get(group, "v1", plural).expect("served");
    let (mut object, mut old) = (object, old);
    for object in [&mut object, &mut old] {
        crate::defaults::apply(resource, object);
    }
    update(resource, &object, &old)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn a_stateful_set_is_not_judged_again_for_what_it_was_stored_with() {
    let set = |replicas: i64, class: &str, mounted: &str| {
        let container = json!({"name": "c", "image": "i", "volumeMounts": [{"name": mounted, "mountPath": "/data"}]});
        // Pods of a set get their names from it, so that nobody looks at these two.
        let pod = json!({"containers": [container], "hostname": "no_name", "subdomain": "none_either"});
        json!({"spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}}}],
        }})
    };
    assert_eq!(messages("apps", "statefulsets", set(1, "fast", "data")), [""; 0]);
    assert_eq!(messages("apps", "statefulsets", set(1, "No Class", "gone")).len(), 2);
    let scaled = |class, mounted| changes("apps", "statefulsets", set(3, class, mounted), set(1, class, mounted));
    assert_eq!(scaled("fast", "data"), [""; 0]);
    assert_eq!(scaled("No Class", "gone"), [""; 0]);
    let broken = changes("apps", "statefulsets", set(1, "fast", "gone"), set(1, "fast", "data"));
    assert_eq!(
        broken,
        ["spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"gone\""]
    );
}

#[test]
fn a_claim_that_was_stored_with_the_older_field_alone_can_be_changed() {
    let source = json!({"kind": "PersistentVolumeClaim", "name": "other"});
    let claim = |both: bool| {
        let mut claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}}, "dataSource": source}});
        if both {
            claim["spec"]["dataSourceRef"] = source.clone();
        }
        claim
    };
    assert_eq!(
        changes("", "persistentvolumeclaims", claim(true), claim(false)),
        [""; 0]
    );
}

#[test]
fn a_policy_may_except_from_all_addresses_and_only_from_addresses_of_their_family() {
    let policy = |range: &str, except: &str| {
        let peer = json!({"ipBlock": {"cidr": range, "except": [except]}});
        let policy = json!({"spec": {"podSelector": {}, "ingress": [{"from": [peer]}]}});
        messages("networking.k8s.io", "networkpolicies", policy).len()
    };
    assert_eq!(policy("0.0.0.0/0", "10.0.0.0/8"), 0);
    assert_eq!(policy("::/0", "2001:db8::/32"), 0);
    assert_eq!(policy("10.0.0.0/8", "10.1.2.0/24"), 0);
    assert_eq!(policy("2001:db8::/32", "2001:db8:1::/48"), 0);
    for (range, except) in [
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("10.0.0.0/8", "11.0.0.0/24"),
        ("10.0.0.0/32", "10.0.0.0/32"),
        ("2001:db8::/32", "2001:db9::/48"),
        ("::/0", "10.0.0.0/8"),
    ] {
        assert_eq!(policy(range, except), 1, "{range} without {except}");
    }
}

/// What a request can hold is looked at in a moment: lists are compared by what they hold, not item with item.
#[test]
fn long_lists_are_judged_in_about_the_time_that_it_takes_to_read_them() {
    const LONG: usize = 20_000;
    let list = |make: fn(usize) -> Value| (0..LONG).map(make).collect::<Value>();
    let mut pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let container = &mut pod["spec"]["containers"][0];
    container["volumeMounts"] = list(|n| json!({"name": format!("m{n}"), "mountPath": format!("/m{n}")}));
    container["volumeDevices"] = list(|n| json!({"name": format!("d{n}"), "devicePath": format!("/d{n}")}));
    container["env"] = list(|n| json!({"name": format!("E{n}"), "value": ""}));
    container["ports"] = list(|n| json!({"containerPort": n % 65_000 + 1, "hostIP": n.to_string()}));
    container["resources"]["claims"] = list(|n| json!({"name": format!("c{n}")}));
    pod["spec"]["resourceClaims"] = list(|n| json!({"name": format!("r{n}"), "resourceClaimName": "a"}));
    pod["spec"]["tolerations"] = list(|n| json!({"key": format!("k{n}"), "operator": "Exists"}));
    pod["spec"]["schedulingGates"] = list(|n| json!({"name": format!("g{n}")}));
    pod["spec"]["topologySpreadConstraints"] =
        list(|n| json!({"maxSkew": 1, "topologyKey": format!("k{n}"), "whenUnsatisfiable": "DoNotSchedule"}));
    let keys = list(|n| format!("k{n}").into());
    let expressions = list(|n| json!({"key": format!("e{n}"), "operator": "Exists"}));
    let spread = &mut pod["spec"]["topologySpreadConstraints"][0];
    spread["matchLabelKeys"] = keys;
    spread["labelSelector"] = json!({"matchExpressions": expressions});
    let mut node = json!({});
    node["spec"]["taints"] = list(|n| json!({"key": format!("k{n}"), "effect": "NoSchedule"}));
    node["status"]["addresses"] = list(|n| json!({"type": "Hostname", "address": n.to_string()}));
    // Compared item with item they take many minutes: then this test does not come to its end.
    let catalogue = Catalogue::built_in();
    for (plural, object) in [("pods", &pod), ("nodes", &node)] {
        let resource = catalogue.get("", "v1", plural).expect("served");
        let mut found = create(resource, object);
        found.extend(update(resource, object, object));
        let twice = found.iter().find(|error| error.to_string().contains("Duplicate value"));
        assert!(twice.is_none(), "everything is there once: {twice:?}");
        assert!(
            warnings(resource, object, None)
                .iter()
                .all(|told| !told.contains("duplicate"))
        );
    }
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

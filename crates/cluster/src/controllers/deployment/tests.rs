//! Rolling updates told step by step: which ReplicaSet has how many pods.

use super::Sets;
use super::rolling;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use serde_json::json;
use std::sync::Arc;

fn deployment(replicas: i32, surge: &str, unavailable: &str) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {}, "template": {},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}},
    }))
    .unwrap()
}

fn set(name: &str, wanted: i32, available: i32) -> Arc<ReplicaSet> {
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"replicas": wanted, "selector": {}},
            "status": {"replicas": wanted, "availableReplicas": available},
        }))
        .unwrap(),
    )
}

/// `old` and `new` as (wanted, available); the answer as what is scaled to what.
#[track_caller]
fn check(deployment: &Deployment, old: (i32, i32), new: (i32, i32), expected: &[(&str, i32)]) {
    let sets = Sets {
        new: Some(set("new", new.0, new.1)),
        old: vec![set("old", old.0, old.1)],
    };
    let steps: Vec<(String, i32)> = rolling::rolling(deployment, &sets)
        .into_iter()
        .map(|scale| (scale.set.metadata.name.clone().unwrap(), scale.replicas))
        .collect();
    let expected: Vec<(String, i32)> = expected
        .iter()
        .map(|(name, count)| (name.to_string(), *count))
        .collect();
    assert_eq!(steps, expected);
}

#[test]
fn a_rolling_update_grows_by_the_surge_and_shrinks_by_what_may_be_missing() {
    let web = deployment(4, "25%", "25%");
    check(&web, (4, 4), (0, 0), &[("new", 1)]);
    check(&web, (4, 4), (1, 0), &[("old", 3)]);
    check(&web, (3, 3), (1, 0), &[("new", 2)]);
    check(&web, (3, 3), (2, 0), &[]);
    check(&web, (3, 3), (2, 2), &[("old", 1)]);
    check(&web, (1, 1), (4, 4), &[("old", 0)]);
    check(&web, (0, 0), (4, 4), &[]);
}

#[test]
fn without_surge_old_pods_go_first() {
    let web = deployment(3, "0", "1");
    check(&web, (3, 3), (0, 0), &[("old", 2)]);
    check(&web, (2, 2), (0, 0), &[("new", 1)]);
}

#[test]
fn pods_that_never_came_up_are_the_first_to_go() {
    let web = deployment(4, "1", "0");
    check(&web, (4, 2), (1, 1), &[("old", 3)]);
}

#[test]
fn a_new_set_that_is_too_large_shrinks_at_once() {
    check(&deployment(2, "25%", "25%"), (0, 0), (5, 5), &[("new", 2)]);
}

//! Rolling out: scale, update, pause and back.

use super::{WEB, cluster, pods, rolled_out};
use crate::binary::{PATIENCE, eventually};
use std::collections::BTreeSet;

#[test]
fn a_deployment_rolls_out_scales_updates_pauses_and_goes_back() {
    let Some(up) = cluster() else { return };
    up.apply(WEB);
    rolled_out(&up);
    let nodes = up.run(&[
        "get",
        "pods",
        "-l",
        "app=web",
        "-o",
        "jsonpath={.items[*].spec.nodeName}",
    ]);
    assert_eq!(
        nodes.split_whitespace().collect::<BTreeSet<_>>().len(),
        3,
        "pods are spread: {nodes}"
    );

    up.run(&["scale", "deployment/web", "--replicas=5"]);
    up.run(&[
        "wait",
        "deployment/web",
        "--for=jsonpath={.status.availableReplicas}=5",
        "--timeout=60s",
    ]);
    up.run(&["scale", "deployment/web", "--replicas=3"]);

    let version = || {
        rolled_out(&up);
        let path = "{.items[*].spec.containers[0].env[?(@.name==\"VERSION\")].value}";
        eventually("old pods are gone", PATIENCE, || {
            let seen = up.run(&["get", "pods", "-l", "app=web", "-o", &format!("jsonpath={path}")]);
            let values: BTreeSet<String> = seen.split_whitespace().map(str::to_owned).collect();
            match values.len() {
                1 => Ok(values.into_iter().next().unwrap_or_default()),
                _ => Err(seen),
            }
        })
    };
    up.run(&["set", "env", "deployment/web", "VERSION=two"]);
    assert_eq!(version(), "two");

    up.run(&["rollout", "pause", "deployment/web"]);
    up.run(&["set", "env", "deployment/web", "VERSION=three"]);
    up.run(&["scale", "deployment/web", "--replicas=4"]);
    up.run(&[
        "wait",
        "deployment/web",
        "--for=jsonpath={.status.availableReplicas}=4",
        "--timeout=60s",
    ]);
    assert_eq!(
        up.run(&["get", "rs", "-o", "name"]).lines().count(),
        2,
        "a paused Deployment scales, but does not roll"
    );
    assert!(up.refused(&["rollout", "undo", "deployment/web"]).contains("paused"));
    up.run(&["rollout", "resume", "deployment/web"]);
    assert_eq!(version(), "three");

    let history = up.run(&["rollout", "history", "deployment/web"]);
    for revision in ["1 ", "2 ", "3 "] {
        assert!(history.lines().any(|line| line.starts_with(revision)), "{history}");
    }
    assert!(
        up.run(&["rollout", "history", "deployment/web", "--revision=2"])
            .contains("two")
    );
    up.run(&["rollout", "undo", "deployment/web"]);
    assert_eq!(version(), "two");
    up.run(&["rollout", "undo", "deployment/web", "--to-revision=1"]);
    assert_eq!(version(), "one");

    let before: BTreeSet<String> = pods(&up, "app=web").into_iter().collect();
    up.run(&["rollout", "restart", "deployment/web"]);
    assert_eq!(version(), "one");
    let after: BTreeSet<String> = pods(&up, "app=web").into_iter().collect();
    assert!(before.is_disjoint(&after), "{before:?} {after:?}");
}

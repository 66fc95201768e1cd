//! A Service, as other pods see it.

use super::{CLIENT, WEB, asked, cluster, pods, rolled_out};
use crate::binary::{PATIENCE, eventually};
use std::collections::BTreeSet;

#[test]
fn a_service_answers_by_name_and_sends_nothing_to_what_is_not_ready() {
    let Some(up) = cluster() else { return };
    up.apply(WEB);
    up.apply(CLIENT);
    rolled_out(&up);
    up.run(&["wait", "pod/client", "--for=condition=Ready", "--timeout=60s"]);
    let names: BTreeSet<String> = pods(&up, "app=web").into_iter().collect();
    eventually("every pod gets its share", PATIENCE, || {
        let seen = asked(&up, "http://web", 12);
        (seen == names).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    assert!(!asked(&up, "http://web.default.svc.cluster.local:80", 1).is_empty());

    // The API server has no route to pods either, and answers for them all the same.
    for path in [
        "services/web:80".to_owned(),
        format!("pods/{}:8080", pods(&up, "app=web")[0]),
    ] {
        let page = up.run(&["get", "--raw", &format!("/api/v1/namespaces/default/{path}/proxy/")]);
        assert!(page.contains("Hello from Stead"), "{path}: {page}");
    }

    let mut left = names.clone();
    let sick = left.pop_first().expect("three");
    up.run(&[
        "exec",
        &sick,
        "--",
        "sh",
        "-c",
        "curl -s localhost:8080/fail || wget -qO- localhost:8080/fail",
    ]);
    up.run(&[
        "wait",
        &format!("pod/{sick}"),
        "--for=condition=Ready=false",
        "--timeout=60s",
    ]);
    eventually("a pod that is not ready gets nothing", PATIENCE, || {
        let seen = asked(&up, "http://web", 12);
        (seen == left).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    up.run(&["scale", "deployment/web", "--replicas=1"]);
    up.run(&[
        "wait",
        "deployment/web",
        "--for=jsonpath={.status.replicas}=1",
        "--timeout=60s",
    ]);
    let one = eventually("one pod is left", PATIENCE, || {
        let names = pods(&up, "app=web");
        (names.len() == 1)
            .then(|| names[0].clone())
            .ok_or_else(|| names.join(" "))
    });
    eventually("dead pods get nothing", PATIENCE, || {
        let seen = asked(&up, "http://web", 12);
        (seen == BTreeSet::from([one.clone()]))
            .then_some(())
            .ok_or_else(|| format!("{seen:?}"))
    });
}

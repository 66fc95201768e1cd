//! How namespaces and owners go.

use super::{WEB, cluster, of, pods, rolled_out};
use crate::binary::{PATIENCE, eventually};

#[test]
fn namespaces_go_with_everything_in_them_and_cascades_do_as_they_are_told() {
    let Some(up) = cluster() else { return };
    up.run(&["create", "namespace", "team"]);
    let file = up.file("team.yaml", WEB);
    up.run(&["apply", "-n", "team", "-f", &file]);
    up.run(&["-n", "team", "rollout", "status", "deployment/web", "--timeout=60s"]);
    up.run(&["-n", "team", "create", "configmap", "settings", "--from-literal=a=b"]);
    up.run(&["delete", "namespace", "team", "--timeout=90s"]);
    assert!(up.refused(&["get", "namespace", "team"]).contains("not found"));
    assert_eq!(up.run(&["get", "pods", "-A", "-l", "app=web", "-o", "name"]), "");

    let children = || {
        let sets = up.run(&["get", "rs", "-l", "app=web", "-o", "name"]).lines().count();
        (sets, pods(&up, "app=web").len())
    };
    let gone = |what: &str| {
        eventually(what, PATIENCE, || {
            (children() == (0, 0))
                .then_some(())
                .ok_or_else(|| format!("{:?}", children()))
        });
    };
    up.apply(WEB);
    rolled_out(&up);
    up.run(&["delete", "deployment/web", "--cascade=foreground", "--timeout=90s"]);
    assert_eq!(children(), (0, 0), "a foreground delete waits for what it takes along");

    up.apply(WEB);
    rolled_out(&up);
    up.run(&["delete", "deployment/web", "--cascade=background"]);
    gone("a background delete takes its children along");

    up.apply(WEB);
    rolled_out(&up);
    let orphans = pods(&up, "app=web");
    up.run(&["delete", "deployment/web", "--cascade=orphan"]);
    assert_eq!((children().0, pods(&up, "app=web")), (1, orphans.clone()));
    let owner = of(&up, "rs -l app=web", ".items[*].metadata.ownerReferences");
    assert_eq!(owner, "", "an orphan has no owner");
    up.apply(WEB);
    rolled_out(&up);
    assert_eq!(pods(&up, "app=web"), orphans, "a new owner adopts them");
    up.run(&["delete", "deployment/web"]);
    gone("and takes them along");
}

//! What a node cannot give to a pod, as the pod's status and an event say it.
//!
//! Everything here runs somewhere, with more or fewer rights. A pod that asks for nothing special should not have to know;
//! one that runs with less than it asks for, or beside others as on no other cluster, says so itself.

use super::registration::{Ground, Isolation};
use super::shape::Shape;

/// The condition of pods that tells of it. It is the node's own: Kubernetes has none for this.
pub const CONDITION: &str = "stead.dev/Isolated";
/// The reason of the event that tells of it.
pub const EVENT: &str = "NotIsolated";

/// What a pod hears of where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// It has all that it asks for, by other means than usual.
    Given {
        reason: &'static str,
        message: String,
    },
    Lacking {
        reason: &'static str,
        message: String,
    },
}

/// What there is to say to a pod; nothing where it is isolated as everywhere.
pub fn of(shape: &Shape<'_>, isolation: &Isolation) -> Option<Word> {
    let unmet = unmet(shape, isolation);
    let also = match unmet.is_empty() {
        true => String::new(),
        false => format!(" Not given to this pod: {}.", unmet.join("; ")),
    };
    match isolation.ground {
        Ground::Namespaces => None,
        ground @ (Ground::UserNamespace | Ground::UserRange) => {
            let message = format!("{}{also}", ground.describe());
            Some(match unmet.is_empty() {
                true => Word::Given {
                    reason: "UserNamespace",
                    message,
                },
                false => Word::Lacking {
                    reason: "UserNamespace",
                    message,
                },
            })
        }
        Ground::Machine => Some(Word::Lacking {
            reason: "SharesTheMachine",
            message: format!("{}{also}", Ground::Machine.describe()),
        }),
    }
}

/// What the pod asks for and does not get.
fn unmet(shape: &Shape<'_>, isolation: &Isolation) -> Vec<String> {
    let mut unmet = Vec::new();
    for resource in &isolation.unlimited {
        let all = shape.containers().chain(shape.inits());
        let mut limits = all.filter_map(|container| container.resources.as_ref()?.limits.as_ref());
        if limits.any(|limits| limits.contains_key(*resource)) {
            unmet.push(format!("its limit of {resource} (control groups may not be written)"));
        }
    }
    let has_groups = matches!(isolation.ground, Ground::Namespaces | Ground::UserRange);
    let security = shape.spec.security_context.as_ref().filter(|_| !has_groups);
    if security.is_some_and(|security| security.fs_group.is_some()) {
        unmet.push("fsGroup (its volumes are the user's own, as its processes are)".to_owned());
    }
    if security.is_some_and(|security| security.supplemental_groups.iter().flatten().next().is_some()) {
        unmet.push("supplementalGroups".to_owned());
    }
    let mounted = |name: &str| {
        let all = shape.containers().chain(shape.inits());
        let mut mounts = all.flat_map(|container| container.volume_mounts.iter().flatten());
        mounts.any(|mount| mount.name == name)
    };
    let mut volumes = shape.spec.volumes.iter().flatten();
    if isolation.ground == Ground::Machine && volumes.any(|volume| mounted(&volume.name)) {
        unmet.push("its volumes".to_owned());
    }
    unmet
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    fn said(ground: Ground, spec: Value) -> Option<Word> {
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let isolation = Isolation {
            ground,
            unlimited: vec!["memory", "cpu"],
            ..Isolation::default()
        };
        of(&Shape::of(&pod), &isolation)
    }

    #[test]
    fn a_pod_says_what_it_asks_for_and_does_not_get() {
        let plain = json!({"containers": [{"name": "c"}]});
        assert_eq!(said(Ground::Namespaces, plain.clone()), None);
        assert!(matches!(
            said(Ground::UserNamespace, plain.clone()),
            Some(Word::Given { .. })
        ));
        let shared = said(Ground::Machine, plain);
        let Some(Word::Lacking { reason, message }) = shared else {
            panic!("{shared:?}");
        };
        assert_eq!(reason, "SharesTheMachine");
        assert!(
            message.contains("share the machine's network") && !message.contains("Not given"),
            "{message}"
        );
        let asking = json!({
            "securityContext": {"fsGroup": 5},
            "containers": [{
                "name": "c", "resources": {"limits": {"memory": "1Gi"}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }],
            "volumes": [{"name": "v", "emptyDir": {}}],
        });
        let check = |ground: Ground, has: &[&str], has_not: &[&str]| {
            let word = said(ground, asking.clone());
            let Some(Word::Lacking { message, .. }) = word else {
                panic!("{word:?}");
            };
            assert!(has.iter().all(|part| message.contains(part)), "{message}");
            assert!(!has_not.iter().any(|part| message.contains(part)), "{message}");
        };
        check(
            Ground::UserNamespace,
            &["limit of memory", "fsGroup"],
            &["limit of cpu", "its volumes;"],
        );
        check(
            Ground::Machine,
            &["limit of memory", "fsGroup", "its volumes"],
            &["limit of cpu"],
        );
    }
}

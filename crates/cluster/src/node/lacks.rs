//! What a node cannot give to a pod, as the pod's status and an event say it.
//!
//! Everything here runs somewhere, with more or fewer rights. A pod that asks for nothing special should not have to know;
//! one that runs with less than it asks for, or beside others as on no other cluster, says so itself.

use super::process::users::Known;
use super::registration::{Ground, Isolation};
use super::shape::Shape;
use std::collections::BTreeSet;

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
    match isolation.ground {
        Ground::Namespaces => {}
        Ground::UserRange => unmet.extend(unknown(shape, &isolation.known)),
        Ground::UserNamespace | Ground::Machine => {
            let security = shape.spec.security_context.as_ref();
            if security.is_some_and(|security| security.fs_group.is_some()) {
                unmet.push("fsGroup (its volumes are the user's own, as its processes are)".to_owned());
            }
            if security.is_some_and(|security| security.supplemental_groups.iter().flatten().next().is_some()) {
                unmet.push("supplementalGroups".to_owned());
            }
        }
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

/// The users and groups that the pod asks for and that are in no range.
fn unknown(shape: &Shape<'_>, known: &Known) -> Vec<String> {
    let pod = shape.spec.security_context.as_ref();
    let all: Vec<_> = shape.containers().chain(shape.inits()).collect();
    let own = all.iter().map(|container| container.security_context.as_ref());
    let users = own
        .clone()
        .filter_map(|own| own.and_then(|own| own.run_as_user).or_else(|| pod?.run_as_user));
    let groups = own.filter_map(|own| own.and_then(|own| own.run_as_group).or_else(|| pod?.run_as_group));
    let more = pod.into_iter().flat_map(|pod| pod.supplemental_groups.iter().flatten());
    let has_user = |number: u32| known.has_user(number);
    let has_group = |number: u32| known.has_group(number);
    let alone = "such a container has one user and one group";
    let found = [
        missing("runAsUser", users, has_user, &format!("/etc/subuid: {alone}")),
        missing("runAsGroup", groups, has_group, &format!("/etc/subgid: {alone}")),
        missing("fsGroup", pod.and_then(|pod| pod.fs_group), has_group, "/etc/subgid"),
        missing("supplementalGroups", more.copied(), has_group, "/etc/subgid"),
    ];
    found.into_iter().flatten().collect()
}

/// Words on the numbers of a field that do not exist.
fn missing(
    field: &str,
    wanted: impl IntoIterator<Item = i64>,
    exists: impl Fn(u32) -> bool,
    range: &str,
) -> Option<String> {
    let wanted = wanted.into_iter().filter_map(|number| u32::try_from(number).ok());
    let missing: BTreeSet<u32> = wanted.filter(|number| !exists(*number)).collect();
    let numbers: Vec<String> = missing.iter().map(u32::to_string).collect();
    (!numbers.is_empty()).then(|| format!("{field} {} (not in the range of {range})", numbers.join(", ")))
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
            known: Known::in_maps("0 1000 1\n1 100000 65536\n", "0 1000 1\n1 100000 1000\n"),
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

    #[test]
    fn a_pod_says_which_of_its_users_and_groups_are_in_no_range() {
        let within = json!({
            "securityContext": {"runAsUser": 65536, "runAsGroup": 1000, "fsGroup": 5, "supplementalGroups": [6]},
            "containers": [{"name": "c"}],
        });
        let given = said(Ground::UserRange, within);
        assert!(matches!(given, Some(Word::Given { .. })), "{given:?}");
        let outside = json!({
            "securityContext": {"runAsGroup": 1001, "fsGroup": 1002, "supplementalGroups": [6, 1004, 1003]},
            "containers": [{"name": "c", "securityContext": {"runAsUser": 65537, "runAsGroup": 7}}, {"name": "d"}],
        });
        let Some(Word::Lacking { message, .. }) = said(Ground::UserRange, outside) else {
            panic!("it lacks something");
        };
        for part in [
            "runAsUser 65537 (not in the range of /etc/subuid",
            "runAsGroup 1001 (not in the range of /etc/subgid",
            "fsGroup 1002 (not",
            "supplementalGroups 1003, 1004 (not",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
}

//! As whom a container's processes run: their user and groups, and what of root's powers they keep.
//!
//! A process takes its identity when everything else is made, right before it becomes the container's program: from
//! then on it could not make anything any more.

use super::seccomp;
use super::spec::{Calls, Gain, RunSpec};
use super::users::Standing;
use caps::{CapSet, Capability, CapsHashSet};
use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, SecurityContext};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use std::io;

/// What root keeps in a container that asks for nothing: the usual set of container runtimes, without the making of
/// devices. They watch over who opens a device, and nobody does here: the machine's disks hold the cluster's keys.
const USUAL: [Capability; 13] = [
    Capability::CAP_AUDIT_WRITE,
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_KILL,
    Capability::CAP_NET_BIND_SERVICE,
    Capability::CAP_NET_RAW,
    Capability::CAP_SETFCAP,
    Capability::CAP_SETGID,
    Capability::CAP_SETPCAP,
    Capability::CAP_SETUID,
    Capability::CAP_SYS_CHROOT,
];

/// The powers that a container keeps, by name; `None` for all of them.
pub fn kept(security: Option<&SecurityContext>) -> Option<Vec<String>> {
    if security.is_some_and(|own| own.privileged == Some(true)) {
        return None;
    }
    let wanted = security.and_then(|own| own.capabilities.as_ref());
    let kept = after(wanted.unwrap_or(&Capabilities::default()));
    let mut names: Vec<String> = kept.iter().map(ToString::to_string).collect();
    names.sort();
    Some(names)
}

fn after(wanted: &Capabilities) -> CapsHashSet {
    let all = |names: &[String]| names.iter().any(|name| name.eq_ignore_ascii_case("ALL"));
    let named = |names: &[String]| -> CapsHashSet {
        let known = names.iter().filter_map(|name| caps::to_canonical(name).parse().ok());
        known.collect()
    };
    let (add, drop) = (
        wanted.add.as_deref().unwrap_or_default(),
        wanted.drop.as_deref().unwrap_or_default(),
    );
    let mut kept: CapsHashSet = match (all(add), all(drop)) {
        (true, _) => caps::all(),
        (false, true) => CapsHashSet::new(),
        (false, false) => USUAL.into_iter().collect(),
    };
    kept.extend(named(add));
    for power in named(drop) {
        kept.remove(&power);
    }
    kept
}

/// Whether programs may gain powers that who starts them has not.
pub fn gain(security: Option<&SecurityContext>) -> Gain {
    match security.and_then(|own| own.allow_privilege_escalation) {
        Some(false) => Gain::Forbidden,
        _ => Gain::Allowed,
    }
}

/// The groups of a pod's processes beside their first one.
pub fn groups(pod: Option<&PodSecurityContext>) -> Vec<u32> {
    let Some(pod) = pod else { return Vec::new() };
    let all = pod.supplemental_groups.iter().flatten().chain(&pod.fs_group);
    all.filter_map(|group| u32::try_from(*group).ok()).collect()
}

/// Makes this process what the container's processes are. Only root can, if only of a namespace; anybody else stays who
/// he is.
pub fn take(spec: &RunSpec, standing: Standing) -> io::Result<()> {
    if standing == Standing::Ordinary {
        return Ok(());
    }
    let filter = || match spec.calls {
        Calls::All => Ok(()),
        Calls::Usual => seccomp::confine(spec.powers.as_deref()),
    };
    // Who may gain powers must have some to take a filter, and has none left when all else is done.
    if spec.gain == Gain::Allowed {
        filter()?;
    }
    let groups: Vec<Gid> = spec.groups.iter().copied().map(Gid::from_raw).collect();
    // A user who is root by a namespace of his own keeps the groups that he has: see `lacks`.
    if standing.has_others() {
        setgroups(&groups)?;
    }
    if let Some(kept) = &spec.powers {
        confine(&named(kept)).map_err(io::Error::other)?;
    }
    if let Some(group) = spec.group {
        setgid(Gid::from_raw(group))?;
    }
    if let Some(user) = spec.user {
        setuid(Uid::from_raw(user))?;
    }
    if spec.gain == Gain::Forbidden {
        nix::sys::prctl::set_no_new_privs()?;
        filter()?;
    }
    Ok(())
}

/// Powers by their names; those that are unknown are none.
pub fn named(names: &[String]) -> CapsHashSet {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

/// Gives up all other powers for good: no program that is started from here has them.
fn confine(kept: &CapsHashSet) -> Result<(), caps::errors::CapsError> {
    for power in caps::all() {
        // A kernel that does not know a power has none to give up.
        if !kept.contains(&power) && caps::has_cap(None, CapSet::Bounding, power).unwrap_or(false) {
            caps::drop(None, CapSet::Bounding, power)?;
        }
    }
    caps::clear(None, CapSet::Inheritable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_container_keeps_the_usual_powers_and_what_it_asks_for() {
        let check = |wanted: serde_json::Value, has: &[&str], has_not: &[&str]| {
            let security: SecurityContext = serde_json::from_value(wanted.clone()).unwrap();
            let kept = kept(Some(&security)).unwrap();
            for name in has {
                assert!(kept.contains(&(*name).to_string()), "{wanted}: {kept:?}");
            }
            for name in has_not {
                assert!(!kept.contains(&(*name).to_string()), "{wanted}: {kept:?}");
            }
        };
        check(json!({}), &["CAP_CHOWN", "CAP_NET_RAW"], &["CAP_SYS_ADMIN"]);
        let none: &[&str] = &["CAP_CHOWN", "CAP_NET_RAW", "CAP_SYS_ADMIN"];
        check(json!({"capabilities": {"drop": ["ALL"]}}), &[], none);
        let one = json!({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}});
        check(one, &["CAP_NET_BIND_SERVICE"], &["CAP_CHOWN"]);
        let more = json!({"capabilities": {"add": ["SYS_TIME"], "drop": ["CHOWN"]}});
        check(more, &["CAP_SYS_TIME", "CAP_KILL"], &["CAP_CHOWN"]);
        let all = json!({"capabilities": {"add": ["ALL"], "drop": ["SYS_ADMIN"]}});
        check(all, &["CAP_SYS_TIME"], &["CAP_SYS_ADMIN"]);
        let privileged: SecurityContext = serde_json::from_value(json!({"privileged": true})).unwrap();
        assert_eq!(super::kept(Some(&privileged)), None);
    }

    #[test]
    fn a_pods_processes_are_in_its_groups() {
        let pod: PodSecurityContext =
            serde_json::from_value(json!({"fsGroup": 2000, "supplementalGroups": [5, 6]})).unwrap();
        assert_eq!(groups(Some(&pod)), [5, 6, 2000]);
        assert!(groups(None).is_empty());
    }
}

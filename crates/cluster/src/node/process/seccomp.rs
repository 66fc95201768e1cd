//! System calls that a container may not make (`seccompProfile`).
//!
//! `RuntimeDefault` refuses what container runtimes refuse to containers that were not given the power for it: loading
//! modules, mounting, other namespaces, the kernel's keys, other processes' memory policies, and calls that were the way
//! out of containers before. Everything else is allowed, where runtimes list what is allowed: a call that is newer than
//! this list is not refused. A profile of one's own (`Localhost`) is not understood, and is refused before the
//! container starts: running without it would be a lie.

use super::powers;
use super::spec::Calls;
use caps::{Capability, CapsHashSet};
use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::io;

/// Calls that no container has any business with.
const NEVER: &[i64] = &[
    libc::SYS_add_key,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_nfsservctl,
    libc::SYS_pivot_root,
    libc::SYS_request_key,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_userfaultfd,
];

/// Calls of old, on the processors that still have them.
#[cfg(target_arch = "x86_64")]
const OLD: &[i64] = &[libc::SYS__sysctl, libc::SYS_sysfs, libc::SYS_uselib, libc::SYS_ustat];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[i64] = &[];

/// Calls that take a power: any one of those named.
const POWERFUL: &[(&[Capability], &[i64])] = &[
    (&[Capability::CAP_SYS_ADMIN, Capability::CAP_BPF], &[libc::SYS_bpf]),
    (
        &[Capability::CAP_SYS_ADMIN, Capability::CAP_PERFMON],
        &[libc::SYS_perf_event_open],
    ),
    (
        &[Capability::CAP_SYS_ADMIN, Capability::CAP_SYSLOG],
        &[libc::SYS_syslog],
    ),
    (
        &[Capability::CAP_SYS_ADMIN],
        &[
            libc::SYS_fanotify_init,
            libc::SYS_fsconfig,
            libc::SYS_fsmount,
            libc::SYS_fsopen,
            libc::SYS_fspick,
            libc::SYS_lookup_dcookie,
            libc::SYS_mount,
            libc::SYS_mount_setattr,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            libc::SYS_quotactl,
            libc::SYS_quotactl_fd,
            libc::SYS_setdomainname,
            libc::SYS_sethostname,
            libc::SYS_setns,
            libc::SYS_umount2,
            libc::SYS_unshare,
        ],
    ),
    (
        &[Capability::CAP_SYS_MODULE],
        &[libc::SYS_delete_module, libc::SYS_finit_module, libc::SYS_init_module],
    ),
    (&[Capability::CAP_SYS_BOOT], &[libc::SYS_reboot]),
    (&[Capability::CAP_SYS_PACCT], &[libc::SYS_acct]),
    (
        &[Capability::CAP_SYS_TIME],
        &[libc::SYS_clock_settime, libc::SYS_settimeofday],
    ),
    (&[Capability::CAP_SYS_TTY_CONFIG], &[libc::SYS_vhangup]),
    (&[Capability::CAP_DAC_READ_SEARCH], &[libc::SYS_open_by_handle_at]),
    (
        &[Capability::CAP_SYS_NICE],
        &[
            libc::SYS_get_mempolicy,
            libc::SYS_mbind,
            libc::SYS_migrate_pages,
            libc::SYS_move_pages,
            libc::SYS_set_mempolicy,
        ],
    ),
    (&[Capability::CAP_SYS_PTRACE], &[libc::SYS_kcmp, libc::SYS_pidfd_getfd]),
    #[cfg(target_arch = "x86_64")]
    (&[Capability::CAP_SYS_RAWIO], &[libc::SYS_ioperm, libc::SYS_iopl]),
];

/// What a new process may not have of its own without the power for it.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWCGROUP,
];

/// Which calls a container may make; an error for what this node cannot do.
pub fn calls(own: Option<&SecurityContext>, pod: Option<&PodSecurityContext>) -> Result<Calls, String> {
    if own.is_some_and(|own| own.privileged == Some(true)) {
        return Ok(Calls::All);
    }
    let profile = own
        .and_then(|own| own.seccomp_profile.as_ref())
        .or_else(|| pod.and_then(|pod| pod.seccomp_profile.as_ref()));
    match profile.map(|profile| (profile.type_.as_str(), profile.localhost_profile.as_deref())) {
        Some(("RuntimeDefault", _)) => Ok(Calls::Usual),
        Some(("Localhost", name)) => Err(format!(
            "seccomp profile \"{}\" cannot be loaded: this node knows RuntimeDefault and Unconfined only",
            name.unwrap_or_default()
        )),
        _ => Ok(Calls::All),
    }
}

/// Gives up the calls for good, for this process and all that it starts. It takes the power to administer the system,
/// or the promise not to gain any.
pub fn confine(kept: Option<&[String]>) -> io::Result<()> {
    let kept: CapsHashSet = match kept {
        Some(names) => powers::named(names),
        None => caps::all(),
    };
    let programs = programs(&kept).map_err(io::Error::other)?;
    programs.iter().try_for_each(install)
}

/// Gives a filter to the kernel. The crate's own way would also forbid every gain of power (`no_new_privs`), which is
/// for `allowPrivilegeEscalation` to say.
fn install(program: &BpfProgram) -> io::Result<()> {
    let mut steps: Vec<libc::sock_filter> = program
        .iter()
        .map(|step| libc::sock_filter {
            code: step.code,
            jt: step.jt,
            jf: step.jf,
            k: step.k,
        })
        .collect();
    let whole = libc::sock_fprog {
        len: u16::try_from(steps.len()).map_err(io::Error::other)?,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the steps before the call returns, and both they and the struct live until then.
    #[allow(unsafe_code)]
    let outcome = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const whole) };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The filters, in the kernel's form.
fn programs(kept: &CapsHashSet) -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    refused.extend(NEVER.iter().chain(OLD).map(|call| (*call, Vec::new())));
    let powerless = |powers: &[Capability]| !powers.iter().any(|power| kept.contains(power));
    for (_, calls) in POWERFUL.iter().filter(|(powers, _)| powerless(powers)) {
        refused.extend(calls.iter().map(|call| (*call, Vec::new())));
    }
    let mut unknown: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    if !kept.contains(&Capability::CAP_SYS_ADMIN) {
        let mut own = Vec::new();
        for flag in NAMESPACES {
            let flag = u64::from(flag.unsigned_abs());
            let set = SeccompCmpOp::MaskedEq(flag);
            own.push(SeccompRule::new(vec![SeccompCondition::new(
                0,
                SeccompCmpArgLen::Qword,
                set,
                flag,
            )?])?);
        }
        refused.insert(libc::SYS_clone, own);
        // What it asks for is in memory, where no filter can look; who hears that it is unknown uses the older one.
        unknown.insert(libc::SYS_clone3, Vec::new());
    }
    let mut programs = Vec::new();
    for (calls, code) in [(refused, libc::EPERM), (unknown, libc::ENOSYS)] {
        if calls.is_empty() {
            continue;
        }
        let filter = SeccompFilter::new(
            calls,
            SeccompAction::Allow,
            SeccompAction::Errno(code.unsigned_abs()),
            std::env::consts::ARCH.try_into()?,
        )?;
        programs.push(filter.try_into()?);
    }
    #[cfg(target_arch = "x86_64")]
    programs.push(second_numbers());
    Ok(programs)
}

/// Refuses the calls of programs with short pointers (x32): the same calls under numbers of their own, which a list of
/// numbers would miss, and which look to a filter like those of any other program.
#[cfg(target_arch = "x86_64")]
fn second_numbers() -> BpfProgram {
    const FIRST: u32 = 0x4000_0000;
    // Where the kernel shows the number of the call, and whose numbers they are.
    const NUMBER: u32 = 0;
    const MACHINE: u32 = 4;
    const X86_64: u32 = 0xc000_003e;
    let step = |code: u32, (jt, jf): (u8, u8), k: u32| seccompiler::sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt,
        jf,
        k,
    };
    let read = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let answer = libc::BPF_RET | libc::BPF_K;
    vec![
        step(read, (0, 0), MACHINE),
        // Other machines' calls end the process, by the other filters.
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, 3), X86_64),
        step(read, (0, 0), NUMBER),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, (0, 1), FIRST),
        step(answer, (0, 0), libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
        step(answer, (0, 0), libc::SECCOMP_RET_ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_containers_profile_comes_before_the_pods() {
        let check = |own: Value, pod: Value| {
            let own: SecurityContext = serde_json::from_value(own).unwrap();
            let pod: PodSecurityContext = serde_json::from_value(pod).unwrap();
            calls(Some(&own), Some(&pod))
        };
        let usual = json!({"seccompProfile": {"type": "RuntimeDefault"}});
        let all = json!({"seccompProfile": {"type": "Unconfined"}});
        assert_eq!(check(json!({}), usual.clone()), Ok(Calls::Usual));
        assert_eq!(check(all, usual.clone()), Ok(Calls::All));
        assert_eq!(check(json!({"privileged": true}), usual), Ok(Calls::All));
        assert_eq!(check(json!({}), json!({})), Ok(Calls::All));
        let own = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "mine.json"}});
        assert!(check(own, json!({})).unwrap_err().contains("mine.json"));
    }

    #[test]
    fn a_container_with_the_power_keeps_its_calls() {
        let few = programs(&CapsHashSet::new()).unwrap();
        let all = programs(&caps::all()).unwrap();
        assert_eq!(few.len(), all.len() + 1, "clone3 is left to who may have namespaces");
        assert!(all[0].len() < few[0].len());
        for power in [Capability::CAP_BPF, Capability::CAP_PERFMON, Capability::CAP_SYSLOG] {
            let one = programs(&CapsHashSet::from([power])).unwrap();
            assert!(one[0].len() < few[0].len(), "{power} gives a call of its own");
        }
    }

    /// What the kernel would do by a filter that reads, compares and answers.
    #[cfg(target_arch = "x86_64")]
    fn run(program: &BpfProgram, number: u32, machine: u32) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            let holds = match step.code {
                0x20 => {
                    value = if step.k == 0 { number } else { machine };
                    continue;
                }
                0x15 => value == step.k,
                0x35 => value >= step.k,
                0x06 => return step.k,
                other => panic!("an unknown step: {other:#x}"),
            };
            at += usize::from(if holds { step.jt } else { step.jf });
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_under_their_second_numbers_are_unknown() {
        let (own, other) = (0xc000_003e, 0x4000_0003);
        let mount = u32::try_from(libc::SYS_mount).unwrap();
        let every = programs(&caps::all()).unwrap();
        let filter = every.last().unwrap();
        assert_eq!(run(filter, mount | 0x4000_0000, own), 0x0005_0000 | 38, "ENOSYS");
        assert_eq!(
            run(filter, mount, own),
            libc::SECCOMP_RET_ALLOW,
            "the other filters say"
        );
        assert_eq!(
            run(filter, mount | 0x4000_0000, other),
            libc::SECCOMP_RET_ALLOW,
            "the other filters say"
        );
    }
}

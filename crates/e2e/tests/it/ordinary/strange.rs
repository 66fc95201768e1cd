//! An ordinary user on machines where something is amiss: a dead file system, keys that are mounted twice, a program
//! that fails midway.

use super::{NOBODY, User, wait_for_pods};
use crate::binary::{Up, kubectl, succeeded};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use stead_test::skip::skipped;
use tempfile::TempDir;

const NONE: Option<&str> = None;

/// Lets mounts be this thread's, and of all that it starts.
fn own_mounts() -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
}

/// A view of the machine's files for this thread and all that it starts: below /srv a file system that answers nobody, and
/// a directory of the user's that is mounted a second time. The first is silent for as long as its connection is held.
fn strange_mounts() -> nix::Result<std::fs::File> {
    own_mounts()?;
    mount(Some("srv"), "/srv", Some("tmpfs"), MsFlags::empty(), Some("mode=0755"))?;
    for folder in ["/srv/dead", "/srv/kube", "/srv/again"] {
        std::fs::create_dir(folder).expect("a directory");
        chown(folder, Some(NOBODY), Some(NOBODY)).expect("a directory of his own");
    }
    mount(Some("/srv/kube"), "/srv/again", NONE, MsFlags::MS_BIND, NONE)?;
    let connection = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    let connection = connection.map_err(|_| nix::Error::ENODEV)?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
        connection.as_raw_fd()
    );
    mount(
        Some("dead"),
        "/srv/dead",
        Some("fuse"),
        MsFlags::empty(),
        Some(options.as_str()),
    )?;
    Ok(connection)
}

#[test]
fn a_dead_file_system_holds_up_no_container_and_keys_are_hidden_wherever_they_are() {
    if kubectl().is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let Some(user) = User::in_place(place.path()) else {
        return;
    };
    if !user.may_make_namespaces(place.path()) {
        return skipped("a dead file system: this kernel lets no user make namespaces");
    }
    let story = std::thread::spawn(move || {
        let Ok(_silent) = strange_mounts() else {
            return skipped("a dead file system: this user cannot mount one");
        };
        let data = place.path().join("data").display().to_string();
        let start = |place: TempDir, kubeconfig: &str| {
            let arguments = ["--data", &data, "--kubeconfig", kubeconfig];
            Up::whole_by(user.runs_stead(place.path()), place, &arguments)
        };
        let up = start(place, "/srv/kube/former");
        let (code, _, place) = up.stop(Signal::SIGTERM);
        assert_eq!(code, Some(0));
        let up = start(place, "/srv/kube/config");
        up.apply(
            "apiVersion: v1
kind: Pod
metadata: {name: curious}
spec: {containers: [{name: c, image: busybox, command: [sleep, '1000']}]}
",
        );
        wait_for_pods(&up);
        let inside = |script: &str| up.run(&["exec", "curious", "--", "sh", "-c", script]);
        assert_eq!(inside("cd /srv && echo *"), "again kube\n");
        assert_eq!(
            inside("cd /srv && ls kube again"),
            "again:\nconfig\nformer\n\nkube:\nconfig\nformer\n"
        );
        assert_eq!(inside("cd /srv && cat kube/* again/*"), "");
        assert!(
            std::fs::read_to_string("/srv/again/former").is_ok_and(|text| text.contains("client-key-data")),
            "it is a key"
        );
        let (_, _, place) = up.stop(Signal::SIGTERM);
        succeeded(user.runs_stead(place.path()).args(["down", "--data", &data]));
    });
    story.join().expect("the story");
}

/// Gives the user a range of numbers, and programs that map his own one, once, and then refuse.
fn programs_that_fail_the_second_time(place: &Path) -> nix::Result<()> {
    own_mounts()?;
    for (file, program, map) in [("subuid", "newuidmap", "uid_map"), ("subgid", "newgidmap", "gid_map")] {
        let range = place.join(file);
        std::fs::write(&range, format!("{NOBODY}:100000:65536\n")).expect("a file");
        mount(
            Some(&range),
            &Path::new("/etc").join(file),
            NONE,
            MsFlags::MS_BIND,
            NONE,
        )?;
        let mapped = place.join(map).display().to_string();
        let script = format!(
            "#!/bin/sh\nset -e\ntest ! -e {mapped}\n: > {mapped}\necho deny > /proc/$1/setgroups\necho 0 $3 1 > /proc/$1/{map}\n"
        );
        let program = place.join(program);
        std::fs::write(&program, script).expect("a program");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a program");
    }
    Ok(())
}

#[test]
fn who_is_nobody_in_a_new_namespace_ends_and_says_so() {
    let place = tempfile::tempdir().expect("a directory");
    let Some(user) = User::in_place(place.path()) else {
        return;
    };
    if !user.may_make_namespaces(place.path()) {
        return skipped("a namespace that is made by half: this kernel lets no user make any");
    }
    let story = std::thread::spawn(move || {
        if programs_that_fail_the_second_time(place.path()).is_err() {
            return skipped("a namespace that is made by half: this user cannot mount files over /etc/subuid");
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let mut up = user.runs_stead(place.path());
        up.args(["up", "--ephemeral"])
            .env("PATH", format!("{}:{path}", place.path().display()));
        let ended = up.output().expect("it starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(place.path().join("gid_map").exists(), "it was tried: {said}");
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("newuidmap or newgidmap failed"), "{said}");
    });
    story.join().expect("the story");
}

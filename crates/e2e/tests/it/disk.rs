//! A disk that fills up, and gets room again.

use crate::binary::{Up, kubectl};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};
use stead_test::skip::skipped;

/// A disk of its own for a directory, gone with the story.
struct Disk(PathBuf);

impl Disk {
    fn new(place: &Path, size: &str) -> Option<Disk> {
        std::fs::create_dir_all(place).expect("a directory");
        match attach(place, size, MsFlags::empty()) {
            Ok(()) => Some(Disk(place.to_owned())),
            Err(error) => {
                skipped(format_args!("no disk of a size of our own: {error}"));
                None
            }
        }
    }

    fn resize(&self, size: &str) {
        attach(&self.0, size, MsFlags::MS_REMOUNT).expect("another size");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Whatever still uses it keeps it for as long as that takes.
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

fn attach(place: &Path, size: &str, flags: MsFlags) -> nix::Result<()> {
    let options = format!("size={size}");
    mount(Some("tmpfs"), place, Some("tmpfs"), flags, Some(options.as_str()))
}

fn stored(up: &Up) -> String {
    up.run(&["get", "configmaps", "-l", "big", "-o", "name"])
}

#[test]
fn a_full_disk_is_told_and_writes_go_on_when_there_is_room_again() {
    if kubectl().is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let data = place.path().join("data");
    let Some(disk) = Disk::new(&data, "8m") else {
        return;
    };
    let arguments = ["--data", &data.display().to_string()];
    let Some(up) = Up::start_in(place, &arguments) else {
        return;
    };
    let manifest = |number: usize| {
        let text = "x".repeat(300_000);
        let labels = "{big: ''}";
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: big-{number}, labels: {labels}}}\ndata: {{x: {text}}}\n"
        )
    };
    let create = |number: usize| {
        let file = up.file("big.yaml", &manifest(number));
        let output = up.kubectl(&["create", "-f", &file]).output().expect("kubectl starts");
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    };
    let (accepted, refusal) = (0..100)
        .find_map(|number| create(number).err().map(|refusal| (number, refusal)))
        .expect("the disk holds less than that");
    assert!(accepted > 0, "{refusal}");
    assert!(
        refusal.contains("the disk of the store is full") && refusal.contains("make room"),
        "{refusal}"
    );
    assert_eq!(stored(&up).lines().count(), accepted, "reads go on");

    disk.resize("64m");
    create(accepted).expect("there is room again");
    let before = stored(&up);
    let (_, _, place) = up.stop(Signal::SIGKILL);
    let up = Up::start_in(place, &arguments).expect("it started before");
    assert_eq!(stored(&up), before);
}

//! `mounttest`: what a program sees of the files that it was given, in the words that tests look for.

use super::{Flags, say};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What a new file says.
const CONTENT: &str = "mount-tester new file\n";

/// A flag and what it asks to do with its path.
type Step = (&'static str, fn(&str) -> io::Result<()>);

/// Does what each flag asks, in an order that does not depend on that of the flags.
pub fn mounttest(flags: &Flags) -> ExitCode {
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    let steps: [Step; 9] = [
        ("fs_type", kind_of_mount),
        ("new_file_0644", |path| new_file(path, 0o644)),
        ("new_file_0666", |path| new_file(path, 0o666)),
        ("new_file_0660", |path| new_file(path, 0o660)),
        ("new_file_0777", |path| new_file(path, 0o777)),
        ("file_mode", |path| {
            let mode = std::fs::metadata(path)?.permissions().mode();
            print(&format!("mode of file \"{path}\": {}", letters(mode, Kind::Shown)))
        }),
        ("file_perm", |path| {
            let mode = std::fs::metadata(path)?.permissions().mode();
            print(&format!("perms of file \"{path}\": {}", letters(mode, Kind::Hidden)))
        }),
        ("file_owner", |path| {
            let found = std::fs::metadata(path)?;
            print(&format!("owner UID of \"{path}\": {}", found.uid()))?;
            print(&format!("owner GID of \"{path}\": {}", found.gid()))
        }),
        ("file_content", content),
    ];
    let mut code = ExitCode::SUCCESS;
    for (flag, step) in steps {
        if let Some(path) = flags.text(flag)
            && let Err(error) = step(path)
        {
            say(&format!("error: {path}: {error}"));
            code = ExitCode::FAILURE;
        }
    }
    if let Some(path) = flags.text("file_content_in_loop") {
        let end = Instant::now() + Duration::from_secs(flags.number("retry_time", 180));
        while Instant::now() < end {
            if content(path).is_err() {
                say(&format!("Error reading file {path}, retrying"));
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    code
}

fn print(text: &str) -> io::Result<()> {
    say(text);
    Ok(())
}

fn content(path: &str) -> io::Result<()> {
    let text = std::fs::read(path)?;
    print(&format!(
        "content of file \"{path}\": {}",
        String::from_utf8_lossy(&text)
    ))
}

fn new_file(path: &str, mode: u32) -> io::Result<()> {
    let open = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(path);
    io::Write::write_all(&mut open?, CONTENT.as_bytes())?;
    content(path)
}

fn kind_of_mount(path: &str) -> io::Result<()> {
    // The longest mount point that the path is below.
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let kinds = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        Path::new(path)
            .starts_with(place)
            .then(|| (place.len(), kind.to_owned()))
    });
    let kind = kinds.max().map(|(_, kind)| kind).unwrap_or_default();
    print(&format!("mount type of \"{path}\": {kind}"))
}

/// Whether the first letter tells what kind of file it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Shown,
    Hidden,
}

/// A mode as Go writes it: `-rw-r--r--`, `dtrwxrwxrwx`.
fn letters(mode: u32, kind: Kind) -> String {
    let mut text = String::new();
    if kind == Kind::Shown {
        let kinds = [
            (0o040_000, 0o170_000, 'd'),
            (0o120_000, 0o170_000, 'L'),
            (0o4000, 0o4000, 'u'),
        ];
        let more = [(0o2000, 0o2000, 'g'), (0o1000, 0o1000, 't')];
        for (value, mask, letter) in kinds.into_iter().chain(more) {
            if mode & mask == value {
                text.push(letter);
            }
        }
    }
    if text.is_empty() {
        text.push('-');
    }
    for (index, letter) in "rwxrwxrwx".chars().enumerate() {
        text.push(if mode & (0o400 >> index) != 0 { letter } else { '-' });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_as_go_writes_them() {
        assert_eq!(letters(0o100_644, Kind::Shown), "-rw-r--r--");
        assert_eq!(letters(0o041_777, Kind::Shown), "dtrwxrwxrwx");
        assert_eq!(letters(0o040_755, Kind::Hidden), "-rwxr-xr-x");
    }
}

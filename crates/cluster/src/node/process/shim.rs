//! The shim: a small process between the agent and one container.
//!
//! It keeps the container's output and its exit code while agents come and go, the way a container runtime's
//! shims do. It is this same binary, started with a file that says what to run, and has no thread but the two
//! that copy output.

use super::attach::{Audience, Keyboard, Piece};
use super::log::{Log, Stream};
use super::spec::{ExitRecord, Input, Memory, ProcessId, Processes, RunSpec, Screen, StartRecord, load, store};
use super::{cgroups, powers, root, terminal, users};
use jiff::Timestamp;
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

/// The exit code of a command that cannot be found, as shells have it.
const NOT_FOUND: i32 = 127;

/// Runs one container to its end. `arguments` is the file that says what to run.
pub fn main(arguments: &[String], now: fn() -> Timestamp) -> ExitCode {
    match arguments.first() {
        Some(path) => run_file(Path::new(path), now),
        None => ExitCode::from(2),
    }
}

/// Runs what a file says to its end.
pub fn run_file(path: &Path, now: fn() -> Timestamp) -> ExitCode {
    let Some(spec) = load::<RunSpec>(path) else {
        return ExitCode::from(2);
    };
    let record = match run(&spec, now) {
        Ok(record) => record,
        Err(error) => ExitRecord {
            code: 128,
            signal: None,
            at: now(),
            error: Some(error.to_string()),
            memory: Memory::Enough,
        },
    };
    match store(&spec.exit, &record) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(spec: &RunSpec, now: fn() -> Timestamp) -> io::Result<ExitRecord> {
    // A group of its own: a signal to the agent's terminal must not reach the container.
    let _ = nix::unistd::setsid();
    let log = Log::open(&spec.log)?;
    let screen = match spec.screen {
        Screen::Pipes => None,
        Screen::Terminal => Some(terminal::open()?),
    };
    let (near, far) = screen.unzip();
    let mut child = spawn(spec, far)?;
    let record = started(&child, now());
    // A container that nobody knows of must not run on: it would be started once more beside itself.
    if let Err(error) = record.and_then(|record| store(&spec.started, &record)) {
        let _ = child.kill();
        return Err(error);
    }
    tell_started();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let keyboard = match &near {
        Some(near) => Some(Keyboard::Terminal(near.try_clone()?)),
        None => child.stdin.take().map(Keyboard::Pipe),
    };
    let audience = &Audience::gather(&spec.log, spec.input, keyboard);
    std::thread::scope(|scope| {
        let log = &log;
        let output = move |bytes: &[u8]| audience.show(Piece::Output, bytes);
        if let Some(near) = near {
            scope.spawn(move || log.copy(Stream::Stdout, File::from(near), now, output));
        }
        if let Some(out) = out {
            scope.spawn(move || log.copy(Stream::Stdout, out, now, output));
        }
        if let Some(err) = err {
            scope.spawn(move || log.copy(Stream::Stderr, err, now, |bytes| audience.show(Piece::Errors, bytes)));
        }
    });
    let status = child.wait()?;
    let signal = status.signal();
    Ok(ExitRecord {
        code: status
            .code()
            .or_else(|| signal.map(|signal| 128 + signal))
            .unwrap_or(128),
        signal,
        at: now(),
        error: None,
        memory: match cgroups::out_of_memory(&spec.cgroups) {
            true => Memory::Exhausted,
            false => Memory::Enough,
        },
    })
}

/// Who runs. A program that is quick has ended by now, and was started all the same.
fn started(child: &Child, at: Timestamp) -> io::Result<StartRecord> {
    let own = i32::try_from(std::process::id()).ok().and_then(ProcessId::of);
    Ok(StartRecord {
        shim: own.ok_or_else(|| io::Error::other("cannot read what the kernel knows of this process"))?,
        main: ProcessId::of_child(child)?,
        at,
    })
}

/// Says to the agent that waits, if one does, that the record of the start is there: it need not look again and
/// again. The container never has this output: it has pipes of its own.
fn tell_started() {
    use std::io::Write;
    let mut out = io::stdout();
    // An agent that is gone finds the record when it comes back.
    let _ = out.write_all(b"!").and_then(|()| out.flush());
}

fn spawn(spec: &RunSpec, far: Option<OwnedFd>) -> io::Result<Child> {
    if let Some(inside) = &spec.inside {
        enter_sandbox(inside.sandbox)?;
    }
    let mut command = if spec.inside.is_some() || far.is_some() || !spec.cgroups.is_empty() {
        let mut command = Command::new("/proc/self/exe");
        let spec = spec.clone();
        // SAFETY: what runs between the fork and the program may do anything that a process with one thread may: of two
        // that there may be, the other only waits for this one to end, and the copiers of output start after it.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || init(&spec));
        }
        command
    } else {
        let mut command = program(spec)?;
        // Without a process of its own before it, it takes what every user may choose.
        if let Some(group) = spec.group {
            command.gid(group);
        }
        if let Some(user) = spec.user {
            command.uid(user);
        }
        command
    };
    match far {
        // It leads a session, and with it a group: see `init`.
        Some(far) => {
            command.stdin(far.try_clone()?).stdout(far.try_clone()?).stderr(far);
        }
        None => {
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
            command.stdin(match spec.input {
                Input::Nothing => Stdio::null(),
                Input::Open | Input::Once => Stdio::piped(),
            });
        }
    }
    let Some(inside) = spec
        .inside
        .as_ref()
        .filter(|inside| inside.processes != Processes::Host)
    else {
        return command.spawn();
    };
    // Children of a thread are born into the namespace that the thread has chosen for them. This one's whole life is one
    // child: going back to the namespace of this process takes the rights of the machine's root.
    std::thread::scope(|scope| {
        let born = scope.spawn(|| {
            match inside.processes {
                Processes::Pod => {
                    let shared = File::open(format!("/proc/{}/ns/pid_for_children", inside.sandbox))?;
                    setns(shared, CloneFlags::CLONE_NEWPID)?;
                }
                Processes::Target(first) => {
                    let others = File::open(format!("/proc/{first}/ns/pid"))?;
                    setns(others, CloneFlags::CLONE_NEWPID)?;
                }
                Processes::Own | Processes::Host => unshare(CloneFlags::CLONE_NEWPID)?,
            }
            command.spawn()
        });
        born.join()
            .map_err(|_| io::Error::other("the container's first process could not be made"))?
    })
}

/// Moves this process into the namespaces that the pod's containers share.
pub fn enter_sandbox(holder: i32) -> io::Result<()> {
    for (name, flag) in [
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("net", CloneFlags::CLONE_NEWNET),
    ] {
        if let Some(space) = strange(holder, name)? {
            setns(space, flag)?;
        }
    }
    Ok(())
}

/// A namespace of another process that this one is not in. Its own it need not join, and those of the machine only its
/// root may.
pub fn strange(process: i32, name: &str) -> io::Result<Option<File>> {
    let place = format!("/proc/{process}/ns/{name}");
    match std::fs::read_link(&place)? == std::fs::read_link(format!("/proc/self/ns/{name}"))? {
        true => Ok(None),
        false => File::open(place).map(Some),
    }
}

/// The container's first process: builds its root, then becomes the program. It is a copy of the shim: loading this
/// binary once more would take longer than all that is done here.
fn init(spec: &RunSpec) -> io::Result<()> {
    // The container alone, not its shim: who tells of an end for want of memory must outlive it.
    if let Err(error) = cgroups::join(&spec.cgroups) {
        complain(&format!("cannot set the limits: {error}"));
        std::process::exit(NOT_FOUND);
    }
    let becoming = users::Becoming::of(spec.user, spec.group);
    let built = match &spec.inside {
        Some(inside) => root::enter(inside),
        None => Ok(()),
    };
    let led = match spec.screen {
        Screen::Pipes => Ok(()),
        Screen::Terminal => terminal::lead(),
    };
    // Before powers are given up: in a new user namespace a process has them all again.
    let possible = led.and(built).and_then(|()| becoming.make_possible());
    let ready = possible.and_then(|standing| powers::take(spec, standing));
    let error = match ready.and_then(|()| program(spec)) {
        Ok(mut program) => program.exec(),
        Err(error) => error,
    };
    complain(&format!("cannot start {:?}: {error}", spec.argv.first()));
    std::process::exit(NOT_FOUND);
}

/// Says why a container cannot start, in its own log.
fn complain(message: &str) {
    use std::io::Write;
    let _ = writeln!(io::stderr(), "{message}");
}

fn program(spec: &RunSpec) -> io::Result<Command> {
    let name = spec
        .argv
        .first()
        .ok_or_else(|| io::Error::other("the container has no command"))?;
    let mut command = Command::new(name);
    command
        .args(&spec.argv[1..])
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)));
    if spec.screen == Screen::Terminal && !spec.env.iter().any(|(name, _)| name == "TERM") {
        command.env("TERM", "xterm");
    }
    command.current_dir(&spec.directory);
    Ok(command)
}

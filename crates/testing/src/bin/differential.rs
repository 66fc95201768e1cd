//! `cargo xtask differential`: searches for differences between the embedded API server and the real one.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use stead_test::differential::{Found, Judge, Search, Sequence};

/// How much of a request is shown.
const SHOWN: usize = 700;

/// What was asked for: `--seed S --sequences N [--from I] [--parallel P] [--keep DIR] [--replay FILE|FOLDER]`.
struct Wanted {
    search: Search,
    keep: PathBuf,
    replay: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let wanted = match wanted() {
        Ok(wanted) => wanted,
        Err(why) => {
            say(&format!("error: {why}"));
            return ExitCode::FAILURE;
        }
    };
    let judge = match Judge::start().await {
        Ok(judge) => judge,
        Err(error) => {
            say(&format!("error: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match &wanted.replay {
        Some(folder) if folder.is_dir() => replay_all(&judge, folder).await,
        Some(file) => replay(&judge, file).await,
        None => search(&judge, &wanted).await,
    }
}

fn wanted() -> Result<Wanted, String> {
    let mut wanted = Wanted {
        search: Search {
            seed: 1,
            sequences: 0..100,
            parallel: 64,
            shrunk: 12,
        },
        keep: PathBuf::from("target/differential"),
        replay: None,
    };
    let (mut from, mut count) = (0, 100);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} wants a value"))?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("{name}: {value:?} is not a number"))
        };
        let size = || number().map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        match name.as_str() {
            "--seed" => wanted.search.seed = number()?,
            "--sequences" => count = number()?,
            "--from" => from = number()?,
            "--parallel" => wanted.search.parallel = size()?.max(1),
            "--shrink" => wanted.search.shrunk = size()?,
            "--keep" => wanted.keep = value.into(),
            "--replay" => wanted.replay = Some(value.into()),
            other => return Err(format!("unknown option {other}")),
        }
    }
    wanted.search.sequences = from..from.saturating_add(count);
    Ok(wanted)
}

async fn search(judge: &Judge, wanted: &Wanted) -> ExitCode {
    let began = std::time::Instant::now();
    let done = AtomicU64::new(0);
    let report = judge
        .search(&wanted.search, |_| {
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(500) {
                say(&format!("{done} sequences"));
            }
        })
        .await;
    for (at, found) in report.found.iter().enumerate() {
        describe(found);
        keep(&wanted.keep, at, found);
    }
    for (row, count) in &report.rows {
        say(&format!("explained {count} times: {row}"));
    }
    for found in &report.found {
        say(&format!("{:>5} {}", found.count, found.sort));
    }
    say(&format!(
        "seed {}: {} sequences, {} requests in {} s: {} clean, {} explained, {} different in {} sorts",
        wanted.search.seed,
        report.sequences,
        report.requests,
        began.elapsed().as_secs(),
        report.clean,
        report.explained,
        report.sequences - report.clean - report.explained,
        report.found.len()
    ));
    match report.found.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn describe(found: &Found) {
    say(&format!(
        "== {} times, first in sequence {}: {}",
        found.count, found.first, found.sort
    ));
    let at = found.differences.first().map(|difference| difference.step);
    for step in found.sequence.steps.iter().filter(|step| Some(step.id) == at) {
        let step = serde_json::to_string(step).unwrap_or_default();
        say(&format!("  {}", step.chars().take(SHOWN).collect::<String>()));
    }
    for difference in found.differences.iter().take(6) {
        say(&format!("  {difference}"));
    }
}

/// Writes the sequence where it can be replayed from.
fn keep(folder: &Path, at: usize, found: &Found) {
    let mut sequence = found.sequence.clone();
    sequence.about = found.sort.clone();
    let path = folder.join(format!("{at}.json"));
    let written = serde_json::to_string_pretty(&sequence)
        .map_err(std::io::Error::other)
        .and_then(|text| std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text + "\n")));
    match written {
        Ok(()) => say(&format!("  kept in {}", path.display())),
        Err(error) => say(&format!("  could not be kept: {error}")),
    }
}

/// Replays every sequence of a folder, and tells only what differs.
async fn replay_all(judge: &Judge, folder: &Path) -> ExitCode {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
    files.sort();
    let mut outcome = ExitCode::SUCCESS;
    for file in files {
        let Some(sequence) = read(&file) else {
            return ExitCode::FAILURE;
        };
        for difference in judge.differences(&sequence).await {
            say(&format!("{}: {difference}", file.display()));
            outcome = ExitCode::FAILURE;
        }
    }
    outcome
}

/// The sequence of a file, or nothing after saying why there is none.
fn read(file: &Path) -> Option<Sequence> {
    let sequence = std::fs::read_to_string(file)
        .map_err(|error| error.to_string())
        .and_then(|text| serde_json::from_str::<Sequence>(&text).map_err(|error| error.to_string()));
    sequence
        .inspect_err(|error| say(&format!("error: {}: {error}", file.display())))
        .ok()
}

async fn replay(judge: &Judge, file: &Path) -> ExitCode {
    let Some(sequence) = read(file) else {
        return ExitCode::FAILURE;
    };
    let (ours, theirs) = judge.answers(&sequence).await;
    for ((step, ours), theirs) in sequence.steps.iter().zip(&ours).zip(&theirs) {
        say(&format!("{} {} {}", step.id, step.method, step.path));
        say(&format!("  ours   {} {}", ours.code, ours.body));
        say(&format!("  theirs {} {}", theirs.code, theirs.body));
    }
    let found = judge.differences(&sequence).await;
    for difference in &found {
        say(&difference.to_string());
    }
    match found.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn say(line: &str) {
    // Nobody is left to tell if standard output is gone.
    let _ = writeln!(std::io::stdout(), "{line}");
}

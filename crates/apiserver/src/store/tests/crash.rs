//! kill -9: a child process writes, tells what was acknowledged, and is killed at any moment.

use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DIRECTORY: &str = "STEAD_TEST_STORE_DIRECTORY";
const ROUND: &str = "STEAD_TEST_STORE_ROUND";
const WRITERS: u64 = 8;
const ROUNDS: u64 = 25;

/// Numbers of one round are below this, so that each round's are new.
const PER_ROUND: u64 = 1_000_000;

fn open(directory: &Path) -> Store {
    let history = History {
        changes: 50,
        ..History::default()
    };
    Store::open(directory, Environment::real().clock, history).unwrap()
}

fn key_of(writer: u64) -> Key {
    pod("n", &format!("x{writer}"))
}

/// Every tenth write of an object deletes it; all others make or change it.
fn deletes(number: u64) -> bool {
    number % 10 == 9
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child process of the test below"]
async fn child_that_is_killed() {
    let directory = std::env::var(DIRECTORY).unwrap();
    let round: u64 = std::env::var(ROUND).unwrap().parse().unwrap();
    let store = open(Path::new(&directory));
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let key = key_of(writer);
            let mut current = store.get(&key).await.unwrap();
            for number in round * PER_ROUND.. {
                let write = match &current {
                    Some(record) if deletes(number) => deletion_of(record, number),
                    Some(record) => update_of(record, number),
                    None if deletes(number) => continue,
                    None => creation(&key, number),
                };
                // Said before and after: a write that was begun may be found, one that was answered must be.
                say(format!("asked {writer} {number}"));
                let record = store.write(write).await.unwrap();
                say(format!("answered {writer} {number} {}", record.revision));
                current = (!deletes(number)).then_some(record);
            }
        })
    });
    futures::future::join_all(writers).await;
}

fn say(line: String) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

#[tokio::test]
async fn a_killed_process_loses_no_answered_write_and_leaves_no_half() {
    let directory = tempfile::tempdir().unwrap();
    let mut chance = StdRng::seed_from_u64(9);
    // For each object the states that may be found: as last answered (or found after a kill), and as last asked.
    let mut told: HashMap<u64, [Option<u64>; 2]> = HashMap::new();
    let left_by = |number: u64| (!deletes(number)).then_some(number);
    let mut newest = 0;
    let mut answered = 0;
    for round in 1..=ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "store::tests::crash::child_that_is_killed",
                "--ignored",
                "--nocapture",
            ])
            .env(DIRECTORY, directory.path())
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut until = None;
        // The pipe is read to its end after the kill: what was said there was said to a client.
        while let Some(Ok(line)) = lines.next() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |index: usize| words.get(index).and_then(|word: &&str| word.parse::<u64>().ok());
            match (words.first(), number(1), number(2)) {
                (Some(&"asked"), Some(writer), Some(number)) => told.entry(writer).or_default()[1] = left_by(number),
                (Some(&"answered"), Some(writer), Some(asked)) if number(3).is_some() => {
                    told.insert(writer, [left_by(asked); 2]);
                    newest = newest.max(number(3).unwrap());
                    answered += 1;
                }
                _ => {}
            }
            let until =
                *until.get_or_insert_with(|| Instant::now() + Duration::from_millis(chance.random_range(1..60)));
            if Instant::now() > until {
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success(), "the child only ends by being killed");

        let store = open(directory.path());
        assert!(store.revision().0 >= newest, "round {round}: revisions never go back");
        for (writer, wanted) in &mut told {
            let found = store.get(&key_of(*writer)).await.unwrap().map(|record| step(&record));
            assert!(
                wanted.contains(&found),
                "round {round}: found {found:?}, wanted one of {wanted:?}"
            );
            *wanted = [found; 2];
        }
    }
    assert!(answered > ROUNDS, "the children did write: {answered}");
}

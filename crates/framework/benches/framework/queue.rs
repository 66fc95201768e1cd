//! A million adds and gets, with few keys and with many.

use std::time::{Duration, Instant};
use stead::Key;
use stead::queue::{Class, Ledger, Next, Settings, Verdict, Wake};

const OPERATIONS: usize = 1_000_000;
/// Keys that wait in line at one time.
const IN_LINE: usize = 1_000;

pub fn million(keys: usize) {
    let names: Vec<Key> = (0..keys)
        .map(|number| Key::namespaced("bench", &format!("key-{number}")))
        .collect();
    let mut served = vec![0u32; keys];
    let mut ledger = Ledger::new(Settings::default());
    let start = Instant::now();
    let mut now = tokio::time::Instant::now();
    let mut added = 0;
    while added < OPERATIONS {
        for _ in 0..IN_LINE.min(keys) {
            // Every third is of the lowest class: it must come to its turn too.
            let class = match added % 3 {
                0 => Class::Low,
                1 => Class::Normal,
                _ => Class::High,
            };
            ledger.add(names[added % keys].clone(), class, Wake::Resync, now);
            added += 1;
        }
        now += Duration::from_micros(10);
        while let Next::Ready(job) = ledger.next(now) {
            let number = job.key.name().trim_start_matches("key-").parse::<usize>();
            served[number.unwrap_or_default()] += 1;
            ledger.done(&job.key, Verdict::Settled, now);
        }
    }
    let took = start.elapsed();
    let expected = u32::try_from(OPERATIONS / keys).unwrap_or(u32::MAX);
    assert!(served.iter().all(|times| *times >= expected), "a key was starved");
    let each = took.as_nanos() as f64 / added as f64;
    println!("| queue: {OPERATIONS} adds, gets and ends with {keys} keys, none starved | {each:.0} ns each |");
}

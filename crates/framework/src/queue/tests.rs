//! Stories about the queue, on a clock of their own.

use super::*;

fn key(name: &str) -> Key {
    Key::namespaced("ns", name)
}

fn woken() -> Wake {
    Wake::Resync
}

fn ready(ledger: &mut Ledger, now: Instant) -> Option<String> {
    match ledger.next(now) {
        Next::Ready(job) => Some(job.key.name().to_owned()),
        Next::At(_) | Next::Nothing => None,
    }
}

#[test]
fn a_key_added_twice_runs_once_and_keys_run_in_order() {
    let now = Instant::now();
    let mut ledger = Ledger::new(Settings::default());
    for name in ["a", "b", "a", "c"] {
        ledger.add(key(name), Class::Normal, woken(), now);
    }
    let order: Vec<_> = std::iter::from_fn(|| ready(&mut ledger, now)).collect();
    assert_eq!(order, ["a", "b", "c"]);
}

#[test]
fn a_wish_for_never_is_a_long_delay_and_no_overflow() {
    let now = Instant::now();
    let mut ledger = Ledger::new(Settings::default());
    ledger.add(key("a"), Class::Normal, woken(), now);
    assert_eq!(ready(&mut ledger, now).as_deref(), Some("a"));
    ledger.done(&key("a"), Verdict::After(Duration::MAX), now);
    ledger.add_after(key("b"), Duration::MAX, woken(), now);
    assert!(matches!(ledger.next(now), Next::At(at) if at > now));
}

#[test]
fn a_key_never_runs_twice_at_once_and_is_not_forgotten_either() {
    let now = Instant::now();
    let mut ledger = Ledger::new(Settings::default());
    ledger.add(key("a"), Class::Normal, woken(), now);
    assert_eq!(ready(&mut ledger, now).as_deref(), Some("a"));
    ledger.add(key("a"), Class::Normal, woken(), now);
    assert_eq!(ready(&mut ledger, now), None);
    ledger.done(&key("a"), Verdict::Settled, now);
    assert_eq!(ready(&mut ledger, now).as_deref(), Some("a"));
    ledger.done(&key("a"), Verdict::Settled, now);
    assert_eq!(ledger.entries_known(), 0);
}

#[test]
fn low_priority_work_progresses_under_a_flood_of_high_priority_work() {
    let mut now = Instant::now();
    let mut ledger = Ledger::new(Settings::default());
    ledger.add(key("initial"), Class::Low, woken(), now);
    let mut served_after = None;
    for round in 0..200u32 {
        ledger.add(key(&format!("urgent-{round}-a")), Class::High, woken(), now);
        ledger.add(key(&format!("urgent-{round}-b")), Class::High, woken(), now);
        now += Duration::from_millis(100);
        let name = ready(&mut ledger, now).expect("something waits");
        ledger.done(&key(&name), Verdict::Settled, now);
        if name == "initial" {
            served_after = Some(round);
            break;
        }
    }
    // Two arrive for each one served, so the line of urgent ones only grows; the old one still gets its turn.
    assert!(served_after.is_some_and(|round| round < 110), "{served_after:?}");
}

#[test]
fn failures_back_off_from_one_second_to_five_minutes() {
    let mut now = Instant::now();
    let settings = Settings {
        backoff: Backoff {
            jitter: 0.0,
            ..Backoff::default()
        },
        ..Settings::default()
    };
    let mut ledger = Ledger::new(settings);
    ledger.add(key("a"), Class::Normal, woken(), now);
    let mut delays = Vec::new();
    for _ in 0..11 {
        assert_eq!(ready(&mut ledger, now).as_deref(), Some("a"));
        ledger.done(&key("a"), Verdict::Failed { not_before: None }, now);
        let Next::At(at) = ledger.next(now) else {
            panic!("it backs off")
        };
        delays.push((at - now).as_secs());
        now = at;
    }
    assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
}

#[test]
fn an_event_storm_neither_shortens_nor_lengthens_a_backoff() {
    let now = Instant::now();
    let mut ledger = Ledger::new(Settings::default());
    ledger.add(key("a"), Class::Normal, woken(), now);
    ready(&mut ledger, now);
    ledger.done(&key("a"), Verdict::Failed { not_before: None }, now);
    let Next::At(before) = ledger.next(now) else {
        panic!("it backs off")
    };
    for _ in 0..1000 {
        ledger.add(key("a"), Class::High, woken(), now);
    }
    let Next::At(after) = ledger.next(now) else {
        panic!("it still backs off")
    };
    assert_eq!(before, after);
    assert_eq!(ledger.failures(&key("a")), 1);
}

#[test]
fn a_changed_spec_retries_at_once() {
    let now = Instant::now();
    let mut ledger = Ledger::new(Settings::default());
    ledger.add(key("a"), Class::Normal, woken(), now);
    ready(&mut ledger, now);
    ledger.done(&key("a"), Verdict::Failed { not_before: None }, now);
    ledger.add(key("a"), Class::High, Wake::SpecChanged { generation: 2 }, now);
    assert_eq!(ready(&mut ledger, now).as_deref(), Some("a"));
}

#[test]
fn a_spec_that_changes_during_a_failing_run_retries_at_once() {
    let now = Instant::now();
    let mut ledger = Ledger::new(Settings::default());
    ledger.add(key("a"), Class::Normal, woken(), now);
    ready(&mut ledger, now);
    ledger.add(key("a"), Class::High, Wake::SpecChanged { generation: 2 }, now);
    ledger.done(&key("a"), Verdict::Failed { not_before: None }, now);
    assert_eq!(ready(&mut ledger, now).as_deref(), Some("a"));
}

#[test]
fn f4_a_server_that_says_when_to_come_back_is_obeyed() {
    let now = Instant::now();
    let mut ledger = Ledger::new(Settings::default());
    ledger.add(key("a"), Class::Normal, woken(), now);
    ready(&mut ledger, now);
    let asked = Duration::from_secs(17);
    ledger.done(
        &key("a"),
        Verdict::Failed {
            not_before: Some(asked),
        },
        now,
    );
    let Next::At(at) = ledger.next(now) else {
        panic!("it waits")
    };
    assert_eq!(at - now, asked);
}

#[test]
fn f3_conflicts_retry_soon_a_few_times_and_then_back_off() {
    let mut now = Instant::now();
    let mut ledger = Ledger::new(Settings::default());
    ledger.add(key("a"), Class::Normal, woken(), now);
    let mut delays = Vec::new();
    for _ in 0..7 {
        assert_eq!(ready(&mut ledger, now).as_deref(), Some("a"));
        ledger.done(&key("a"), Verdict::Conflicted, now);
        let Next::At(at) = ledger.next(now) else {
            panic!("it waits")
        };
        delays.push(at - now);
        now = at;
    }
    assert!(delays[..5].iter().all(|delay| *delay < Duration::from_millis(100)));
    assert!(delays[5..].iter().all(|delay| *delay >= Duration::from_millis(700)));
}

#[test]
fn the_earliest_of_several_delays_wins_and_runs_once() {
    let now = Instant::now();
    let mut ledger = Ledger::new(Settings::default());
    for seconds in [30, 10, 20] {
        ledger.add_after(key("a"), Duration::from_secs(seconds), Wake::Requested, now);
    }
    assert_eq!(ready(&mut ledger, now + Duration::from_secs(9)), None);
    let then = now + Duration::from_secs(10);
    assert_eq!(ready(&mut ledger, then).as_deref(), Some("a"));
    ledger.done(&key("a"), Verdict::Settled, then);
    assert_eq!(ready(&mut ledger, now + Duration::from_secs(60)), None);
}

#[test]
fn a_rate_limit_spreads_a_burst() {
    let mut now = Instant::now();
    let settings = Settings {
        rate: Some(RateLimit {
            per_second: 10.0,
            burst: 2.0,
        }),
        ..Settings::default()
    };
    let mut ledger = Ledger::new(settings);
    for number in 0..12 {
        ledger.add(key(&number.to_string()), Class::Normal, woken(), now);
    }
    let start = now;
    let mut served = 0;
    while served < 12 {
        match ledger.next(now) {
            Next::Ready(_) => served += 1,
            Next::At(at) => now = at,
            Next::Nothing => panic!("{served} of 12"),
        }
    }
    let took = (now - start).as_secs_f64();
    assert!((0.95..1.1).contains(&took), "{took}");
}

proptest::proptest! {
    /// Whatever happens in whatever order: a key runs at most once at a time, and nothing that was added is lost.
    #[test]
    fn nothing_is_lost_and_nothing_runs_twice_at_once(steps in proptest::collection::vec((0..4u8, 0..6u8), 1..200)) {
        let mut now = Instant::now();
        let mut ledger = Ledger::new(Settings::default());
        let mut running = std::collections::BTreeSet::new();
        let mut owed = std::collections::BTreeSet::new();
        for (action, which) in steps {
            let name = which.to_string();
            now += Duration::from_millis(300);
            match action {
                0 => { ledger.add(key(&name), Class::Normal, woken(), now); owed.insert(name); }
                1 => if let Some(name) = ready(&mut ledger, now) {
                    proptest::prop_assert!(running.insert(name.clone()), "{} runs twice", name);
                    owed.remove(&name);
                }
                2 => if running.remove(&name) { ledger.done(&key(&name), Verdict::Settled, now); }
                _ => if running.remove(&name) {
                    ledger.done(&key(&name), Verdict::Failed { not_before: None }, now);
                    owed.insert(name);
                }
            }
        }
        for name in std::mem::take(&mut running) {
            ledger.done(&key(&name), Verdict::Settled, now);
        }
        now += Duration::from_secs(3600);
        while let Some(name) = ready(&mut ledger, now) {
            owed.remove(&name);
            ledger.done(&key(&name), Verdict::Settled, now);
        }
        proptest::prop_assert!(owed.is_empty(), "lost: {:?}", owed);
        proptest::prop_assert_eq!(ledger.entries_known(), 0);
    }
}

#[test]
fn a_look_that_was_asked_for_while_the_key_ran_does_not_shorten_its_backoff() {
    let now = Instant::now();
    let mut ledger = Ledger::new(Settings::default());
    ledger.add(key("a"), Class::Normal, woken(), now);
    assert_eq!(ready(&mut ledger, now).as_deref(), Some("a"));
    ledger.add_after(key("a"), Duration::from_millis(10), woken(), now);
    ledger.done(&key("a"), Verdict::Failed { not_before: None }, now);
    assert_eq!(ready(&mut ledger, now + Duration::from_millis(100)), None);
    assert_eq!(ready(&mut ledger, now + Duration::from_secs(2)).as_deref(), Some("a"));
}

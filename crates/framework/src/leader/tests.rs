//! Stories about elections, on a clock of their own.

use super::*;
use std::time::Duration;
use tokio::time::Instant;

fn lease(holder: &str, version: &str) -> Option<Seen> {
    Some(Seen {
        holder: holder.to_owned(),
        duration: Duration::from_secs(15),
        version: version.to_owned(),
    })
}

#[test]
fn a_lease_that_is_renewed_is_never_taken() {
    let start = Instant::now();
    let mut candidate = Candidate::new("b");
    for round in 0..100u64 {
        let now = start + Duration::from_secs(2 * round);
        let version = (round / 5).to_string();
        assert_eq!(
            candidate.decide(lease("a", &version), now),
            Decision::Wait,
            "round {round}"
        );
    }
}

#[test]
fn a_silent_holder_is_replaced_after_its_lease_counted_from_our_own_first_look() {
    let start = Instant::now();
    let mut candidate = Candidate::new("b");
    let at = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(candidate.decide(lease("a", "1"), at(0)), Decision::Wait);
    assert_eq!(candidate.decide(lease("a", "1"), at(15)), Decision::Wait);
    assert_eq!(candidate.decide(lease("a", "1"), at(16)), Decision::Take);
}

#[test]
fn f17_a_wall_clock_that_jumps_decides_nothing() {
    // Whatever times stand in the Lease, only its version and our own clock count: they are not even looked at.
    let start = Instant::now();
    let mut candidate = Candidate::new("b");
    assert_eq!(candidate.decide(lease("a", "1"), start), Decision::Wait);
    assert_eq!(
        candidate.decide(lease("a", "1"), start + Duration::from_secs(1)),
        Decision::Wait
    );
}

#[test]
fn a_lease_given_back_is_taken_at_once_and_a_missing_one_is_created() {
    let now = Instant::now();
    let mut candidate = Candidate::new("b");
    assert_eq!(candidate.decide(lease("", "7"), now), Decision::Take);
    assert_eq!(candidate.decide(None, now), Decision::Create);
    assert_eq!(candidate.decide(lease("b", "8"), now), Decision::Renew);
}

#[tokio::test]
async fn f16_a_fence_closes_by_itself_when_nobody_renews() {
    let fence = Fence::closed();
    assert_eq!(fence.check(), Err(NotLeader));
    fence.open_until(Instant::now() + Duration::from_millis(30));
    assert_eq!(fence.check(), Ok(()));
    // No task has to run for the gate to close: a process that was paused finds it closed.
    tokio::time::timeout(Duration::from_secs(5), fence.lost())
        .await
        .unwrap();
    assert_eq!(fence.check(), Err(NotLeader));
}

#[test]
fn others_wait_at_least_as_long_as_a_holder_counts_on() {
    let published = |milliseconds| election::whole_seconds(Duration::from_millis(milliseconds));
    assert_eq!(
        [published(1900), published(2000), published(2001), published(0)],
        [2, 2, 3, 1]
    );
}

#[test]
fn times_with_which_two_could_lead_are_refused() {
    let times = |lease, renew_deadline, retry| {
        let times = LeaderElection {
            lease: Duration::from_secs(lease),
            renew_deadline: Duration::from_secs(renew_deadline),
            retry: Duration::from_secs(retry),
            ..LeaderElection::new("a", "b")
        };
        times.check().map_err(|error| error.to_string())
    };
    assert!(times(15, 10, 2).is_ok());
    assert!(times(10, 10, 2).is_err() && times(15, 2, 2).is_err() && times(15, 10, 0).is_err());
    let told = times(5, 10, 2).unwrap_err();
    assert!(
        told.starts_with("the lease (5s) must be longer than the renew deadline (10s)"),
        "{told}"
    );
}

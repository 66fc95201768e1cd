//! Autoscalers told by numbers: what was measured, and what size follows.

use super::pace::{Memory, pace};
use super::usage::{Measure, Question, Sample, Samples, Target, Tolerance, replicas};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerSpec;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::sync::Arc;

const TOLERANCE: Tolerance = Tolerance { up: 0.1, down: 0.1 };

fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// A pod as `state request`, where the state is ready, pending, failed, going, fresh (unready, just started), late
/// (never ready) or flapped (unready now, once ready).
fn pod(index: usize, text: &str) -> Arc<Pod> {
    let (state, request) = text.split_once(' ').unwrap_or((text, "100m"));
    let (started, changed, ready) = match state {
        "fresh" => ("2026-01-01T11:59:00Z", "2026-01-01T11:59:00Z", "False"),
        "late" => ("2026-01-01T11:00:00Z", "2026-01-01T11:00:10Z", "False"),
        "flapped" => ("2026-01-01T11:00:00Z", "2026-01-01T11:50:00Z", "False"),
        _ => ("2026-01-01T11:00:00Z", "2026-01-01T11:00:05Z", "True"),
    };
    let phase = match state {
        "pending" => "Pending",
        "failed" => "Failed",
        _ => "Running",
    };
    let mut pod = json!({
        "metadata": {"name": format!("p{index}")},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": request}}}]},
        "status": {"phase": phase, "startTime": started, "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": changed}]},
    });
    if state == "going" {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:00Z");
    }
    if request == "none" {
        pod["spec"]["containers"][0]["resources"] = json!({});
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// The size for pods, what they use in thousandths (`None`: nothing was measured) and a target.
fn size(pods: &[&str], used: &[Option<i64>], target: Target, measure: Measure<'_>) -> Result<i32, String> {
    let pods: Vec<_> = pods.iter().enumerate().map(|(index, text)| pod(index, text)).collect();
    let samples: Samples = used
        .iter()
        .enumerate()
        .filter_map(|(index, value)| {
            let sample = Sample {
                value: (*value)?,
                at: noon(),
                window: SignedDuration::from_secs(30),
            };
            Some((format!("p{index}"), sample))
        })
        .collect();
    let question = Question {
        current: i32::try_from(pods.len()).unwrap(),
        pods: &pods,
        samples,
        measure,
        target,
        tolerance: TOLERANCE,
        now: noon(),
    };
    replicas(question).map(|answer| answer.replicas)
}

#[track_caller]
fn cpu(pods: &[&str], used: &[Option<i64>], target: i64, expected: i32) {
    assert_eq!(
        size(pods, used, Target::Utilization(target), Measure::Resource("cpu")),
        Ok(expected)
    );
}

#[test]
fn use_above_or_below_the_target_changes_the_size_in_proportion() {
    cpu(&["ready"; 3], &[Some(30), Some(50), Some(70)], 50, 3);
    cpu(&["ready"; 3], &[Some(100), Some(100), Some(100)], 50, 6);
    cpu(&["ready"; 3], &[Some(60), Some(60), Some(60)], 50, 4);
    cpu(&["ready"; 4], &[Some(10), Some(10), Some(10), Some(10)], 50, 1);
    cpu(&["ready"; 2], &[Some(0), Some(0)], 50, 0);
}

#[test]
fn small_deviations_change_nothing() {
    cpu(&["ready"; 3], &[Some(55); 3], 50, 3);
    cpu(&["ready"; 3], &[Some(45); 3], 50, 3);
    cpu(&["ready"; 3], &[Some(56); 3], 50, 4);
    cpu(&["ready"; 3], &[Some(44); 3], 50, 3);
    cpu(&["ready"; 10], &[Some(44); 10], 50, 9);
}

#[test]
fn pods_that_are_not_ready_do_not_drive_growth() {
    // 100 % of target 50 % by one ready pod would double; the fresh one is taken to use nothing.
    cpu(&["ready", "fresh"], &[Some(100), Some(900)], 50, 2);
    cpu(&["ready", "pending"], &[Some(100), None], 50, 2);
    cpu(&["ready", "ready", "pending"], &[Some(150), Some(150), None], 50, 6);
    cpu(&["ready", "late"], &[Some(100), Some(100)], 50, 2);
    // Once it was ready, its use counts.
    cpu(&["ready", "flapped"], &[Some(100), Some(100)], 50, 4);
}

#[test]
fn pods_without_a_measurement_hold_a_shrinking_back() {
    cpu(&["ready"; 4], &[Some(10), Some(10), Some(10), None], 50, 3);
    cpu(&["ready"; 2], &[Some(20), None], 50, 2);
    cpu(&["ready"; 3], &[Some(100), Some(100), None], 50, 4);
}

#[test]
fn pods_that_end_are_left_out() {
    cpu(&["ready", "ready", "failed"], &[Some(50), Some(50), Some(900)], 50, 3);
    cpu(&["ready", "ready", "going"], &[Some(100), Some(100), Some(900)], 50, 4);
}

#[test]
fn what_cannot_be_computed_says_why() {
    let utilization = |pods: &[&str], used: &[Option<i64>]| {
        size(pods, used, Target::Utilization(50), Measure::Resource("cpu")).unwrap_err()
    };
    assert_eq!(
        utilization(&["ready none"], &[Some(5)]),
        "missing request for cpu in container c of Pod p0"
    );
    assert_eq!(
        utilization(&["pending"], &[None]),
        "did not receive metrics for targeted pods (pods might be unready)"
    );
    assert_eq!(
        utilization(&[], &[]),
        "no pods returned by selector while calculating replica count"
    );
}

#[test]
fn averages_of_resources_and_of_what_pods_report() {
    let check = |measure, used: &[Option<i64>], target, expected| {
        let pods = vec!["ready none"; used.len()];
        assert_eq!(size(&pods, used, Target::Average(target), measure), Ok(expected));
    };
    check(Measure::Pods, &[Some(10_000), Some(30_000)], 10_000, 4);
    check(Measure::Pods, &[Some(10_000), Some(10_000)], 10_000, 2);
    check(Measure::Pods, &[Some(1_000), None], 10_000, 2);
    check(Measure::Resource("memory"), &[Some(2_000), Some(2_000)], 1_000, 4);
    let container = Measure::ContainerResource {
        resource: "cpu",
        container: "c",
    };
    check(container, &[Some(2_000), Some(2_000)], 4_000, 1);
    assert_eq!(
        size(&["ready"; 2], &[Some(100); 2], Target::Utilization(50), container),
        Ok(4)
    );
}

fn spec(behavior: Value) -> HorizontalPodAutoscalerSpec {
    serde_json::from_value(json!({
        "minReplicas": 2, "maxReplicas": 20, "behavior": behavior,
        "scaleTargetRef": {"kind": "Deployment", "name": "web"},
    }))
    .unwrap()
}

/// A story of `(seconds, desired, expected size, expected reason)`; the size reached is the next one's current.
#[track_caller]
fn story(behavior: Value, from: i32, steps: &[(i64, i32, i32, &str)]) {
    let spec = spec(behavior);
    let (mut memory, mut current) = (Memory::default(), from);
    memory.begin(from, noon());
    for (seconds, desired, expected, reason) in steps {
        let now = noon() + SignedDuration::from_secs(*seconds);
        let paced = pace(&mut memory, &spec, current, *desired, now);
        assert_eq!(paced.replicas, *expected, "after {seconds} s: {paced:?}");
        let words = [paced.able.0, paced.limited.1];
        assert!(words.contains(reason), "after {seconds} s: {words:?}");
        if paced.replicas != current {
            memory.changed(current, paced.replicas, now);
            current = paced.replicas;
        }
    }
}

#[test]
fn without_a_behaviour_growth_is_a_doubling_and_shrinking_waits_five_minutes() {
    story(
        Value::Null,
        3,
        &[
            (15, 50, 6, "ScaleUpLimit"),
            (30, 50, 12, "ScaleUpLimit"),
            (45, 50, 20, "TooManyReplicas"),
            (60, 5, 20, "ScaleDownStabilized"),
            (330, 5, 20, "ScaleDownStabilized"),
            (361, 5, 5, "ReadyForNewScale"),
            (600, 0, 5, "ScaleDownStabilized"),
            (1100, 0, 2, "TooFewReplicas"),
        ],
    );
    story(Value::Null, 1, &[(15, 50, 4, "ScaleUpLimit")]);
}

#[test]
fn policies_bound_each_period() {
    let up = json!({"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}});
    story(
        up,
        3,
        &[
            (15, 9, 5, "ScaleUpLimit"),
            (30, 9, 5, "ScaleUpLimit"),
            (76, 9, 7, "ScaleUpLimit"),
            (140, 9, 9, "DesiredWithinRange"),
        ],
    );
    let down = json!({"scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Min",
        "policies": [{"type": "Percent", "value": 50, "periodSeconds": 60}, {"type": "Pods", "value": 1, "periodSeconds": 60}]}});
    story(
        down,
        10,
        &[
            (15, 3, 9, "ScaleDownLimit"),
            (30, 3, 9, "ScaleDownLimit"),
            (76, 3, 8, "ScaleDownLimit"),
        ],
    );
}

#[test]
fn a_window_upwards_waits_for_the_load_to_stay() {
    let slow = json!({"scaleUp": {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 50, "periodSeconds": 15}]}});
    story(
        slow,
        3,
        &[
            (15, 9, 3, "ScaleUpStabilized"),
            (45, 8, 3, "ScaleUpStabilized"),
            (61, 9, 8, "ScaleUpStabilized"),
        ],
    );
}

#[test]
fn a_direction_can_be_turned_off() {
    let off = json!({"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}});
    story(
        off,
        10,
        &[(15, 3, 10, "ScaleDownLimit"), (600, 2, 10, "ScaleDownLimit")],
    );
}

#[test]
fn with_an_empty_behaviour_the_standard_policies_hold() {
    story(
        json!({}),
        3,
        &[
            (15, 50, 7, "ScaleUpLimit"),
            (16, 50, 7, "ScaleUpLimit"),
            (31, 50, 14, "ScaleUpLimit"),
        ],
    );
}

//! The life of a pod, told as observations and plans.

use super::plan::{Action, Outcome, Plan, Presence, Question, Why, outcome, pod as plan_pod};
use super::seen::{Backoff, Container, Exit, Sandbox, Seen, State};
use super::shape::Shape;
use super::status::{self, Host};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::time::Duration;

fn pod(spec: serde_json::Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": "p", "namespace": "ns", "uid": "u", "generation": 1 },
        "spec": spec,
    }))
    .unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

fn ready() -> Sandbox {
    Sandbox::Ready {
        addresses: vec!["198.18.0.2".parse().unwrap()],
    }
}

fn running() -> Container {
    Container {
        state: State::Running {
            id: "r".to_owned(),
            since: at(0),
        },
        started: true,
        ready: true,
        ..Container::default()
    }
}

fn exited(code: i32, seconds: i64) -> Container {
    Container {
        state: State::Exited(Exit {
            id: "e".to_owned(),
            code,
            signal: None,
            reason: "Error".to_owned(),
            message: None,
            started_at: at(0),
            finished_at: at(seconds),
        }),
        ..Container::default()
    }
}

fn plan(pod: &Pod, seen: &Seen, now: i64) -> Plan {
    plan_pod(&Question {
        shape: Shape::of(pod),
        seen,
        presence: Presence::Listed,
        now: at(now),
    })
}

fn seen(containers: &[(&str, Container)]) -> Seen {
    Seen {
        sandbox: ready(),
        containers: containers
            .iter()
            .map(|(name, container)| ((*name).to_owned(), Box::new(container.clone())))
            .collect(),
        verdict: None,
    }
}

fn start(name: &str, restarts: u32) -> Action {
    Action::Start {
        container: name.to_owned(),
        restarts,
    }
}

fn status_of(pod: &Pod, seen: &Seen, now: i64) -> k8s_openapi::api::core::v1::PodStatus {
    let host = Host {
        address: "127.0.0.1".parse().unwrap(),
        runtime: "test",
        isolation: Default::default(),
    };
    status::of(
        &Question {
            shape: Shape::of(pod),
            seen,
            presence: Presence::Listed,
            now: at(now),
        },
        &host,
    )
}

#[test]
fn a_new_pod_gets_a_sandbox_before_anything_runs_in_it() {
    let pod = pod(json!({ "containers": [{ "name": "c" }] }));
    assert_eq!(plan(&pod, &Seen::default(), 0).actions, [Action::CreateSandbox]);
    assert_eq!(plan(&pod, &seen(&[]), 0).actions, [start("c", 0)]);
}

#[test]
fn a_pod_that_ends_does_not_wait_for_its_image() {
    let mut pod = pod(json!({ "containers": [{ "name": "c" }] }));
    let starting = Container {
        state: State::Starting,
        ..Container::default()
    };
    let seen = seen(&[("c", starting)]);
    assert_eq!(plan(&pod, &seen, 0).actions, []);
    pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
    assert_eq!(plan(&pod, &seen, 1).actions, [Action::GiveUpStarts]);
}

#[test]
fn init_containers_run_in_order_and_a_sidecar_only_has_to_start() {
    let pod = pod(json!({
        "initContainers": [{ "name": "i" }, { "name": "s", "restartPolicy": "Always" }, { "name": "j" }],
        "containers": [{ "name": "c" }],
    }));
    assert_eq!(plan(&pod, &seen(&[]), 0).actions, [start("i", 0)]);
    assert_eq!(plan(&pod, &seen(&[("i", exited(0, 1))]), 2).actions, [start("s", 0)]);
    let sidecar_runs = [("i", exited(0, 1)), ("s", running())];
    assert_eq!(plan(&pod, &seen(&sidecar_runs), 2).actions, [start("j", 0)]);
    let all_inits = [("i", exited(0, 1)), ("s", running()), ("j", exited(0, 2))];
    assert_eq!(plan(&pod, &seen(&all_inits), 3).actions, [start("c", 0)]);
}

#[test]
fn a_crash_is_restarted_at_once_and_then_ever_later() {
    let pod = pod(json!({ "containers": [{ "name": "c" }] }));
    let mut crashed = exited(1, 5);
    assert_eq!(plan(&pod, &seen(&[("c", crashed.clone())]), 5).actions, [start("c", 1)]);
    crashed.backoff = Backoff::default().raised(at(5));
    crashed.restarts = 1;
    let waiting = plan(&pod, &seen(&[("c", crashed.clone())]), 6);
    assert_eq!((waiting.actions, waiting.wake), (vec![], Some(at(15))));
    let status = status_of(&pod, &seen(&[("c", crashed.clone())]), 6);
    let waiting = status.container_statuses.unwrap()[0]
        .state
        .clone()
        .unwrap()
        .waiting
        .unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(
        waiting.message.as_deref(),
        Some("back-off 10s restarting failed container=c pod=p_ns(u)")
    );
    assert_eq!(plan(&pod, &seen(&[("c", crashed)]), 15).actions, [start("c", 2)]);
}

#[test]
fn a_backoff_doubles_to_five_minutes_and_is_forgiven_after_ten() {
    let mut backoff = Backoff::default();
    let waits: Vec<u32> = (0..7)
        .map(|_| {
            backoff = backoff.raised(at(0));
            backoff.seconds
        })
        .collect();
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
    assert_eq!(backoff.at_exit(at(601)).seconds, 0);
}

#[test]
fn a_pod_that_never_restarts_fails_with_its_container() {
    let pod = pod(json!({ "restartPolicy": "Never", "containers": [{ "name": "a" }, { "name": "b" }] }));
    let half = seen(&[("a", exited(0, 1)), ("b", running())]);
    assert_eq!(outcome(&Shape::of(&pod), &half), None);
    let both = seen(&[("a", exited(0, 1)), ("b", exited(2, 1))]);
    assert_eq!(outcome(&Shape::of(&pod), &both), Some(Outcome::Failed));
    assert_eq!(plan(&pod, &both, 2).actions, [Action::StopSandbox]);
    let status = status_of(&pod, &both, 2);
    assert_eq!(status.phase.as_deref(), Some("Failed"));
}

#[test]
fn sidecars_of_a_finished_pod_end_last_and_in_reverse() {
    let pod = pod(json!({
        "restartPolicy": "OnFailure",
        "initContainers": [{ "name": "s1", "restartPolicy": "Always" }, { "name": "s2", "restartPolicy": "Always" }],
        "containers": [{ "name": "c" }],
    }));
    let observed = seen(&[("s1", running()), ("s2", running()), ("c", exited(0, 4))]);
    let stop = Action::Stop {
        container: "s2".to_owned(),
        grace: Duration::from_secs(30),
        why: Why::PodEnds,
    };
    assert_eq!(plan(&pod, &observed, 5).actions, [stop]);
}

#[test]
fn a_deleted_pod_ends_with_its_grace_and_is_released_when_nothing_is_left() {
    let mut pod = pod(json!({ "containers": [{ "name": "c" }] }));
    pod.metadata.deletion_timestamp = Some(status::whole_seconds(at(10)));
    pod.metadata.deletion_grace_period_seconds = Some(5);
    let stop = |seconds| Action::Stop {
        container: "c".to_owned(),
        grace: Duration::from_secs(seconds),
        why: Why::PodEnds,
    };
    assert_eq!(plan(&pod, &seen(&[("c", running())]), 5).actions, [stop(5)]);
    let mut stopping = running();
    stopping.state = State::Stopping {
        id: "r".to_owned(),
        since: at(0),
        kill_at: at(10),
    };
    assert_eq!(plan(&pod, &seen(&[("c", stopping.clone())]), 6).actions, []);
    pod.metadata.deletion_grace_period_seconds = Some(1);
    assert_eq!(plan(&pod, &seen(&[("c", stopping)]), 6).actions, [stop(1)]);
    let mut ended = seen(&[("c", exited(0, 7))]);
    assert_eq!(plan(&pod, &ended, 7).actions, [Action::StopSandbox]);
    ended.sandbox = Sandbox::Stopped { addresses: vec![] };
    assert_eq!(plan(&pod, &ended, 7).actions, [Action::Release]);
    assert_eq!(status_of(&pod, &ended, 7).phase.as_deref(), Some("Succeeded"));
}

#[test]
fn a_written_status_is_not_written_again() {
    let mut pod = pod(json!({ "containers": [{ "name": "c", "image": "x" }] }));
    let observed = seen(&[("c", running())]);
    let status = status_of(&pod, &observed, 1);
    assert!(super::api::differs(None, &status));
    pod.status = Some(status);
    let later = status_of(&pod, &observed, 1 + SignedDuration::from_hours(1).as_secs());
    assert!(!super::api::differs(pod.status.as_ref(), &later));
}

#[test]
fn readiness_gates_hold_a_pod_back() {
    let pod = pod(json!({
        "readinessGates": [{ "conditionType": "example.com/ok" }],
        "containers": [{ "name": "c" }],
    }));
    let status = status_of(&pod, &seen(&[("c", running())]), 1);
    let ready = status
        .conditions
        .unwrap()
        .into_iter()
        .find(|condition| condition.type_ == "Ready")
        .unwrap();
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_deref()),
        ("False", Some("ReadinessGatesNotReady"))
    );
}

#[test]
fn a_pod_that_has_ended_keeps_what_was_said_of_its_containers() {
    let mut pod =
        pod(json!({ "containers": [{ "name": "c" }], "initContainers": [{ "name": "i" }], "restartPolicy": "Never" }));
    let mut out_of_memory = exited(137, 5);
    if let State::Exited(exit) = &mut out_of_memory.state {
        exit.reason = "OOMKilled".to_owned();
    }
    let first = status_of(&pod, &seen(&[("i", exited(0, 1)), ("c", out_of_memory)]), 6);
    pod.status = Some(first.clone());
    // A later agent finds only how it ended, or nothing at all.
    let less = status_of(&pod, &seen(&[("i", exited(0, 1)), ("c", exited(137, 5))]), 60);
    assert_eq!(less.container_statuses, first.container_statuses);
    let nothing = status_of(&pod, &Seen::default(), 60);
    assert_eq!(nothing.container_statuses, first.container_statuses);
    assert_eq!(nothing.init_container_statuses, first.init_container_statuses);
    let initialized = |status: &k8s_openapi::api::core::v1::PodStatus| {
        let mut conditions = status.conditions.iter().flatten();
        conditions.find(|condition| condition.type_ == "Initialized").cloned()
    };
    assert_eq!(initialized(&nothing), initialized(&first));
}

#[test]
fn a_pod_that_failed_while_it_ran_says_how_its_containers_end() {
    let mut pod = pod(json!({ "containers": [{ "name": "c" }] }));
    let verdict = Some(super::seen::Verdict {
        reason: "DeadlineExceeded".to_owned(),
        message: String::new(),
    });
    let mut observed = seen(&[("c", running())]);
    observed.verdict = verdict;
    pod.status = Some(status_of(&pod, &observed, 1));
    observed.containers.insert("c".to_owned(), Box::new(exited(143, 2)));
    let status = status_of(&pod, &observed, 3);
    let state = status.container_statuses.unwrap()[0].state.clone().unwrap();
    assert_eq!(state.terminated.unwrap().exit_code, 143);
}

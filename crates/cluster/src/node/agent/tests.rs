//! The loop against a runtime that takes its time.

use super::*;
use crate::clock::MachineClock;
use crate::node::fault::POWER_ANNOTATION;
use crate::node::registration::{Capacity, Isolation, Role};
use parking_lot::Mutex;
use serde_json::json;
use stead::cache::Change;
use tokio::sync::Notify;

/// Notes what it is asked, and answers slow questions when the test lets it.
#[derive(Default)]
struct Slow {
    asked: Mutex<Vec<&'static str>>,
    created: Notify,
    removed: Notify,
    started: Notify,
    /// Whether starts succeed.
    able: std::sync::atomic::AtomicBool,
}

#[async_trait::async_trait]
impl Runtime for Slow {
    fn scheme(&self) -> &'static str {
        "slow"
    }

    async fn adopt(&self, _: &Pod) -> Seen {
        Seen::default()
    }

    async fn known(&self) -> Vec<String> {
        Vec::new()
    }

    async fn create_sandbox(&self, _: Arc<Pod>) -> Result<Vec<IpAddr>, RuntimeError> {
        self.asked.lock().push("create");
        self.created.notified().await;
        Ok(vec![IpAddr::from([198, 18, 0, 9])])
    }

    async fn start(&self, _: Arc<Pod>, _: String, restarts: u32) -> Result<Running, RuntimeError> {
        self.asked.lock().push(match restarts {
            0 => "start",
            1 => "start again",
            _ => "start once more",
        });
        self.started.notified().await;
        if !self.able.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(RuntimeError::run("its folder is gone".to_owned()));
        }
        Ok(Running {
            id: format!("run-{restarts}"),
            since: Timestamp::now(),
            image_id: String::new(),
            started: true,
            ready: Readiness::Ready,
        })
    }

    async fn stop(&self, _: Arc<Pod>, _: String, _: String, grace: Duration) {
        assert!(grace.is_zero(), "a machine that died has no patience");
        self.asked.lock().push("kill");
    }

    async fn stop_sandbox(&self, _: Arc<Pod>) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn remove(&self, _: &str) -> Result<(), RuntimeError> {
        self.asked.lock().push("remove");
        self.removed.notified().await;
        Ok(())
    }
}

struct Story {
    runtime: Arc<Slow>,
    state: Loop,
}

/// The node's object, which asks for this.
fn object(power: Power) -> Arc<Node> {
    let node = json!({"metadata": {"name": "node-0", "annotations": {POWER_ANNOTATION: power.annotation()}}});
    let node = match power {
        Power::On => json!({"metadata": {"name": "node-0"}}),
        Power::Off | Power::Partitioned => node,
    };
    Arc::new(serde_json::from_value(node).unwrap())
}

impl Story {
    /// A node that has just heard of a pod. Its API does not answer, which no decision here depends on.
    fn new() -> Story {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let voices = Voices::one(Client::try_from(nowhere).unwrap());
        let runtime = Arc::new(Slow::default());
        let node = NodeConfig {
            name: "node-0".to_owned(),
            role: Role::Only,
            zone: "z".to_owned(),
            address: IpAddr::from([127, 0, 0, 1]),
            port: None,
            capacity: Capacity::hollow(),
            pod_range: None,
            isolation: Isolation::default(),
        };
        let events = super::super::events::Recorder::silent();
        let mut state = Loop::new(&voices, Arc::new(MachineClock), runtime.clone(), events, vec![node]);
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"nodeName": "node-0", "containers": [{"name": "c", "image": "i"}]},
        });
        state.pod_change(Change::Created(Arc::new(serde_json::from_value(pod).unwrap())));
        state.settle();
        Story { runtime, state }
    }

    fn power(&mut self, power: Power) {
        self.state.node_change(Change::Created(object(power)));
        self.state.settle();
    }

    /// Somebody deletes the node's object, which asked for this; then its next report is due. Gives how often it was
    /// written.
    fn delete_node(&mut self, power: Power) -> usize {
        self.power(power);
        self.state.jobs.abort_all();
        self.state.jobs.detach_all();
        self.state.node_change(Change::Deleted(object(power)));
        self.state.timers.set(Timer::Status(0), Timestamp::UNIX_EPOCH);
        self.state.fire_timers();
        self.state.jobs.len()
    }

    /// Lets tasks run until the runtime was asked all of this.
    async fn expect(&mut self, asked: &[&str]) {
        for _ in 0..100 {
            while let Some(done) = self.state.jobs.try_join_next() {
                self.state.joined(done);
            }
            self.state.settle();
            tokio::task::yield_now().await;
        }
        assert_eq!(*self.runtime.asked.lock(), asked);
    }
}

#[tokio::test]
async fn a_node_that_comes_back_at_once_makes_no_sandbox_before_the_old_one_is_removed() {
    let mut story = Story::new();
    story.runtime.created.notify_one();
    story.expect(&["create", "start"]).await;
    story.power(Power::Off);
    story.power(Power::On);
    story.expect(&["create", "start", "remove"]).await;
    story.runtime.removed.notify_one();
    story.expect(&["create", "start", "remove", "create"]).await;
}

#[tokio::test]
async fn a_sandbox_that_was_being_made_when_the_machine_died_is_removed_first() {
    let mut story = Story::new();
    story.power(Power::Off);
    story.power(Power::On);
    story.expect(&["create"]).await;
    story.runtime.created.notify_one();
    story.expect(&["create", "remove"]).await;
    story.runtime.removed.notify_one();
    story.expect(&["create", "remove", "create"]).await;
}

#[tokio::test]
async fn a_start_under_way_when_the_machine_died_counts_and_is_ended() {
    let mut story = Story::new();
    story.runtime.able.store(true, std::sync::atomic::Ordering::Relaxed);
    story.runtime.created.notify_one();
    story.expect(&["create", "start"]).await;
    story.power(Power::Off);
    story.power(Power::On);
    story.runtime.removed.notify_one();
    story.expect(&["create", "start", "remove", "create"]).await;
    story.runtime.started.notify_one();
    story.expect(&["create", "start", "remove", "create", "kill"]).await;
    story.runtime.created.notify_one();
    story
        .expect(&["create", "start", "remove", "create", "kill", "start again"])
        .await;
}

#[tokio::test]
async fn a_start_that_failed_because_the_machine_died_is_tried_again_and_restarts_are_counted_on() {
    let mut story = Story::new();
    story.runtime.able.store(true, std::sync::atomic::Ordering::Relaxed);
    story.runtime.created.notify_one();
    story.runtime.started.notify_one();
    story.expect(&["create", "start"]).await;
    story.power(Power::Off);
    story.power(Power::On);
    story.runtime.removed.notify_one();
    story.expect(&["create", "start", "remove", "create"]).await;
    story.runtime.created.notify_one();
    let mut asked = vec!["create", "start", "remove", "create", "start again"];
    story.expect(&asked).await;
    story.runtime.able.store(false, std::sync::atomic::Ordering::Relaxed);
    story.power(Power::Off);
    story.power(Power::On);
    story.runtime.started.notify_one();
    story.runtime.removed.notify_one();
    asked.extend(["remove", "create"]);
    story.expect(&asked).await;
    story.runtime.created.notify_one();
    asked.push("start again");
    story.expect(&asked).await;
}

#[tokio::test]
async fn a_run_that_was_ended_before_its_start_was_told_of_counts() {
    // What a failing postStart hook does.
    let mut story = Story::new();
    story.runtime.able.store(true, std::sync::atomic::Ordering::Relaxed);
    story.runtime.created.notify_one();
    story.expect(&["create", "start"]).await;
    let now = Timestamp::now();
    story.state.notice(Notice {
        pod: "u".to_owned(),
        container: "c".to_owned(),
        id: "run-0".to_owned(),
        what: What::Exited(plan::lost("run-0", now, now)),
    });
    story.runtime.started.notify_one();
    story.expect(&["create", "start", "start again"]).await;
    let container = story.state.pods["u"].seen.container("c");
    assert_eq!(container.previous.map(|exit| exit.code), Some(137));
    assert!(container.backoff.seconds > 0, "the next restart has to wait");
}

#[tokio::test]
async fn a_node_that_is_off_or_cut_off_does_not_come_back_by_the_deletion_of_its_object() {
    let mut story = Story::new();
    assert_eq!(story.delete_node(Power::On), 2, "one that works registers again");
    for fault in [Power::Partitioned, Power::Off] {
        assert_eq!(story.delete_node(fault), 0, "{fault:?}");
        assert_eq!(story.state.members[0].power, fault);
        let mut another = Node::clone(&object(Power::On));
        another.metadata.uid = Some("of another agent".to_string());
        story.state.members[0].uid = Some("its own".to_string());
        story.state.node_change(Change::Created(Arc::new(another)));
        assert_eq!(story.state.members[0].power, fault, "the new Node is another's");
        story.state.members[0].uid = None;
    }
}

#[tokio::test]
async fn what_was_told_just_before_the_agent_stops_reaches_the_api() {
    let posted = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = posted.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        if request.method() == http::Method::POST && request.uri().path().ends_with("/events") {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        async {
            let refused = http::Response::builder().status(500);
            refused.body(kube::client::Body::empty())
        }
    });
    let voices = Voices::one(Client::new(service, "default"));
    let events = super::super::events::Recorder::new(voices.clone(), super::super::events::Kinds::All);
    events.normal(&Pod::default(), "Killing", "Stopping container c", Timestamp::now());
    let (_notices, notices) = mpsc::unbounded_channel();
    let agent = Agent {
        voices,
        clock: Arc::new(MachineClock),
        runtime: Arc::new(Slow::default()),
        nodes: Vec::new(),
        known: None,
        notices,
        events,
    };
    let stop = CancellationToken::new();
    stop.cancel();
    agent.run(stop).await;
    assert_eq!(posted.load(std::sync::atomic::Ordering::Relaxed), 1);
}

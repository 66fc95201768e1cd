//! Events about pods: what `kubectl describe pod` shows under "Events".
//!
//! Events are help for people, never a basis of decisions: they are sent in the background, a full queue drops
//! them, and a failed write is not repeated. What was told before a stop is sent before it, in bounded time. Hollow nodes
//! send warnings only: at their scale the ordinary ones
//! would be most of the traffic.

use super::status::whole_seconds;
use super::voices::Voices;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Events waiting to be sent; more are dropped.
const QUEUE: usize = 256;

/// How long good news wait before they are sent: the pod that they are about is most often still starting, and its status
/// should not have to wait behind words for the processor and the disk.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long a stop waits for events that were told before it: an API server that is gone must not keep the node.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Events that are remembered, to count repetitions on one object instead of making one for each.
const REMEMBERED: usize = 256;

/// Where events go.
#[derive(Clone)]
pub struct Recorder {
    queue: Option<mpsc::Sender<Waiting>>,
    kinds: Kinds,
}

/// What waits to be sent.
enum Waiting {
    Event(Box<Event>),
    /// Everything before it is to be sent now; answered when it is.
    Flush(oneshot::Sender<()>),
}

impl Waiting {
    fn is_patient(&self) -> bool {
        matches!(self, Waiting::Event(event) if event.type_.as_deref() == Some("Normal"))
    }
}

/// What is to be sent now: bad news at once, with the good ones before them. `None` at the end.
async fn gather(waiting: &mut mpsc::Receiver<Waiting>) -> Option<Vec<Waiting>> {
    let mut gathered = vec![waiting.recv().await?];
    let due = Instant::now() + PATIENCE;
    while gathered.len() < QUEUE && gathered.last().is_some_and(Waiting::is_patient) {
        match tokio::time::timeout_at(due, waiting.recv()).await {
            Ok(Some(next)) => gathered.push(next),
            Ok(None) | Err(_) => break,
        }
    }
    Some(gathered)
}

/// Which events are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    All,
    WarningsOnly,
}

/// An event that was told before: its name in the API, and how often it was told by now.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Again {
    name: String,
    count: i32,
}

/// The last events that were told, the latest at the end.
#[derive(Default)]
struct Told(VecDeque<(Meaning, Again)>);

/// What makes two events one: the pod, the kind, the reason and the message.
type Meaning = [Option<String>; 4];

impl Told {
    /// Counts the event. Gives the object to count on, where the same was told before.
    fn again(&mut self, event: &Event) -> Option<Again> {
        let meaning = [
            event.involved_object.uid.clone(),
            event.type_.clone(),
            event.reason.clone(),
            event.message.clone(),
        ];
        let known = self.0.iter().position(|(known, _)| *known == meaning);
        let known = known.and_then(|place| self.0.remove(place)).map(|(_, again)| Again {
            count: again.count.saturating_add(1),
            ..again
        });
        let now = known.clone().unwrap_or_else(|| Again {
            name: event.metadata.name.clone().unwrap_or_default(),
            count: 1,
        });
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((meaning, now));
        known
    }
}

/// A number that does not repeat, which events are named after beside their object. Several are told at one moment.
fn number(now: Timestamp) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = u64::try_from(now.as_nanosecond()).unwrap_or_default();
    let next = |last: u64| now.max(last + 1);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
    next(last.unwrap_or_default())
}

async fn tell(events: &Api<Event>, event: &Event, again: Option<Again>) -> kube::Result<Event> {
    let Some(Again { name, count }) = again else {
        return events.create(&PostParams::default(), event).await;
    };
    let patch = json!({"count": count, "lastTimestamp": event.last_timestamp});
    match events
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
    {
        // Events are not kept for ever: the same name begins anew.
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            let mut event = event.clone();
            event.metadata.name = Some(name);
            event.count = Some(count);
            events.create(&PostParams::default(), &event).await
        }
        patched => patched,
    }
}

impl Recorder {
    /// Sends events to the API until the recorder is dropped.
    pub fn new(voices: Voices, kinds: Kinds) -> Recorder {
        let (queue, mut waiting) = mpsc::channel(QUEUE);
        tokio::spawn(async move {
            let mut told = Told::default();
            while let Some(gathered) = gather(&mut waiting).await {
                for next in gathered {
                    let event = match next {
                        Waiting::Event(event) => event,
                        // Whoever asked may have given up waiting.
                        Waiting::Flush(asked) => {
                            let _ = asked.send(());
                            continue;
                        }
                    };
                    let namespace = event.metadata.namespace.clone().unwrap_or_default();
                    let node = event.reporting_instance.as_deref().unwrap_or_default();
                    let events: Api<Event> = Api::namespaced(voices.node(node), &namespace);
                    if let Err(error) = tell(&events, &event, told.again(&event)).await {
                        tracing::debug!(%error, "an event was not recorded");
                    }
                }
            }
        });
        Recorder {
            queue: Some(queue),
            kinds,
        }
    }

    /// Drops everything.
    pub fn silent() -> Recorder {
        Recorder {
            queue: None,
            kinds: Kinds::WarningsOnly,
        }
    }

    /// Returns when everything that was told before is sent, or when that takes too long.
    pub async fn flush(&self) {
        let Some(queue) = &self.queue else { return };
        let (asked, sent) = oneshot::channel();
        let flushed = async {
            if queue.send(Waiting::Flush(asked)).await.is_ok() {
                // A task that is gone sends nothing more.
                let _ = sent.await;
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS, flushed).await;
    }

    pub fn normal(&self, pod: &Pod, reason: &str, message: &str, now: Timestamp) {
        if self.kinds == Kinds::All {
            self.send(pod, "Normal", reason, message, now);
        }
    }

    pub fn warning(&self, pod: &Pod, reason: &str, message: &str, now: Timestamp) {
        self.send(pod, "Warning", reason, message, now);
    }

    fn send(&self, pod: &Pod, type_: &str, reason: &str, message: &str, now: Timestamp) {
        let Some(queue) = &self.queue else { return };
        let name = pod.metadata.name.clone().unwrap_or_default();
        let host = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", number(now))),
                namespace: pod.metadata.namespace.clone(),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(name),
                namespace: pod.metadata.namespace.clone(),
                uid: pod.metadata.uid.clone(),
                resource_version: pod.metadata.resource_version.clone(),
                ..ObjectReference::default()
            },
            type_: Some(type_.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            source: Some(EventSource {
                component: Some("kubelet".to_owned()),
                host: host.clone(),
            }),
            reporting_component: Some("kubelet".to_owned()),
            reporting_instance: host,
            count: Some(1),
            first_timestamp: Some(whole_seconds(now)),
            last_timestamp: Some(whole_seconds(now)),
            ..Event::default()
        };
        // A full queue means that the API server is slow: better to lose words than to add load.
        let _ = queue.try_send(Waiting::Event(Box::new(event)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, message: &str) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            message: Some(message.to_owned()),
            ..Event::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_told_before_a_stop_is_sent_before_it_and_a_server_that_hangs_does_not_keep_the_node() {
        let hangs = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", hangs.local_addr().unwrap());
        let silent = kube::Client::try_from(kube::Config::new(address.parse().unwrap())).unwrap();
        let recorder = Recorder::new(Voices::one(silent), Kinds::All);
        recorder.normal(&Pod::default(), "Started", "Container started", Timestamp::UNIX_EPOCH);
        recorder.flush().await;

        let (queue, mut waiting) = mpsc::channel(QUEUE);
        let recorder = Recorder {
            queue: Some(queue),
            kinds: Kinds::All,
        };
        let told = |recorder: &Recorder| {
            recorder.normal(&Pod::default(), "Killing", "Stopping container", Timestamp::UNIX_EPOCH);
        };
        told(&recorder);
        let flushing = tokio::spawn({
            let recorder = recorder.clone();
            async move { recorder.flush().await }
        });
        let gathered = gather(&mut waiting).await.unwrap();
        assert!(
            matches!(gathered.as_slice(), [Waiting::Event(_), Waiting::Flush(_)]),
            "the end takes along what waits"
        );
        assert!(!flushing.is_finished(), "nothing is sent yet");
        drop(gathered);
        flushing.await.unwrap();
        told(&recorder);
        recorder.warning(&Pod::default(), "Failed", "no such image", Timestamp::UNIX_EPOCH);
        told(&recorder);
        assert_eq!(gather(&mut waiting).await.map(|gathered| gathered.len()), Some(2));
        assert_eq!(gather(&mut waiting).await.map(|gathered| gathered.len()), Some(1));
    }

    #[test]
    fn events_of_one_moment_have_names_of_their_own() {
        let now = Timestamp::now();
        let numbers = [now; 3].map(number);
        assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    }

    #[test]
    fn what_is_told_again_counts_on_the_first_and_memory_is_bounded() {
        let mut told = Told::default();
        let again = |count| {
            Some(Again {
                name: "a".to_owned(),
                count,
            })
        };
        assert_eq!(told.again(&event("a", "back-off")), None);
        assert_eq!(told.again(&event("b", "back-off")), again(2));
        assert_eq!(told.again(&event("c", "other")), None);
        assert_eq!(told.again(&event("d", "back-off")), again(3));
        for number in 0..REMEMBERED {
            assert_eq!(told.again(&event("e", &number.to_string())), None);
        }
        assert_eq!(told.0.len(), REMEMBERED);
        assert_eq!(told.again(&event("f", "back-off")), None, "it is long ago");
    }
}

//! Events about pods: what `kubectl describe pod` shows under "Events".
//!
//! Events are help for people, never a basis of decisions: they are sent in the background, a full queue drops
//! them, and a failed write is not repeated. Hollow nodes send warnings only: at their scale the ordinary ones
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
use tokio::sync::mpsc;

/// Events waiting to be sent; more are dropped.
const QUEUE: usize = 256;

/// How long good news wait before they are sent: the pod that they are about is most often still starting, and its status
/// should not have to wait behind words for the processor and the disk.
const PATIENCE: Duration = Duration::from_millis(100);

/// Events that are remembered, to count repetitions on one object instead of making one for each.
const REMEMBERED: usize = 256;

/// Where events go.
#[derive(Clone)]
pub struct Recorder {
    queue: Option<mpsc::Sender<Event>>,
    kinds: Kinds,
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
        let (queue, mut waiting) = mpsc::channel::<Event>(QUEUE);
        tokio::spawn(async move {
            let mut told = Told::default();
            while let Some(event) = waiting.recv().await {
                if event.type_.as_deref() == Some("Normal") {
                    tokio::time::sleep(PATIENCE).await;
                }
                let mut next = Some(event);
                while let Some(event) = next {
                    let namespace = event.metadata.namespace.clone().unwrap_or_default();
                    let node = event.reporting_instance.as_deref().unwrap_or_default();
                    let events: Api<Event> = Api::namespaced(voices.node(node), &namespace);
                    if let Err(error) = tell(&events, &event, told.again(&event)).await {
                        tracing::debug!(%error, "an event was not recorded");
                    }
                    next = waiting.try_recv().ok();
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
        let _ = queue.try_send(event);
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

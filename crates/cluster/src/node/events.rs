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
use kube::api::{Api, PostParams};
use tokio::sync::mpsc;

/// Events waiting to be sent; more are dropped.
const QUEUE: usize = 256;

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

impl Recorder {
    /// Sends events to the API until the recorder is dropped.
    pub fn new(voices: Voices, kinds: Kinds) -> Recorder {
        let (queue, mut waiting) = mpsc::channel::<Event>(QUEUE);
        tokio::spawn(async move {
            while let Some(event) = waiting.recv().await {
                let namespace = event.metadata.namespace.clone().unwrap_or_default();
                let node = event.reporting_instance.as_deref().unwrap_or_default();
                let events: Api<Event> = Api::namespaced(voices.node(node), &namespace);
                if let Err(error) = events.create(&PostParams::default(), &event).await {
                    tracing::debug!(%error, "an event was not recorded");
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
                // Events are named after their object and a number that does not repeat.
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
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

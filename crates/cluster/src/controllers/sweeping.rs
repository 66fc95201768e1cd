//! What is swept up from time to time: ended pods beyond a limit, and old events.

use super::abandoned::{self, Cause};
use super::pods;
use crate::clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Preconditions};
use std::sync::Arc;
use std::time::Duration;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Propagation, Reconciler, Rule, Store};

/// How many ended pods may stay, as Kubernetes has it.
const ENDED_PODS: usize = 12_500;
/// How often pods are counted.
const POD_PERIOD: Duration = Duration::from_secs(20);
/// How long an event is kept after it last happened.
const EVENT_LIFE: SignedDuration = SignedDuration::from_hours(1);
/// How often events are looked through.
const EVENT_PERIOD: Duration = Duration::from_secs(300);
/// Events are read in pages: there may be many, and none is kept.
const PAGE: u32 = 500;
/// The namespace that stands for the whole cluster: there is one look at everything, not one for each object.
const CLUSTER: &str = "kube-system";

/// Adds both sweepers.
pub fn add_to(manager: &Manager) {
    let ended = EndedPods {
        pods: manager.cache().store(),
    };
    manager.add(
        Controller::new("pod-garbage-collector", ended)
            .for_::<Namespace>()
            .may(Rule::read::<Pod>())
            .may(Rule::new("", &["pods"], &["delete"]))
            .may(Rule::new("", &["pods/status"], &["patch"]))
            .without_resync()
            .concurrency(1),
    );
    manager.add(
        Controller::new("event-expiry", OldEvents)
            .for_::<Namespace>()
            .may(Rule::new("", &["events"], &["list", "delete"]))
            .without_resync()
            .concurrency(1),
    );
}

struct EndedPods {
    pods: Store<Pod>,
}

impl Reconciler for EndedPods {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        if key.name() != CLUSTER {
            return Ok(Outcome::Settled);
        }
        let mut ended = Vec::new();
        let mut never_placed = Vec::new();
        self.pods.for_each(|_, pod| {
            let going = pod.metadata.deletion_timestamp.is_some();
            if pods::has_ended(pod) && !going {
                ended.push(pod.clone());
            } else if going && !pods::has_ended(pod) && !pods::is_placed(pod) {
                never_placed.push(pod.clone());
            }
        });
        for pod in never_placed {
            abandoned::end(context, &pod, Cause::NeverPlaced).await?;
        }
        for pod in surplus(ended, ENDED_PODS) {
            context.writer().delete(&*pod, Propagation::Background).await?;
        }
        Ok(Outcome::CheckAgain(POD_PERIOD))
    }
}

/// The oldest beyond the limit.
fn surplus(mut ended: Vec<Arc<Pod>>, limit: usize) -> Vec<Arc<Pod>> {
    let surplus = ended.len().saturating_sub(limit);
    ended.sort_by_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, pod.metadata.name.clone())
    });
    ended.truncate(surplus);
    ended
}

struct OldEvents;

impl Reconciler for OldEvents {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        if key.name() != CLUSTER {
            return Ok(Outcome::Settled);
        }
        let all: Api<Event> = Api::all(context.client());
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = all
                .list(&page)
                .await
                .map_err(|error| Error::api("list events", error))?;
            for event in list.items.iter().filter(|event| is_old(event, context.now())) {
                forget(context, event).await?;
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = ListParams::default().limit(PAGE).continue_token(&token),
                None => return Ok(Outcome::CheckAgain(EVENT_PERIOD)),
            }
        }
    }
}

/// Deletes the event that was read; one that happened again meanwhile stays.
async fn forget(context: &Context, event: &Event) -> Result<(), Error> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let name = event.metadata.name.as_deref().unwrap_or_default();
    let events: Api<Event> = Api::namespaced(context.client(), namespace);
    let as_read = DeleteParams {
        preconditions: Some(Preconditions {
            uid: event.metadata.uid.clone(),
            resource_version: event.metadata.resource_version.clone(),
        }),
        ..DeleteParams::default()
    };
    match events.delete(name, &as_read).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other.map(drop).map_err(|error| Error::api("delete an event", error)),
    }
}

/// Whether an event last happened too long ago.
fn is_old(event: &Event, now: Timestamp) -> bool {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    let times = [
        series.map(|time| time.0),
        event.last_timestamp.as_ref().map(|time| time.0),
        event.event_time.as_ref().map(|time| time.0),
        event.metadata.creation_timestamp.as_ref().map(|time| time.0),
    ];
    let last = times.into_iter().flatten().max();
    last.is_some_and(|last| clock::after(last, EVENT_LIFE) < now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_oldest_ended_pods_go_first() {
        let pod = |name: &str, created: &str| -> Arc<Pod> {
            let meta = json!({"name": name, "creationTimestamp": created});
            Arc::new(serde_json::from_value(json!({"metadata": meta})).unwrap())
        };
        let ended = vec![
            pod("young", "2026-01-03T00:00:00Z"),
            pod("old", "2026-01-01T00:00:00Z"),
            pod("middle", "2026-01-02T00:00:00Z"),
        ];
        let gone: Vec<_> = surplus(ended.clone(), 1)
            .iter()
            .map(|pod| pod.metadata.name.clone().unwrap())
            .collect();
        assert_eq!(gone, ["old", "middle"]);
        assert!(surplus(ended, 3).is_empty());
    }

    #[test]
    fn an_event_is_old_an_hour_after_it_last_happened() {
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        let check = |event: serde_json::Value, expected: bool| {
            let mut whole = event;
            whole["metadata"] = json!({"creationTimestamp": "2026-01-01T01:00:00Z"});
            whole["involvedObject"] = json!({});
            assert_eq!(
                is_old(&serde_json::from_value(whole.clone()).unwrap(), now),
                expected,
                "{whole}"
            );
        };
        check(json!({}), true);
        check(json!({"lastTimestamp": "2026-01-01T11:30:00Z"}), false);
        check(json!({"lastTimestamp": "2026-01-01T10:30:00Z"}), true);
        let series = json!({"count": 2, "lastObservedTime": "2026-01-01T11:59:00.000000Z"});
        check(json!({"series": series}), false);
    }
}

//! Tells of operators in the cluster that act on the same objects as those of this `stead up`.
//!
//! Those of `up` need no Lease: there is one `up` of a store. But whoever applies `stead manifests` to it has the same
//! operators twice, and each undoes nothing but does everything once more. Their Lease shows them.

use crate::commands::operator::NAME;
use crate::terminal::{Line, tell};
use futures::{StreamExt, pin_mut};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, WatchEvent, WatchParams};
use std::collections::BTreeSet;
use std::time::Duration;

/// The pause after a watch has ended.
const PAUSE: Duration = Duration::from_secs(5);

/// Looks until it is dropped, and tells of each namespace once.
pub async fn look(client: kube::Client) {
    let leases: Api<Lease> = Api::all(client);
    let named = WatchParams::default().fields(&format!("metadata.name={NAME}"));
    let mut told = BTreeSet::new();
    loop {
        if let Ok(events) = leases.watch(&named, "0").await {
            pin_mut!(events);
            while let Some(Ok(event)) = events.next().await {
                let (WatchEvent::Added(lease) | WatchEvent::Modified(lease)) = event else {
                    continue;
                };
                let namespace = lease.metadata.namespace.clone().unwrap_or_default();
                if let Some(holder) = holder(&lease, Timestamp::now())
                    && told.insert(namespace.clone())
                {
                    tell(Line::Note, &note(holder, &namespace));
                    tell(Line::Hint, HINT);
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

const HINT: &str = "start `stead up --parts api,controllers,scheduler,nodes`, or remove the other one";

fn note(holder: &str, namespace: &str) -> String {
    format!(
        "{holder} leads an operator in namespace {namespace}, which acts on the same objects as the operators of this `stead up`"
    )
}

/// Who holds a Lease that has not run out.
fn holder(lease: &Lease, now: Timestamp) -> Option<&str> {
    let spec = lease.spec.as_ref()?;
    let lasts = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into());
    let renewed = spec.renew_time.as_ref()?.0;
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty());
    holder.filter(|_| now.duration_since(renewed) < lasts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_who_holds_the_lease_now_is_told_of() {
        let lease = |holder: &str| -> Lease {
            let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"});
            serde_json::from_value(json!({"metadata": {"name": NAME}, "spec": spec})).expect("a Lease")
        };
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        assert_eq!(holder(&lease("pod-a"), at("2026-01-01T00:00:14Z")), Some("pod-a"));
        assert_eq!(holder(&lease("pod-a"), at("2026-01-01T00:00:15Z")), None);
        assert_eq!(holder(&lease(""), at("2026-01-01T00:00:01Z")), None);
    }
}

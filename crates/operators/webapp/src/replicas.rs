//! How many pods shall run: what the spec says, what the autoscaler decides, or none at all.

use crate::names::MANAGER;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::apps::v1::Deployment;
use stead_apis::WebApp;
use stead_apis::webapp::Window;
use stead_machinery::cron::Schedule;

/// The wanted number of pods, and who decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replicas {
    /// The spec does.
    Fixed(i32),
    /// An autoscaler does; this is where it starts, or what it has already decided.
    Scaled(i32),
    /// None, because the spec suspends the application.
    Suspended,
    /// None, because it is asleep until then.
    Asleep { until: Timestamp },
}

impl Replicas {
    /// The number of pods to expect.
    pub fn count(self) -> i32 {
        match self {
            Replicas::Fixed(count) | Replicas::Scaled(count) => count,
            Replicas::Suspended | Replicas::Asleep { .. } => 0,
        }
    }

    /// What to write into the Deployment; `None` leaves the field to the autoscaler.
    ///
    /// A field that only we own would fall back to its default of 1 when we stop applying it, so we go on applying
    /// the number that is there until the autoscaler has written one of its own.
    pub fn to_apply(self, deployment: Option<&Deployment>) -> Option<i32> {
        match self {
            Replicas::Scaled(_) if deployment.is_some_and(others_own_replicas) => None,
            other => Some(other.count()),
        }
    }
}

/// Decides how many pods shall run now.
pub fn wanted(app: &WebApp, deployment: Option<&Deployment>, now: Timestamp) -> Replicas {
    if app.spec.suspend {
        return Replicas::Suspended;
    }
    if let Some(until) = app.spec.sleep.iter().filter_map(|window| asleep(window, now)).max() {
        return Replicas::Asleep { until };
    }
    let Some(scaling) = &app.spec.autoscaling else {
        return Replicas::Fixed(app.spec.replicas);
    };
    let current = deployment
        .and_then(|found| found.spec.as_ref()?.replicas)
        .filter(|&count| count > 0);
    let start = current.unwrap_or(app.spec.replicas);
    Replicas::Scaled(start.clamp(scaling.min_replicas, scaling.max_replicas))
}

/// When one of the sleeping times begins or ends next.
pub fn next_change(app: &WebApp, now: Timestamp) -> Option<Timestamp> {
    let times = app.spec.sleep.iter().flat_map(|window| {
        let zone = TimeZone::get(&window.time_zone).unwrap_or(TimeZone::UTC);
        [&window.from, &window.until].map(|text| text.parse::<Schedule>().ok()?.next_after(now, &zone))
    });
    times.flatten().min()
}

/// Until when this window keeps the application asleep, if it does. A window that cannot be read keeps nobody asleep;
/// validation has refused it with the reason.
fn asleep(window: &Window, now: Timestamp) -> Option<Timestamp> {
    let zone = TimeZone::get(&window.time_zone).ok()?;
    let from: Schedule = window.from.parse().ok()?;
    let until: Schedule = window.until.parse().ok()?;
    let wakes = until.next_after(now, &zone)?;
    let sleeps = from.next_after(now, &zone);
    // Whichever comes first tells the present state: the next thing that a sleeper does is to wake up.
    sleeps.is_none_or(|sleeps| wakes < sleeps).then_some(wakes)
}

fn others_own_replicas(deployment: &Deployment) -> bool {
    deployment.metadata.managed_fields.iter().flatten().any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let owns = fields.is_some_and(|fields| fields.pointer("/f:spec/f:replicas").is_some());
        owns && entry.manager.as_deref() != Some(MANAGER)
    })
}

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
    let times = app.spec.sleep.iter().filter_map(|window| {
        let times = Times::read(window)?;
        match times.asleep_until(now) {
            Some(wakes) => Some(wakes),
            None => times.from.next_or_late(now, &times.zone),
        }
    });
    times.min()
}

/// Until when this window keeps the application asleep, if it does. A window that cannot be read keeps nobody asleep;
/// validation has refused it with the reason.
fn asleep(window: &Window, now: Timestamp) -> Option<Timestamp> {
    Times::read(window)?.asleep_until(now)
}

/// A window, read.
struct Times {
    from: Schedule,
    until: Schedule,
    zone: TimeZone,
}

impl Times {
    fn read(window: &Window) -> Option<Times> {
        Some(Times {
            from: window.from.parse().ok()?,
            until: window.until.parse().ok()?,
            zone: TimeZone::get(&window.time_zone).ok()?,
        })
    }

    /// What happened last tells the present state. What comes next would not: who goes to bed every hour and rises at six is
    /// asleep although the next thing is to go to bed. At the same moment rising wins; with nothing to rise by, nobody sleeps.
    /// A time to rise that a change of clocks skips comes late, or the application would be down for a day more.
    fn asleep_until(&self, now: Timestamp) -> Option<Timestamp> {
        let slept = self.from.last_until(now, &self.zone)?;
        let woke = self.until.last_until(now, &self.zone)?;
        (slept > woke)
            .then(|| self.until.next_or_late(now, &self.zone))
            .flatten()
    }
}

fn others_own_replicas(deployment: &Deployment) -> bool {
    deployment.metadata.managed_fields.iter().flatten().any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let owns = fields.is_some_and(|fields| fields.pointer("/f:spec/f:replicas").is_some());
        owns && entry.manager.as_deref() != Some(MANAGER)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Until when who goes to bed and rises by these schedules is asleep at a moment.
    #[track_caller]
    fn check(from: &str, until: &str, now: &str, expected: Option<&str>) {
        let window = serde_json::from_value(json!({"from": from, "until": until})).expect("a window");
        let found = asleep(&window, now.parse().expect("a time"));
        assert_eq!(found.map(|time| time.to_string()).as_deref(), expected, "at {now}");
    }

    #[test]
    fn what_happened_last_decides_and_not_what_comes_next() {
        let (hourly, at_six) = ("0 * * * *", "0 6 * * *");
        check(hourly, at_six, "2026-11-18T04:16:00Z", Some("2026-11-18T06:00:00Z"));
        check(hourly, at_six, "2026-11-18T06:16:00Z", None);
        let always = "* * * * *";
        check(
            always,
            "0 0 1 1 *",
            "2026-11-18T04:16:00Z",
            Some("2027-01-01T00:00:00Z"),
        );
        check(always, "0 0 1 1 *", "2027-01-01T00:00:30Z", None);
    }

    #[test]
    fn nights_and_weekends_off_last_from_friday_to_monday() {
        let (nights, workdays) = ("0 20 * * *", "0 6 * * MON-FRI");
        let monday = Some("2026-11-16T06:00:00Z");
        check(nights, workdays, "2026-11-13T19:59:59Z", None);
        for moment in ["13T20:00:00Z", "14T12:00:00Z", "15T21:00:00Z", "16T05:59:59Z"] {
            check(nights, workdays, &format!("2026-11-{moment}"), monday);
        }
        check(nights, workdays, "2026-11-16T06:00:00Z", None);
    }

    #[test]
    fn what_never_begins_or_never_ends_is_no_sleep() {
        let never = "0 0 30 2 *";
        check(never, "0 6 * * *", "2026-11-18T04:16:00Z", None);
        check("0 20 * * *", never, "2026-11-18T04:16:00Z", None);
    }

    #[test]
    fn a_sleeper_is_looked_after_when_it_wakes_and_not_at_every_bedtime_before() {
        let sleep = json!([{"from": "* * * * *", "until": "0 6 * * *"}]);
        let spec = serde_json::from_value(json!({"image": "nginx:1.25", "sleep": sleep})).expect("a spec");
        let app = WebApp::new("shop", spec);
        let next = |now: &str| next_change(&app, now.parse().expect("a time")).map(|time| time.to_string());
        assert_eq!(next("2026-11-18T04:16:00Z").as_deref(), Some("2026-11-18T06:00:00Z"));
        assert_eq!(next("2026-11-18T06:00:00Z").as_deref(), Some("2026-11-18T06:01:00Z"));
    }
}

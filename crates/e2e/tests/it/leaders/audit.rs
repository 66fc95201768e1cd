//! The audit log of an API server, as far as it tells who wrote what.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_test::wait::until;

const PATIENCE: Duration = Duration::from_secs(90);

/// An audit log that grows.
pub struct Audit {
    path: PathBuf,
}

/// One request that was answered.
#[derive(Debug, Clone)]
pub struct Event {
    agent: String,
    verb: String,
    resource: String,
    name: String,
    code: u64,
    /// When it was answered, in microseconds since 1970.
    pub finished: i64,
}

impl Event {
    fn of(line: &str) -> Option<Event> {
        let event: Value = serde_json::from_str(line).ok()?;
        if event["stage"] != "ResponseComplete" {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let finished: jiff::Timestamp = event["stageTimestamp"].as_str()?.parse().ok()?;
        Some(Event {
            agent: text(&event["userAgent"]),
            verb: text(&event["verb"]),
            resource: text(&event["objectRef"]["resource"]),
            name: text(&event["objectRef"]["name"]),
            code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
            finished: finished.as_microsecond(),
        })
    }

    /// What was done, for people.
    pub fn describe(&self) -> String {
        let (verb, resource, name) = (&self.verb, &self.resource, &self.name);
        format!("{verb} {resource} {name}: {} at {}", self.code, self.finished)
    }

    /// Whether a replica sent it: its identity is in its User-Agent.
    pub fn is_by(&self, identity: &str) -> bool {
        self.agent.ends_with(&format!("({identity})"))
    }

    pub fn is_about(&self, resource: &str) -> bool {
        self.resource == resource
    }

    /// Whether it changed something.
    pub fn is_accepted_write(&self) -> bool {
        let writes = ["create", "update", "patch", "delete", "deletecollection"];
        writes.contains(&self.verb.as_str()) && (200..300).contains(&self.code)
    }

    /// A change that is an operator's work: not its Lease, and not its news.
    pub fn is_work(&self) -> bool {
        self.is_accepted_write() && !self.is_about("leases") && !self.is_about("events")
    }
}

impl Audit {
    pub fn of(path: &Path) -> Audit {
        Audit {
            path: path.to_path_buf(),
        }
    }

    /// Everything that was answered so far.
    pub fn events(&self) -> Vec<Event> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().filter_map(Event::of).collect()
    }

    /// Waits until the log shows something.
    pub async fn expect(&self, what: &str, shows: impl Fn(&[Event]) -> bool) {
        until(what, PATIENCE, || async {
            let events = self.events();
            match shows(&events) {
                true => Ok(()),
                false => Err(format!("{} requests", events.len())),
            }
        })
        .await
        .expect("an audit log that shows it");
    }

    /// How long nobody had the Lease: from the old leader's last write of it to the new one's first.
    pub fn between_release_and_acquisition(&self, old: &str, new: &str) -> Duration {
        let events = self.events();
        let leases = |by: &str| {
            let of: Vec<i64> = events
                .iter()
                .filter(|event| event.is_by(by) && event.is_about("leases") && event.is_accepted_write())
                .map(|event| event.finished)
                .collect();
            of
        };
        let released = leases(old).into_iter().max().expect("the old leader wrote the Lease");
        let acquired = leases(new).into_iter().min().expect("the new leader wrote the Lease");
        Duration::from_micros(u64::try_from(acquired - released).unwrap_or_default())
    }
}

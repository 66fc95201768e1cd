//! What an API server's audit log tells: who did what, and that nobody did anything.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use stead_test::wait::until;

/// Verbs that change something.
const WRITES: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];
/// How long the last writes of a story may take to come in.
const SETTLES: Duration = Duration::from_secs(120);

/// An audit log: one event a line.
pub struct Audit {
    path: PathBuf,
}

/// A right: API group, resource with its subresource, verb.
pub type Right = (String, String, String);

/// A resource, where a right is to one object of it alone.
pub fn of_one(resource: &str, name: &str) -> String {
    format!("{resource} {name}")
}

impl Audit {
    pub fn new(path: PathBuf) -> Self {
        Audit { path }
    }

    fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Every write but the heartbeats of leaders and nodes, which say only that somebody is alive.
    pub fn writes(&self) -> Vec<String> {
        let heartbeat = |event: &Value| {
            let (resource, part) = (&event["objectRef"]["resource"], &event["objectRef"]["subresource"]);
            resource == "leases" || (resource == "nodes" && part == "status")
        };
        // Questions of an authorisation or a token are asked by creating what is never kept.
        let question = |event: &Value| {
            let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
            resource.ends_with("reviews") || event["objectRef"]["subresource"] == "token"
        };
        let dry_run = |event: &Value| {
            let uri = event["requestURI"].as_str().unwrap_or_default();
            uri.contains("dryRun=All")
        };
        self.events()
            .into_iter()
            .filter(|event| WRITES.iter().any(|verb| event["verb"] == *verb))
            .filter(|event| !heartbeat(event) && !question(event) && !dry_run(event))
            .map(|event| {
                let agent = event["userAgent"].as_str().unwrap_or_default();
                format!("{} {} {agent}", event["verb"], event["objectRef"])
            })
            .collect()
    }

    /// Nothing changes, so nothing is written by anybody, resyncs included.
    pub async fn silence(&self, lasting: Duration) {
        let mut before = self.writes().len();
        until("the writes end", SETTLES, || {
            let now = self.writes().len();
            let quiet = (now == before).then_some(());
            before = now;
            async move {
                tokio::time::sleep(Duration::from_secs(3)).await;
                quiet.ok_or("something is still written")
            }
        })
        .await
        .expect("an end of writing");
        let before = self.writes();
        assert!(!before.is_empty(), "the audit log shows the writes of the story");
        let end = tokio::time::Instant::now() + lasting;
        while tokio::time::Instant::now() < end {
            let now = self.writes();
            assert_eq!(
                now.len(),
                before.len(),
                "written in silence: {:?}",
                &now[before.len()..]
            );
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Every right that a user made use of, and every one that it was refused.
    pub fn rights(&self, user: &str) -> (BTreeSet<Right>, BTreeSet<Right>) {
        let (mut used, mut refused) = (BTreeSet::new(), BTreeSet::new());
        for event in self
            .events()
            .into_iter()
            .filter(|event| event["user"]["username"] == user)
        {
            let reference = &event["objectRef"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
            let Some(resource) = reference["resource"].as_str() else {
                continue;
            };
            let resource = match reference["subresource"].as_str() {
                Some(part) => format!("{resource}/{part}"),
                None => resource.to_string(),
            };
            let right = |verb: &str| (text(&reference["apiGroup"]), resource.clone(), verb.to_string());
            let code = event["responseStatus"]["code"].as_i64().unwrap_or_default();
            let verb = text(&event["verb"]);
            match code {
                403 => refused.insert(right(&verb)),
                _ => {
                    let name = text(&reference["name"]);
                    used.insert((text(&reference["apiGroup"]), of_one(&resource, &name), verb.clone()));
                    used.insert(right(&verb))
                }
            };
            // An apply of what is not there creates it, which is a right of its own.
            if verb == "patch" && code == 201 {
                used.insert(right("create"));
            }
        }
        (used, refused)
    }
}

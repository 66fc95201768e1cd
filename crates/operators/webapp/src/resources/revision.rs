//! Revisions: what the spec asked for, and the template that was rendered from it, kept to go back to.
//!
//! A revision is named after the hash of what it asks for, so the same wish is the same object however often the
//! operator starts anew. Going back to an old one gives it a new number, as Kubernetes' own Deployments do.

use super::{metadata, template};
use crate::names;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use stead_apis::{WebApp, WebAppSpec};

/// Fields of the spec that do not change what a pod is: they make no new revision.
const NOT_OF_THE_POD: &[&str] = &[
    "replicas",
    "ingress",
    "route",
    "network",
    "disruption",
    "strategy",
    "revisionHistoryLimit",
    "suspend",
    "autoscaling",
    "sleep",
    "recovery",
    "advice",
    "monitoring",
];

/// What a revision did wrong whose pods were not all available in time.
pub const DID_NOT_COME_UP: &str = "did not come up";

/// How a revision turned out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is too early to say.
    Open,
    /// All its pods were available.
    Good,
    /// It did not come up.
    Failed,
}

/// One revision of a WebApp.
#[derive(Debug, Clone, PartialEq)]
pub struct Revision {
    pub hash: String,
    pub number: i64,
    pub verdict: Verdict,
    /// What it did wrong, where it failed: the rest of a sentence that begins with its number.
    pub why: Option<String>,
    /// A hash of the way in which it was rolled out when it failed.
    way: Option<String>,
    /// The spec and the template, exactly as they are stored.
    data: Value,
}

impl Revision {
    /// The revision that the spec asks for, rendered now.
    pub fn render(app: &WebApp, number: i64) -> Self {
        let data = json!({"spec": pod_spec(app), "template": template::render(app)});
        Revision {
            hash: wanted_hash(app),
            number,
            verdict: Verdict::Open,
            why: None,
            way: None,
            data,
        }
    }

    /// A stored revision; `None` if somebody else made the object.
    pub fn read(stored: &ControllerRevision) -> Option<Self> {
        let meta = &stored.metadata;
        let hash = meta.labels.as_ref()?.get(names::REVISION_LABEL)?.clone();
        let noted = |name: &str| meta.annotations.as_ref()?.get(name).cloned();
        let verdict = match noted(names::OUTCOME_ANNOTATION).as_deref() {
            Some("good") => Verdict::Good,
            Some("failed") => Verdict::Failed,
            _ => Verdict::Open,
        };
        let data = stored.data.as_ref()?.0.clone();
        Some(Revision {
            hash,
            number: stored.revision,
            verdict,
            why: noted(names::WHY_ANNOTATION),
            way: noted(names::WAY_ANNOTATION),
            data,
        })
    }

    /// The template that was rendered for it.
    pub fn template(&self) -> PodTemplateSpec {
        stead::decode(&self.data["template"]).unwrap_or_default()
    }

    /// The part of the spec that it stands for.
    pub fn spec(&self) -> &Value {
        &self.data["spec"]
    }

    /// The application as it was with this revision: what makes a pod is the revision's, the rest is of now.
    pub fn as_of(&self, app: &WebApp) -> WebApp {
        match self.restored(app) {
            Ok(spec) => WebApp { spec, ..app.clone() },
            // A later version of the operator may have written it; its template runs all the same.
            Err(_) => app.clone(),
        }
    }

    /// The spec of now with everything that makes a pod taken from the revision.
    pub fn restored(&self, app: &WebApp) -> serde_json::Result<WebAppSpec> {
        let mut spec = serde_json::to_value(&app.spec)?;
        if let (Value::Object(fields), Value::Object(then)) = (&mut spec, self.spec()) {
            fields.retain(|name, _| NOT_OF_THE_POD.contains(&name.as_str()));
            fields.extend(then.clone());
        }
        stead::decode(&spec)
    }

    /// Notes that it failed, what it did wrong, and in what way it was rolled out.
    pub fn fail(&mut self, why: String, app: &WebApp) {
        self.verdict = Verdict::Failed;
        self.why = Some(why);
        self.way = Some(way(app));
    }

    /// Notes that it came up.
    pub fn succeed(&mut self) {
        self.reopen();
        self.verdict = Verdict::Good;
    }

    /// Forgets how it turned out.
    pub fn reopen(&mut self) {
        self.verdict = Verdict::Open;
        self.why = None;
        self.way = None;
    }

    /// Whether it failed when it was rolled out in another way than is wanted now: with another deadline, with other
    /// steps, by other limits. Then nobody knows whether it would fail again.
    pub fn failed_in_another_way(&self, app: &WebApp) -> bool {
        self.verdict == Verdict::Failed && self.way.as_ref().is_some_and(|then| *then != way(app))
    }

    /// What it did wrong, as a sentence.
    pub fn failure(&self) -> String {
        let why = self.why.as_deref().unwrap_or(DID_NOT_COME_UP);
        format!("revision {} {why}", self.number)
    }

    /// The object that keeps it.
    pub fn object(&self, app: &WebApp) -> ControllerRevision {
        let mut meta = metadata(app, names::suffixed(app, &self.hash));
        meta.labels
            .get_or_insert_default()
            .insert(names::REVISION_LABEL.to_string(), self.hash.clone());
        let outcome = match self.verdict {
            Verdict::Open => None,
            Verdict::Good => Some("good"),
            Verdict::Failed => Some("failed"),
        };
        let notes = [
            (names::OUTCOME_ANNOTATION, outcome.map(str::to_string)),
            (names::WHY_ANNOTATION, self.why.clone()),
            (names::WAY_ANNOTATION, self.way.clone()),
        ];
        let notes: BTreeMap<String, String> = notes
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_string(), value?)))
            .collect();
        meta.annotations = (!notes.is_empty()).then_some(notes);
        ControllerRevision {
            metadata: meta,
            revision: self.number,
            data: Some(RawExtension(self.data.clone())),
        }
    }
}

/// The hash of what the spec asks of its pods.
pub fn wanted_hash(app: &WebApp) -> String {
    names::hash(pod_spec(app).to_string().as_bytes())
}

/// The part of the spec that makes a pod what it is.
fn pod_spec(app: &WebApp) -> Value {
    let mut spec = serde_json::to_value(&app.spec).unwrap_or_default();
    if let Value::Object(fields) = &mut spec {
        fields.retain(|name, _| !NOT_OF_THE_POD.contains(&name.as_str()));
    }
    spec
}

/// A hash of the way in which a new version is rolled out. What happens after a failure is no part of it.
fn way(app: &WebApp) -> String {
    let mut strategy = serde_json::to_value(&app.spec.strategy).unwrap_or_default();
    if let Value::Object(fields) = &mut strategy {
        fields.remove("onFailure");
    }
    names::hash(strategy.to_string().as_bytes())
}

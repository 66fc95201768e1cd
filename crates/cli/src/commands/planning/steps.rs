//! What carrying out a plan would do to each object, found out by trying it without effect.

use super::changes::{self, Change};
use super::gather::is_owned;
use crate::failure::Hint;
use crate::terminal::{Colour, Paint};
use anyhow::{Context, Result};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use stead::{Child, Kind, Plan, Prune};
use stead_apis::WebApp;
use stead_webapp::names::{self, MANAGER};

/// What happens to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verb {
    Create,
    Change,
    Keep,
    Delete,
}

/// One object, and what happens to it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    verb: Verb,
    kind: String,
    name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<Change>,
    /// What follows from it, or why it happens.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Every step of a plan.
pub async fn of(client: &Client, namespace: &str, app: &WebApp, plan: &Plan) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for child in &plan.children {
        steps.push(step(client, namespace, child).await?);
    }
    for deletion in &plan.deletions {
        steps.push(Step {
            note: Some(deletion.why.clone()),
            ..Step::new(Verb::Delete, &deletion.kind, deletion.key.name())
        });
    }
    if plan.prune == Prune::Absent {
        steps.extend(leftovers(client, namespace, app, plan).await?);
    }
    Ok(steps)
}

async fn step(client: &Client, namespace: &str, child: &Child) -> Result<Step> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &child.kind.api_resource());
    let name = child.key.name();
    let before = api
        .get_opt(name)
        .await
        .with_context(|| format!("cannot read {} {name}", child.kind))
        .hint("the account of the kubeconfig must be able to read what the operator reads")?;
    let Some(before) = before else {
        return Ok(Step::new(Verb::Create, &child.kind, name));
    };
    let mut wish = child.object.clone();
    wish["apiVersion"] = child.kind.api_version().into();
    wish["kind"] = child.kind.kind.clone().into_owned().into();
    let mut how = PatchParams::apply(MANAGER).force();
    how.dry_run = true;
    let after = api
        .patch(name, &how, &Patch::Apply(&wish))
        .await
        .with_context(|| format!("the cluster would refuse {} {name}", child.kind))
        .hint("the account of the kubeconfig must be able to change what the operator changes")?;
    let value = |object: &DynamicObject| serde_json::to_value(object).unwrap_or_default();
    let changes = changes::between(&value(&before), &value(&after));
    if changes.is_empty() {
        return Ok(Step::new(Verb::Keep, &child.kind, name));
    }
    let rolls =
        child.kind.kind == "Deployment" && changes.iter().any(|change| change.path.starts_with("spec.template"));
    Ok(Step {
        changes,
        note: rolls.then(|| "its pods are replaced".to_owned()),
        ..Step::new(Verb::Change, &child.kind, name)
    })
}

/// Children that the application has now and would lose.
async fn leftovers(client: &Client, namespace: &str, app: &WebApp, plan: &Plan) -> Result<Vec<Step>> {
    let wanted: BTreeSet<(String, String)> = plan
        .children
        .iter()
        .map(|child| (child.kind.kind.to_string(), child.key.name().to_owned()))
        .collect();
    let chosen = ListParams::default().labels(&names::selector_text(app));
    let mut steps = Vec::new();
    for kind in stead_webapp::observe::owned_kinds() {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind.api_resource());
        let found = match api.list(&chosen).await {
            Ok(found) => found,
            // A kind that the cluster does not have has no objects either.
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot list {}", kind.resource()))
                    .hint("the account of the kubeconfig must be able to read what the operator reads");
            }
        };
        for object in found.items.iter().filter(|object| is_owned(*object, app)) {
            let name = object.name_any();
            if !wanted.contains(&(kind.kind.to_string(), name.clone())) {
                steps.push(Step {
                    note: Some("the spec does not ask for it any more".to_owned()),
                    ..Step::new(Verb::Delete, &kind, &name)
                });
            }
        }
    }
    Ok(steps)
}

impl Step {
    fn new(verb: Verb, kind: &Kind, name: &str) -> Self {
        Step {
            verb,
            kind: kind.kind.to_string(),
            name: name.to_owned(),
            changes: Vec::new(),
            note: None,
        }
    }

    /// Whether nothing happens to the object.
    pub fn is_nothing(&self) -> bool {
        self.verb == Verb::Keep
    }

    pub fn lines(&self, paint: Paint) -> Vec<String> {
        let (word, colour) = match self.verb {
            Verb::Create => ("create ", Colour::Good),
            Verb::Change => ("change ", Colour::Waiting),
            Verb::Keep => ("keep   ", Colour::Quiet),
            Verb::Delete => ("delete ", Colour::Bad),
        };
        let note = self.note.as_ref().map(|note| format!("  ({note})")).unwrap_or_default();
        let mut lines = vec![format!(
            "  {} {} {}{note}",
            paint.colour(colour, word),
            self.kind,
            self.name
        )];
        for change in &self.changes {
            let shown = |value: &Value| match value {
                Value::Null => "nothing".to_owned(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let (from, to) = (shown(&change.from), shown(&change.to));
            lines.push(format!("            {}: {from} -> {to}", change.path));
        }
        lines
    }
}

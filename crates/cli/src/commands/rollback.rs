//! `stead rollback`: gives an application the spec of an earlier revision again.
//!
//! Only what makes a pod what it is goes back; replicas, routes and the like stay as they are now.

use crate::commands::connection::{self, App};
use crate::failure::Hint;
use crate::terminal::say;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{Api, ListParams, PostParams};
use stead_apis::WebApp;
use stead_webapp::names::REVISION_LABEL;
use stead_webapp::resources::revision::{Revision, Verdict, wanted_hash};

/// Go back to an earlier revision of an application
#[derive(Args)]
#[command(after_help = "Examples:
  stead rollback webapp shop          to the revision before the current one
  stead rollback webapp shop --to 3")]
pub struct Arguments {
    #[command(flatten)]
    app: App,
    /// The number of the revision (default: the newest good one before the current)
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(i64).range(1..))]
    to: Option<i64>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    connection::block_on(go(arguments))
}

async fn go(arguments: &Arguments) -> Result<()> {
    let (client, namespace) = arguments.app.client().await?;
    let apps: Api<WebApp> = Api::namespaced(client.clone(), &namespace);
    let mut app = arguments.app.get(&apps).await?;
    let stored: Api<ControllerRevision> = Api::namespaced(client, &namespace);
    let stored = stored
        .list(&ListParams::default().labels(REVISION_LABEL))
        .await
        .context("cannot list revisions")
        .hint("the account of the kubeconfig must be able to list controllerrevisions")?;
    let uid = app.metadata.uid.clone().unwrap_or_default();
    let owned = |stored: &&ControllerRevision| {
        let owners = stored.metadata.owner_references.iter().flatten();
        owners.into_iter().any(|owner| owner.uid == uid)
    };
    let mut revisions: Vec<Revision> = stored.items.iter().filter(owned).filter_map(Revision::read).collect();
    revisions.sort_by_key(|revision| revision.number);
    let target = choose(&revisions, &wanted_hash(&app), arguments.to)?;
    if target.hash == wanted_hash(&app) {
        return Err(anyhow!("revision {} is what the spec asks for now", target.number))
            .hint("without --to it goes to the newest good one before");
    }
    app.spec = restored(&app, target)?;
    apps.replace(&arguments.app.name, &PostParams::default(), &app)
        .await
        .context("cannot change the WebApp")
        .hint("somebody may have changed it at the same moment: try again")?;
    say(&format!(
        "webapp.stead.dev/{} goes back to revision {}",
        arguments.app.name, target.number
    ))?;
    Ok(())
}

/// The revision to go back to, of all in the order of their numbers.
fn choose<'a>(revisions: &'a [Revision], current: &str, to: Option<i64>) -> Result<&'a Revision> {
    let numbers: Vec<String> = revisions.iter().map(|revision| revision.number.to_string()).collect();
    let hint = match numbers.is_empty() {
        true => "no revision is kept yet".to_owned(),
        false => format!("these are kept: {}", numbers.join(", ")),
    };
    let others = || revisions.iter().filter(|revision| revision.hash != current);
    match to {
        Some(number) => revisions
            .iter()
            .find(|revision| revision.number == number)
            .ok_or_else(|| anyhow!("there is no revision {number}"))
            .hint(hint),
        None => others()
            .rfind(|revision| revision.verdict == Verdict::Good)
            .or_else(|| others().next_back())
            .ok_or_else(|| anyhow!("there is no earlier revision"))
            .hint(hint),
    }
}

/// The spec with everything that makes a pod taken from the revision.
fn restored(app: &WebApp, target: &Revision) -> Result<stead_apis::WebAppSpec> {
    target
        .restored(app)
        .context("the revision cannot be read")
        .hint("it may have been written by a newer version of stead")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn app(spec: Value) -> WebApp {
        serde_json::from_value(json!({"apiVersion": "stead.dev/v1", "kind": "WebApp",
            "metadata": {"name": "shop", "namespace": "default"}, "spec": spec}))
        .unwrap()
    }

    #[test]
    fn what_a_pod_is_goes_back_and_replicas_stay() {
        let old = Revision::render(&app(json!({"image": "nginx:1.25", "replicas": 1})), 1);
        let now = app(json!({"image": "nginx:1.27", "replicas": 5, "command": ["x"]}));
        let spec = restored(&now, &old).unwrap();
        assert_eq!((spec.image.as_str(), spec.replicas), ("nginx:1.25", 5));
        assert!(spec.command.is_empty());
    }

    #[test]
    fn the_newest_good_revision_but_the_current_one_is_chosen() {
        let make = |image: &str, number, verdict| {
            let mut revision = Revision::render(&app(json!({"image": image})), number);
            revision.verdict = verdict;
            revision
        };
        let all = [
            make("a:1", 1, Verdict::Good),
            make("a:2", 2, Verdict::Good),
            make("a:3", 3, Verdict::Failed),
            make("a:4", 4, Verdict::Open),
        ];
        let current = all[3].hash.clone();
        assert_eq!(choose(&all, &current, None).unwrap().number, 2);
        assert_eq!(choose(&all, &current, Some(1)).unwrap().number, 1);
        assert!(choose(&all, &current, Some(9)).is_err());
        assert!(choose(&[], &current, None).is_err());
    }
}

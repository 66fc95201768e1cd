//! `stead manifests`: everything that a cluster needs to run the operators, as YAML for `kubectl apply -f -`.
//!
//! Objects are built by pure functions and printed in a fixed order, so that the copy in the repository can be
//! compared with them.

mod builders;
mod dashboard;
mod monitoring;

use crate::failure::misuse;
use crate::terminal::say;
use anyhow::{Context, Result};
use builders::Place;
use clap::{Args, ValueEnum};
use serde_json::Value;
use stead::{Manager, Namespaces, Rule};
use stead_webapp::WebAppOperator;

/// Print what a cluster needs to run the operators, as YAML for `kubectl apply -f -`
#[derive(Args)]
#[command(after_help = "Examples:
  stead manifests | kubectl apply -f -
  stead manifests --only crds | kubectl apply -f -
  stead manifests --namespaces shop,blog | kubectl apply -f -   Roles in these instead of a ClusterRole")]
pub struct Arguments {
    /// Only this part
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Where the operator runs
    #[arg(long, value_name = "NS", default_value = "stead-system")]
    namespace: String,
    /// Let the operator work in these namespaces only, separated by commas
    #[arg(long, value_name = "LIST")]
    namespaces: Option<String>,
}

/// A part of the manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The definitions of the custom resources
    Crds,
    /// The operator's account and what it may do
    Rbac,
    /// The operator itself, with Service, PodDisruptionBudget and NetworkPolicy
    Operator,
    /// The webhook configurations
    Webhooks,
    /// A ServiceMonitor, alerts and a Grafana dashboard, for clusters with the Prometheus operator
    Monitoring,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let namespaces = match arguments.namespaces.as_deref().map(stead::configuration::split) {
        None => Namespaces::All,
        Some(list) if list.is_empty() => {
            return misuse(
                "--namespaces names no namespace",
                "leave it out to watch the whole cluster",
            );
        }
        Some(mut list) => {
            list.sort();
            list.dedup();
            Namespaces::Only(list)
        }
    };
    let named = match &namespaces {
        Namespaces::All => Vec::new(),
        Namespaces::Only(list) => list.clone(),
    };
    for name in named.iter().chain([&arguments.namespace]) {
        if let Some(problem) = stead_machinery::names::dns1123_label(name).first() {
            return misuse(
                format!("`{name}` cannot be a namespace: {problem}"),
                "correct that name",
            );
        }
    }
    let place = Place {
        namespace: arguments.namespace.clone(),
        rules: rules(&namespaces)?,
        namespaces,
    };
    // The kinds of the Prometheus operator are not on every cluster, and one unknown kind fails a whole apply.
    let usual = [Part::Crds, Part::Rbac, Part::Operator, Part::Webhooks];
    let parts = arguments.only.as_ref().map_or(&usual[..], std::slice::from_ref);
    let objects: Vec<Value> = parts.iter().flat_map(|part| build(*part, &place)).collect();
    say(yaml(&objects)?.trim_end())?;
    Ok(())
}

/// The objects of one part.
fn build(part: Part, place: &Place) -> Vec<Value> {
    match part {
        Part::Crds => builders::definitions(),
        Part::Rbac => builders::rbac(place),
        Part::Operator => builders::operator(place),
        Part::Webhooks => builders::webhooks(place),
        Part::Monitoring => monitoring::build(place),
    }
}

fn yaml(objects: &[Value]) -> Result<String> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(object).context("cannot print a manifest")?);
    }
    Ok(text)
}

/// What the operators need, as their controllers declare it. The controllers are made for this and never run.
fn rules(namespaces: &Namespaces) -> Result<Vec<Rule>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .context("cannot start")?;
    let _inside = runtime.enter();
    let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nobody is asked"))
    });
    let manager = Manager::builder(kube::Client::new(nobody, "default"))
        .namespaces(namespaces.clone())
        .build();
    WebAppOperator::add_to(&manager);
    Ok(manager.rbac())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(namespaces: Namespaces) -> Place {
        Place {
            namespace: "stead-system".to_owned(),
            rules: rules(&namespaces).unwrap(),
            namespaces,
        }
    }

    #[test]
    fn what_the_repository_keeps_is_what_is_printed() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests");
        for part in Part::value_variants() {
            let name = part.to_possible_value().unwrap().get_name().to_owned();
            let kept = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap_or_default();
            let printed = yaml(&build(*part, &place(Namespaces::All))).unwrap();
            assert!(
                kept.trim_end() == printed.trim_end(),
                "manifests/{name}.yaml differs: stead manifests --only {name} > manifests/{name}.yaml"
            );
        }
    }

    #[test]
    fn for_chosen_namespaces_nothing_of_the_cluster_is_asked_for() {
        let place = place(Namespaces::Only(vec!["blog".to_owned(), "shop".to_owned()]));
        let objects: Vec<Value> = [Part::Rbac, Part::Operator, Part::Webhooks]
            .into_iter()
            .flat_map(|part| build(part, &place))
            .collect();
        assert!(
            objects
                .iter()
                .all(|object| !object["kind"].as_str().unwrap().starts_with("Cluster"))
        );
        let roles: Vec<&str> = objects
            .iter()
            .filter(|object| object["kind"] == "Role")
            .filter_map(|object| object["metadata"]["namespace"].as_str())
            .collect();
        assert_eq!(roles, ["stead-system", "blog", "shop"]);
        let text = serde_json::to_string(&objects).unwrap();
        assert!(text.contains("--namespaces=blog,shop") && !text.contains("\"nodes\""));
    }

    #[test]
    fn nothing_is_granted_by_a_wildcard() {
        for object in build(Part::Rbac, &place(Namespaces::All)) {
            for rule in object["rules"].as_array().into_iter().flatten() {
                assert!(!rule.to_string().contains("\"*\""), "{rule}");
            }
        }
    }

    #[test]
    fn in_its_own_namespace_the_operator_touches_only_what_is_its_own() {
        let objects = build(Part::Rbac, &place(Namespaces::All));
        let role = objects.iter().find(|object| object["kind"] == "Role").unwrap();
        for rule in role["rules"].as_array().unwrap() {
            let creates = rule["verbs"] == serde_json::json!(["create"]);
            assert!(creates || !rule["resourceNames"].is_null(), "{rule}");
        }
    }

    /// The words of this source that are reasons: those in quotes after one of these beginnings.
    fn reasons<'a>(source: &'a str, beginnings: &[&str]) -> Vec<&'a str> {
        let after = |beginning: &&str| source.split(beginning).skip(1).collect::<Vec<_>>();
        let words = beginnings
            .iter()
            .flat_map(after)
            .filter_map(|rest| rest.split('"').next());
        words
            .filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()) && !word.contains(' '))
            .collect()
    }

    #[test]
    fn every_reason_for_which_an_application_is_not_ready_is_in_the_runbook() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
        let errors = read("crates/framework/src/error.rs");
        let (_, of_errors) = errors.split_once("pub fn reason(").unwrap();
        let (of_errors, _) = of_errors.split_once("pub fn ").unwrap();
        let status = read("crates/operators/webapp/src/status.rs");
        let mut all = reasons(of_errors, &["=> \""]);
        all.extend(reasons(&status, &["waiting(\"", "reason: \"", "=> \""]));
        assert!(all.len() > 25, "{all:?}");
        let page = read("docs/runbooks/WebAppNotReady.md");
        let missing: Vec<_> = all
            .into_iter()
            .filter(|word| !page.contains(&format!("`{word}`")))
            .collect();
        assert!(missing.is_empty(), "not in the runbook: {missing:?}");
    }

    #[test]
    fn every_alert_has_a_severity_and_a_runbook() {
        let text = build(Part::Monitoring, &place(Namespaces::All));
        let rules = text.iter().find(|object| object["kind"] == "PrometheusRule").unwrap();
        for rule in rules["spec"]["groups"][0]["rules"].as_array().unwrap() {
            assert!(rule["labels"]["severity"].is_string(), "{rule}");
            let url = rule["annotations"]["runbook_url"].as_str().unwrap();
            let page = url.strip_prefix("https://stead.dev/docs/runbooks/").unwrap();
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/runbooks");
            let text = std::fs::read_to_string(folder.join(format!("{page}.md"))).unwrap_or_default();
            assert!(
                text.starts_with(&format!("# {page}\n")),
                "docs/runbooks/{page}.md explains {rule}"
            );
        }
    }
}

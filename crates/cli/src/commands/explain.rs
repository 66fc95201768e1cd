//! `stead explain`: why an operator did what it did to an object, and when it looks again.
//!
//! The operator remembers it and tells those on its own machine. This command asks there, or reaches an operator in
//! the cluster the way `kubectl port-forward` does.

mod ask;
mod render;

use crate::commands::output::Format;
use crate::commands::{connection, operator};
use crate::failure::{Hint, told};
use crate::terminal::{Line, tell};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use serde_json::Value;
use std::net::SocketAddr;

/// Show why an operator did what it did to an object, what it wrote, and when it looks again and why
#[derive(Args)]
#[command(after_help = "Examples:
  stead explain webapp shop
  stead explain webapp shop -n production -o json
  stead explain webapp shop --operator 127.0.0.1:8081    an operator at this address of the machine

It asks the leader among the operator's pods in the cluster, else the operator on this machine (127.0.0.1:8081).")]
pub struct Arguments {
    /// The kind of the object
    kind: String,
    /// Its name
    name: String,
    /// Its namespace (default: that of the kubeconfig)
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    /// Ask the operator whose probes are at this address
    #[arg(long, value_name = "HOST:PORT")]
    operator: Option<SocketAddr>,
    /// Where the operator's pods are
    #[arg(long, value_name = "NS", default_value = "stead-system")]
    operator_namespace: String,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    connection::block_on(async {
        let namespace = namespace(arguments).await;
        let question = ask::Question {
            kind: &arguments.kind,
            namespace: &namespace,
            name: &arguments.name,
        };
        let answer = answer(arguments, &question).await?;
        let known: Vec<Value> = answer.into_iter().filter(|one| !one["story"].is_null()).collect();
        if known.is_empty() {
            return Err(anyhow!(
                "the operator has not looked at {} {namespace}/{}",
                arguments.kind,
                arguments.name
            ))
            .hint("check the kind, the name and -n; an operator that has just started has forgotten what was before");
        }
        arguments.output.print(&known, || vec![render::people(&known)])
    })
}

async fn namespace(arguments: &Arguments) -> String {
    match &arguments.namespace {
        Some(namespace) => namespace.clone(),
        // Without a kubeconfig the operator of this machine can still be asked.
        None => kube::Config::infer()
            .await
            .map_or_else(|_| "default".to_owned(), |config| config.default_namespace),
    }
}

async fn answer(arguments: &Arguments, question: &ask::Question<'_>) -> Result<Vec<Value>> {
    if let Some(address) = arguments.operator {
        let answer = ask::at(address, question)
            .await
            .with_context(|| format!("no operator answers at {address}"))
            .hint("start it with --health-probe-bind-address at that address")?;
        if is_of_another_cluster(&answer, question).await {
            tell(
                Line::Note,
                "that operator looks after another cluster than the kubeconfig's",
            );
        }
        return Ok(answer);
    }
    // Who leads in the cluster is the one that acts there; an operator of this machine may belong to another.
    let absent = match in_cluster(arguments, question).await {
        Ok(answer) => return Ok(answer),
        Err(error) => error,
    };
    let usual: SocketAddr = operator::PROBES.parse().context("the usual address is one")?;
    let answer = ask::at(usual, question)
        .await
        .with_context(|| {
            format!(
                "no operator answers in the cluster ({}), and none at {usual}",
                told(&absent)
            )
        })
        .hint("--operator HOST:PORT names the address of its probes; --operator-namespace where its pods are")?;
    if is_of_another_cluster(&answer, question).await {
        return Err(anyhow!("the operator at {usual} looks after another cluster"))
            .hint("--operator HOST:PORT names the address of its probes; of several `stead up` on a machine, only the first has one");
    }
    tell(Line::Note, &format!("asked the operator at {usual}"));
    Ok(answer)
}

/// Whether the object that an operator knows is another than the one of that name in the cluster of the kubeconfig.
async fn is_of_another_cluster(answer: &[Value], question: &ask::Question<'_>) -> bool {
    // Without a cluster to compare with, nobody has asked about another one.
    let Ok(client) = connection::configuration().await.and_then(connection::client) else {
        return false;
    };
    for one in answer {
        if let Some(known) = one["uid"].as_str()
            && let Ok(there) = ask::uid(&client, &one["kind"], question).await
            && there.as_deref() != Some(known)
        {
            return true;
        }
    }
    false
}

/// Asks the pod that leads in the cluster, if one does.
async fn in_cluster(arguments: &Arguments, question: &ask::Question<'_>) -> Result<Vec<Value>> {
    let client = connection::client(connection::configuration().await?)?;
    ask::leader(client, &arguments.operator_namespace, question).await
}

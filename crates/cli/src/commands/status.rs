//! `stead status`: an application and everything under it as a tree, with the reason for whatever is not ready.

mod tree;

use crate::commands::connection::{self, App};
use crate::commands::output::Format;
use crate::terminal::Paint;
use anyhow::Result;
use clap::Args;
use kube::api::Api;
use tree::Tree;

/// Show an application and all under it, with the reason for whatever is not ready
#[derive(Args)]
#[command(after_help = "Examples:
  stead status webapp shop
  stead status webapp shop -n production
  stead status webapp shop -o json")]
pub struct Arguments {
    #[command(flatten)]
    app: App,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    connection::block_on(async {
        let (client, namespace) = arguments.app.client().await?;
        let app = arguments.app.get(&Api::namespaced(client.clone(), &namespace)).await?;
        let chosen = stead_webapp::names::selector_text(&app);
        let tree = Tree {
            deployments: connection::list(&client, &namespace, &chosen).await?,
            sets: connection::list(&client, &namespace, &chosen).await?,
            pods: connection::list(&client, &namespace, &chosen).await?,
            app,
        };
        let root = tree.root();
        arguments.output.print(&root, || root.lines(Paint::of_output()))
    })
}

//! `stead image`: images that containers of process nodes run in, from archives and registries.

use super::connection;
use super::node::refused;
use super::output::Format;
use crate::failure::Hint;
use crate::places;
use crate::terminal::say;
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::PathBuf;
use stead_cluster::node::process::images::registry::Keys;
use stead_cluster::node::process::images::store::Store;
use stead_cluster::node::process::users;

/// Load images from archives, pull them from registries, and list them
#[derive(Args)]
#[command(after_help = "Examples:
  stead image load app.tar     an OCI archive, or what `docker save` and `podman save` write
  stead image pull docker.io/library/nginx:1.29
  stead image list

Containers of such images run in their own root, which takes root or user namespaces.")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Unpack the images of an archive, for all of your clusters
    #[command(after_help = "Examples:
  stead image load app.tar
  podman save app:1.0 -o app.tar && stead image load app.tar")]
    Load {
        /// A tar file, compressed with gzip or not
        archive: PathBuf,
    },
    /// Fetch an image that everybody may read from its registry, for all of your clusters
    #[command(after_help = "Examples:
  stead image pull docker.io/library/nginx:1.29")]
    Pull {
        /// The name as a pod has it
        image: String,
    },
    /// The names of the images that are there
    #[command(after_help = "Examples:
  stead image list
  stead image list -o json")]
    List {
        /// How to print them
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
}

pub fn run(arguments: Arguments) -> Result<()> {
    let images = Store::new(places::images()?);
    if !matches!(arguments.command, Command::List { .. }) {
        // The files of an image are for many users, as far as this user may give them any.
        refused(users::become_root(None))?;
    }
    match arguments.command {
        Command::Load { archive } => {
            let names = images
                .load(&archive)
                .with_context(|| format!("cannot load {}", archive.display()))
                .hint("give an OCI archive, or what `docker save` or `podman save` wrote")?;
            for name in names {
                say(&format!("loaded {name}"))?;
            }
        }
        Command::Pull { image } => {
            connection::block_on(async {
                let pulled = images.pull(&image, &Keys::default()).await;
                pulled
                    .with_context(|| format!("cannot pull {image}"))
                    .hint("check the name and the way to the registry, or load an archive with `stead image load`")
            })?;
            say(&format!("pulled {image}"))?;
        }
        Command::List { output } => {
            let there: Vec<Image> = images
                .names()
                .into_iter()
                .map(|(name, digest)| Image { name, digest })
                .collect();
            output.print(&there, || table(&there))?;
        }
    }
    Ok(())
}

/// An image that is there, as programs read it.
#[derive(Serialize)]
struct Image {
    name: String,
    digest: String,
}

fn table(images: &[Image]) -> Vec<String> {
    let width = images.iter().map(|image| image.name.len()).max().unwrap_or_default();
    let row = |name: &str, digest: &str| format!("{name:<width$}   {digest}", width = width.max("NAME".len()));
    let rows = images.iter().map(|image| row(&image.name, &image.digest));
    std::iter::once(row("NAME", "DIGEST")).chain(rows).collect()
}

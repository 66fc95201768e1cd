//! The user's own entries of the image catalogue: a YAML file that maps names of images to programs.
//!
//! It is read whenever a container starts, so an entry counts from the moment that it is written.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// What runs for a name.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Runs unless the container names a command.
    #[serde(default)]
    pub command: Vec<String>,
    /// Follow the command unless the container names arguments.
    #[serde(default)]
    pub args: Vec<String>,
}

/// The file: `images: {NAME: {command: [...], args: [...]}}`. A name has no tag, and may have a registry.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    images: BTreeMap<String, Program>,
}

/// Reads the file; one that is not there has no entries.
pub fn read(path: &Path) -> Result<BTreeMap<String, Program>, String> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => return Ok(BTreeMap::new()),
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let document: Document =
        serde_saphyr::from_str(&text).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(document.images)
}

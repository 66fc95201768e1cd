//! Reads the tags of Go struct fields: JSON names, pointers, what is left out when empty.
//!
//! Only what stands on one line is read, which is how API types are written; a protobuf field without its
//! Go field stops the chore.

use anyhow::{Context, Result};
use std::collections::HashMap;
use std::path::Path;

/// What a Go package says about its types.
#[derive(Debug, Default)]
pub struct Package {
    /// The API group, where the package has one.
    pub group: Option<String>,
    pub structs: HashMap<String, Struct>,
    /// Named slices: `type ExtraValue []string`.
    pub slices: Vec<String>,
    /// Types that are another package's: `type List metav1.List`.
    pub renamed: HashMap<String, String>,
}

#[derive(Debug, Default)]
pub struct Struct {
    /// Embeds TypeMeta, as every kind does.
    pub is_kind: bool,
    /// By protobuf field number.
    pub fields: HashMap<u32, Tags>,
}

#[derive(Debug, Clone)]
pub struct Tags {
    pub json: String,
    pub inline: bool,
    pub omit_empty: bool,
    pub omit_zero: bool,
    pub pointer: bool,
}

/// Reads the Go files of a folder.
pub fn read(folder: &Path) -> Result<Package> {
    let mut package = Package::default();
    for entry in std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if name.ends_with(".go") && !name.ends_with("_test.go") && !name.contains("generated") {
            let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            source(&text, &mut package);
        }
    }
    Ok(package)
}

fn source(text: &str, package: &mut Package) {
    let mut inside: Option<String> = None;
    for line in text.lines() {
        if let Some(group) = line.trim().trim_start_matches("const ").strip_prefix("GroupName ") {
            package.group = group.split('"').nth(1).map(String::from);
        }
        if line.starts_with('}') {
            inside = None;
        }
        if let Some(declaration) = line.strip_prefix("type ") {
            let mut words = declaration.split_whitespace();
            let (name, is) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            if is.starts_with("struct") {
                package.structs.entry(name.to_string()).or_default();
                inside = (!line.ends_with('}')).then(|| name.to_string());
            } else if is.starts_with("[]") {
                package.slices.push(name.to_string());
            } else if is.contains('.') {
                package.renamed.insert(name.to_string(), is.to_string());
            }
        } else if let Some(current) = inside.as_ref().and_then(|name| package.structs.get_mut(name)) {
            field(line.trim(), current);
        }
    }
}

fn field(line: &str, current: &mut Struct) {
    if line.starts_with("//") {
        return;
    }
    let mut parts = line.split('`');
    let (Some(declaration), Some(tags)) = (parts.next(), parts.next()) else {
        return;
    };
    let declaration = declaration.trim();
    if declaration.ends_with("TypeMeta") {
        current.is_kind = true;
    }
    let Some(number) = tag(tags, "protobuf").and_then(|t| t.split(',').nth(1)?.parse().ok()) else {
        return;
    };
    let json = tag(tags, "json").unwrap_or_default();
    let mut options = json.split(',');
    let name = options.next().unwrap_or_default().to_string();
    let options: Vec<&str> = options.collect();
    // An embedded field's declaration is its type alone.
    let kind = declaration
        .split_once(char::is_whitespace)
        .map_or(declaration, |(_, kind)| kind.trim());
    current.fields.insert(
        number,
        Tags {
            inline: options.contains(&"inline"),
            omit_empty: options.contains(&"omitempty"),
            omit_zero: options.contains(&"omitzero"),
            pointer: kind.starts_with('*'),
            json: name,
        },
    );
}

fn tag<'a>(tags: &'a str, name: &str) -> Option<&'a str> {
    let start = tags.find(&format!("{name}:\""))? + name.len() + 2;
    tags[start..].split('"').next()
}

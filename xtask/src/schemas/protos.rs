//! Reads `generated.proto` files: messages, their fields' numbers and types.
//!
//! The files are generated in one narrow style (no oneofs, enums or nested messages), so a reader of lines
//! is enough, and it refuses what it does not know.

use anyhow::{Context, Result, bail};

/// One message as the file declares it.
#[derive(Debug)]
pub struct Declared {
    pub name: String,
    pub fields: Vec<DeclaredField>,
}

#[derive(Debug)]
pub struct DeclaredField {
    pub number: u32,
    pub name: String,
    pub label: Label,
    /// A scalar's name or a message's full name.
    pub value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    Optional,
    Repeated,
    Map,
}

/// The scalars that the API uses.
pub const SCALARS: &[&str] = &["bool", "int32", "int64", "double", "string", "bytes"];

/// The package and messages of a file.
pub fn parse(text: &str) -> Result<(String, Vec<Declared>)> {
    let mut package = String::new();
    let mut messages: Vec<Declared> = Vec::new();
    let mut commented = false;
    for line in text.lines().map(str::trim) {
        commented |= line.starts_with("/*");
        if commented {
            commented = !line.ends_with("*/");
            continue;
        }
        if line.is_empty()
            || ["//", "syntax", "import", "option ", "}"]
                .iter()
                .any(|p| line.starts_with(p))
        {
            continue;
        }
        if let Some(name) = line.strip_prefix("package ") {
            package = name.trim_end_matches(';').to_string();
        } else if let Some(name) = line.strip_prefix("message ") {
            messages.push(Declared {
                name: name.trim_end_matches('{').trim().to_string(),
                fields: Vec::new(),
            });
        } else {
            let message = messages
                .last_mut()
                .with_context(|| format!("a field outside a message: {line}"))?;
            message
                .fields
                .push(field(&package, line).with_context(|| format!("in {}: {line}", message.name))?);
        }
    }
    Ok((package, messages))
}

fn field(package: &str, line: &str) -> Result<DeclaredField> {
    let (declaration, number) = line.trim_end_matches(';').rsplit_once('=').context("no number")?;
    let number = number.trim().parse().context("not a number")?;
    let (types, name) = declaration.trim().rsplit_once(' ').context("no name")?;
    let (label, value) = if let Some(map) = types.strip_prefix("map<") {
        let (key, value) = map.trim_end_matches('>').split_once(',').context("not a map")?;
        if key != "string" {
            bail!("a map from {key}");
        }
        (Label::Map, value.trim())
    } else {
        match types.split_once(' ') {
            Some(("optional", value)) => (Label::Optional, value),
            Some(("repeated", value)) => (Label::Repeated, value),
            _ => bail!("a new kind of field"),
        }
    };
    let value = match value.strip_prefix('.') {
        Some(absolute) => absolute.to_string(),
        None if SCALARS.contains(&value) => value.to_string(),
        None => format!("{package}.{value}"),
    };
    Ok(DeclaredField {
        number,
        name: name.to_string(),
        label,
        value,
    })
}

//! Tables: objects as the rows that kubectl prints.
//!
//! The server renders them so that every client, however old, shows every kind the same way. Columns and
//! cells of built-in kinds are Kubernetes' own; custom resources bring theirs in their definition.

mod access;
mod apps;
mod cells;
mod cluster;
mod columns;
mod core;
mod custom;
pub mod jsonpath;
mod network;
mod pods;
mod storage;

use crate::catalogue::{Origin, Resource};
use columns::Column;
use jiff::Timestamp;
use serde_json::{Value, json};

/// What stands in the `object` of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

impl Include {
    /// The `includeObject` parameter; `None` for a value that does not exist.
    pub fn parse(text: &str) -> Option<Include> {
        match text {
            "" | "Metadata" => Some(Include::Metadata),
            "None" => Some(Include::None),
            "Object" => Some(Include::Object),
            _ => None,
        }
    }
}

/// One object and the moment at which its age is told.
struct Row<'a> {
    object: &'a Value,
    now: Timestamp,
}

/// How a kind is printed.
struct Printer {
    group: &'static str,
    plural: &'static str,
    columns: &'static [Column],
    cells: fn(&Row<'_>) -> Vec<Value>,
}

/// Kinds with columns of their own; all others show their name and creation time.
const PRINTERS: &[&[Printer]] = &[
    access::PRINTERS,
    apps::PRINTERS,
    cluster::PRINTERS,
    core::PRINTERS,
    network::PRINTERS,
    pods::PRINTERS,
    storage::PRINTERS,
];

/// Objects as a Table; the caller adds the metadata of its list.
pub fn render(resource: &Resource, objects: &[Value], now: Timestamp, include: Include) -> Value {
    let (columns, cells): (Vec<Value>, Cells<'_>) = match &resource.origin {
        Origin::Custom(kind) => {
            let table = custom::Table::new(kind);
            (table.columns(), Box::new(move |row| table.cells(row)))
        }
        Origin::BuiltIn => match printer(resource) {
            Some(printer) => (
                printer.columns.iter().map(Column::describe).collect(),
                Box::new(|row| (printer.cells)(row)),
            ),
            None => (
                columns::PLAIN.iter().map(Column::describe).collect(),
                Box::new(|row| vec![row.name(), row.at("/metadata/creationTimestamp").clone()]),
            ),
        },
    };
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let row = Row { object, now };
            let mut rendered = json!({"cells": cells(&row)});
            if let Some(conditions) = pods::conditions(resource, &row) {
                rendered["conditions"] = conditions;
            }
            match include {
                Include::None => {}
                Include::Metadata => rendered["object"] = partial(object),
                Include::Object => rendered["object"] = object.clone(),
            }
            rendered
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
        "columnDefinitions": columns, "rows": rows,
    })
}

type Cells<'a> = Box<dyn Fn(&Row<'_>) -> Vec<Value> + 'a>;

fn printer(resource: &Resource) -> Option<&'static Printer> {
    let mut all = PRINTERS.iter().copied().flatten();
    all.find(|p| p.group == resource.group && p.plural == resource.plural)
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

#[cfg(test)]
mod tests;

//! Columns that a custom resource definition brings along.

use super::Row;
use super::cells::since;
use super::columns::{AGE, Column, NAME};
use super::jsonpath::JsonPath;
use crate::custom::{CustomKind, PrinterColumn};
use serde_json::{Value, json};

/// The columns of one kind, with their paths parsed once for all rows.
pub struct Table<'a> {
    columns: Vec<(&'a PrinterColumn, Option<JsonPath>)>,
}

impl<'a> Table<'a> {
    pub fn new(kind: &'a CustomKind) -> Self {
        let columns = kind.columns.iter().map(|c| (c, JsonPath::parse(&c.json_path).ok()));
        Table {
            columns: columns.collect(),
        }
    }

    pub fn columns(&self) -> Vec<Value> {
        let mut described = vec![NAME.describe()];
        for (column, _) in &self.columns {
            let description = match column.description.as_str() {
                "" => "Custom resource definition column (in JSONPath format): ".to_string() + &column.json_path,
                own => own.to_string(),
            };
            described.push(json!({
                "name": column.name, "type": column.kind, "format": column.format,
                "description": description, "priority": column.priority,
            }));
        }
        if self.columns.is_empty() {
            described.push(Column { kind: "date", ..AGE }.describe());
        }
        described
    }

    pub fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let mut cells = vec![row.name()];
        if self.columns.is_empty() {
            cells.push(row.age());
        }
        for (column, path) in &self.columns {
            let found = path.as_ref().and_then(|path| path.find(row.object).into_iter().next());
            cells.push(found.map_or(Value::Null, |value| cell(column, value, row)));
        }
        cells
    }
}

fn cell(column: &PrinterColumn, value: &Value, row: &Row<'_>) -> Value {
    match (column.kind.as_str(), value) {
        (_, Value::Null) => Value::Null,
        ("integer", Value::Number(number)) => match number.as_f64() {
            Some(float) if !number.is_i64() => Value::from(float as i64),
            _ => value.clone(),
        },
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) | ("string", Value::String(_)) => value.clone(),
        ("string", other) => other.to_string().into(),
        ("date", Value::String(text)) if text.parse::<jiff::Timestamp>().is_ok() => since(value, row.now).into(),
        ("date", Value::String(_)) => "<invalid>".into(),
        _ => Value::Null,
    }
}

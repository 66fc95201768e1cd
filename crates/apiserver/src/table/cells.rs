//! What cells are made of: ages, labels, lists that are cut off.

use super::Row;
use jiff::Timestamp;
use serde_json::Value;

pub const NONE: &str = "<none>";
pub const UNKNOWN: &str = "<unknown>";
pub const UNSET: &str = "<unset>";

impl<'a> Row<'a> {
    /// The value at a JSON pointer; null where there is none.
    pub fn at(&self, pointer: &str) -> &'a Value {
        self.object.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// The text at a JSON pointer; empty where there is none.
    pub fn text(&self, pointer: &str) -> &'a str {
        self.at(pointer).as_str().unwrap_or_default()
    }

    pub fn text_or(&self, pointer: &str, otherwise: &'a str) -> Value {
        match self.text(pointer) {
            "" => otherwise.into(),
            text => text.into(),
        }
    }

    pub fn number(&self, pointer: &str) -> i64 {
        self.at(pointer).as_i64().unwrap_or_default()
    }

    pub fn flag(&self, pointer: &str) -> bool {
        self.at(pointer).as_bool().unwrap_or_default()
    }

    pub fn list(&self, pointer: &str) -> &'a [Value] {
        self.at(pointer).as_array().map(Vec::as_slice).unwrap_or_default()
    }

    pub fn name(&self) -> Value {
        self.text("/metadata/name").into()
    }

    pub fn age(&self) -> Value {
        since(self.at("/metadata/creationTimestamp"), self.now).into()
    }

    pub fn is_deleted(&self) -> bool {
        !self.at("/metadata/deletionTimestamp").is_null()
    }

    /// The status of a condition.
    pub fn condition(&self, kind: &str) -> Option<&'a str> {
        let conditions = self.list("/status/conditions").iter();
        let mut found = conditions.filter(|c| c["type"] == kind);
        found.next().and_then(|c| c["status"].as_str())
    }
}

/// How long ago a time was, as kubectl shows it.
pub fn since(time: &Value, now: Timestamp) -> String {
    match time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(time) => duration(now.as_second() - time.as_second()),
        None => UNKNOWN.to_string(),
    }
}

/// Seconds as at most two units: `45s`, `3m20s`, `5h`, `2d3h`, `400d`.
pub fn duration(seconds: i64) -> String {
    let two = |large: i64, unit: &str, small: i64, next: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{next}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        i64::MIN..-1 => "<invalid>".to_string(),
        -1..0 => "0s".to_string(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if days < 2920 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// `a=1,b=2`, or `<none>`.
pub fn labels(labels: &Value) -> String {
    let pairs: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    match pairs.is_empty() {
        true => NONE.to_string(),
        false => pairs.join(","),
    }
}

/// A label selector as kubectl writes it.
pub fn selector(selector: &Value) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        parts.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = texts(&expression["values"]).join(",");
        parts.push(match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_string(),
            _ => format!("!{key}"),
        });
    }
    parts.sort();
    match parts.is_empty() {
        true => NONE.to_string(),
        false => parts.join(","),
    }
}

pub fn texts(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Names and images of containers, each joined with commas.
pub fn containers(list: &[Value]) -> (Value, Value) {
    let join = |field: &str| {
        let parts: Vec<&str> = list.iter().map(|c| c[field].as_str().unwrap_or_default()).collect();
        Value::from(parts.join(","))
    };
    (join("name"), join("image"))
}

/// A list cut after some items: `a,b,c + 2 more...`.
pub fn cut(items: &[String], most: usize) -> String {
    if items.is_empty() {
        return UNSET.to_string();
    }
    let shown = items[..items.len().min(most)].join(",");
    match items.len() > most {
        true => format!("{shown} + {} more...", items.len() - most),
        false => shown,
    }
}

/// An int-or-string, or anything else, as text.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

//! The properties of the definition's schema, and specs that have one of them changed.
//!
//! Nothing here knows a field of the definition: what is valid is for the API server to say. The words are values that
//! are valid somewhere, tried in turn.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Strings that are valid somewhere.
const STRINGS: &[&str] = &[
    "data",
    "/etc/data",
    "data.example.com",
    "nginx:1.26",
    "http",
    "0 20 * * *",
    "Europe/Berlin",
    "64Mi",
    "metadata.labels",
    "metadata.name",
    "limits.cpu",
    "example.com/data",
    "iqn.2001-04.com.example:data",
    "10.0.0.1",
    "v1",
    "Exists",
    "In",
    "NotIn",
    "PersistentVolumeClaim",
    "AverageValue",
    "Value",
];
/// Whole numbers that are valid somewhere.
const NUMBERS: &[i64] = &[2, 1, 3, 30, 3600, 0];
/// Keys of maps: labels, then resources.
const KEYS: &[&str] = &["data", "cpu", "memory", "storage"];

/// What a required property usually holds, by its name, where it is not [`STRINGS`]' first: it stands beside the one that
/// is changed, and is not what is tried.
const USUAL: &[(&str, &[&str])] = &[
    ("action", &["Restart"]),
    ("driver", &["data.example.com"]),
    ("fieldPath", &["metadata.name"]),
    ("from", &["0 20 * * *"]),
    ("host", &["data.example.com"]),
    ("image", &["nginx:1.26"]),
    ("iqn", &["iqn.2001-04.com.example:data"]),
    ("kind", &["data", "PersistentVolumeClaim"]),
    ("keyType", &["ECDSAP256"]),
    ("mountPath", &["/etc/data"]),
    ("devicePath", &["/dev/data"]),
    ("name", &["data", "cpu"]),
    ("key", &["data", "metadata.name"]),
    ("operator", &["In", "Exists", "Gt"]),
    ("path", &["data", "/etc/data"]),
    ("registry", &["data.example.com:80"]),
    ("resource", &["limits.cpu", "limits.memory"]),
    ("resourceName", &["cpu"]),
    ("restartPolicy", &["NotRequired", "Always"]),
    ("signerName", &["example.com/data"]),
    ("type", &["Utilization", "AverageValue"]),
    ("until", &["0 6 * * *"]),
    ("whenUnsatisfiable", &["ScheduleAnyway", "DoNotSchedule"]),
];

/// A place in the schema.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Field(String),
    Item,
}

/// The way from the spec to a property.
pub type Place = Vec<Step>;

/// The schema of the spec in a definition.
pub fn of_the_spec(definition: &CustomResourceDefinition) -> Value {
    let definition = serde_json::to_value(definition).expect("JSON");
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
}

/// Every property, to the ends of the schema.
pub fn properties(schema: &Value) -> Vec<Place> {
    let mut found = Vec::new();
    walk(schema, &[], &mut found);
    found
}

fn walk(schema: &Value, place: &[Step], found: &mut Vec<Place>) {
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let place = [place, &[Step::Field(name.clone())]].concat();
        found.push(place.clone());
        walk(inner, &place, found);
    }
    if schema["items"].is_object() {
        walk(&schema["items"], &[place, &[Step::Item]].concat(), found);
    }
}

/// Those properties that hold a value of their own. One that holds others is changed by what is in it.
pub fn leaves(all: &[Place]) -> impl Iterator<Item = &Place> {
    let inside = |other: &Place, place: &Place| other.len() > place.len() && other.starts_with(place);
    all.iter()
        .filter(move |place| !all.iter().any(|other| inside(other, place)))
}

/// The schema of a property.
pub fn at<'a>(schema: &'a Value, place: &[Step]) -> &'a Value {
    place.iter().fold(schema, |schema, step| match step {
        Step::Field(name) => &schema["properties"][name],
        Step::Item => &schema["items"],
    })
}

/// Whether the schema allows a property one value only. It cannot become another one: it comes and goes.
pub fn has_one_value(schema: &Value, place: &[Step]) -> bool {
    let words = at(schema, place)["enum"].as_array();
    words.is_some_and(|words| words.len() == 1)
}

/// The place as people write it.
pub fn shown(place: &[Step]) -> String {
    let mut text = String::new();
    for step in place {
        match step {
            Step::Field(name) if text.is_empty() => text.push_str(name),
            Step::Field(name) => {
                text.push('.');
                text.push_str(name);
            }
            Step::Item => text.push_str("[]"),
        }
    }
    text
}

/// Words that the server said it takes, by the name of the property.
pub type Learned = BTreeMap<String, Vec<String>>;

/// Values that a property may have, as far as its schema says, with the words that the server said it takes first.
pub fn values(schema: &Value, learned: &[String]) -> Vec<Value> {
    if let Some(words) = schema["enum"].as_array() {
        return words.clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return vec![json!(2), json!("30%"), json!("64Mi"), json!(8080), json!("1Gi")];
    }
    match schema["type"].as_str().unwrap_or("object") {
        "boolean" => vec![json!(true), json!(false)],
        "integer" | "number" => {
            let least = schema["minimum"].as_f64().unwrap_or(0.0) as i64;
            let numbers = NUMBERS.iter().filter(|number| **number >= least);
            numbers.map(|number| json!(number)).collect()
        }
        "string" if schema["format"] == "date-time" => vec![json!("2026-01-01T00:00:00Z")],
        "string" => {
            let learned = learned.iter().map(|word| json!(word));
            learned.chain(STRINGS.iter().map(|word| json!(word))).collect()
        }
        "array" => {
            let one = values(&schema["items"], learned);
            one.into_iter().map(|value| json!([value])).collect()
        }
        _ if !schema["additionalProperties"].is_object() => vec![json!({"data": "data"}), json!({})],
        _ => {
            let of_map = &schema["additionalProperties"];
            let pairs = KEYS.iter().flat_map(|key| {
                values(of_map, learned)
                    .into_iter()
                    .take(3)
                    .map(move |value| (key, value))
            });
            pairs.map(|(key, value)| json!({*key: value})).collect()
        }
    }
}

/// How a spec is changed at a place.
pub struct Change<'a> {
    /// What the property shall be.
    pub value: &'a Value,
    /// How many steps of the way stay as the base has them; what is below is made anew.
    pub kept: usize,
    /// Which of the usual values stand beside it.
    pub beside: usize,
    pub learned: &'a Learned,
}

impl Change<'_> {
    /// The base with this change, and whatever the place needs around it.
    pub fn of(&self, schema: &Value, base: &Value, place: &[Step]) -> Value {
        self.at(schema, Some(base), place, 0)
    }

    fn at(&self, schema: &Value, base: Option<&Value>, place: &[Step], depth: usize) -> Value {
        let base = base.filter(|_| depth <= self.kept);
        match place.split_first() {
            None => self.value.clone(),
            Some((Step::Field(name), rest)) => {
                let mut fields = match base {
                    Some(Value::Object(fields)) => fields.clone(),
                    _ => self.required(schema, name),
                };
                let inner = self.at(&schema["properties"][name], fields.get(name), rest, depth + 1);
                fields.insert(name.clone(), inner);
                Value::Object(fields)
            }
            Some((Step::Item, rest)) => {
                let mut items = base.and_then(Value::as_array).cloned().unwrap_or_default();
                // Of several items the one that has most of what is around.
                let best =
                    (0..items.len()).max_by_key(|&index| (present(&items[index], rest), std::cmp::Reverse(index)));
                let inner = self.at(&schema["items"], best.map(|index| &items[index]), rest, depth + 1);
                match best {
                    Some(index) => items[index] = inner,
                    None => items.push(inner),
                }
                Value::Array(items)
            }
        }
    }

    /// Everything that must stand in an object of which one property was chosen.
    fn required(&self, schema: &Value, chosen: &str) -> Map<String, Value> {
        let names = schema["required"].as_array().into_iter().flatten();
        names
            .filter_map(Value::as_str)
            .filter(|name| *name != chosen)
            .map(|name| (name.to_string(), self.usual(&schema["properties"][name], name, chosen)))
            .collect()
    }

    /// What a property usually holds that is there only because it must be.
    fn usual(&self, schema: &Value, name: &str, chosen: &str) -> Value {
        if schema["properties"].is_object() {
            return Value::Object(self.required(schema, ""));
        }
        if schema["type"] == "array" {
            return json!([self.usual(&schema["items"], name, chosen)]);
        }
        if schema["type"] != "string" || !schema["enum"].is_null() {
            return values(schema, &[]).swap_remove(0);
        }
        // A word that tells which of several members is meant is mostly made of the member's name.
        let named = if name == "type" { kinds_of(chosen) } else { Vec::new() };
        if let Some(words) = self.learned.get(name) {
            let fitting = named.iter().find(|word| words.contains(word));
            return json!(fitting.unwrap_or(&words[self.beside % words.len()]));
        }
        let known = USUAL.iter().find(|(known, _)| *known == name);
        let known = known
            .map_or(&["data"][..], |(_, words)| words)
            .iter()
            .map(|word| word.to_string());
        let words: Vec<String> = named.into_iter().chain(known).collect();
        json!(words[self.beside % words.len()])
    }
}

/// How many steps of a way a value has.
pub fn present(value: &Value, place: &[Step]) -> usize {
    let Some((step, rest)) = place.split_first() else {
        return 0;
    };
    let inner = match step {
        Step::Field(name) => value.get(name),
        Step::Item => {
            let items = value.as_array().into_iter().flatten();
            items.max_by_key(|item| present(item, rest))
        }
    };
    inner.map_or(0, |inner| 1 + present(inner, rest))
}

/// The value at the end of a way, if it is there.
pub fn value_at<'a>(value: &'a Value, place: &[Step]) -> Option<&'a Value> {
    let Some((step, rest)) = place.split_first() else {
        return Some(value);
    };
    match step {
        Step::Field(name) => value_at(value.get(name)?, rest),
        Step::Item => value.as_array()?.iter().find_map(|item| value_at(item, rest)),
    }
}

/// Whether Kubernetes makes no difference between this value and none at all.
pub fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// A value without a property, in whichever items of lists it is.
pub fn without(value: &Value, place: &[Step]) -> Value {
    let mut less = value.clone();
    match (place.split_first(), &mut less) {
        (Some((Step::Field(name), [])), Value::Object(fields)) => {
            fields.remove(name);
        }
        (Some((Step::Field(name), rest)), Value::Object(fields)) => {
            if let Some(inner) = fields.get_mut(name) {
                *inner = without(inner, rest);
            }
        }
        (Some((Step::Item, rest)), Value::Array(items)) => {
            for item in items {
                *item = without(item, rest);
            }
        }
        _ => {}
    }
    less
}

/// `averageValue`: `AverageValue`, `Average`, `Value`.
fn kinds_of(member: &str) -> Vec<String> {
    let titled = |text: &str| text[..1].to_uppercase() + &text[1..];
    let Some(first) = member.find(char::is_uppercase) else {
        return member.get(..1).map(|_| titled(member)).into_iter().collect();
    };
    let last = member.rfind(char::is_uppercase).unwrap_or(first);
    vec![titled(member), titled(&member[..first]), member[last..].to_string()]
}

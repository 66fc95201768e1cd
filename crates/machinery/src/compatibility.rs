//! Whether a CustomResourceDefinition still accepts and keeps everything that an earlier one did.
//!
//! Users store objects and write manifests against a release. A field that is dropped loses their data in silence, a
//! field that is narrowed refuses what worked yesterday. Comparing two definitions finds both before anybody is hurt.

use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Limits from above: a lower one, or a new one, refuses what was accepted.
const UPPER: &[&str] = &["maximum", "maxLength", "maxItems", "maxProperties"];
/// Limits from below.
const LOWER: &[&str] = &["minimum", "minLength", "minItems", "minProperties"];
/// Constraints that cannot be ordered: adding or changing one may refuse what was accepted.
const EXACT: &[&str] = &["pattern", "multipleOf", "not", "allOf", "anyOf", "oneOf"];
/// What apply and strategic patches rely on: changing it changes what a stored object means.
const SHAPE: &[&str] = &[
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-embedded-resource",
];

/// What a newer definition does not accept or keep any more, one sentence each; nothing if it is compatible.
///
/// ```
/// use serde_json::json;
/// use stead_machinery::compatibility::breakages;
/// let version = |spec| json!({"spec": {"group": "a.b", "scope": "Namespaced", "names": {"kind": "C", "plural": "cs"},
///     "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
///         {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}}}]}});
/// let old = version(json!({"size": {"type": "integer"}}));
/// let new = version(json!({"size": {"type": "integer", "maximum": 9}, "colour": {"type": "string"}}));
/// assert_eq!(breakages(&old, &new), ["v1 .spec.size: maximum is 9 and was not limited"]);
/// assert!(breakages(&old, &old).is_empty());
/// ```
pub fn breakages(old: &Value, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let (old, new) = (&old["spec"], &new["spec"]);
    for field in ["/group", "/scope", "/names/kind", "/names/plural"] {
        if old.pointer(field) != new.pointer(field) {
            found.push(format!("spec{} is not the same", field.replace('/', ".")));
        }
    }
    for short in texts(&old["names"]["shortNames"]).difference(&texts(&new["names"]["shortNames"])) {
        found.push(format!("the short name {short} is gone"));
    }
    for before in old["versions"].as_array().into_iter().flatten() {
        version(before, new, &mut found);
    }
    found
}

fn version(old: &Value, new: &Value, found: &mut Vec<String>) {
    let name = old["name"].as_str().unwrap_or_default();
    let mut all = new["versions"].as_array().into_iter().flatten();
    let Some(now) = all.find(|version| version["name"] == old["name"]) else {
        // A version that was stored or served has objects or manifests somewhere.
        if is(&old["served"]) || is(&old["storage"]) {
            found.push(format!("version {name} is gone"));
        }
        return;
    };
    if is(&old["served"]) && !is(&now["served"]) {
        found.push(format!("version {name} is not served any more"));
    }
    for part in ["status", "scale"] {
        let has = |version: &Value| !version["subresources"][part].is_null();
        if has(old) && !has(now) {
            found.push(format!("{name}: the subresource {part} is gone"));
        }
    }
    let mut walk = Walk { version: name, found };
    walk.schema("", &old["schema"]["openAPIV3Schema"], &now["schema"]["openAPIV3Schema"]);
}

struct Walk<'a> {
    version: &'a str,
    found: &'a mut Vec<String>,
}

impl Walk<'_> {
    fn say(&mut self, place: &str, problem: &str) {
        let place = if place.is_empty() { "." } else { place };
        self.found.push(format!("{} {place}: {problem}", self.version));
    }

    fn schema(&mut self, place: &str, old: &Value, new: &Value) {
        self.types(place, old, new);
        self.limits(place, old, new);
        self.rules(place, old, new);
        self.fields(place, old, new);
        if !old["items"].is_null() {
            match new["items"].is_null() {
                true => self.say(place, "its items are not described any more"),
                false => self.schema(&format!("{place}[]"), &old["items"], &new["items"]),
            }
        }
        match (&old["additionalProperties"], &new["additionalProperties"]) {
            (Value::Object(_), Value::Object(_)) => self.schema(
                &format!("{place}.*"),
                &old["additionalProperties"],
                &new["additionalProperties"],
            ),
            (Value::Object(_) | Value::Bool(true), Value::Null | Value::Bool(false)) if !keeps_unknown(new) => {
                self.say(place, "keys of one's own are not kept any more");
            }
            _ => {}
        }
    }

    fn types(&mut self, place: &str, old: &Value, new: &Value) {
        match (old["type"].as_str(), new["type"].as_str()) {
            (Some("integer"), Some("number")) | (_, None) => {}
            (Some(was), Some(is)) if was != is => self.say(place, &format!("it is {is} and was {was}")),
            (None, Some(is)) if is_any(old) => self.say(place, &format!("it is {is} and could be anything")),
            _ => {}
        }
        for (field, words) in [
            ("nullable", "it may not be null any more"),
            (
                "x-kubernetes-int-or-string",
                "it may not be a number or a text any more",
            ),
            (
                "x-kubernetes-preserve-unknown-fields",
                "fields that it does not describe are not kept any more",
            ),
        ] {
            if is(&old[field]) && !is(&new[field]) {
                self.say(place, words);
            }
        }
        for field in SHAPE {
            if old[*field] != new[*field] {
                self.say(place, &format!("{field} is not the same"));
            }
        }
        let narrower = [("int64", "int32"), ("double", "float")];
        match (old["format"].as_str(), new["format"].as_str()) {
            (was, Some(is)) if was != Some(is) && !narrower.contains(&(is, was.unwrap_or_default())) => {
                let was = was.map_or("had no format".to_owned(), |was| format!("was {was}"));
                self.say(place, &format!("its format is {is} and {was}"));
            }
            _ => {}
        }
        if !old["default"].is_null() && new["default"].is_null() {
            self.say(place, "it has no default any more");
        }
    }

    fn limits(&mut self, place: &str, old: &Value, new: &Value) {
        for (limits, is_narrower) in [
            (UPPER, (|was, is| is < was) as fn(f64, f64) -> bool),
            (LOWER, |was, is| is > was),
        ] {
            for limit in limits {
                match (old[*limit].as_f64(), new[*limit].as_f64()) {
                    (None, Some(is)) => self.say(place, &format!("{limit} is {is} and was not limited")),
                    (Some(was), Some(is)) if is_narrower(was, is) => {
                        self.say(place, &format!("{limit} is {is} and was {was}"));
                    }
                    _ => {}
                }
            }
        }
        for flag in ["exclusiveMaximum", "exclusiveMinimum", "uniqueItems"] {
            if is(&new[flag]) && !is(&old[flag]) {
                self.say(place, &format!("{flag} is new"));
            }
        }
        for constraint in EXACT {
            if !new[*constraint].is_null() && old[*constraint] != new[*constraint] {
                self.say(place, &format!("{constraint} is new or not the same"));
            }
        }
        if let Value::Array(allowed) = &new["enum"] {
            match old["enum"].as_array() {
                None => self.say(place, "only some values are allowed, and all were"),
                Some(before) => {
                    for value in before.iter().filter(|value| !allowed.contains(value)) {
                        self.say(place, &format!("the value {value} is not allowed any more"));
                    }
                }
            }
        }
    }

    /// A rule that is new may refuse what was accepted; nobody can tell from its text that it does not.
    fn rules(&mut self, place: &str, old: &Value, new: &Value) {
        let rules = |schema: &Value| -> BTreeSet<String> {
            let all = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
            all.filter_map(|rule| rule["rule"].as_str().map(str::to_owned))
                .collect()
        };
        let before = rules(old);
        for rule in rules(new).difference(&before) {
            self.say(place, &format!("the rule `{rule}` is new"));
        }
    }

    fn fields(&mut self, place: &str, old: &Value, new: &Value) {
        let none = Map::new();
        let of = |schema: &'_ Value| {
            schema["properties"]
                .as_object()
                .cloned()
                .unwrap_or_else(|| none.clone())
        };
        let (before, now) = (of(old), of(new));
        for (name, schema) in &before {
            let place = format!("{place}.{name}");
            match now.get(name) {
                Some(now) => self.schema(&place, schema, now),
                None if keeps_unknown(new) => {}
                None => self.say(&place, "it is gone"),
            }
        }
        for name in texts(&new["required"]).difference(&texts(&old["required"])) {
            let has_default = now.get(name).is_some_and(|schema| !schema["default"].is_null());
            if !has_default {
                self.say(&format!("{place}.{name}"), "it is required now");
            }
        }
    }
}

fn keeps_unknown(schema: &Value) -> bool {
    is(&schema["x-kubernetes-preserve-unknown-fields"])
}

fn is_any(schema: &Value) -> bool {
    keeps_unknown(schema) || is(&schema["x-kubernetes-int-or-string"])
}

fn is(flag: &Value) -> bool {
    flag.as_bool() == Some(true)
}

fn texts(list: &Value) -> BTreeSet<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(spec: Value) -> Value {
        json!({"spec": {
            "group": "stead.dev", "scope": "Namespaced",
            "names": {"kind": "WebApp", "plural": "webapps", "shortNames": ["wa"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        }})
    }

    /// What is said when one field changes from one schema to another.
    fn change(old: Value, new: Value) -> Vec<String> {
        let with = |field: Value| definition(json!({"type": "object", "properties": {"x": field}}));
        let all = breakages(&with(old), &with(new)).into_iter();
        all.map(|line| line.replace("v1 .spec.x: ", "")).collect()
    }

    #[test]
    fn wider_is_compatible() {
        let same: Vec<String> = Vec::new();
        assert_eq!(change(json!({"type": "integer"}), json!({"type": "number"})), same);
        assert_eq!(
            change(
                json!({"type": "string", "maxLength": 5}),
                json!({"type": "string", "maxLength": 6})
            ),
            same
        );
        assert_eq!(
            change(
                json!({"type": "string", "enum": ["a"]}),
                json!({"type": "string", "enum": ["a", "b"]})
            ),
            same
        );
        assert_eq!(
            change(json!({"format": "int32"}), json!({"format": "int64"})),
            same,
            "every small number is a large one"
        );
        let (plain, optional) = (
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"y": {}}}),
        );
        assert_eq!(change(plain, optional), same);
    }

    #[test]
    fn narrower_is_told_one_sentence_each() {
        assert_eq!(
            change(json!({"type": "string"}), json!({"type": "integer"})),
            ["it is integer and was string"]
        );
        assert_eq!(
            change(json!({"minimum": 1}), json!({"minimum": 2})),
            ["minimum is 2 and was 1"]
        );
        assert_eq!(
            change(json!({"enum": ["a", "b"]}), json!({"enum": ["b"]})),
            ["the value \"a\" is not allowed any more"]
        );
        assert_eq!(
            change(json!({}), json!({"pattern": "^a"})),
            ["pattern is new or not the same"]
        );
        assert_eq!(change(json!({"default": 1}), json!({})), ["it has no default any more"]);
        assert_eq!(
            change(json!({"nullable": true}), json!({})),
            ["it may not be null any more"]
        );
        assert_eq!(
            change(json!({}), json!({"x-kubernetes-validations": [{"rule": "self > 1"}]})),
            ["the rule `self > 1` is new"]
        );
        let map = |value: Value| json!({"type": "object", "additionalProperties": value});
        assert_eq!(
            change(map(json!({"type": "string"})), json!({"type": "object"})),
            ["keys of one's own are not kept any more"]
        );
        assert_eq!(
            change(json!({"items": {"maxLength": 3}}), json!({"items": {"maxLength": 2}})),
            ["v1 .spec.x[]: maxLength is 2 and was 3"]
        );
    }

    #[test]
    fn a_field_that_goes_or_is_required_is_named() {
        let old = definition(json!({"type": "object", "properties": {"image": {"type": "string"}}}));
        let new = definition(json!({
            "type": "object", "required": ["port", "path"],
            "properties": {"port": {"type": "integer"}, "path": {"type": "string", "default": "/"}},
        }));
        assert_eq!(
            breakages(&old, &new),
            ["v1 .spec.image: it is gone", "v1 .spec.port: it is required now"]
        );
    }

    #[test]
    fn versions_names_and_subresources_stay() {
        let old = definition(json!({}));
        let mut new = old.clone();
        new["spec"]["scope"] = json!("Cluster");
        new["spec"]["names"]["shortNames"] = json!([]);
        new["spec"]["versions"][0]["subresources"] = json!({});
        new["spec"]["versions"][0]["served"] = json!(false);
        assert_eq!(
            breakages(&old, &new),
            [
                "spec.scope is not the same",
                "the short name wa is gone",
                "version v1 is not served any more",
                "v1: the subresource status is gone",
            ]
        );
        new["spec"]["versions"][0]["name"] = json!("v2");
        assert!(breakages(&old, &new).contains(&"version v1 is gone".to_owned()));
    }
}

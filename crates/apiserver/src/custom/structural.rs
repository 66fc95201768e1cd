//! Whether a schema is structural: every field has a type, and the parts that only constrain do no more.

use serde_json::{Map, Value};
use stead_machinery::field::FieldError;
use stead_machinery::validate::pattern_error;

/// How deep a schema may nest; it is bounded by the size of a request, and the stack is smaller.
const DEEPEST: usize = 200;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Whether a branch may name types: only those that spell out that a value is a number or a string.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Types {
    Allowed,
    Forbidden,
}

/// Everything that keeps a schema from being structural, sorted as Kubernetes sorts it.
pub fn errors(schema: &Value, at: &str) -> Vec<FieldError> {
    let mut check = Check {
        errors: Vec::new(),
        depth: 0,
    };
    check.structure(schema, Level::Root, at);
    check.errors.sort_by_key(FieldError::to_string);
    check.errors
}

/// Whether a schema has what no structural schema can be made of; what is wrong with it is told elsewhere.
pub fn is_convertible(schema: &Value) -> bool {
    const NEVER: [&str; 7] = [
        "id",
        "$schema",
        "$ref",
        "patternProperties",
        "dependencies",
        "additionalItems",
        "definitions",
    ];
    let Value::Object(all) = schema else { return true };
    let said = |name: &&str| all.get(*name).is_some_and(|value| !value.is_null() && *value != "");
    let closed = all.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false));
    let list_of_items = all.get("items").is_some_and(Value::is_array);
    if NEVER.iter().any(said) || closed || list_of_items {
        return false;
    }
    let single = ["items", "additionalProperties", "not"]
        .iter()
        .filter_map(|name| all.get(*name));
    let listed = ["allOf", "anyOf", "oneOf"]
        .iter()
        .filter_map(|name| all.get(*name)?.as_array());
    single
        .chain(fields(schema, "properties").map(|(_, property)| property))
        .chain(listed.flatten())
        .all(is_convertible)
}

struct Check {
    errors: Vec<FieldError>,
    depth: usize,
}

impl Check {
    fn structure(&mut self, schema: &Value, level: Level, at: &str) {
        if self.depth >= DEEPEST {
            self.errors.push(FieldError::forbidden(at, "nested too deeply"));
            return;
        }
        self.depth += 1;
        let kind = schema["type"].as_str().unwrap_or_default();
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        self.kind(kind, schema, level, at);
        if kind == "array" && schema.get("items").is_none() {
            self.errors
                .push(FieldError::required(format!("{at}.items"), "must be specified"));
        }
        if let Some(items) = schema.get("items") {
            self.structure(items, Level::Item, &format!("{at}.items"));
        }
        for (name, property) in fields(schema, "properties") {
            let path = format!("{at}.properties[{name}]");
            match (level, name.as_str()) {
                (Level::Root, "metadata") => self.metadata(property, &path),
                _ => self.structure(property, Level::Field, &path),
            }
        }
        self.additional(schema, level, at);
        let nameless = fields(schema, "properties").next().is_none();
        if flag("x-kubernetes-embedded-resource") && !flag("x-kubernetes-preserve-unknown-fields") && nameless {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            self.errors
                .push(FieldError::required(format!("{at}.properties"), detail));
        }
        if flag("x-kubernetes-int-or-string") && flag("x-kubernetes-preserve-unknown-fields") {
            let path = format!("{at}.x-kubernetes-preserve-unknown-fields");
            let detail = "must be false if x-kubernetes-int-or-string is true";
            self.errors.push(FieldError::invalid(path, true, detail));
        }
        self.constraints(schema, schema, at, at);
        self.depth -= 1;
    }

    fn kind(&mut self, kind: &str, schema: &Value, level: Level, at: &str) {
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        let path = format!("{at}.type");
        let untyped = flag("x-kubernetes-int-or-string") || flag("x-kubernetes-preserve-unknown-fields");
        if flag("x-kubernetes-embedded-resource") && kind != "object" {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            self.errors.push(match kind {
                "" => FieldError::required(path, detail),
                kind => FieldError::invalid(path, kind, detail),
            });
        } else if kind.is_empty() && !untyped {
            let detail = match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            };
            self.errors.push(FieldError::required(path, detail));
        } else if level == Level::Root && !kind.is_empty() && kind != "object" {
            self.errors
                .push(FieldError::invalid(path, kind, "must be object at the root"));
        }
    }

    fn metadata(&mut self, schema: &Value, at: &str) {
        if schema["type"] != "object" {
            let kind = schema["type"].as_str().unwrap_or_default();
            self.errors
                .push(FieldError::invalid(format!("{at}.type"), kind, "must be object"));
        }
        let only_names = fields(schema, "properties").all(|(name, _)| name == "name" || name == "generateName");
        let other = fields(schema, "").any(|(name, _)| !matches!(name.as_str(), "type" | "properties" | "description"));
        if !only_names || other {
            let detail =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            self.errors.push(FieldError::forbidden(at, detail));
        }
    }

    fn additional(&mut self, schema: &Value, level: Level, at: &str) {
        let Some(additional) = schema.get("additionalProperties") else {
            return;
        };
        let path = format!("{at}.additionalProperties");
        if level == Level::Root {
            self.errors
                .push(FieldError::forbidden(path.clone(), "must not be used at the root"));
        }
        match additional {
            Value::Bool(false) => {
                self.errors.push(FieldError::forbidden(
                    path,
                    "additionalProperties cannot be set to false",
                ));
            }
            Value::Object(_) => self.structure(additional, Level::Field, &path),
            _ => {}
        }
    }

    /// The constraints of a node, and the branches that constrain further.
    fn constraints(&mut self, node: &Value, structure: &Value, at: &str, structure_at: &str) {
        if let Some(pattern) = node.get("pattern").and_then(Value::as_str)
            && let Some(error) = pattern_error(pattern)
        {
            let detail = format!("must be a valid regular expression, but isn't: {error}");
            self.errors
                .push(FieldError::invalid(format!("{at}.pattern"), pattern, detail));
        }
        let int_or_string = structure.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
        for junctor in ["anyOf", "allOf", "oneOf"] {
            for (index, branch) in node
                .get(junctor)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .enumerate()
            {
                let types = if int_or_string && junctor != "oneOf" {
                    Types::Allowed
                } else {
                    Types::Forbidden
                };
                let branch_at = format!("{at}.{junctor}[{index}]");
                self.branch(branch, structure, &branch_at, structure_at, types);
            }
        }
        if let Some(branch) = node.get("not") {
            self.branch(branch, structure, &format!("{at}.not"), structure_at, Types::Forbidden);
        }
    }

    fn branch(&mut self, branch: &Value, structure: &Value, at: &str, structure_at: &str, types: Types) {
        if self.depth >= DEEPEST {
            return;
        }
        self.depth += 1;
        const FORBIDDEN: &[(&str, &str)] = &[
            ("type", "must be empty to be structural"),
            ("additionalProperties", "must be undefined to be structural"),
            ("default", "must be undefined to be structural"),
            ("title", "must be empty to be structural"),
            ("description", "must be empty to be structural"),
            ("nullable", "must be false to be structural"),
            ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
            ("x-kubernetes-embedded-resource", "must be false to be structural"),
            ("x-kubernetes-int-or-string", "must be false to be structural"),
            ("x-kubernetes-list-map-keys", "must be empty to be structural"),
            ("x-kubernetes-list-type", "must be undefined to be structural"),
            ("x-kubernetes-map-type", "must be undefined to be structural"),
        ];
        for (name, words) in FORBIDDEN {
            let present = branch.get(*name).is_some_and(|value| *value != Value::Bool(false));
            if present && !(types == Types::Allowed && *name == "type") {
                self.errors.push(FieldError::forbidden(format!("{at}.{name}"), *words));
            }
        }
        for (name, below) in fields(branch, "properties") {
            let (path, structure_path) = (
                format!("{at}.properties[{name}]"),
                format!("{structure_at}.properties[{name}]"),
            );
            if name == "metadata" {
                let detail = "must not be specified in a nested context";
                self.errors.push(FieldError::forbidden(path.clone(), detail));
            }
            match structure.get("properties").and_then(|properties| properties.get(name)) {
                Some(structure) => self.branch(below, structure, &path, &structure_path, Types::Forbidden),
                None => {
                    let detail = format!("because it is defined in {path}");
                    self.errors.push(FieldError::required(structure_path, detail));
                }
            }
        }
        if let (Some(below), Some(structure)) = (branch.get("items"), structure.get("items")) {
            self.branch(
                below,
                structure,
                &format!("{at}.items"),
                &format!("{structure_at}.items"),
                Types::Forbidden,
            );
        }
        self.constraints(branch, structure, at, structure_at);
        self.depth -= 1;
    }
}

/// The fields of an object below a name; of the value itself where the name is empty.
fn fields<'a>(schema: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let of: Option<&'a Map<String, Value>> = match name {
        "" => schema.as_object(),
        name => schema.get(name).and_then(Value::as_object),
    };
    of.into_iter().flatten()
}

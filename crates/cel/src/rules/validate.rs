//! What a write of a custom resource must fulfil.

use super::{CompiledRule, CompiledRules, Node, Scalar};
use crate::error::{Budget, EvalError};
use crate::value::{NO_INT_OR_STRING, Value, from_json, is_int_or_string};
use serde_json::Value as Json;
use stead_machinery::field::{FieldError, FieldErrorKind};
use stead_machinery::schema::Topology;

/// The longest message that an expression may make.
const MESSAGE_LIMIT: usize = 5 * 1024;

/// What the rules say of an object.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Verdict {
    pub errors: Vec<FieldError>,
    /// Rules that fail on what this write leaves as it was: they are not errors, the client is told.
    pub warnings: Vec<String>,
}

impl CompiledRules {
    /// Evaluates the rules on a new object and, for an update, the stored one.
    pub fn validate(&self, new: &Json, old: Option<&Json>) -> Verdict {
        let correlation = old.map_or(Correlation::default(), |old| Correlation {
            current: Some((new, old)),
            parent: None,
        });
        self.walk("", new, old, correlation)
    }

    /// Evaluates the rules on a value at some place that stays as it is or is new; nothing is forgiven because it was
    /// so before.
    pub fn validate_at(&self, base: &str, new: &Json, old: Option<&Json>) -> Verdict {
        self.walk(base, new, old, Correlation::default())
    }

    fn walk<'a>(&self, base: &'a str, new: &'a Json, old: Option<&'a Json>, correlation: Correlation<'a>) -> Verdict {
        let mut walk = Walk {
            base,
            verdict: Verdict::default(),
            remaining: Budget::PER_OBJECT,
            path: Vec::new(),
        };
        if let Some(root) = &self.root {
            // Running out of budget ends the walk; the verdict already says so.
            let _ = walk.node(root, new, old, correlation);
        }
        walk.verdict
    }
}

/// The old value as an optional holds it: Kubernetes hands objects and lists over without what their schema says, so
/// that their fields have their own names, and times in them are texts.
fn unshaped<'a>(old: Option<&'a Json>, shaped: &Value<'a>) -> Value<'a> {
    match old {
        Some(json @ (Json::Object(_) | Json::Array(_))) => Value::dynamic(json),
        _ => shaped.clone(),
    }
}

/// The budget is used up.
struct Exhausted;

/// The new and the old value that belong together, here or in the nearest ancestor that has both.
#[derive(Clone, Copy, Default)]
struct Correlation<'a> {
    current: Option<(&'a Json, &'a Json)>,
    parent: Option<(&'a Json, &'a Json)>,
}

impl<'a> Correlation<'a> {
    /// Whether this part of the object is as it was.
    fn unchanged(self) -> bool {
        self.current.or(self.parent).is_some_and(|(new, old)| new == old)
    }

    fn key(self, name: &str) -> Correlation<'a> {
        let Some((new, old)) = self.current else {
            return self;
        };
        // Both versions were converted to one kind and version, so these never show a change.
        if self.parent.is_none() && matches!(name, "apiVersion" | "kind") {
            return Correlation::default();
        }
        Correlation {
            current: new.get(name).zip(old.get(name)),
            parent: self.current,
        }
    }

    fn item(self, item: &'a Json, old: Option<&'a Json>) -> Correlation<'a> {
        if self.current.is_none() {
            return self;
        }
        Correlation {
            current: old.map(|old| (item, old)),
            parent: self.current,
        }
    }
}

enum Step<'a> {
    Field(&'a str),
    Key(&'a str),
    Index(usize),
}

struct Walk<'a> {
    /// Where the value stands.
    base: &'a str,
    verdict: Verdict,
    remaining: u64,
    /// Made into text only when something is wrong.
    path: Vec<Step<'a>>,
}

impl<'a> Walk<'a> {
    fn node(
        &mut self,
        node: &Node,
        new: &'a Json,
        old: Option<&'a Json>,
        correlation: Correlation<'a>,
    ) -> Result<(), Exhausted> {
        if new.is_null() {
            // Rules see values; whether there is one is for the node around it to judge.
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        self.rules(node, new, old, correlation)?;
        for inner in &node.all_of {
            let above = Correlation {
                current: None,
                parent: correlation.parent,
            };
            self.node(inner, new, old, above)?;
        }
        match new {
            Json::Array(items) => self.items(node, items, old, correlation),
            Json::Object(map) => self.members(node, map, old, correlation),
            _ => Ok(()),
        }
    }

    fn items(
        &mut self,
        node: &Node,
        items: &'a [Json],
        old: Option<&'a Json>,
        correlation: Correlation<'a>,
    ) -> Result<(), Exhausted> {
        let Some(inner) = &node.items else {
            return Ok(());
        };
        let old_items = old.and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        for (place, item) in items.iter().enumerate() {
            let before = match &node.topology {
                Topology::Map(keys) => old_items.iter().find(|old| same_keys(item, old, keys)),
                _ => None,
            };
            self.path.push(Step::Index(place));
            self.node(inner, item, before, correlation.item(item, before))?;
            self.path.pop();
        }
        Ok(())
    }

    fn members(
        &mut self,
        node: &Node,
        map: &'a serde_json::Map<String, Json>,
        old: Option<&'a Json>,
        correlation: Correlation<'a>,
    ) -> Result<(), Exhausted> {
        let before = |name: &str| old.and_then(|old| old.get(name));
        if let Some(inner) = &node.additional {
            for (name, value) in map {
                self.path.push(Step::Key(name));
                self.node(inner, value, before(name), correlation.key(name))?;
                self.path.pop();
            }
        }
        // The object may have many more members than there are rules.
        for (name, inner) in &node.properties {
            if let Some((name, value)) = map.get_key_value(&**name) {
                self.path.push(Step::Field(name));
                self.node(inner, value, before(name), correlation.key(name))?;
                self.path.pop();
            }
        }
        Ok(())
    }

    fn rules(
        &mut self,
        node: &Node,
        new: &Json,
        old: Option<&Json>,
        correlation: Correlation<'_>,
    ) -> Result<(), Exhausted> {
        for failure in &node.failures {
            self.fail(FieldError::invalid(self.here(""), node.type_name, failure.as_str()));
        }
        if node.rules.is_empty() {
            return Ok(());
        }
        let mistake = node.scalar.mistake(new);
        let value = |json| from_json(json, &node.decl).unwrap_or(Value::Null);
        let this = value(new);
        let before = old.map(value);
        for rule in &node.rules {
            if let Some(mistake) = mistake.as_ref().filter(|_| rule.program.uses("self")) {
                let why = format!("{mistake} evaluating rule: {}", rule_name(rule));
                self.fail(FieldError::invalid(self.here(""), node.type_name, why));
                continue;
            }
            if rule.uses_old && before.is_none() && !rule.rule.optional_old_self {
                // A transition needs a beginning.
                continue;
            }
            let old = match (&before, rule.rule.optional_old_self) {
                (Some(before), true) => Value::some(unshaped(old, before)),
                (None, true) => Value::none(),
                (Some(before), false) => before.clone(),
                (None, false) => Value::Null,
            };
            self.rule(node, rule, &[this.clone(), old], new, correlation)?;
        }
        Ok(())
    }

    fn rule(
        &mut self,
        node: &Node,
        rule: &CompiledRule,
        variables: &[Value<'_>],
        new: &Json,
        correlation: Correlation<'_>,
    ) -> Result<(), Exhausted> {
        let mut budget = Budget::per_call();
        let outcome = rule.program.evaluate(variables, &mut budget);
        let named = rule_name(rule);
        if budget.spent() > self.remaining {
            let why = "validation failed due to running out of cost budget, no further validation rules will be run";
            self.fail(FieldError::invalid(self.here(""), node.type_name, why));
            return Err(Exhausted);
        }
        self.remaining -= budget.spent();
        let detail = match outcome {
            Ok(Value::Bool(true)) => return Ok(()),
            Ok(_) => {
                let error = self.failed(node, rule, variables, new)?;
                if !rule.uses_old && correlation.unchanged() {
                    self.verdict.warnings.push(error.to_string());
                } else {
                    self.fail(error);
                }
                return Ok(());
            }
            Err(error @ (EvalError::NoSuchOverload | EvalError::NoSuchOverloadOf(_))) => format!(
                "'{error}': call arguments did not match a supported operator, function or macro signature \
                 for rule: {named}"
            ),
            Err(error @ EvalError::CostLimit) => {
                let detail = format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {named}"
                );
                self.fail(FieldError::invalid(self.here(""), node.type_name, detail));
                return Err(Exhausted);
            }
            Err(error) => format!("{error} evaluating rule: {named}"),
        };
        self.fail(FieldError::invalid(self.here(""), node.type_name, detail));
        Ok(())
    }

    /// The error of a rule that does not hold.
    fn failed(
        &mut self,
        node: &Node,
        rule: &CompiledRule,
        variables: &[Value<'_>],
        new: &Json,
    ) -> Result<FieldError, Exhausted> {
        let field = self.here(&rule.field_path);
        let detail = match &rule.message {
            None => None,
            Some(message) => {
                let mut budget = Budget::per_call();
                let made = message.evaluate(variables, &mut budget);
                let source = rule.rule.message_expression.as_deref().unwrap_or_default();
                let why = if budget.spent() > self.remaining {
                    Some(
                        "messageExpression evaluation failed due to running out of cost budget, no further \
                         validation rules will be run"
                            .to_string(),
                    )
                } else if matches!(made, Err(EvalError::CostLimit)) {
                    Some(format!(
                        "no further validation rules will be run due to call cost exceeds limit for \
                         messageExpression: {source:?}"
                    ))
                } else {
                    None
                };
                if let Some(why) = why {
                    self.fail(FieldError::invalid(field, node.type_name, why));
                    return Err(Exhausted);
                }
                self.remaining -= budget.spent();
                usable(made)
            }
        };
        let detail = detail.unwrap_or_else(|| match rule.rule.message.as_deref() {
            Some(message) if !message.is_empty() => message.trim().to_string(),
            _ => format!("failed rule: {}", rule_name(rule)),
        });
        let shown = matches!(node.type_name, "object" | "array").then_some(());
        Ok(match (rule.rule.reason.as_deref(), shown) {
            (Some("FieldValueForbidden"), _) => FieldError::forbidden(field, detail),
            (Some("FieldValueRequired"), _) => FieldError::required(field, detail),
            (Some("FieldValueDuplicate"), None) => FieldError::duplicate(field, new.clone()),
            (Some("FieldValueDuplicate"), Some(())) => {
                FieldError::new(field, FieldErrorKind::DuplicateUnshown, Json::Null, "")
            }
            (_, None) => FieldError::invalid(field, new.clone(), detail),
            (_, Some(())) => FieldError::new(field, FieldErrorKind::InvalidUnshown, Json::Null, detail),
        })
    }

    fn fail(&mut self, error: FieldError) {
        self.verdict.errors.push(error);
    }

    /// The path of the node, with the rule's own path after it.
    fn here(&self, below: &str) -> String {
        let mut shown = self.base.to_string();
        for step in &self.path {
            match step {
                Step::Field(name) if shown.is_empty() => shown.push_str(name),
                Step::Field(name) => {
                    shown.push('.');
                    shown.push_str(name);
                }
                Step::Key(name) => shown.push_str(&format!("[{name}]")),
                Step::Index(place) => shown.push_str(&format!("[{place}]")),
            }
        }
        match (shown.is_empty(), below.is_empty()) {
            // The root has no path, and this is how Kubernetes prints that.
            (true, true) => "<nil>".to_string(),
            (true, false) => below.to_string(),
            (false, true) => shown,
            (false, false) => format!("{shown}.{below}"),
        }
    }
}

impl Scalar {
    /// What is wrong with a value that validation let pass though it is nothing that the schema allows.
    fn mistake(self, value: &Json) -> Option<&'static str> {
        match self {
            Scalar::IntOrString if !is_int_or_string(value) => Some(NO_INT_OR_STRING),
            Scalar::Text if value.is_array() => Some("invalid data, expected string, got []interface {}"),
            Scalar::IntOrString | Scalar::Text | Scalar::Other => None,
        }
    }
}

/// A message that an expression made, if it can be shown.
fn usable(made: Result<Value<'_>, EvalError>) -> Option<String> {
    let Ok(Value::String(text)) = made else {
        return None;
    };
    let text = text.trim();
    (!text.is_empty() && text.len() <= MESSAGE_LIMIT && !text.contains('\n')).then(|| text.to_string())
}

fn rule_name(rule: &CompiledRule) -> &str {
    match rule.rule.message.as_deref() {
        Some(message) if !message.is_empty() => message.trim(),
        _ => rule.rule.rule.trim(),
    }
}

/// Whether two items of a map list have the same keys; one that lacks a key has no counterpart.
fn same_keys(a: &Json, b: &Json, keys: &[Box<str>]) -> bool {
    keys.iter().all(|key| {
        let own = a.get(&**key).filter(|own| !own.is_null());
        own.is_some() && own == b.get(&**key)
    })
}

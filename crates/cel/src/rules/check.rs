//! What a definition must fulfil before its rules are accepted.

use super::{CompiledRule, Node, Scalar, environment, paths, program};
use crate::decl::{Decl, MAX_REQUEST_BYTES, Place};
use crate::escape;
use crate::types::Type;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::Arc;
use stead_machinery::field::{FieldError, FieldErrorKind};
use stead_machinery::schema::{Constraints, Object, Rule, SchemaRef, Shape, Topology};

/// What one rule may cost at most, times how often it can run in one object.
const RULE_COST_LIMIT: u64 = 10_000_000;
/// What all rules of a definition may cost together.
const TOTAL_COST_LIMIT: u64 = 100_000_000;
/// How many of the most expensive rules an error names.
const NAMED_RULES: usize = 4;

/// Where in the schema the walk is.
#[derive(Clone)]
pub(super) struct Context {
    path: String,
    /// How often values of this node can be in one object; `None` without a bound.
    cardinality: Option<u64>,
    /// The list whose items have no identity, below which `oldSelf` means nothing.
    uncorrelatable: Option<String>,
    /// A schema around this one has rules.
    ruled: bool,
}

impl Context {
    pub fn root(path: &str) -> Context {
        Context {
            path: path.to_string(),
            cardinality: Some(1),
            uncorrelatable: None,
            ruled: false,
        }
    }

    fn child(&self, step: &str, repeats: Option<u64>) -> Context {
        let cardinality = match (self.cardinality, repeats) {
            (Some(outer), Some(inner)) => Some(outer.saturating_mul(inner)),
            _ => None,
        };
        Context {
            path: format!("{}.{step}", self.path),
            cardinality,
            uncorrelatable: self.uncorrelatable.clone(),
            ruled: self.ruled,
        }
    }
}

/// Everything found so far.
#[derive(Default)]
pub(super) struct Checks<'a> {
    errors: Vec<FieldError>,
    /// What else is wrong with the schema: rules at or above such a place are not compiled.
    broken: &'a [FieldError],
    /// Why rules of the node at hand do not compile, for whoever evaluates them all the same.
    failures: Vec<String>,
    total: u64,
    expensive: Vec<(String, u64)>,
}

impl<'a> Checks<'a> {
    pub fn beside(broken: &'a [FieldError]) -> Self {
        Checks {
            broken,
            ..Checks::default()
        }
    }

    /// Compiles the rules of this node and of everything below it.
    pub fn node(&mut self, schema: SchemaRef<'_>, decl: &Arc<Decl>, mut at: Context) -> Option<Node> {
        let none = Constraints::default();
        let constraints = schema.node().constraints.as_deref().unwrap_or(&none);
        at.ruled |= !constraints.rules.is_empty();
        let mut node = Node {
            rules: Vec::new(),
            failures: Vec::new(),
            decl: decl.clone(),
            scalar: Scalar::of(schema),
            type_name: schema.shape().type_name().unwrap_or_default(),
            topology: Topology::Atomic,
            properties: BTreeMap::new(),
            additional: None,
            items: None,
            all_of: Vec::new(),
        };
        match schema.shape() {
            Shape::Object(object) => self.object(schema, object, constraints, &mut node, &at),
            Shape::List(list) => {
                node.topology = list.topology.clone();
                if decl.element().is_none() {
                    let items = schema.go(list.items);
                    self.untyped(items, at.child("items", None));
                    node.items = Node::untyped(items, decl).map(Box::new);
                }
                if let Some(items) = decl.element() {
                    let mut inside = at.child("items", constraints.max_items);
                    if !matches!(list.topology, Topology::Map(_)) {
                        inside.uncorrelatable.get_or_insert_with(|| at.path.clone());
                    }
                    node.items = self.node(schema.go(list.items), items, inside).map(Box::new);
                }
            }
            _ => {}
        }
        for id in &constraints.all_of {
            if let Some(inner) = self.all_of(schema.go(*id), schema, decl) {
                node.all_of.push(inner);
            }
        }
        let broken = self.broken.iter().any(|error| error.field.starts_with(&at.path));
        if !broken {
            for (place, rule) in constraints.rules.iter().enumerate() {
                let path = format!("{}.x-kubernetes-validations[{place}]", at.path);
                node.rules.extend(self.rule(schema, decl, rule, &path, &at));
            }
            node.failures = std::mem::take(&mut self.failures);
        }
        let empty = node.rules.is_empty()
            && node.failures.is_empty()
            && node.properties.is_empty()
            && node.additional.is_none()
            && node.items.is_none()
            && node.all_of.is_empty();
        (!empty).then_some(node)
    }

    fn object(
        &mut self,
        schema: SchemaRef<'_>,
        object: &Object,
        constraints: &Constraints,
        node: &mut Node,
        at: &Context,
    ) {
        if let (Some(values), Some(decl)) = (object.additional, node.decl.element().cloned()) {
            let inside = at.child("additionalProperties", constraints.max_properties);
            node.additional = self.node(schema.go(values), &decl, inside).map(Box::new);
        }
        for (name, property) in &object.properties {
            let inner = schema.go(property.node);
            let decl = match escape::escape(name) {
                Some(escaped) => node.decl.field(&escaped).map(|field| field.decl.clone()),
                // Rules inside a property that no expression can name still see their own value.
                None => Decl::of_schema(inner, Place::of(inner), "selfType"),
            };
            let inside = at.child(&format!("properties[{name}]"), Some(1));
            let Some(decl) = decl else {
                self.untyped(inner, inside);
                continue;
            };
            if let Some(found) = self.node(inner, &decl, inside) {
                node.properties.insert(name.clone(), found);
            }
        }
    }

    /// Rules on values of which the schema does not say what they are. Where rules are at such a place or around it,
    /// those below cannot be read either.
    fn untyped(&mut self, schema: SchemaRef<'_>, mut at: Context) {
        let constraints = schema.node().constraints.as_deref();
        let has_rules = constraints.is_some_and(|constraints| !constraints.rules.is_empty());
        at.ruled |= has_rules;
        match schema.shape() {
            Shape::Object(object) => {
                for (name, property) in &object.properties {
                    self.below_untyped(schema.go(property.node), at.child(&format!("properties[{name}]"), None));
                }
                if let Some(values) = object.additional {
                    self.below_untyped(schema.go(values), at.child("additionalProperties", None));
                }
            }
            Shape::List(list) => self.below_untyped(schema.go(list.items), at.child("items", None)),
            _ => {}
        }
        let broken = self.broken.iter().any(|error| error.field.starts_with(&at.path));
        if !broken && has_rules {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: unable \
                       to convert structural schema to CEL declarations";
            self.errors.push(FieldError::new(
                format!("{}.x-kubernetes-validations", at.path),
                FieldErrorKind::Internal,
                Json::Null,
                why,
            ));
        }
    }

    fn below_untyped(&mut self, schema: SchemaRef<'_>, at: Context) {
        let decl = Decl::of_schema(schema, Place::of(schema), "selfType").filter(|_| !at.ruled);
        match decl {
            // They are judged, and never asked: no value gets there.
            Some(decl) => drop(self.node(schema, &decl, at)),
            None => self.untyped(schema, at),
        }
    }

    /// Rules inside `allOf` apply to the values of the schema around it. They are not checked beforehand.
    fn all_of(&mut self, inner: SchemaRef<'_>, around: SchemaRef<'_>, decl: &Arc<Decl>) -> Option<Node> {
        let constraints = inner.node().constraints.as_deref()?;
        let mut unchecked = Checks::default();
        let at = Context::root("");
        let rules: Vec<CompiledRule> = constraints
            .rules
            .iter()
            .filter_map(|rule| unchecked.rule(around, decl, rule, "", &at))
            .collect();
        (!rules.is_empty()).then(|| Node {
            rules,
            failures: Vec::new(),
            decl: decl.clone(),
            scalar: Scalar::of(around),
            type_name: around.shape().type_name().unwrap_or_default(),
            topology: Topology::Atomic,
            properties: BTreeMap::new(),
            additional: None,
            items: None,
            all_of: Vec::new(),
        })
    }
}

impl Node {
    /// A node with rules on values of which nobody knows what they are: each value is told so.
    pub(super) fn untyped(schema: SchemaRef<'_>, decl: &Arc<Decl>) -> Option<Node> {
        let rules = schema
            .node()
            .constraints
            .as_deref()
            .map(|constraints| &constraints.rules);
        let why = "rule compiler initialization error: failed to convert to declType for CEL validation rules";
        let below = |id| Node::untyped(schema.go(id), decl).map(Box::new);
        let node = Node {
            rules: Vec::new(),
            failures: match rules.is_some_and(|rules| !rules.is_empty()) {
                true => vec![why.to_string()],
                false => Vec::new(),
            },
            decl: decl.clone(),
            scalar: Scalar::of(schema),
            type_name: schema.shape().type_name().unwrap_or_default(),
            topology: Topology::Atomic,
            properties: BTreeMap::new(),
            additional: match schema.shape() {
                Shape::Object(object) => object.additional.and_then(below),
                _ => None,
            },
            items: match schema.shape() {
                Shape::List(list) => below(list.items),
                _ => None,
            },
            all_of: Vec::new(),
        };
        let empty = node.failures.is_empty() && node.additional.is_none() && node.items.is_none();
        (!empty).then_some(node)
    }
}

impl Checks<'_> {
    fn rule(
        &mut self,
        schema: SchemaRef<'_>,
        decl: &Arc<Decl>,
        rule: &Rule,
        path: &str,
        at: &Context,
    ) -> Option<CompiledRule> {
        let env = environment(decl, rule);
        let rule_path = format!("{path}.rule");
        let compiled = match program(&rule.rule, &env) {
            Ok(compiled) if matches!(compiled.result_type(), Type::Bool) => compiled,
            Ok(_) => return self.uncompiled(rule, path, "cel expression must evaluate to a bool"),
            Err(issues) => return self.uncompiled(rule, path, &format!("compilation failed: {issues}")),
        };
        if let Some(defect) = compiled.defect() {
            return self.uncompiled(rule, path, &format!("program instantiation failed: {defect}"));
        }
        // A node below unbounded lists can only be in an object as often as it fits into a request.
        let often = at.cardinality.unwrap_or(MAX_REQUEST_BYTES / (decl.min_size + 1));
        let cost = compiled.cost_estimate(Some(decl)).max.saturating_mul(often);
        self.price("estimated rule cost", &rule_path, cost);
        let message = self.message(rule, path, &env, decl);
        let uses_old = compiled.uses("oldSelf");
        if uses_old {
            if let Some(list) = &at.uncorrelatable {
                let detail =
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
                self.errors
                    .push(FieldError::invalid(rule_path.clone(), &*rule.rule, detail));
            }
        } else {
            self.unused_old_self(rule, path);
        }
        let field_path = match rule.field_path.as_deref() {
            Some(field) if !field.is_empty() => paths::normalized(field, schema).unwrap_or_default(),
            _ => String::new(),
        };
        Some(CompiledRule {
            program: compiled,
            message,
            rule: rule.clone(),
            uses_old,
            field_path,
        })
    }

    /// A rule that does not compile uses nothing, `oldSelf` neither.
    fn uncompiled(&mut self, rule: &Rule, path: &str, why: &str) -> Option<CompiledRule> {
        self.errors.push(refused(format!("{path}.rule"), rule, why));
        self.failures.push(format!("rule compile error: {why}"));
        self.unused_old_self(rule, path);
        None
    }

    fn unused_old_self(&mut self, rule: &Rule, path: &str) {
        if rule.optional_old_self {
            let why = "may not be set if oldSelf is not used in rule";
            self.errors
                .push(FieldError::invalid(format!("{path}.optionalOldSelf"), true, why));
        }
    }

    fn message(&mut self, rule: &Rule, path: &str, env: &crate::Env, decl: &Arc<Decl>) -> Option<crate::Program> {
        let source = rule.message_expression.as_deref().filter(|source| !source.is_empty())?;
        let at = format!("{path}.messageExpression");
        let detail = match program(source, env) {
            Ok(compiled) if compiled.defect().is_some() => {
                let defect = compiled.defect().map(ToString::to_string).unwrap_or_default();
                format!("messageExpression instantiation failed: {defect}")
            }
            Ok(compiled) if matches!(compiled.result_type(), Type::String) => {
                let cost = compiled.cost_estimate(Some(decl)).max;
                self.price("estimated messageExpression cost", &at, cost);
                return Some(compiled);
            }
            Ok(_) => "messageExpression must evaluate to a string".to_string(),
            Err(issues) => format!("messageExpression compilation failed: {issues}"),
        };
        self.errors.push(refused(at, rule, &detail));
        None
    }

    fn price(&mut self, name: &str, path: &str, cost: u64) {
        if cost > RULE_COST_LIMIT {
            let detail = too_costly(name, cost, RULE_COST_LIMIT);
            self.errors.push(FieldError::forbidden(path, detail));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= TOTAL_COST_LIMIT / 100 {
            self.expensive.push((path.to_string(), cost));
            self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(NAMED_RULES);
        }
    }

    /// Everything that is wrong, with the verdict on the sum of all costs last.
    pub fn finish(mut self, at: &str) -> Result<(), Vec<FieldError>> {
        if self.total > TOTAL_COST_LIMIT {
            for (path, _) in std::mem::take(&mut self.expensive) {
                let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
                self.errors.push(FieldError::forbidden(path, why));
            }
            let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
            let detail = too_costly(name, self.total, TOTAL_COST_LIMIT);
            self.errors.push(FieldError::forbidden(at, detail));
        }
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(self.errors)
        }
    }
}

/// An error that shows the rule as Kubernetes does: with the names and the order of its internal type.
fn refused(field: String, rule: &Rule, why: &str) -> FieldError {
    let text = |text: Option<&str>| go_json(text.unwrap_or_default());
    let shown = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        go_json(&rule.rule),
        text(rule.message.as_deref()),
        text(rule.message_expression.as_deref()),
        rule.reason.as_deref().map_or("null".to_string(), go_json),
        text(rule.field_path.as_deref()),
        if rule.optional_old_self { "true" } else { "null" },
    );
    FieldError::new(
        field,
        FieldErrorKind::InvalidUnshown,
        Json::Null,
        format!("{shown}: {why}"),
    )
}

/// A string in JSON as Go writes it, with the characters escaped that HTML would mistake.
fn go_json(text: &str) -> String {
    Json::from(text)
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

fn too_costly(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_string()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

//! The CEL rules of a custom resource's schema.
//!
//! [`compile`] does what the API server does when a definition is written: it checks and prices every rule.
//! [`CompiledRules::validate`] does what it does for every write of a custom resource. Nodes of the schema without
//! rules below them are dropped when compiling, so a write pays for its rules and for nothing else.

mod check;
mod form;
mod paths;
mod validate;

pub use validate::Verdict;

use crate::decl::{Decl, Place, type_of};
use crate::env::Env;
use crate::program::{Program, compile as compile_program};
use crate::types::Type;
use std::collections::BTreeMap;
use std::sync::Arc;
use stead_machinery::field::FieldError;
use stead_machinery::schema::{Rule, SchemaRef, Shape, Topology};

/// Every rule of a schema, ready to be evaluated.
#[derive(Debug, Default)]
pub struct CompiledRules {
    root: Option<Node>,
}

/// A node of the schema that has rules, or has them below it.
#[derive(Debug)]
struct Node {
    rules: Vec<CompiledRule>,
    /// What is said of every value instead of what rules that do not compile would say.
    failures: Vec<String>,
    decl: Arc<Decl>,
    scalar: Scalar,
    /// The schema's type, which stands for the value in the messages of failed evaluations.
    type_name: &'static str,
    topology: Topology,
    properties: BTreeMap<Box<str>, Node>,
    additional: Option<Box<Node>>,
    items: Option<Box<Node>>,
    all_of: Vec<Node>,
}

/// What a value may be that has no one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scalar {
    IntOrString,
    Text,
    Other,
}

impl Scalar {
    fn of(schema: SchemaRef<'_>) -> Scalar {
        match schema.shape() {
            Shape::IntOrString => Scalar::IntOrString,
            Shape::String(_) => Scalar::Text,
            _ => Scalar::Other,
        }
    }
}

#[derive(Debug)]
struct CompiledRule {
    program: Program,
    message: Option<Program>,
    rule: Rule,
    uses_old: bool,
    /// Where the error goes, relative to the node; empty: the node itself.
    field_path: String,
}

/// Compiles the rules of a schema. `at` is the schema's own path, such as
/// `spec.versions[0].schema.openAPIV3Schema`, and begins the path of every error.
pub fn compile(schema: SchemaRef<'_>, at: &str) -> Result<CompiledRules, Vec<FieldError>> {
    let forms = form_errors(schema, at);
    match compile_beside(schema, at, &forms) {
        Ok(rules) if forms.is_empty() => Ok(rules),
        Ok(_) => Err(forms),
        Err(errors) => Err(forms.into_iter().chain(errors).collect()),
    }
}

/// What can be said of the rules without compiling them.
pub fn form_errors(schema: SchemaRef<'_>, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    form::forms(schema, at, &mut errors);
    errors
}

/// As [`compile`], for a schema that is wrong in other ways: rules at or above what is wrong are left alone,
/// because their complaints would only follow from it.
pub fn compile_beside(
    schema: SchemaRef<'_>,
    at: &str,
    broken: &[FieldError],
) -> Result<CompiledRules, Vec<FieldError>> {
    let (rules, checks) = compile_as(schema, at, broken, Place::ResourceRoot);
    checks.finish(at)?;
    Ok(rules)
}

/// Compiles the rules of a part of a schema, to judge a value for that part, such as a default.
///
/// What a rule would cost is no matter here, and one that does not compile says so of every value.
pub fn compile_part(schema: SchemaRef<'_>) -> CompiledRules {
    compile_as(schema, "", &[], Place::of(schema)).0
}

fn compile_as<'a>(
    schema: SchemaRef<'_>,
    at: &str,
    broken: &'a [FieldError],
    place: Place,
) -> (CompiledRules, check::Checks<'a>) {
    let mut checks = check::Checks::beside(broken);
    let root = match (has_rules(schema), Decl::of_schema(schema, place, "selfType")) {
        (false, _) => None,
        (true, Some(decl)) => checks.node(schema, &decl, check::Context::root(at)),
        (true, None) => Node::untyped(schema, &Decl::dynamic()),
    };
    (CompiledRules { root }, checks)
}

impl CompiledRules {
    /// Whether there is nothing to evaluate.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }
}

fn has_rules(schema: SchemaRef<'_>) -> bool {
    let node = schema.node();
    if node
        .constraints
        .as_ref()
        .is_some_and(|constraints| !constraints.rules.is_empty())
    {
        return true;
    }
    match schema.shape() {
        Shape::Object(object) => {
            let properties = object.properties.values().map(|property| property.node);
            properties.chain(object.additional).any(|id| has_rules(schema.go(id)))
        }
        Shape::List(list) => has_rules(schema.go(list.items)),
        _ => false,
    }
}

/// `self` and `oldSelf`; the latter is optional where the rule asks for it.
fn environment(decl: &Arc<Decl>, rule: &Rule) -> Env {
    let this = type_of(decl);
    let old = if rule.optional_old_self {
        Type::optional(this.clone())
    } else {
        this.clone()
    };
    Env::new().variable("self", this).variable("oldSelf", old)
}

fn program(source: &str, env: &Env) -> Result<Program, String> {
    compile_program(source, env).map_err(|issues| crate::issue::shown(&issues, source))
}

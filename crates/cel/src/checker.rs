//! The type check: every name is declared and every call has a fitting signature.
//!
//! It finds what evaluation would stumble over, says so in Kubernetes' words, and leaves the type of every
//! node and the candidates of every call for the cost estimate and the plan.

mod unify;

use crate::ast::{Expr, Fold, Id, Kind, Literal, Presence};
use crate::decl::type_of;
use crate::env::{Constructed, Env};
use crate::escape;
use crate::issue::Issue;
use crate::signatures::{Overload, Style, overloads};
use crate::types::Type;
use unify::{Substitutions, most_general, shift};

/// What the check found out.
#[derive(Debug)]
pub struct Checked {
    /// By the node's number.
    pub types: Vec<Type>,
    /// By the node's number: what a call may turn out to be.
    pub candidates: Vec<Vec<&'static Overload>>,
    /// Calls like `optional.of(x)`, where the receiver is only the first part of the function's name.
    pub qualified: Vec<Option<String>>,
    /// Types named as values, as in `type(x) == string`.
    pub type_names: Vec<Option<Type>>,
    /// The type of the whole expression.
    pub result: Type,
}

/// Checks an expression with `nodes` numbered nodes.
pub fn check(expr: &Expr, nodes: usize, env: &Env) -> Result<Checked, Vec<Issue>> {
    let mut checker = Checker {
        env,
        scopes: Vec::new(),
        known: Substitutions::default(),
        fresh: 0,
        issues: Vec::new(),
        types: vec![Type::Error; nodes],
        candidates: std::iter::repeat_with(Vec::new).take(nodes).collect(),
        qualified: vec![None; nodes],
        type_names: vec![None; nodes],
    };
    let result = checker.check(expr);
    if !checker.issues.is_empty() {
        return Err(checker.issues);
    }
    let types: Vec<Type> = checker.types.iter().map(|kind| checker.known.finish(kind)).collect();
    let issues = crate::literals::validate(expr, &types);
    if !issues.is_empty() {
        return Err(issues);
    }
    Ok(Checked {
        types,
        result: checker.known.finish(&result),
        candidates: checker.candidates,
        qualified: checker.qualified,
        type_names: checker.type_names,
    })
}

struct Checker<'a> {
    env: &'a Env,
    /// Loop variables, innermost last.
    scopes: Vec<(String, Type)>,
    known: Substitutions,
    fresh: u32,
    issues: Vec<Issue>,
    types: Vec<Type>,
    candidates: Vec<Vec<&'static Overload>>,
    qualified: Vec<Option<String>>,
    type_names: Vec<Option<Type>>,
}

impl Checker<'_> {
    fn report(&mut self, at: usize, message: String) -> Type {
        self.issues.push(Issue::new(at, message));
        Type::Error
    }

    fn parameter(&mut self) -> Type {
        self.fresh += 1;
        Type::Param(self.fresh - 1)
    }

    fn check(&mut self, expr: &Expr) -> Type {
        let kind = match &expr.kind {
            Kind::Literal(literal) => match literal {
                Literal::Null => Type::Null,
                Literal::Bool(_) => Type::Bool,
                Literal::Int(_) => Type::Int,
                Literal::Uint(_) => Type::Uint,
                Literal::Double(_) => Type::Double,
                Literal::String(_) => Type::String,
                Literal::Bytes(_) => Type::Bytes,
            },
            Kind::Ident(name) => match self.lookup(expr.id, name) {
                Some(kind) => kind,
                None => self.undeclared(expr.at, name),
            },
            Kind::Select { operand, field, test } => self.select(expr, operand, field, *test),
            Kind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            Kind::List(elements) => self.list(elements),
            Kind::Map(entries) => self.map(entries),
            Kind::Struct { name, fields } => self.structure(expr, name, fields),
            Kind::Fold(fold) => self.fold(fold),
        };
        self.types[expr.id] = kind.clone();
        kind
    }

    fn undeclared(&mut self, at: usize, name: &str) -> Type {
        self.report(at, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn lookup(&mut self, id: Id, name: &str) -> Option<Type> {
        if let Some((_, kind)) = self.scopes.iter().rev().find(|(known, _)| known == name) {
            return Some(kind.clone());
        }
        if let Some((_, kind)) = self.env.lookup(name) {
            return Some(kind.clone());
        }
        let named = type_named(name)?;
        self.type_names[id] = Some(named.clone());
        Some(Type::Type(Some(named.into())))
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, test: bool) -> Type {
        if !test && let Some(name) = expr.qualified_name() {
            // A loop variable hides what a longer name would mean.
            let first = name.split('.').next().unwrap_or_default();
            let hidden = self.scopes.iter().any(|(known, _)| known == first);
            if !hidden && let Some(kind) = self.lookup(expr.id, &name) {
                return kind;
            }
        }
        let kind = self.field(expr, operand, field);
        if test { Type::Bool } else { self.known.apply(&kind) }
    }

    /// The type of a selected field; optional when the operand is.
    fn field(&mut self, expr: &Expr, operand: &Expr, field: &str) -> Type {
        let operand = self.check(operand);
        let operand = self.known.apply(&operand);
        let (target, optional) = match operand {
            Type::Optional(inner) => ((*inner).clone(), true),
            other => (other, false),
        };
        let kind = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(decl) => match decl.field(field).or_else(|| {
                escape::is_keyword(field)
                    .then(|| decl.field(&format!("__{field}__")))
                    .flatten()
            }) {
                Some(field) => type_of(&field.decl),
                None => self.report(expr.at, format!("undefined field '{field}'")),
            },
            Type::Opaque(_) => self.report(expr.at, format!("undefined field '{field}'")),
            Type::Param(_) => {
                self.known.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                let message = format!("type '{other}' does not support field selection");
                self.report(expr.at, message);
                Type::Dyn
            }
        };
        if optional { Type::optional(kind) } else { kind }
    }

    fn call(&mut self, expr: &Expr, function: &str, target: Option<&Expr>, args: &[Expr]) -> Type {
        if function == "_?._"
            && let [operand, name] = args
            && let Kind::Literal(Literal::String(field)) = &name.kind
        {
            self.check(name);
            let kind = self.field(expr, operand, field);
            return match self.known.apply(&kind) {
                already @ Type::Optional(_) => already,
                plain => Type::optional(plain),
            };
        }
        for arg in args {
            self.check(arg);
        }
        let Some(target) = target else {
            return match self.function(function) {
                Some(found) => self.resolve(expr, function, found, None, args),
                None => self.undeclared(expr.at, function),
            };
        };
        if let Some(prefix) = target.qualified_name() {
            let name = format!("{prefix}.{function}");
            if let Some(found) = self.function(&name) {
                self.qualified[expr.id] = Some(name.clone());
                return self.resolve(expr, &name, found, None, args);
            }
        }
        self.check(target);
        match self.function(function) {
            Some(found) => self.resolve(expr, function, found, Some(target), args),
            None => self.undeclared(expr.at, function),
        }
    }

    fn function(&self, name: &str) -> Option<&'static [Overload]> {
        if name == "jsonpatch.escapeKey" && !self.env.builds_patches() {
            return None;
        }
        overloads(name)
    }

    fn resolve(
        &mut self,
        expr: &Expr,
        name: &str,
        found: &'static [Overload],
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Type {
        let given: Vec<Type> = target
            .into_iter()
            .chain(args)
            .map(|arg| self.types[arg.id].clone())
            .collect();
        if matches!(name, "_&&_" | "_||_") {
            let mut result = Type::Bool;
            for (arg, kind) in args.iter().zip(&given) {
                if !self.known.assignable(kind, &Type::Bool) {
                    let kind = self.known.finish(kind);
                    result = self.report(arg.at, format!("expected type 'bool' but found '{kind}'"));
                }
            }
            self.candidates[expr.id] = found.iter().collect();
            return result;
        }
        let style = if target.is_some() {
            Style::Method
        } else {
            Style::Function
        };
        let mut result: Option<Type> = None;
        let mut fitting = Vec::new();
        for overload in found.iter().filter(|overload| overload.style == style) {
            let base = self.fresh;
            self.fresh += overload.params;
            let expected: Vec<Type> = overload.args.iter().map(|kind| shift(kind, base)).collect();
            if !self.known.all_assignable(&given, &expected) {
                continue;
            }
            fitting.push(overload);
            let kind = self.known.apply(&shift(&overload.result, base));
            result = Some(match result {
                None => kind,
                Some(previous) if previous.is_dyn() || kind.is_exactly(&previous) => previous,
                Some(_) => Type::Dyn,
            });
        }
        self.candidates[expr.id] = fitting;
        match result {
            Some(kind) => kind,
            None => {
                let given: Vec<String> = given.iter().map(|kind| self.known.finish(kind).to_string()).collect();
                let signature = match (target, given.as_slice()) {
                    (Some(_), [receiver, rest @ ..]) => format!("{receiver}.({})", rest.join(", ")),
                    _ => format!("({})", given.join(", ")),
                };
                let message = format!("found no matching overload for '{name}' applied to '{signature}'");
                self.report(expr.at, message)
            }
        }
    }

    /// The type of an element, whose `?` takes one optional away.
    fn element(&mut self, expr: &Expr, presence: Presence) -> Type {
        let kind = self.check(expr);
        if presence == Presence::Always {
            return kind;
        }
        match self.known.apply(&kind) {
            Type::Optional(inner) => (*inner).clone(),
            Type::Dyn => Type::Dyn,
            other => self.report(
                expr.at,
                format!("expected type 'optional_type({other})' but found '{other}'"),
            ),
        }
    }

    /// The type of all elements of a literal. That Kubernetes does not mix them is checked afterwards.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else {
            return current;
        };
        if self.known.assignable(&previous, &current) {
            return most_general(&previous, &current).clone();
        }
        Type::Dyn
    }

    fn list(&mut self, elements: &[(Expr, Presence)]) -> Type {
        let mut items = None;
        for (element, presence) in elements {
            let kind = self.element(element, *presence);
            items = Some(self.join(items, kind));
        }
        Type::list(items.unwrap_or_else(|| self.parameter()))
    }

    fn map(&mut self, entries: &[(Expr, Expr, Presence)]) -> Type {
        let (mut keys, mut values) = (None, None);
        for (key, value, presence) in entries {
            let kind = self.check(key);
            keys = Some(self.join(keys, kind));
            let kind = self.element(value, *presence);
            values = Some(self.join(values, kind));
        }
        let keys = keys.unwrap_or_else(|| self.parameter());
        Type::map(keys, values.unwrap_or_else(|| self.parameter()))
    }

    fn structure(&mut self, expr: &Expr, name: &str, fields: &[(String, Expr, Presence)]) -> Type {
        let kinds: Vec<Type> = fields
            .iter()
            .map(|(_, value, presence)| self.element(value, *presence))
            .collect();
        match self.env.constructed(name) {
            None => self.undeclared(expr.at, name),
            Some(Constructed::Open) => Type::Dyn,
            Some(Constructed::Declared(decl)) => {
                let decl = decl.clone();
                for ((field, value, _), kind) in fields.iter().zip(kinds) {
                    let Some(declared) = decl.field(field) else {
                        self.report(value.at, format!("undefined field '{field}'"));
                        continue;
                    };
                    let expected = type_of(&declared.decl);
                    if !self.known.assignable(&expected, &kind) {
                        let kind = self.known.finish(&kind);
                        let message =
                            format!("expected type of field '{field}' is '{expected}' but provided type is '{kind}'");
                        self.report(value.at, message);
                    }
                }
                Type::Object(decl)
            }
        }
    }

    fn fold(&mut self, fold: &Fold) -> Type {
        let range = self.check(&fold.range);
        let accu = self.check(&fold.init);
        let range = self.known.apply(&range);
        let (first, second) = match &range {
            Type::List(items) if fold.var2.is_some() => (Type::Int, (**items).clone()),
            Type::List(items) => ((**items).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.known.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(fold.range.at, message);
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((fold.accu.clone(), accu.clone()));
        let outside = self.scopes.len();
        self.scopes.push((fold.var.clone(), first));
        if let Some(var2) = &fold.var2 {
            self.scopes.push((var2.clone(), second));
        }
        let condition = self.check(&fold.condition);
        self.expect(&fold.condition, &Type::Bool, &condition);
        let step = self.check(&fold.step);
        self.expect(&fold.step, &accu, &step);
        self.scopes.truncate(outside);
        let result = self.check(&fold.result);
        self.scopes.truncate(outside - 1);
        self.known.apply(&result)
    }

    fn expect(&mut self, expr: &Expr, expected: &Type, found: &Type) {
        if !self.known.assignable(expected, found) {
            let (expected, found) = (self.known.finish(expected), self.known.finish(found));
            self.report(expr.at, format!("expected type '{expected}' but found '{found}'"));
        }
    }
}

/// The type that a name of a type stands for.
fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "type" => Type::Type(None),
        "optional_type" => Type::optional(Type::Dyn),
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        "net.IP" => Type::Opaque("net.IP"),
        "net.CIDR" => Type::Opaque("net.CIDR"),
        "kubernetes.Quantity" => Type::Opaque("kubernetes.Quantity"),
        "kubernetes.URL" => Type::Opaque("kubernetes.URL"),
        "kubernetes.Semver" => Type::Opaque("kubernetes.Semver"),
        "kubernetes.NamedFormat" => Type::Opaque("kubernetes.NamedFormat"),
        _ => return None,
    })
}

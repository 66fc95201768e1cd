//! A compiled expression.

use crate::ast::{Expr, Kind};
use crate::checker::{Checked, check};
use crate::decl::Decl;
use crate::env::Env;
use crate::error::{Budget, EvalError};
use crate::estimate::{CostEstimate, estimate};
use crate::eval::{self, Lazy};
use crate::issue::Issue;
use crate::parser::parse;
use crate::plan::{Plan, plan};
use crate::types::Type;
use crate::value::Value;

/// An expression that is parsed, checked and ready to be evaluated any number of times.
#[derive(Debug)]
pub struct Program {
    expr: Expr,
    depth: usize,
    checked: Checked,
    plan: Plan,
    defect: Option<EvalError>,
}

/// Compiles an expression, or tells everything that is wrong with it.
pub fn compile(source: &str, env: &Env) -> Result<Program, Vec<Issue>> {
    let parsed = parse(source)?;
    let checked = check(&parsed.expr, parsed.nodes, env)?;
    let (plan, defect) = plan(&parsed.expr, &checked, env);
    Ok(Program {
        expr: parsed.expr,
        depth: parsed.depth,
        checked,
        plan,
        defect,
    })
}

impl Program {
    /// The type of the result.
    pub fn result_type(&self) -> &Type {
        &self.checked.result
    }

    /// The cost at least and at most, when values are as large as this declaration of `self` allows.
    pub fn cost_estimate(&self, root: Option<&Decl>) -> CostEstimate {
        estimate(&self.expr, &self.checked, root)
    }

    /// A conversion of a constant that can never succeed; Kubernetes refuses such expressions when they are written.
    pub fn defect(&self) -> Option<&EvalError> {
        self.defect.as_ref()
    }

    /// How deep the expression nests, and so how much of the stack it takes.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Whether the expression reads this variable.
    pub fn uses(&self, variable: &str) -> bool {
        names(&self.expr, variable)
    }

    /// Evaluates with these values of the environment's variables, in the environment's order.
    pub fn evaluate<'a>(&self, variables: &[Value<'a>], budget: &mut Budget) -> Result<Value<'a>, EvalError> {
        eval::evaluate(&self.plan, variables, None, budget)
    }

    /// As [`Program::evaluate`], with one variable whose fields are made when they are used.
    pub fn evaluate_lazily<'a>(
        &self,
        variables: &[Value<'a>],
        lazy: &dyn Lazy<'a>,
        budget: &mut Budget,
    ) -> Result<Value<'a>, EvalError> {
        eval::evaluate(&self.plan, variables, Some(lazy), budget)
    }
}

fn names(expr: &Expr, variable: &str) -> bool {
    match &expr.kind {
        Kind::Literal(_) => false,
        Kind::Ident(name) => name == variable,
        Kind::Select { operand, .. } => names(operand, variable),
        Kind::Call { target, args, .. } => args.iter().chain(target.as_deref()).any(|arg| names(arg, variable)),
        Kind::List(elements) => elements.iter().any(|(element, _)| names(element, variable)),
        Kind::Map(entries) => entries
            .iter()
            .any(|(key, value, _)| names(key, variable) || names(value, variable)),
        Kind::Struct { fields, .. } => fields.iter().any(|(_, value, _)| names(value, variable)),
        Kind::Fold(fold) => [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
            .into_iter()
            .any(|inner| names(inner, variable)),
    }
}

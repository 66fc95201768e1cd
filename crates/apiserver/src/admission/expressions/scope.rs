//! Evaluating the expressions of one policy for one write: what they cost together, and the variables they share.

use super::Inputs;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use stead_cel::admission::BASE_VARIABLES;
use stead_cel::value::Key;
use stead_cel::{Budget, EvalError, Lazy, Program, Value};

/// How deep an expression and the variables that it waits for may nest together: they share one stack, so it is what
/// one expression may.
const DEPTH_LIMIT: usize = 250;
/// What one variable adds to how deep its own expression nests.
const DEPTH_OF_VARIABLE: usize = 1;

/// What the expressions of one policy see of one write, and what they may still cost.
pub struct Scope<'a> {
    variables: Variables<'a>,
    spent: u64,
}

impl<'a> Scope<'a> {
    pub fn new(inputs: &'a Inputs, variables: &'a [(String, Program)]) -> Self {
        Scope {
            variables: Variables {
                base: inputs.values(),
                programs: variables,
                known: RefCell::default(),
                spent: Cell::new(0),
                needed: Cell::new(None),
            },
            spent: 0,
        }
    }

    /// Evaluates one expression within what is left of the budget, and the variables that it comes to use.
    pub fn evaluate(&mut self, program: &Program, limit: u64) -> Result<Value<'a>, EvalError> {
        if self.spent > limit {
            return Err(EvalError::CostLimit);
        }
        let seen = Seen {
            variables: &self.variables,
            programs: self.variables.programs,
            depth: program.depth(),
        };
        let (outcome, cost) = loop {
            let mut budget = Budget::new(Budget::PER_CALL.min(limit - self.spent));
            let outcome = program.evaluate_lazily(&self.variables.base, &seen, &mut budget);
            match self.variables.needed.take() {
                None => break (outcome, budget.spent()),
                Some(place) => self.variables.provide(place),
            }
        };
        let cost = cost.saturating_add(self.variables.spent.take());
        self.spent = self.spent.saturating_add(cost);
        outcome
    }
}

/// Whether all match conditions hold.
pub fn conditions_hold(
    conditions: &[(String, Result<Program, String>)],
    inputs: &Inputs,
    variables: &[(String, Program)],
) -> Result<bool, String> {
    let mut scope = Scope::new(inputs, variables);
    let mut problem = None;
    for (name, program) in conditions {
        let outcome = match program {
            Ok(program) => scope
                .evaluate(program, Budget::MATCH_CONDITIONS)
                .map_err(|error| error.to_string()),
            Err(why) => Err(why.clone()),
        };
        match outcome {
            Ok(Value::Bool(true)) => {}
            // One that does not hold decides, whatever the others do.
            Ok(_) => return Ok(false),
            Err(why) => problem = Some(format!("expression of match condition '{name}' failed: {why}")),
        }
    }
    problem.map_or(Ok(true), Err)
}

/// A policy's own variables. Each is evaluated when an expression first comes to use it, so that one that fails, or
/// costs much, does no harm where nobody needs it.
struct Variables<'a> {
    base: Vec<Value<'a>>,
    programs: &'a [(String, Program)],
    known: RefCell<BTreeMap<&'a str, Result<Value<'a>, EvalError>>>,
    spent: Cell<u64>,
    /// The variable for which there was no room on the stack. Whatever comes of an evaluation that met one counts for
    /// nothing: it is begun again when the variable is known.
    needed: Cell<Option<usize>>,
}

impl<'a> Variables<'a> {
    /// Makes a variable known, and those that it needs, however long their chain: each begins on a stack of its own.
    /// Every turn makes at least one more known, so it ends.
    fn provide(&self, place: usize) {
        let mut waiting = vec![place];
        while let Some(&place) = waiting.last() {
            // A variable nests no deeper than one expression may, so there is room for the first.
            let _ = self.value(place, 0);
            match self.needed.take() {
                Some(needed) => waiting.push(needed),
                None => drop(waiting.pop()),
            }
        }
    }

    /// The value of the variable at this place, for an expression that nests this deep itself.
    fn value(&self, place: usize, depth: usize) -> Result<Value<'a>, EvalError> {
        let (name, program) = &self.programs[place];
        if let Some(known) = self.known.borrow().get(name.as_str()) {
            return known.clone();
        }
        let seen = Seen {
            variables: self,
            programs: &self.programs[..place],
            depth: depth + program.depth() + DEPTH_OF_VARIABLE,
        };
        if depth > 0 && seen.depth > DEPTH_LIMIT {
            self.needed.set(Some(place));
            return Err(EvalError::TooDeep);
        }
        let mut budget = Budget::per_call();
        let outcome = program.evaluate_lazily(&self.base, &seen, &mut budget);
        if self.needed.get().is_some() {
            return Err(EvalError::TooDeep);
        }
        let outcome = outcome
            .map_err(|cause| EvalError::invalid(format!("composited variable {name:?} fails to evaluate: {cause}")));
        self.spent.set(self.spent.get().saturating_add(budget.spent()));
        self.known.borrow_mut().insert(name, outcome.clone());
        outcome
    }
}

/// The variables that one expression may use.
struct Seen<'v, 'a> {
    variables: &'v Variables<'a>,
    /// Those declared before the expression.
    programs: &'a [(String, Program)],
    /// How deep the expression nests, together with those that wait for it.
    depth: usize,
}

impl<'a> Lazy<'a> for Seen<'_, 'a> {
    fn place(&self) -> usize {
        BASE_VARIABLES
    }

    fn field(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        let place = self.programs.iter().position(|(known, _)| known == name)?;
        Some(self.variables.value(place, self.depth))
    }

    fn whole(&self) -> Result<Value<'a>, EvalError> {
        let mut made = BTreeMap::new();
        // In the order of their declaration, so that none waits for another.
        for (name, _) in self.programs {
            if let Some(value) = self.field(name) {
                made.insert(Key::String(name.clone().into()), value?);
            }
        }
        Ok(Value::map(made))
    }
}

//! Evaluation: a walk over the plan that pays for every step.

pub mod cost;
mod fold;

use crate::ast::Presence;
use crate::error::{Budget, EvalError};
use crate::plan::Plan;
use crate::value::{Key, List, Value};
use regex::Regex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What it costs to make a list, a map or an object.
const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
const STRUCT_COST: u64 = 40;

/// The fields of one variable that are made when an expression comes to use them.
pub trait Lazy<'a> {
    /// The place of the variable in the environment's order.
    fn place(&self) -> usize;

    /// The value of a field; `None` if there is no such field.
    fn field(&self, name: &str) -> Option<Result<Value<'a>, EvalError>>;

    /// All fields as a map, for an expression that does more with the variable than select from it.
    fn whole(&self) -> Result<Value<'a>, EvalError>;
}

/// Evaluates a plan with these variables.
pub fn evaluate<'a>(
    plan: &Plan,
    variables: &[Value<'a>],
    lazy: Option<&dyn Lazy<'a>>,
    budget: &mut Budget,
) -> Result<Value<'a>, EvalError> {
    let mut evaluator = Evaluator {
        variables,
        lazy,
        locals: Vec::new(),
        budget,
    };
    evaluator.eval(plan)
}

struct Evaluator<'v, 'a> {
    variables: &'v [Value<'a>],
    lazy: Option<&'v dyn Lazy<'a>>,
    locals: Vec<Value<'a>>,
    budget: &'v mut Budget,
}

impl<'a> Evaluator<'_, 'a> {
    /// One step. It is as deep in the stack as the expression nests, so it only hands out what needs room.
    fn eval(&mut self, plan: &Plan) -> Result<Value<'a>, EvalError> {
        match plan {
            Plan::Const(value) => Ok(value.clone()),
            Plan::Variable(place) => self.variable(*place),
            Plan::Local(place) => self.local(*place),
            Plan::Select { operand, field } => self.select(operand, field),
            Plan::Has { operand, field } => self.has(operand, field),
            Plan::OptionalSelect { operand, field } => self.optional_select(operand, field),
            Plan::Index { operand, index } => self.index(operand, index),
            Plan::OptionalIndex { operand, index } => self.optional_index(operand, index),
            Plan::And(terms) => self.logical(&terms.0, &terms.1, false),
            Plan::Or(terms) => self.logical(&terms.0, &terms.1, true),
            Plan::Conditional(parts) => self.conditional(parts),
            Plan::OptionalOr(parts) => self.optional_or(parts),
            Plan::OptionalOrValue(parts) => self.optional_or_value(parts),
            Plan::Matches { text, regex, length } => self.matches(text, regex, *length),
            Plan::Call { call, cost, args } => self.call(*call, *cost, args),
            Plan::List(elements) => self.list(elements),
            Plan::Map(entries) => self.map(entries),
            Plan::Struct(fields) => self.structure(fields),
            Plan::Fold(fold) => self.fold(fold),
            Plan::Bind(parts) => self.bind(parts),
        }
    }

    #[inline(never)]
    fn variable(&mut self, place: usize) -> Result<Value<'a>, EvalError> {
        self.budget.spend(1)?;
        match self.lazy.filter(|lazy| lazy.place() == place) {
            Some(lazy) => lazy.whole(),
            None => Ok(self.variables.get(place).cloned().unwrap_or(Value::Null)),
        }
    }

    #[inline(never)]
    fn local(&mut self, place: usize) -> Result<Value<'a>, EvalError> {
        self.budget.spend(1)?;
        Ok(self.locals[place].clone())
    }

    #[inline(never)]
    fn select(&mut self, operand: &Plan, field: &str) -> Result<Value<'a>, EvalError> {
        if let Some(made) = self.made(operand, field) {
            self.budget.spend(2)?;
            return made.unwrap_or_else(|| Err(EvalError::NoSuchKey(field.to_string())));
        }
        let operand = self.eval(operand)?;
        self.budget.spend(1)?;
        match operand {
            Value::Optional(None) => Ok(Value::none()),
            Value::Optional(Some(inner)) => present(&inner, field),
            other => match select(&other, field)? {
                Some(value) => Ok(value),
                None => Err(EvalError::NoSuchKey(field.to_string())),
            },
        }
    }

    #[inline(never)]
    fn has(&mut self, operand: &Plan, field: &str) -> Result<Value<'a>, EvalError> {
        if let Some(made) = self.made(operand, field) {
            self.budget.spend(1)?;
            return Ok(Value::Bool(made.transpose()?.is_some()));
        }
        let found = match self.eval(operand)? {
            Value::Optional(None) => false,
            Value::Optional(Some(inner)) => select(&inner, field)?.is_some(),
            other => select(&other, field)?.is_some(),
        };
        Ok(Value::Bool(found))
    }

    #[inline(never)]
    fn optional_select(&mut self, operand: &Plan, field: &str) -> Result<Value<'a>, EvalError> {
        if let Some(made) = self.made(operand, field) {
            self.budget.spend(2)?;
            return Ok(Value::Optional(made.transpose()?.map(Arc::new)));
        }
        let operand = self.eval(operand)?;
        self.budget.spend(1)?;
        match operand {
            Value::Optional(None) => Ok(Value::none()),
            Value::Optional(Some(inner)) => present(&inner, field),
            other => present(&other, field),
        }
    }

    #[inline(never)]
    fn conditional(&mut self, parts: &(Plan, Plan, Plan)) -> Result<Value<'a>, EvalError> {
        match self.eval(&parts.0)? {
            Value::Bool(true) => self.eval(&parts.1),
            Value::Bool(false) => self.eval(&parts.2),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    #[inline(never)]
    fn optional_or(&mut self, parts: &(Plan, Plan)) -> Result<Value<'a>, EvalError> {
        match self.eval(&parts.0)? {
            found @ Value::Optional(Some(_)) => Ok(found),
            Value::Optional(None) => self.eval(&parts.1),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    #[inline(never)]
    fn optional_or_value(&mut self, parts: &(Plan, Plan)) -> Result<Value<'a>, EvalError> {
        match self.eval(&parts.0)? {
            Value::Optional(Some(found)) => Ok((*found).clone()),
            Value::Optional(None) => self.eval(&parts.1),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    #[inline(never)]
    fn matches(&mut self, text: &Plan, regex: &Regex, length: u64) -> Result<Value<'a>, EvalError> {
        match self.eval(text)? {
            Value::String(text) => {
                self.budget.spend(cost::regex(text.chars().count() as u64, length))?;
                Ok(Value::Bool(regex.is_match(&text)))
            }
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    #[inline(never)]
    fn bind(&mut self, parts: &(Plan, Plan)) -> Result<Value<'a>, EvalError> {
        let value = self.eval(&parts.0)?;
        self.locals.push(value);
        let result = self.eval(&parts.1);
        self.locals.pop();
        result
    }

    /// A field of the lazy variable; `None` if the operand is something else.
    fn made(&self, operand: &Plan, field: &str) -> Option<Option<Result<Value<'a>, EvalError>>> {
        let lazy = self.lazy?;
        match operand {
            Plan::Variable(place) if *place == lazy.place() => Some(lazy.field(field)),
            _ => None,
        }
    }

    #[inline(never)]
    fn call(
        &mut self,
        call: crate::functions::Call,
        cost: cost::CallCost,
        args: &[Plan],
    ) -> Result<Value<'a>, EvalError> {
        // Nearly every call has one or two arguments; they need no allocation.
        match args {
            [a] => {
                let values = [self.eval(a)?];
                self.finish(call, cost, &values)
            }
            [a, b] => {
                let values = [self.eval(a)?, self.eval(b)?];
                self.finish(call, cost, &values)
            }
            more => {
                let values = more.iter().map(|arg| self.eval(arg)).collect::<Result<Vec<_>, _>>()?;
                self.finish(call, cost, &values)
            }
        }
    }

    fn finish(
        &mut self,
        call: crate::functions::Call,
        cost: cost::CallCost,
        values: &[Value<'a>],
    ) -> Result<Value<'a>, EvalError> {
        // What can be known beforehand is paid beforehand, so that no long work starts without a budget for it.
        self.budget.spend(cost.before(values))?;
        let result = call(values)?;
        self.budget.spend(cost.after(values, &result))?;
        Ok(result)
    }

    /// `&&` and `||`: either side may decide alone, and an error counts only if neither does.
    #[inline(never)]
    fn logical(&mut self, a: &Plan, b: &Plan, decisive: bool) -> Result<Value<'a>, EvalError> {
        let first = self.eval(a);
        match &first {
            Ok(Value::Bool(value)) if *value == decisive => return first,
            Err(error) if error.ends_everything() => return first,
            _ => {}
        }
        let second = self.eval(b);
        match (&first, &second) {
            (_, Ok(Value::Bool(value))) if *value == decisive => second,
            (_, Err(error)) if error.ends_everything() => second,
            (Err(_), _) => first,
            (Ok(Value::Bool(_)), Ok(Value::Bool(_)) | Err(_)) => second,
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    #[inline(never)]
    fn index(&mut self, operand: &Plan, index: &Plan) -> Result<Value<'a>, EvalError> {
        let operand = self.eval(operand)?;
        let index = self.eval(index)?;
        self.budget.spend(1)?;
        match &operand {
            Value::Optional(None) => Ok(Value::none()),
            Value::Optional(Some(inner)) => {
                let found = at(inner, &index)?;
                Ok(Value::Optional(found.map(Arc::new)))
            }
            Value::List(_) => match at(&operand, &index)? {
                Some(value) => Ok(value),
                None => Err(EvalError::IndexOutOfBounds(position(&index).unwrap_or(-1))),
            },
            _ => match at(&operand, &index)? {
                Some(value) => Ok(value),
                None => Err(EvalError::NoSuchKey(
                    crate::functions::convert::shown(&index).unwrap_or_default(),
                )),
            },
        }
    }

    #[inline(never)]
    fn optional_index(&mut self, operand: &Plan, index: &Plan) -> Result<Value<'a>, EvalError> {
        let operand = self.eval(operand)?;
        let index = self.eval(index)?;
        self.budget.spend(1)?;
        let found = match &operand {
            Value::Optional(None) => None,
            Value::Optional(Some(inner)) => at(inner, &index)?,
            other => at(other, &index)?,
        };
        Ok(Value::Optional(found.map(Arc::new)))
    }

    /// The value of an element; `None` when it is optional and holds nothing.
    fn element(&mut self, plan: &Plan, presence: Presence) -> Result<Option<Value<'a>>, EvalError> {
        let value = self.eval(plan)?;
        match (presence, value) {
            (Presence::Always, value) => Ok(Some(value)),
            (Presence::Optional, Value::Optional(inner)) => Ok(inner.map(|value| (*value).clone())),
            (Presence::Optional, _) => Err(EvalError::NoSuchOverload),
        }
    }

    #[inline(never)]
    fn list(&mut self, elements: &[(Plan, Presence)]) -> Result<Value<'a>, EvalError> {
        let mut items = Vec::with_capacity(elements.len());
        for (element, presence) in elements {
            items.extend(self.element(element, *presence)?);
        }
        self.budget.spend(LIST_COST)?;
        Ok(Value::list(items))
    }

    #[inline(never)]
    fn map(&mut self, entries: &[(Plan, Plan, Presence)]) -> Result<Value<'a>, EvalError> {
        let mut made = BTreeMap::new();
        for (key, value, presence) in entries {
            let key = Key::of(&self.eval(key)?)?;
            let Some(value) = self.element(value, *presence)? else {
                continue;
            };
            if made.contains_key(&key) {
                let shown = crate::functions::convert::shown(&key.value()).unwrap_or_default();
                return Err(EvalError::invalid(format!("Failed with repeated key: {shown}")));
            }
            made.insert(key, value);
        }
        self.budget.spend(MAP_COST)?;
        Ok(Value::map(made))
    }

    #[inline(never)]
    fn structure(&mut self, fields: &[(Box<str>, Plan, Presence)]) -> Result<Value<'a>, EvalError> {
        let mut made = BTreeMap::new();
        for (name, value, presence) in fields {
            if let Some(value) = self.element(value, *presence)? {
                made.insert(Key::String(name.to_string().into()), value);
            }
        }
        self.budget.spend(STRUCT_COST)?;
        Ok(Value::map(made))
    }
}

/// A field of an object or a map; `None` if it is not there.
fn select<'a>(value: &Value<'a>, field: &str) -> Result<Option<Value<'a>>, EvalError> {
    match value {
        Value::Map(map) => map.field(field).transpose(),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// A field as an optional.
fn present<'a>(value: &Value<'a>, field: &str) -> Result<Value<'a>, EvalError> {
    Ok(Value::Optional(select(value, field)?.map(Arc::new)))
}

/// An item or an entry; `None` if it is not there.
fn at<'a>(value: &Value<'a>, index: &Value<'a>) -> Result<Option<Value<'a>>, EvalError> {
    match value {
        Value::List(list) => {
            let place = position(index).ok_or(EvalError::NoSuchOverload)?;
            item(list, place)
        }
        Value::Map(map) => map.get(index).transpose(),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn item<'a>(list: &List<'a>, place: i64) -> Result<Option<Value<'a>>, EvalError> {
    match usize::try_from(place) {
        Ok(place) => list.get(place).transpose(),
        Err(_) => Ok(None),
    }
}

/// A number as a place in a list.
fn position(index: &Value<'_>) -> Option<i64> {
    match index {
        Value::Int(place) => Some(*place),
        Value::Uint(place) => i64::try_from(*place).ok(),
        Value::Double(place) if place.fract() == 0.0 => Some(*place as i64),
        _ => None,
    }
}

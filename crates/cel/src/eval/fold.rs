//! Loops: what `all`, `exists`, `map`, `filter` and their kin do at run time.
//!
//! Each costs what its expanded form would cost step by step, so that budgets mean the same as in Kubernetes.

use super::{Evaluator, LIST_COST};
use crate::ast::FoldShape;
use crate::error::EvalError;
use crate::plan::FoldPlan;
use crate::value::{Key, List, Map, Value};
use std::collections::BTreeMap;

/// What a loop has gathered so far.
enum Gathered<'a> {
    Truth(Result<bool, EvalError>),
    Count(i64),
    List(Vec<Value<'a>>),
    Map(BTreeMap<Key<'a>, Value<'a>>),
}

/// Whether the loop goes on.
enum Next {
    Continue,
    Stop,
}

impl<'a> Evaluator<'_, 'a> {
    pub(super) fn fold(&mut self, fold: &FoldPlan) -> Result<Value<'a>, EvalError> {
        let range = self.eval(&fold.range)?;
        let outside = self.locals.len();
        let mut gathered = match fold.shape {
            FoldShape::All => Gathered::Truth(Ok(true)),
            FoldShape::Exists => Gathered::Truth(Ok(false)),
            FoldShape::ExistsOne => Gathered::Count(0),
            FoldShape::Map(_) | FoldShape::Filter | FoldShape::Bind => Gathered::List(Vec::new()),
            FoldShape::TransformMap(_) | FoldShape::TransformEntry(_) => Gathered::Map(BTreeMap::new()),
        };
        let outcome = self.run(fold, &range, &mut gathered);
        self.locals.truncate(outside);
        outcome?;
        self.budget.spend(1)?;
        match gathered {
            Gathered::Truth(truth) => truth.map(Value::Bool),
            Gathered::Count(count) => {
                self.budget.spend(1)?;
                Ok(Value::Bool(count == 1))
            }
            Gathered::List(items) => Ok(Value::list(items)),
            Gathered::Map(entries) => Ok(Value::map(entries)),
        }
    }

    fn run(&mut self, fold: &FoldPlan, range: &Value<'a>, gathered: &mut Gathered<'a>) -> Result<(), EvalError> {
        let outside = self.locals.len();
        match range {
            Value::List(list) => {
                for place in 0..list.len() {
                    self.locals.truncate(outside);
                    self.push_item(fold, list, place)?;
                    if let Next::Stop = self.step(fold, gathered)? {
                        break;
                    }
                }
                Ok(())
            }
            Value::Map(map) => {
                for key in map.keys() {
                    self.locals.truncate(outside);
                    self.push_entry(fold, map, &key)?;
                    if let Next::Stop = self.step(fold, gathered)? {
                        break;
                    }
                }
                Ok(())
            }
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    fn push_item(&mut self, fold: &FoldPlan, list: &List<'a>, place: usize) -> Result<(), EvalError> {
        if fold.two {
            self.locals.push(Value::Int(place as i64));
        }
        let item = list.get(place).transpose()?.unwrap_or(Value::Null);
        self.locals.push(item);
        Ok(())
    }

    fn push_entry(&mut self, fold: &FoldPlan, map: &Map<'a>, key: &Key<'a>) -> Result<(), EvalError> {
        let key = key.value();
        let value = if fold.two { map.get(&key).transpose()? } else { None };
        self.locals.push(key);
        if fold.two {
            self.locals.push(value.unwrap_or(Value::Null));
        }
        Ok(())
    }

    fn truth(&mut self, fold: &FoldPlan) -> Result<bool, EvalError> {
        match self.eval(&fold.body)? {
            Value::Bool(value) => Ok(value),
            _ => Err(EvalError::NoSuchOverload),
        }
    }

    fn step(&mut self, fold: &FoldPlan, gathered: &mut Gathered<'a>) -> Result<Next, EvalError> {
        let first = self.locals.len() - if fold.two { 2 } else { 1 };
        if let Some(filter) = &fold.filter {
            match self.eval(filter)? {
                Value::Bool(true) => {}
                Value::Bool(false) => {
                    self.budget.spend(1)?;
                    return Ok(Next::Continue);
                }
                _ => return Err(EvalError::NoSuchOverload),
            }
        }
        match gathered {
            Gathered::Truth(truth) => {
                let decisive = fold.shape == FoldShape::Exists;
                self.budget.spend(if decisive { 4 } else { 3 })?;
                match self.truth(fold) {
                    Ok(value) if value == decisive => {
                        *truth = Ok(decisive);
                        return Ok(Next::Stop);
                    }
                    Ok(_) => {}
                    Err(error) if error.ends_everything() => return Err(error),
                    // The first error stays, unless a later element decides.
                    Err(error) if truth.is_ok() => *truth = Err(error),
                    Err(_) => {}
                }
            }
            Gathered::Count(count) => {
                if self.truth(fold)? {
                    *count += 1;
                    self.budget.spend(2)?;
                } else {
                    self.budget.spend(1)?;
                }
            }
            Gathered::List(items) if fold.shape == FoldShape::Filter => {
                if self.truth(fold)? {
                    items.push(self.locals[first].clone());
                    self.budget.spend(LIST_COST + 3)?;
                } else {
                    self.budget.spend(1)?;
                }
            }
            Gathered::List(items) => {
                items.push(self.eval(&fold.body)?);
                self.budget.spend(LIST_COST + 2)?;
            }
            Gathered::Map(entries) => {
                let value = self.eval(&fold.body)?;
                self.budget.spend(3)?;
                match (fold.shape, value) {
                    (FoldShape::TransformEntry(_), Value::Map(made)) => {
                        for key in made.keys() {
                            let value = made.get(&key.value()).transpose()?.unwrap_or(Value::Null);
                            insert(entries, key, value)?;
                        }
                    }
                    (FoldShape::TransformEntry(_), _) => return Err(EvalError::NoSuchOverload),
                    (_, value) => insert(entries, Key::of(&self.locals[first])?, value)?,
                }
            }
        }
        Ok(Next::Continue)
    }
}

fn insert<'a>(entries: &mut BTreeMap<Key<'a>, Value<'a>>, key: Key<'a>, value: Value<'a>) -> Result<(), EvalError> {
    if entries.contains_key(&key) {
        let shown = crate::functions::convert::shown(&key.value()).unwrap_or_default();
        return Err(EvalError::invalid(format!("insert failed: key {shown} already exists")));
    }
    entries.insert(key, value);
    Ok(())
}

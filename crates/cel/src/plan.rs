//! What evaluation walks: the checked tree with every name resolved to a place and every function to code.

use crate::ast::{Expr, Filtered, Fold, FoldShape, Kind, Literal, Presence};
use crate::checker::Checked;
use crate::env::Env;
use crate::error::EvalError;
use crate::eval::cost::CallCost;
use crate::functions::{self, Call, formats};
use crate::regexes;
use crate::types::Type;
use crate::value::{Key, Text, Value};
use regex::Regex;

/// One step of an evaluation.
#[derive(Debug)]
pub enum Plan {
    Const(Value<'static>),
    /// A variable of the environment.
    Variable(usize),
    /// A variable of a loop.
    Local(usize),
    Select {
        operand: Box<Plan>,
        field: Box<str>,
    },
    Has {
        operand: Box<Plan>,
        field: Box<str>,
    },
    OptionalSelect {
        operand: Box<Plan>,
        field: Box<str>,
    },
    Index {
        operand: Box<Plan>,
        index: Box<Plan>,
    },
    OptionalIndex {
        operand: Box<Plan>,
        index: Box<Plan>,
    },
    And(Box<(Plan, Plan)>),
    Or(Box<(Plan, Plan)>),
    Conditional(Box<(Plan, Plan, Plan)>),
    /// `a.or(b)`: the second only when the first holds nothing.
    OptionalOr(Box<(Plan, Plan)>),
    OptionalOrValue(Box<(Plan, Plan)>),
    /// A regular expression known beforehand.
    Matches {
        text: Box<Plan>,
        regex: Box<Regex>,
        length: u64,
    },
    Call {
        call: Call,
        cost: CallCost,
        args: Vec<Plan>,
    },
    List(Vec<(Plan, Presence)>),
    Map(Vec<(Plan, Plan, Presence)>),
    Struct(Vec<(Box<str>, Plan, Presence)>),
    Fold(Box<FoldPlan>),
    Bind(Box<(Plan, Plan)>),
}

/// A loop. Its variables are the next free places among the locals.
#[derive(Debug)]
pub struct FoldPlan {
    pub range: Plan,
    pub two: bool,
    pub shape: FoldShape,
    pub filter: Option<Plan>,
    pub body: Plan,
}

/// Makes the plan of a checked expression, and tells if a conversion of a constant in it can never succeed.
pub fn plan(expr: &Expr, checked: &Checked, env: &Env) -> (Plan, Option<EvalError>) {
    let mut planner = Planner {
        checked,
        env,
        locals: Vec::new(),
        defect: None,
    };
    (planner.plan(expr), planner.defect)
}

struct Planner<'a> {
    checked: &'a Checked,
    env: &'a Env,
    locals: Vec<String>,
    defect: Option<EvalError>,
}

impl Planner<'_> {
    fn boxed(&mut self, expr: &Expr) -> Box<Plan> {
        Box::new(self.plan(expr))
    }

    fn plan(&mut self, expr: &Expr) -> Plan {
        if let Some(kind) = &self.checked.type_names[expr.id] {
            return Plan::Const(Value::Type(Text::Borrowed(runtime_name(kind))));
        }
        match &expr.kind {
            Kind::Literal(literal) => Plan::Const(constant(literal)),
            Kind::Ident(name) => self.ident(name),
            Kind::Select { operand, field, test } => {
                if let Some(name) = expr.qualified_name()
                    && !test
                    && let Some((place, _)) = self.env.lookup(&name)
                {
                    return Plan::Variable(place);
                }
                let (operand, field) = (self.boxed(operand), field.as_str().into());
                if *test {
                    Plan::Has { operand, field }
                } else {
                    Plan::Select { operand, field }
                }
            }
            Kind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            Kind::List(elements) => {
                let planned: Vec<(Plan, Presence)> = elements
                    .iter()
                    .map(|(element, presence)| (self.plan(element), *presence))
                    .collect();
                folded_list(planned)
            }
            Kind::Map(entries) => {
                let planned: Vec<(Plan, Plan, Presence)> = entries
                    .iter()
                    .map(|(key, value, presence)| (self.plan(key), self.plan(value), *presence))
                    .collect();
                folded_map(planned)
            }
            Kind::Struct { fields, .. } => Plan::Struct(
                fields
                    .iter()
                    .map(|(name, value, presence)| (name.as_str().into(), self.plan(value), *presence))
                    .collect(),
            ),
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn ident(&self, name: &str) -> Plan {
        if let Some(place) = self.locals.iter().rposition(|local| local == name) {
            return Plan::Local(place);
        }
        match self.env.lookup(name) {
            Some((place, _)) => Plan::Variable(place),
            // The checker has refused every other name.
            None => Plan::Const(Value::Null),
        }
    }

    fn call(&mut self, expr: &Expr, function: &str, target: Option<&Expr>, args: &[Expr]) -> Plan {
        let qualified = self.checked.qualified[expr.id].as_deref();
        let function = qualified.unwrap_or(function);
        let target = if qualified.is_some() { None } else { target };
        match (function, args) {
            ("_&&_", [a, b]) => return Plan::And(Box::new((self.plan(a), self.plan(b)))),
            ("_||_", [a, b]) => return Plan::Or(Box::new((self.plan(a), self.plan(b)))),
            ("_?_:_", [condition, yes, no]) => {
                let parts = (self.plan(condition), self.plan(yes), self.plan(no));
                return Plan::Conditional(Box::new(parts));
            }
            ("_[_]", [operand, index]) => {
                return Plan::Index {
                    operand: self.boxed(operand),
                    index: self.boxed(index),
                };
            }
            ("_[?_]", [operand, index]) => {
                return Plan::OptionalIndex {
                    operand: self.boxed(operand),
                    index: self.boxed(index),
                };
            }
            ("_?._", [operand, name]) => {
                let field = match &name.kind {
                    Kind::Literal(Literal::String(field)) => field.as_str().into(),
                    _ => "".into(),
                };
                return Plan::OptionalSelect {
                    operand: self.boxed(operand),
                    field,
                };
            }
            _ => {}
        }
        if let (Some(target), [arg]) = (target, args) {
            match function {
                "or" => return Plan::OptionalOr(Box::new((self.plan(target), self.plan(arg)))),
                "orValue" => return Plan::OptionalOrValue(Box::new((self.plan(target), self.plan(arg)))),
                _ => {}
            }
        }
        if let Some(key) = function.strip_prefix("format.")
            && let Some(format) = formats::named(key)
        {
            return Plan::Const(Value::Format(format));
        }
        let mut planned: Vec<Plan> = target.into_iter().chain(args).map(|arg| self.plan(arg)).collect();
        if function == "matches"
            && let [_, Plan::Const(Value::String(pattern))] = planned.as_slice()
            && let Ok(regex) = regexes::compile(pattern)
        {
            let length = pattern.chars().count() as u64;
            return Plan::Matches {
                text: Box::new(planned.swap_remove(0)),
                regex: Box::new(regex),
                length,
            };
        }
        if is_conversion(function)
            && let [Plan::Const(value)] = planned.as_slice()
            && let Some(call) = functions::implementation(function)
        {
            match call(std::slice::from_ref(value)) {
                Ok(value) => return Plan::Const(value),
                Err(error) => {
                    self.defect.get_or_insert(error);
                }
            }
        }
        Plan::Call {
            call: functions::implementation(function).unwrap_or(|_| Err(EvalError::NoSuchOverload)),
            cost: CallCost::of(function),
            args: planned,
        }
    }

    fn fold(&mut self, fold: &Fold) -> Plan {
        if fold.shape == FoldShape::Bind {
            let value = self.plan(&fold.init);
            self.locals.push(fold.accu.clone());
            let body = self.plan(&fold.result);
            self.locals.pop();
            return Plan::Bind(Box::new((value, body)));
        }
        let range = self.plan(&fold.range);
        let outside = self.locals.len();
        self.locals.push(fold.var.clone());
        if let Some(var2) = &fold.var2 {
            self.locals.push(var2.clone());
        }
        let (filter, body) = parts(fold);
        let filter = filter.map(|filter| self.plan(filter));
        let body = self.plan(body);
        self.locals.truncate(outside);
        Plan::Fold(Box::new(FoldPlan {
            range,
            two: fold.var2.is_some(),
            shape: fold.shape,
            filter,
            body,
        }))
    }
}

/// Conversions of constants are done once, when the plan is made.
fn is_conversion(function: &str) -> bool {
    matches!(
        function,
        "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint"
    )
}

/// The filter and the body that the macro's author wrote, found again in the expanded step.
fn parts(fold: &Fold) -> (Option<&Expr>, &Expr) {
    let args = |expr: &'_ Expr| match &expr.kind {
        Kind::Call { args, .. } => args.len(),
        _ => 0,
    };
    fn arg(expr: &Expr, place: usize) -> &Expr {
        match &expr.kind {
            Kind::Call { args, .. } => args.get(place).unwrap_or(expr),
            Kind::List(elements) => elements.get(place).map_or(expr, |(element, _)| element),
            _ => expr,
        }
    }
    let step = &fold.step;
    match fold.shape {
        FoldShape::All | FoldShape::Exists => (None, arg(step, 1)),
        FoldShape::ExistsOne | FoldShape::Filter => (None, arg(step, 0)),
        FoldShape::Map(Filtered::No) => (None, arg(arg(step, 1), 0)),
        FoldShape::Map(Filtered::Yes) => (Some(arg(step, 0)), arg(arg(arg(step, 1), 1), 0)),
        FoldShape::TransformMap(Filtered::No) => (None, arg(step, 2)),
        FoldShape::TransformMap(Filtered::Yes) => (Some(arg(step, 0)), arg(arg(step, 1), 2)),
        FoldShape::TransformEntry(Filtered::No) => (None, arg(step, args(step) - 1)),
        FoldShape::TransformEntry(Filtered::Yes) => (Some(arg(step, 0)), arg(arg(step, 1), 1)),
        FoldShape::Bind => (None, &fold.result),
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(value) => Value::string(value.as_str()),
        Literal::Bytes(value) => Value::Bytes(value.as_slice().into()),
    }
}

/// A list of constants is one itself and costs nothing when it is evaluated.
fn folded_list(planned: Vec<(Plan, Presence)>) -> Plan {
    let constants: Option<Vec<Value<'static>>> = planned
        .iter()
        .map(|element| match element {
            (Plan::Const(value), Presence::Always) => Some(value.clone()),
            _ => None,
        })
        .collect();
    match constants {
        Some(values) => Plan::Const(Value::list(values)),
        None => Plan::List(planned),
    }
}

fn folded_map(planned: Vec<(Plan, Plan, Presence)>) -> Plan {
    let mut entries = std::collections::BTreeMap::new();
    for entry in &planned {
        let (Plan::Const(key), Plan::Const(value), Presence::Always) = entry else {
            return Plan::Map(planned);
        };
        match Key::of(key) {
            // A repeated key is an error that evaluation reports.
            Ok(key) if !entries.contains_key(&key) => entries.insert(key, value.clone()),
            _ => return Plan::Map(planned),
        };
    }
    Plan::Const(Value::map(entries))
}

/// The name that `type(x)` gives for values of this type.
fn runtime_name(kind: &Type) -> &'static str {
    match kind {
        Type::Bool => "bool",
        Type::Int => "int",
        Type::Uint => "uint",
        Type::Double => "double",
        Type::String => "string",
        Type::Bytes => "bytes",
        Type::List(_) => "list",
        Type::Map(..) => "map",
        Type::Null => "null_type",
        Type::Optional(_) => "optional_type",
        Type::Timestamp => "google.protobuf.Timestamp",
        Type::Duration => "google.protobuf.Duration",
        Type::Opaque(name) => name,
        _ => "type",
    }
}

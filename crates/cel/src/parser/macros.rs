//! Macros: calls whose arguments are syntax, rewritten into loops and tests.

use super::{Parser, Result};
use crate::ast::{Expr, Filtered, Fold, FoldShape, Kind, Literal, Presence};
use crate::issue::Issue;

/// The loop's own variable; the source cannot spell it.
const ACCUMULATOR: &str = "@result";
/// Names nothing; for loops that run zero times.
const UNUSED: &str = "#unused";

impl Parser {
    /// A call, or what its macro makes of it.
    pub(super) fn expand(&mut self, at: usize, name: &str, target: Option<Expr>, mut args: Vec<Expr>) -> Result<Expr> {
        let Some(target) = target else {
            if name == "has" && args.len() == 1 {
                return self.has(at, args.remove(0));
            }
            return self.call(at, name, args);
        };
        match (name, args.len()) {
            ("all" | "exists" | "exists_one" | "existsOne", 2 | 3)
            | ("map", 2 | 3)
            | ("filter", 2)
            | ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => self.fold(at, name, target, args),
            ("optMap" | "optFlatMap", 2) => self.optional_map(at, name, target, args),
            ("sortBy", 2) => self.sort_by(at, target, args),
            _ => self.node(
                at,
                Kind::Call {
                    function: name.to_string(),
                    target: Some(Box::new(target)),
                    args,
                },
            ),
        }
    }

    fn has(&mut self, at: usize, argument: Expr) -> Result<Expr> {
        match argument.kind {
            Kind::Select {
                operand,
                field,
                test: false,
            } => self.node(
                at,
                Kind::Select {
                    operand,
                    field,
                    test: true,
                },
            ),
            _ => Err(Issue::new(argument.at, "invalid argument to has() macro")),
        }
    }

    fn accumulator(&mut self, at: usize) -> Result<Expr> {
        self.node(at, Kind::Ident(ACCUMULATOR.to_string()))
    }

    fn literal(&mut self, at: usize, literal: Literal) -> Result<Expr> {
        self.node(at, Kind::Literal(literal))
    }

    /// `@result + [element]`.
    fn appended(&mut self, at: usize, element: Expr) -> Result<Expr> {
        let accu = self.accumulator(at)?;
        let list = self.node(at, Kind::List(vec![(element, Presence::Always)]))?;
        self.call(at, "_+_", vec![accu, list])
    }

    fn fold(&mut self, at: usize, name: &str, range: Expr, mut args: Vec<Expr>) -> Result<Expr> {
        let two = name.starts_with("transform") || (args.len() == 3 && name != "map");
        let simple = if matches!(name, "map" | "filter") {
            "argument is not an identifier"
        } else {
            "argument must be a simple name"
        };
        let element = args[0].clone();
        let var = variable(&args.remove(0), simple)?;
        let var2 = if two {
            let second = args.remove(0);
            let var2 = variable(&second, simple)?;
            if var2 == var {
                return Err(Issue::new(second.at, format!("duplicate variable name: {var}")));
            }
            Some(var2)
        } else {
            None
        };
        let body = args.pop().expect("every macro here has a body");
        let filter = args.pop();
        let filtered = if filter.is_some() { Filtered::Yes } else { Filtered::No };
        let truth = Literal::Bool(true);
        let (shape, init, condition, step) = match name {
            "all" => {
                let init = self.literal(at, truth)?;
                let accu = self.accumulator(at)?;
                let condition = self.call(at, "@not_strictly_false", vec![accu])?;
                let accu = self.accumulator(at)?;
                let step = self.call(at, "_&&_", vec![accu, body])?;
                (FoldShape::All, init, condition, step)
            }
            "exists" => {
                let init = self.literal(at, Literal::Bool(false))?;
                let accu = self.accumulator(at)?;
                let not = self.call(at, "!_", vec![accu])?;
                let condition = self.call(at, "@not_strictly_false", vec![not])?;
                let accu = self.accumulator(at)?;
                let step = self.call(at, "_||_", vec![accu, body])?;
                (FoldShape::Exists, init, condition, step)
            }
            "exists_one" | "existsOne" => {
                let init = self.literal(at, Literal::Int(0))?;
                let condition = self.literal(at, truth)?;
                let accu = self.accumulator(at)?;
                let one = self.literal(at, Literal::Int(1))?;
                let more = self.call(at, "_+_", vec![accu, one])?;
                let accu = self.accumulator(at)?;
                let step = self.call(at, "_?_:_", vec![body, more, accu])?;
                (FoldShape::ExistsOne, init, condition, step)
            }
            "filter" => {
                let init = self.node(at, Kind::List(Vec::new()))?;
                let condition = self.literal(at, truth)?;
                let more = self.appended(at, element)?;
                let accu = self.accumulator(at)?;
                let step = self.call(at, "_?_:_", vec![body, more, accu])?;
                (FoldShape::Filter, init, condition, step)
            }
            _ => {
                let condition = self.literal(at, truth)?;
                let (shape, init, more) = match name {
                    "transformMap" => {
                        let accu = self.accumulator(at)?;
                        let key = self.node(element.at, Kind::Ident(var.clone()))?;
                        let more = self.call(at, "cel.@mapInsert", vec![accu, key, body])?;
                        let init = self.node(at, Kind::Map(Vec::new()))?;
                        (FoldShape::TransformMap(filtered), init, more)
                    }
                    "transformMapEntry" => {
                        let accu = self.accumulator(at)?;
                        let more = self.call(at, "cel.@mapInsert", vec![accu, body])?;
                        let init = self.node(at, Kind::Map(Vec::new()))?;
                        (FoldShape::TransformEntry(filtered), init, more)
                    }
                    _ => {
                        let init = self.node(at, Kind::List(Vec::new()))?;
                        (FoldShape::Map(filtered), init, self.appended(at, body)?)
                    }
                };
                let step = match filter {
                    None => more,
                    Some(filter) => {
                        let accu = self.accumulator(at)?;
                        self.call(at, "_?_:_", vec![filter, more, accu])?
                    }
                };
                (shape, init, condition, step)
            }
        };
        let mut result = self.accumulator(at)?;
        if shape == FoldShape::ExistsOne {
            let one = self.literal(at, Literal::Int(1))?;
            result = self.call(at, "_==_", vec![result, one])?;
        }
        self.node(
            at,
            Kind::Fold(Box::new(Fold {
                range,
                var,
                var2,
                accu: ACCUMULATOR.to_string(),
                init,
                condition,
                step,
                result,
                shape,
            })),
        )
    }

    /// A name for a value inside one expression.
    fn bind(&mut self, at: usize, name: String, value: Expr, body: Expr) -> Result<Expr> {
        let range = self.node(at, Kind::List(Vec::new()))?;
        let condition = self.literal(at, Literal::Bool(false))?;
        let step = self.node(at, Kind::Ident(name.clone()))?;
        self.node(
            at,
            Kind::Fold(Box::new(Fold {
                range,
                var: UNUSED.to_string(),
                var2: None,
                accu: name,
                init: value,
                condition,
                step,
                result: body,
                shape: FoldShape::Bind,
            })),
        )
    }

    fn optional_map(&mut self, at: usize, name: &str, target: Expr, mut args: Vec<Expr>) -> Result<Expr> {
        let body = args.pop().expect("the caller counted two arguments");
        let first = args.pop().expect("the caller counted two arguments");
        let simple = format!("{name}() variable name must be a simple identifier");
        let var = variable(&first, &simple)?;
        let method = |function: &str, target: Expr| Kind::Call {
            function: function.to_string(),
            target: Some(Box::new(target)),
            args: Vec::new(),
        };
        let present = self.node(at, method("hasValue", target.clone()))?;
        let value = self.node(at, method("value", target))?;
        let mut bound = self.bind(at, var, value, body)?;
        if name == "optMap" {
            bound = self.call(at, "optional.of", vec![bound])?;
        }
        let none = self.call(at, "optional.none", Vec::new())?;
        self.call(at, "_?_:_", vec![present, bound, none])
    }

    /// `list.sortBy(x, key)`: the list sorted by a list of keys made of it.
    fn sort_by(&mut self, at: usize, target: Expr, args: Vec<Expr>) -> Result<Expr> {
        const INPUT: &str = "@__sortBy_input__";
        if !matches!(
            target.kind,
            Kind::Select { .. } | Kind::List(_) | Kind::Ident(_) | Kind::Fold(_) | Kind::Call { .. }
        ) {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err(Issue::new(target.at, message));
        }
        let input = self.node(at, Kind::Ident(INPUT.to_string()))?;
        let keys = self.fold(at, "map", input.clone(), args)?;
        let sorted = self.node(
            at,
            Kind::Call {
                function: "@sortByAssociatedKeys".to_string(),
                target: Some(Box::new(input)),
                args: vec![keys],
            },
        )?;
        self.bind(at, INPUT.to_string(), target, sorted)
    }
}

fn variable(expr: &Expr, otherwise: &str) -> Result<String> {
    match &expr.kind {
        Kind::Ident(name) if name == ACCUMULATOR || name == "__result__" => Err(Issue::new(
            expr.at,
            "iteration variable overwrites accumulator variable",
        )),
        Kind::Ident(name) => Ok(name.clone()),
        _ => Err(Issue::new(expr.at, otherwise)),
    }
}

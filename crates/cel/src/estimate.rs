//! The cost of an expression before it is ever evaluated.
//!
//! Kubernetes refuses rules that could become too costly on the largest object their schema allows. The
//! numbers must be Kubernetes' own, since they decide which definitions are accepted.

mod calls;
mod range;

pub use range::CostEstimate;
use range::{Entry, SizeEstimate};

use crate::ast::{Expr, Fold, FoldShape, Id, Kind, Literal};
use crate::checker::Checked;
use crate::decl::{Decl, DeclShape};
use crate::types::Type;
use std::collections::HashMap;

/// Prices a checked expression whose variables are all of this declaration.
pub fn estimate(expr: &Expr, checked: &Checked, root: Option<&Decl>) -> CostEstimate {
    let nodes = checked.types.len();
    let mut estimator = Estimator {
        checked,
        root,
        paths: vec![Path::None; nodes],
        sizes: vec![None; nodes],
        entries: vec![None; nodes],
        locals: HashMap::new(),
    };
    estimator.cost(expr)
}

/// Where in the object a value comes from, as far as that bounds its size.
#[derive(Debug, Clone, Copy)]
enum Path<'a> {
    /// It is computed.
    None,
    /// From the object, but no declaration says how large it is.
    Unknown,
    At(&'a Decl),
    /// A key of a map.
    Key,
}

#[derive(Debug, Clone)]
struct Local<'a> {
    path: Path<'a>,
    size: Option<SizeEstimate>,
    entry: Option<Entry>,
}

struct Estimator<'a> {
    checked: &'a Checked,
    root: Option<&'a Decl>,
    paths: Vec<Path<'a>>,
    sizes: Vec<Option<SizeEstimate>>,
    entries: Vec<Option<Entry>>,
    locals: HashMap<String, Vec<Local<'a>>>,
}

impl<'a> Estimator<'a> {
    fn kind(&self, expr: &Expr) -> &Type {
        &self.checked.types[expr.id]
    }

    fn local(&self, name: &str) -> Option<&Local<'a>> {
        self.locals.get(name).and_then(|stack| stack.last())
    }

    fn push(&mut self, name: &str, local: Local<'a>) {
        self.locals.entry(name.to_string()).or_default().push(local);
    }

    fn pop(&mut self, name: &str) {
        if let Some(stack) = self.locals.get_mut(name) {
            stack.pop();
        }
    }

    fn path(&self, expr: &Expr) -> Path<'a> {
        if let Kind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path;
        }
        self.paths[expr.id]
    }

    fn cost(&mut self, expr: &Expr) -> CostEstimate {
        match &expr.kind {
            Kind::Literal(_) => CostEstimate::ZERO,
            // The name of a type is one name, however many dots it has.
            Kind::Select { .. } if self.checked.type_names[expr.id].is_some() => {
                self.paths[expr.id] = self.root.map_or(Path::Unknown, Path::At);
                CostEstimate::fixed(1)
            }
            Kind::Ident(name) => {
                self.paths[expr.id] = match self.local(name) {
                    Some(local) => local.path,
                    None => self.root.map_or(Path::Unknown, Path::At),
                };
                CostEstimate::fixed(1)
            }
            Kind::Select { operand, field, test } => {
                let cost = self.cost(operand);
                if *test {
                    return cost;
                }
                self.paths[expr.id] = self.step(operand, field);
                match self.kind(operand) {
                    Type::Map(..) | Type::Object(_) | Type::Opaque(_) => cost + CostEstimate::fixed(1),
                    _ => cost,
                }
            }
            Kind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            Kind::List(elements) => {
                let mut cost = CostEstimate::ZERO;
                let mut items: Option<SizeEstimate> = None;
                for (element, _) in elements {
                    cost = cost + self.cost(element);
                    let size = self.size_or_unknown(element);
                    items = Some(items.map_or(size, |items| items.union(size)));
                }
                self.entries[expr.id] = Some(Entry {
                    list: true,
                    key: SizeEstimate::fixed(1),
                    value: items.unwrap_or(SizeEstimate::fixed(0)),
                });
                cost + CostEstimate::fixed(10)
            }
            Kind::Map(entries) => {
                let mut cost = CostEstimate::ZERO;
                let mut sizes: Option<(SizeEstimate, SizeEstimate)> = None;
                for (key, value, _) in entries {
                    cost = cost + self.cost(key) + self.cost(value);
                    let (k, v) = (self.size_or_unknown(key), self.size_or_unknown(value));
                    sizes = Some(sizes.map_or((k, v), |(a, b)| (a.union(k), b.union(v))));
                }
                let nothing = (SizeEstimate::fixed(0), SizeEstimate::fixed(0));
                let (key, value) = sizes.unwrap_or(nothing);
                self.entries[expr.id] = Some(Entry {
                    list: false,
                    key,
                    value,
                });
                cost + CostEstimate::fixed(30)
            }
            Kind::Struct { fields, .. } => {
                let cost = fields
                    .iter()
                    .fold(CostEstimate::ZERO, |cost, (_, value, _)| cost + self.cost(value));
                cost + CostEstimate::fixed(40)
            }
            Kind::Fold(fold) if fold.shape == FoldShape::Bind => self.bind(expr.id, fold),
            Kind::Fold(fold) => self.fold(expr.id, fold),
        }
    }

    fn bind(&mut self, id: Id, fold: &Fold) -> CostEstimate {
        let mut cost = self.cost(&fold.range) + self.cost(&fold.init);
        self.push_value(&fold.accu, &fold.init);
        cost = cost + self.cost(&fold.result);
        self.pop(&fold.accu);
        if let Some(size) = self.size(&fold.result) {
            self.sizes[id] = Some(size);
        }
        if let Some(entry) = self.entry(&fold.result) {
            self.entries[id] = Some(entry);
        }
        cost
    }

    fn push_value(&mut self, name: &str, value: &Expr) {
        let local = Local {
            path: self.path(value),
            size: self.size(value),
            entry: self.entry(value),
        };
        self.push(name, local);
    }

    fn fold(&mut self, id: Id, fold: &Fold) -> CostEstimate {
        let mut cost = self.cost(&fold.range) + self.cost(&fold.init);
        self.push_value(&fold.accu, &fold.init);
        let entry = self.entry(&fold.range);
        let list = match entry {
            Some(entry) => entry.list,
            None => matches!(self.kind(&fold.range), Type::List(_)),
        };
        let value = Local {
            path: self.element(&fold.range),
            size: entry.map(|entry| entry.value),
            entry: None,
        };
        let key = Local {
            path: if list {
                self.below(&fold.range, |_| Path::Unknown)
            } else {
                self.below(&fold.range, key)
            },
            size: entry.map(|entry| entry.key),
            entry: None,
        };
        match &fold.var2 {
            Some(var2) => {
                self.push(&fold.var, key);
                self.push(var2, value);
            }
            None => self.push(&fold.var, if list { value } else { key }),
        }
        let loop_cost = self.cost(&fold.condition);
        let step_cost = self.cost(&fold.step);
        self.pop(&fold.var);
        if let Some(var2) = &fold.var2 {
            self.pop(var2);
        }
        cost = cost + self.cost(&fold.result);
        self.pop(&fold.accu);
        let count = self.size_or_unknown(&fold.range);
        cost = cost + count.times(step_cost + loop_cost);
        match &fold.init.kind {
            Kind::Literal(_) => self.sizes[id] = self.size(&fold.init),
            Kind::List(_) | Kind::Map(_) => {
                self.sizes[id] = Some(count);
                if let Some(entry) = self.entry(&fold.step) {
                    self.entries[id] = Some(entry);
                }
            }
            _ => {}
        }
        cost
    }

    /// The path of something inside a value. What is inside a computed value counts as if it were the object
    /// itself, because that is what Kubernetes' estimate does.
    fn below(&self, expr: &Expr, inside: impl FnOnce(&'a Decl) -> Path<'a>) -> Path<'a> {
        match self.path(expr) {
            Path::None => self.root.map_or(Path::Unknown, Path::At),
            Path::At(decl) => inside(decl),
            Path::Unknown | Path::Key => Path::Unknown,
        }
    }

    fn step(&self, operand: &Expr, field: &str) -> Path<'a> {
        self.below(operand, |decl| {
            decl.field(field).map_or(Path::Unknown, |field| Path::At(&field.decl))
        })
    }

    /// The items of a list or the values of a map.
    fn element(&self, range: &Expr) -> Path<'a> {
        self.below(range, element)
    }

    /// The size of a value, if anything bounds it.
    fn size(&mut self, expr: &Expr) -> Option<SizeEstimate> {
        if let Some(size) = self.sizes[expr.id] {
            return Some(size);
        }
        let literal = match &expr.kind {
            Kind::Literal(Literal::String(text)) => Some(text.chars().count() as u64),
            Kind::Literal(Literal::Bytes(bytes)) => Some(bytes.len() as u64),
            Kind::Literal(_) => Some(1),
            Kind::List(elements) => Some(elements.len() as u64),
            Kind::Map(entries) => Some(entries.len() as u64),
            _ => None,
        };
        if let Some(size) = literal {
            return Some(SizeEstimate::fixed(size));
        }
        if let Some(size) = declared(self.path(expr)) {
            self.sizes[expr.id] = Some(size);
            return Some(size);
        }
        if self.kind(expr).is_scalar() {
            return Some(SizeEstimate::fixed(1));
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> SizeEstimate {
        self.size(expr).unwrap_or(SizeEstimate::UNKNOWN)
    }

    fn entry(&self, expr: &Expr) -> Option<Entry> {
        if let Some(entry) = self.entries[expr.id] {
            return Some(entry);
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.entry),
            _ => None,
        }
    }
}

fn declared(path: Path<'_>) -> Option<SizeEstimate> {
    match path {
        Path::At(decl) => Some(SizeEstimate {
            min: 0,
            max: decl.max_elements,
        }),
        Path::Key => Some(SizeEstimate::fixed(0)),
        Path::None | Path::Unknown => None,
    }
}

fn key(decl: &Decl) -> Path<'_> {
    match decl.shape {
        DeclShape::Map { .. } => Path::Key,
        _ => Path::Unknown,
    }
}

fn element(decl: &Decl) -> Path<'_> {
    decl.element().map_or(Path::Unknown, |decl| Path::At(decl))
}

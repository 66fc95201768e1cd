//! The prices of calls.

use super::range::{CostEstimate, SizeEstimate};
use super::{Estimator, Path, declared};
use crate::ast::{Expr, Kind, Literal};
use crate::eval::cost::{CHECK_COST, REGEX_FACTOR, TEXT_FACTOR};
use crate::signatures::Overload;
use crate::types::Type;

/// The longest named format that Kubernetes knows, and the longest of its regular expressions.
const FORMAT_SIZE: u64 = 64;
const FORMAT_REGEX_SIZE: f64 = 128.0;

/// The cost of a call without its arguments, and how large its result is.
type Priced = (CostEstimate, Option<SizeEstimate>);

/// A call whose arguments are priced already.
struct Called<'e> {
    function: &'e str,
    target: Option<&'e Expr>,
    args: &'e [Expr],
    costs: Vec<CostEstimate>,
}

impl Called<'_> {
    fn argument_costs(&self) -> CostEstimate {
        self.costs.iter().fold(CostEstimate::ZERO, |sum, cost| sum + *cost)
    }
}

impl<'a> Estimator<'a> {
    pub(super) fn call(&mut self, expr: &Expr, function: &str, target: Option<&Expr>, args: &[Expr]) -> CostEstimate {
        let qualified = self.checked.qualified[expr.id].clone();
        let function = qualified.as_deref().unwrap_or(function);
        if function == "dyn"
            && let [arg] = args
        {
            let cost = self.cost(arg);
            self.sizes[expr.id] = self.size(arg);
            self.entries[expr.id] = self.entry(arg);
            return cost + CostEstimate::fixed(1);
        }
        if function == "_?._"
            && let [operand, name] = args
        {
            // The selection itself is one step, like any call without a price of its own.
            if let Kind::Literal(Literal::String(field)) = &name.kind {
                let cost = self.cost(operand);
                self.paths[expr.id] = self.step(operand, field);
                self.sizes[expr.id] = self.size(expr);
                return cost + CostEstimate::fixed(1);
            }
        }
        let target = if qualified.is_some() { None } else { target };
        let costs = args.iter().map(|arg| self.cost(arg)).collect();
        let candidates = self.checked.candidates[expr.id].clone();
        if candidates.is_empty() {
            return CostEstimate::ZERO;
        }
        let before = target.map_or(CostEstimate::ZERO, |target| self.cost(target));
        let called = Called {
            function,
            target,
            args,
            costs,
        };
        let mut cost = CostEstimate { min: u64::MAX, max: 0 };
        let mut size: Option<SizeEstimate> = None;
        for overload in candidates {
            let (priced, result) = self.price(expr, &called, overload);
            cost = cost.union(priced);
            if let Some(result) = result {
                size = Some(size.map_or(result, |size| size.union(result)));
            }
            if function == "_[_]"
                && let Some(operand) = args.first()
                && matches!(overload.args.first(), Some(Type::List(_) | Type::Map(..)))
            {
                size = self.entry(operand).map(|entry| entry.value);
                self.paths[expr.id] = self.element(operand);
            }
            if size.is_none() {
                size = self.size(expr);
            }
        }
        if size.is_some() {
            self.sizes[expr.id] = size;
        }
        before + cost
    }

    /// One way to call, with its arguments.
    fn price(&mut self, expr: &Expr, called: &Called<'_>, overload: &Overload) -> Priced {
        if let Some((cost, size)) = self.library(called, overload) {
            return (cost + called.argument_costs(), size);
        }
        self.standard(expr, called, overload)
    }

    fn sized(&mut self, expr: &Expr) -> SizeEstimate {
        self.size_or_unknown(expr)
    }

    /// How large the items of a list are; `None` if this is no list.
    fn items(&mut self, list: &Expr) -> Option<(Type, SizeEstimate)> {
        let kind = match self.kind(list) {
            Type::List(items) => (**items).clone(),
            Type::Map(key, _) => (**key).clone(),
            _ => return None,
        };
        // A list that an expression made has no place in the object, so its items are not bounded.
        let path = match self.path(list) {
            Path::None => Path::None,
            _ => self.element(list),
        };
        Some((kind, declared(path).unwrap_or(SizeEstimate::UNKNOWN)))
    }

    /// Functions beyond the language's own.
    fn library(&mut self, called: &Called<'_>, overload: &Overload) -> Option<Priced> {
        let one = Some((CostEstimate::fixed(1), None));
        let first = called.args.first();
        match called.function {
            "check" => Some((CostEstimate::fixed(CHECK_COST), None)),
            "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name" | "allowed"
            | "reason" | "error" | "errored" => one,
            "fieldSelector" | "labelSelector" => {
                let length = self.sized(first?);
                let requirements = length.factor(0.5).factor(50.0);
                Some((
                    CostEstimate::fixed(10) + length.factor(TEXT_FACTOR) + requirements,
                    None,
                ))
            }
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let target = called.target?;
                let length = self.sized(target);
                Some(match self.items(target) {
                    Some((kind, size)) => {
                        let mut each = CostEstimate::fixed(1);
                        if matches!(kind, Type::String | Type::Bytes) {
                            each = each + size.factor(TEXT_FACTOR);
                        }
                        (length.times(each), None)
                    }
                    None => (length.factor(TEXT_FACTOR), None),
                })
            }
            "url" | "jsonpatch.escapeKey" => {
                let size = self.sized(first?);
                Some((size.factor(TEXT_FACTOR), Some(size)))
            }
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let size = self.sized(called.target?);
                Some((size.factor(TEXT_FACTOR), Some(size)))
            }
            "replace" => {
                let (target, [from, to, ..]) = (called.target?, called.args) else {
                    return None;
                };
                let size = self.sized(target);
                let result = replaced(size, self.sized(from), self.sized(to));
                Some((size.factor(2.0 * TEXT_FACTOR), Some(result)))
            }
            "split" => {
                let size = self.sized(called.target?);
                let max = match called.args.get(1).map(|limit| &limit.kind) {
                    Some(Kind::Literal(Literal::Int(limit))) => *limit as u64,
                    _ => size.max,
                };
                let cost = size.factor(2.0 * TEXT_FACTOR);
                Some((cost, Some(SizeEstimate { min: 0, max })))
            }
            "join" => {
                let target = called.target?;
                let count = self.sized(target);
                let mut size = self
                    .items(target)
                    .map_or(SizeEstimate::fixed(0), |(_, item)| count.multiply(item));
                if let Some(separator) = first {
                    let between = SizeEstimate {
                        min: count.min.saturating_sub(1),
                        max: count.max.saturating_sub(1),
                    };
                    size = size.plus(self.sized(separator).multiply(between));
                }
                Some((size.factor(TEXT_FACTOR), Some(size)))
            }
            "find" | "findAll" => {
                let size = self.sized(called.target?);
                let text = size.plus(SizeEstimate::fixed(1)).factor(TEXT_FACTOR);
                let pattern = self.sized(first?).factor(REGEX_FACTOR);
                let result = SizeEstimate { min: 0, max: size.max };
                Some((text.multiply(pattern), Some(result)))
            }
            "ip" if matches!(overload.args.first(), Some(Type::Opaque(_))) => one,
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                Some((self.sized(first?).factor(TEXT_FACTOR), None))
            }
            "ip.isCanonical" => Some((self.sized(first?).factor(2.0 * TEXT_FACTOR), None)),
            "containsIP" | "containsCIDR" => {
                let address = SizeEstimate { min: 4, max: 16 };
                let mut cost = address.plus(address).factor(TEXT_FACTOR);
                if called.function == "containsCIDR" {
                    cost = cost + address.factor(TEXT_FACTOR) + CostEstimate::fixed(1);
                }
                if matches!(overload.args.get(1), Some(Type::String)) {
                    cost = cost + self.sized(first?).factor(TEXT_FACTOR);
                }
                Some((cost, None))
            }
            "validate" => {
                let text = self.sized(first?).factor(TEXT_FACTOR);
                Some((text.factor(FORMAT_REGEX_SIZE * REGEX_FACTOR), None))
            }
            "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery" => one,
            "_==_" => match (self.kind(first?), self.kind(called.args.get(1)?)) {
                (Type::Opaque(a), Type::Opaque(b)) if a == b => Some(match *a {
                    "kubernetes.NamedFormat" => (
                        CostEstimate {
                            min: 1,
                            max: FORMAT_SIZE,
                        }
                        .factor(TEXT_FACTOR),
                        None,
                    ),
                    _ => (CostEstimate::fixed(1), None),
                }),
                _ => None,
            },
            _ => self.list_library(called),
        }
    }

    fn list_library(&mut self, called: &Called<'_>) -> Option<Priced> {
        let allocated = |factor: f64, size: SizeEstimate| {
            let cost = size.factor(factor) + CostEstimate::fixed(11);
            Some((cost, Some(size)))
        };
        let number = |arg: Option<&Expr>, otherwise: u64| match arg.map(|arg| &arg.kind) {
            Some(Kind::Literal(Literal::Int(number))) => u64::try_from(*number).unwrap_or(0),
            _ => otherwise,
        };
        match called.function {
            "slice" => {
                let size = self.sized(called.target?);
                let start = number(called.args.first(), 0);
                let end = number(called.args.get(1), size.max);
                allocated(1.0, SizeEstimate::fixed(end.wrapping_sub(start)))
            }
            "lists.range" => allocated(1.0, SizeEstimate::fixed(number(called.args.first(), u64::MAX))),
            "reverse" => allocated(1.0, self.sized(called.target?)),
            "flatten" => {
                let depth = if called.args.is_empty() {
                    1
                } else {
                    number(called.args.first(), u64::MAX)
                };
                let size = self.sized(called.target?);
                allocated(depth as f64, size)
            }
            "distinct" => {
                let size = self.sized(called.target?);
                allocated(2.0, size.multiply(size))
            }
            "sort" | "@sortByAssociatedKeys" => {
                let keys = called.args.first().or(called.target)?;
                let texts =
                    matches!(self.kind(keys), Type::List(items) if matches!(**items, Type::String | Type::Bytes));
                let factor = if texts { 2.0 + TEXT_FACTOR } else { 2.0 };
                let size = self.sized(keys);
                allocated(factor, size.multiply(size))
            }
            "sets.contains" | "sets.intersects" | "sets.equivalent" => {
                let [a, b] = called.args else {
                    return None;
                };
                let factor = if called.function == "sets.equivalent" { 2.0 } else { 1.0 };
                let pairs = self.sized(a).multiply(self.sized(b));
                Some((pairs.factor(factor) + CostEstimate::fixed(1), None))
            }
            _ => None,
        }
    }

    /// The language's own functions.
    fn standard(&mut self, expr: &Expr, called: &Called<'_>, overload: &Overload) -> Priced {
        let arguments = called.argument_costs();
        let (args, costs) = (called.args, &called.costs);
        let kinds = overload.args.as_slice();
        match (called.function, args, called.target) {
            ("format", _, Some(target)) => (self.sized(target).factor(TEXT_FACTOR) + arguments, None),
            ("bytes", [arg], _) if matches!(kinds, [Type::String]) => {
                let size = self.sized(arg);
                let result = SizeEstimate {
                    min: size.min,
                    max: size.max.saturating_mul(4),
                };
                (size.factor(TEXT_FACTOR) + arguments, Some(result))
            }
            ("string", [arg], _) if matches!(kinds, [Type::Bytes]) => {
                let size = self.sized(arg);
                let result = SizeEstimate {
                    min: size.min / 4,
                    max: size.max,
                };
                (size.factor(TEXT_FACTOR) + arguments, Some(result))
            }
            ("strings.quote", [arg], _) => {
                let size = self.sized(arg);
                let result = SizeEstimate {
                    min: size.min.saturating_add(2),
                    max: size.max.saturating_mul(2).saturating_add(2),
                };
                (size.factor(TEXT_FACTOR) + arguments, Some(result))
            }
            ("startsWith" | "endsWith", [arg], _) => (self.sized(arg).factor(TEXT_FACTOR) + arguments, None),
            ("@in", [_, range], _) if matches!(kinds.get(1), Some(Type::List(_))) => {
                (self.sized(range).factor(1.0) + arguments, None)
            }
            ("matches", [pattern], Some(target)) => {
                let text = self.sized(target).plus(SizeEstimate::fixed(1)).factor(TEXT_FACTOR);
                let pattern = self.sized(pattern).factor(REGEX_FACTOR);
                (text.multiply(pattern) + arguments, None)
            }
            ("contains", [part], Some(target)) => {
                let text = self.sized(target).factor(TEXT_FACTOR);
                let part = self.sized(part).factor(TEXT_FACTOR);
                (text.multiply(part) + arguments, None)
            }
            ("_&&_" | "_||_", [_, _], _) => {
                // The right side may never be looked at.
                let cost = CostEstimate {
                    min: costs[0].min,
                    max: (costs[0] + costs[1]).max,
                };
                (cost, None)
            }
            ("_?_:_", [_, yes, no], _) => {
                let size = self.sized(yes).union(self.sized(no));
                if let (Some(a), Some(b)) = (self.entry(yes), self.entry(no)) {
                    self.entries[expr.id] = Some(a.union(b));
                }
                (costs[0] + costs[1].union(costs[2]), Some(size))
            }
            ("_+_", [a, b], _) if matches!(kinds, [Type::String | Type::Bytes | Type::List(_), _]) => {
                let size = self.sized(a).plus(self.sized(b));
                if let (Some(a), Some(b)) = (self.entry(a), self.entry(b)) {
                    self.entries[expr.id] = Some(a.union(b));
                }
                let cost = match kinds {
                    [Type::List(_), _] => CostEstimate::fixed(1),
                    _ => size.factor(TEXT_FACTOR),
                };
                (cost + arguments, Some(size))
            }
            ("_==_" | "_!=_", [a, b], _) => (self.compared(a, b) + arguments, None),
            ("_<_" | "_<=_" | "_>_" | "_>=_", [a, b], _) if matches!(kinds, [Type::String | Type::Bytes, _]) => {
                (self.compared(a, b) + arguments, None)
            }
            _ => (CostEstimate::fixed(1) + arguments, None),
        }
    }

    /// Two values are compared up to the end of the shorter one.
    fn compared(&mut self, a: &Expr, b: &Expr) -> CostEstimate {
        let max = self.sized(a).max.min(self.sized(b).max);
        let cost = CostEstimate {
            min: u64::from(max > 0),
            max,
        };
        cost.factor(TEXT_FACTOR)
    }
}

/// How long a text can be after a replacement.
fn replaced(size: SizeEstimate, from: SizeEstimate, to: SizeEstimate) -> SizeEstimate {
    let (max_count, max_kept) = if from.min == 0 {
        (size.max.saturating_add(1), size.max)
    } else if to.max <= from.min {
        (0, size.max)
    } else {
        ((size.max as f64 / from.min as f64).ceil() as u64, 0)
    };
    let (min_count, min_kept) = if from.max == 0 {
        (size.min.saturating_add(1), size.min)
    } else if from.max <= to.min {
        (0, size.min)
    } else {
        ((size.min as f64 / from.max as f64).ceil() as u64, 0)
    };
    let count = SizeEstimate {
        min: min_count,
        max: max_count,
    };
    count.multiply(to).plus(SizeEstimate {
        min: min_kept,
        max: max_kept,
    })
}

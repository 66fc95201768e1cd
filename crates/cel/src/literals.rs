//! Constant arguments and literals that are wrong before anything is evaluated, in an expression whose types are
//! otherwise right.

use crate::ast::{Expr, Kind, Literal, Presence};
use crate::functions::printf;
use crate::issue::Issue;
use crate::types::Type;
use crate::{regexes, times};

/// Reports durations, times, regular expressions and formats that no evaluation could read, and literals that
/// mix types.
pub fn validate(expr: &Expr, types: &[Type]) -> Vec<Issue> {
    let mut walk = Walk {
        types,
        formats: 0,
        issues: Vec::new(),
    };
    walk.visit(expr);
    walk.issues
}

struct Walk<'a> {
    types: &'a [Type],
    /// How many calls of `format` are around: their arguments may be of any types.
    formats: usize,
    issues: Vec<Issue>,
}

impl Walk<'_> {
    fn visit(&mut self, expr: &Expr) {
        match &expr.kind {
            Kind::Literal(_) | Kind::Ident(_) => {}
            Kind::Select { operand, .. } => self.visit(operand),
            Kind::Call { function, target, args } => {
                self.constants(expr.at, function, target.as_deref(), args);
                let inside = usize::from(function == "format");
                self.formats += inside;
                for inner in args.iter().chain(target.as_deref()) {
                    self.visit(inner);
                }
                self.formats -= inside;
            }
            Kind::List(elements) => {
                let mixed: Vec<(&Expr, Presence)> = elements.iter().map(|(element, p)| (element, *p)).collect();
                self.one_type(&mixed);
                elements.iter().for_each(|(element, _)| self.visit(element));
            }
            Kind::Map(entries) => {
                let keys: Vec<(&Expr, Presence)> = entries.iter().map(|(key, ..)| (key, Presence::Always)).collect();
                self.one_type(&keys);
                let values: Vec<(&Expr, Presence)> = entries.iter().map(|(_, value, p)| (value, *p)).collect();
                self.one_type(&values);
                for (key, value, _) in entries {
                    self.visit(key);
                    self.visit(value);
                }
            }
            Kind::Struct { fields, .. } => fields.iter().for_each(|(_, value, _)| self.visit(value)),
            Kind::Fold(fold) => {
                for inner in [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result] {
                    self.visit(inner);
                }
            }
        }
    }

    /// All elements of a literal have the type of the first one.
    fn one_type(&mut self, elements: &[(&Expr, Presence)]) {
        if self.formats > 0 {
            return;
        }
        let kind = |(element, presence): &(&Expr, Presence)| match (&self.types[element.id], presence) {
            (Type::Optional(inner), Presence::Optional) => (**inner).clone(),
            (kind, _) => kind.clone(),
        };
        let Some(first) = elements.first().map(kind) else {
            return;
        };
        let other = elements
            .iter()
            .map(|element| (element.0.at, kind(element)))
            .find(|(_, kind)| !kind.is_exactly(&first));
        if let Some((at, found)) = other {
            let message = format!("expected type '{first}' but found '{found}'");
            self.issues.push(Issue::new(at, message));
        }
    }

    fn constants(&mut self, at: usize, function: &str, target: Option<&Expr>, args: &[Expr]) {
        let place = match function {
            "duration" | "timestamp" => 0,
            "matches" if target.is_some() => 0,
            "matches" => 1,
            "format" => return self.format(at, target, args),
            _ => return,
        };
        let Some((at, text)) = args.get(place).and_then(literal) else {
            return;
        };
        let valid = match function {
            "duration" => times::parse_duration(text).is_some(),
            "timestamp" => times::parse_timestamp(text).is_some(),
            _ => regexes::compile(text).is_ok(),
        };
        if !valid {
            self.issues.push(Issue::new(at, format!("invalid {function} argument")));
        }
    }

    fn format(&mut self, at: usize, target: Option<&Expr>, args: &[Expr]) {
        let (Some((_, template)), [list]) = (target.and_then(literal), args) else {
            return;
        };
        let Kind::List(elements) = &list.kind else {
            return;
        };
        let clauses = match printf::clauses(template) {
            Ok(clauses) => clauses,
            Err(error) => return self.issues.push(Issue::new(at, error.to_string())),
        };
        for (place, verb) in clauses.iter().enumerate() {
            let Some((element, _)) = elements.get(place) else {
                let message = format!("index {place} out of range");
                return self.issues.push(Issue::new(at, message));
            };
            let kind = &self.types[element.id];
            if !printf::accepts(*verb, kind) {
                let message = printf::refusal(*verb, &kind.to_string());
                return self.issues.push(Issue::new(element.at, message));
            }
        }
    }
}

fn literal(expr: &Expr) -> Option<(usize, &str)> {
    match &expr.kind {
        Kind::Literal(Literal::String(text)) => Some((expr.at, text)),
        _ => None,
    }
}

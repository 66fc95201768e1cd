//! Constant arguments that can be wrong before anything is evaluated.

use crate::ast::{Expr, Kind, Literal};
use crate::issue::Issue;
use crate::{regexes, times};

/// Reports durations, times and regular expressions that no evaluation could read.
pub fn validate(expr: &Expr, issues: &mut Vec<Issue>) {
    // These are looked at only in expressions that are otherwise right.
    if issues.is_empty() {
        walk(expr, issues);
    }
}

fn walk(expr: &Expr, issues: &mut Vec<Issue>) {
    match &expr.kind {
        Kind::Literal(_) | Kind::Ident(_) => {}
        Kind::Select { operand, .. } => walk(operand, issues),
        Kind::Call { function, target, args } => {
            call(function, target.as_deref(), args, issues);
            for inner in args.iter().chain(target.as_deref()) {
                walk(inner, issues);
            }
        }
        Kind::List(elements) => elements.iter().for_each(|(element, _)| walk(element, issues)),
        Kind::Map(entries) => entries.iter().for_each(|(key, value, _)| {
            walk(key, issues);
            walk(value, issues);
        }),
        Kind::Struct { fields, .. } => fields.iter().for_each(|(_, value, _)| walk(value, issues)),
        Kind::Fold(fold) => {
            for inner in [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result] {
                walk(inner, issues);
            }
        }
    }
}

fn call(function: &str, target: Option<&Expr>, args: &[Expr], issues: &mut Vec<Issue>) {
    let place = match function {
        "duration" | "timestamp" => 0,
        "matches" if target.is_some() => 0,
        "matches" => 1,
        _ => return,
    };
    let Some(Expr {
        at,
        kind: Kind::Literal(Literal::String(text)),
        ..
    }) = args.get(place)
    else {
        return;
    };
    let valid = match function {
        "duration" => times::parse_duration(text).is_some(),
        "timestamp" => times::parse_timestamp(text).is_some(),
        _ => regexes::compile(text).is_ok(),
    };
    if !valid {
        issues.push(Issue::new(*at, format!("invalid {function} argument")));
    }
}

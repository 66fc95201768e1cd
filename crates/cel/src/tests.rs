//! Table tests of expressions and rules.

mod language;
mod nonsense;
mod rules;

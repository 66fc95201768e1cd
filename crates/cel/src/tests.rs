//! Table tests of expressions.

mod language;

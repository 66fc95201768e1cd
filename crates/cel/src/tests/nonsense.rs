//! No input panics, and every evaluation ends.

use crate::{Budget, Env, Type, Value, compile};
use proptest::prelude::*;
use serde_json::json;

/// Pieces that make many well-formed and many broken expressions.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "self",
            "x",
            "1",
            "0u",
            "1.5",
            "'a'",
            "b'a'",
            "true",
            "null",
            "[",
            "]",
            "{",
            "}",
            "(",
            ")",
            ".",
            ",",
            ":",
            "?",
            "==",
            "!=",
            "<",
            "&&",
            "||",
            "!",
            "-",
            "+",
            "*",
            "/",
            "%",
            "in",
            ".all(x, ",
            ".map(x, ",
            ".size()",
            "has(",
            ".?",
            "[?",
            "lists.range(",
            "duration(",
            "timestamp(",
            ".matches(",
            ".format([",
            "quantity(",
            ".transformMap(k, v, ",
            "optional.of(",
            ".optMap(x, ",
            ".sortBy(x, ",
            "type(",
            "int(",
            "string(",
            " ",
            "cidr(",
            ".split(",
            ".flatten(",
            "self.l",
            "self.m",
            "self.s",
            "self.o.p",
        ])
        .prop_map(str::to_string),
        "[ -~]{0,3}",
        "\\PC{0,2}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn nothing_panics_and_everything_ends(pieces in prop::collection::vec(piece(), 0..14)) {
        let source = pieces.concat();
        let env = Env::new().variable("self", Type::Dyn);
        if let Ok(program) = compile(&source, &env) {
            let object = json!({"l": [1, 2, "a", null, 1.5], "m": {"a": 1}, "s": "hello", "o": {"p": [[]]}});
            let mut budget = Budget::new(10_000);
            let _ = program.evaluate(&[Value::dynamic(&object)], &mut budget);
            let _ = program.cost_estimate(None);
        }
    }
}

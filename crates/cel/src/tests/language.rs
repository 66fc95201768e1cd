//! The language itself.

use crate::{Budget, Env, Value, compile, shown};

fn check(source: &str, expect: &str) {
    let env = Env::new();
    let found = match compile(source, &env) {
        Err(issues) => shown(&issues, source),
        Ok(program) => match program.evaluate(&[], &mut Budget::per_call()) {
            Ok(value) => show(&value),
            Err(error) => format!("error: {error}"),
        },
    };
    assert_eq!(found, expect, "{source}");
}

fn show(value: &Value<'_>) -> String {
    match value {
        Value::Optional(None) => "none".to_string(),
        Value::Optional(Some(inner)) => format!("some({})", show(inner)),
        Value::Type(name) => name.to_string(),
        Value::Uint(number) => format!("{number}u"),
        other => crate::value::to_json(other).map_or_else(|| format!("{other:?}"), |json| json.to_string()),
    }
}

#[test]
fn arithmetic_overflows_are_errors() {
    check("1 + 2 * 3", "7");
    check("9223372036854775807 + 1", "error: integer overflow");
    check("-9223372036854775808", "-9223372036854775808");
    check("1 / 0", "error: division by zero");
    check("1 % 0", "error: modulus by zero");
    check("7 / 2", "3");
    check("-7 / 2", "-3");
    check("1.0 / 0.0 > 1.0", "true");
    check("0u - 1u", "error: unsigned integer overflow");
}

#[test]
fn numbers_compare_across_types() {
    check("1 == dyn(1.0)", "true");
    check("1 < 1.5", "true");
    check("2u > 1", "true");
    check("dyn(1u) == dyn(1)", "true");
    check("9007199254740993 > 9007199254740992.0", "true");
    check("1 in [1, 2]", "true");
    check("dyn(1.0) in [1, 2]", "true");
    check(
        "1 == 'a'",
        "ERROR: <input>:1:3: found no matching overload for '_==_' applied to '(int, string)'\n | 1 == 'a'\n | ..^",
    );
}

#[test]
fn logical_operators_absorb_errors() {
    check("true || 1 / 0 > 0", "true");
    check("1 / 0 > 0 || true", "true");
    check("1 / 0 > 0 && false", "false");
    check("1 / 0 > 0 && true", "error: division by zero");
    check("[1, 2].exists(x, x / (x - 1) > 1)", "true");
    check("[1, 2].all(x, x / (x - 1) > 100)", "false");
    check("[1].all(x, x / 0 > 1)", "error: division by zero");
    check(
        "1 && true",
        "ERROR: <input>:1:1: expected type 'bool' but found 'int'\n | 1 && true\n | ^",
    );
}

#[test]
fn names_must_be_declared() {
    check(
        "x + 1",
        "ERROR: <input>:1:1: undeclared reference to 'x' (in container '')\n | x + 1\n | ^",
    );
    check(
        "true && nope()",
        "ERROR: <input>:1:13: undeclared reference to 'nope' (in container '')\n | true && nope()\n | ............^",
    );
    check(
        "'a'.nope()",
        "ERROR: <input>:1:9: undeclared reference to 'nope' (in container '')\n | 'a'.nope()\n | ........^",
    );
    check("if", "ERROR: <input>:1:1: reserved identifier: if\n | if\n | ^");
    check(
        "1 +",
        "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', \
         'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | 1 +\n | ...^",
    );
}

#[test]
fn literals_of_every_kind() {
    check("'a\\tb'", "\"a\\tb\"");
    check("r'a\\tb'", "\"a\\\\tb\"");
    check("'''a\n'b'''", "\"a\\n'b\"");
    check("\"\\u00e4\\x41\\101\"", "\"\u{e4}AA\"");
    check("b'abc'", "\"YWJj\"");
    check("0xff", "255");
    check("1e3", "1000.0");
    check("[1, 2,]", "[1,2]");
    check("{'a': 1, 'b': 2}", "{\"a\":1,\"b\":2}");
    check("{'a': 1}.a", "1");
    check("{'a': 1}['b']", "error: no such key: b");
    check("[1][1]", "error: index out of bounds: 1");
    check("size('\u{e4}\u{f6}')", "2");
    check("type(1) == int", "true");
    check("type(type(1)) == type", "true");
    check("type([]) == list && type({}) == map && type(null) == null_type", "true");
    check("null == null", "true");
    check(
        "[1, 'a']",
        "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a']\n | ....^",
    );
}

#[test]
fn macros_loop() {
    check("[1, 2, 3].map(x, x * 2)", "[2,4,6]");
    check("[1, 2, 3].map(x, x > 1, x * 2)", "[4,6]");
    check("[1, 2, 3].filter(x, x > 1)", "[2,3]");
    check("[1, 2, 3].exists_one(x, x == 2)", "true");
    check("[1, 2, 2].existsOne(x, x == 2)", "false");
    check("{'a': 1}.all(k, k == 'a')", "true");
    check("{'a': 1, 'b': 2}.map(k, k)", "[\"a\",\"b\"]");
    check("[[1, 2], [3]].map(l, l.map(x, x + 1))", "[[2,3],[4]]");
    check("[1, 2].map(x, [3].map(y, x + y))", "[[4],[5]]");
    check("[5, 6].all(i, v, i + 5 == v)", "true");
    check("{'a': 1}.exists(k, v, k == 'a' && v == 1)", "true");
    check("[5, 6].transformList(i, v, i * v)", "[0,6]");
    check("[5, 6].transformList(i, v, i > 0, v)", "[6]");
    check("{'a': 1, 'b': 2}.transformMap(k, v, v + 1)", "{\"a\":2,\"b\":3}");
    check("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v + 1)", "{\"b\":3}");
    check("{'a': 'x'}.transformMapEntry(k, v, {v: k})", "{\"x\":\"a\"}");
    check(
        "{'a': 'x', 'b': 'x'}.transformMapEntry(k, v, {v: k})",
        "error: insert failed: key x already exists",
    );
    check("[3, 1, 2].sortBy(x, -x)", "[3,2,1]");
    check("has({'a': 1}.a) && !has({'a': 1}.b)", "true");
    check(
        "has(1)",
        "ERROR: <input>:1:5: invalid argument to has() macro\n | has(1)\n | ....^",
    );
    check(
        "[1].all(x.y, true)",
        "ERROR: <input>:1:10: argument must be a simple name\n | [1].all(x.y, true)\n | .........^",
    );
    check(
        "1.all(x, true)",
        "ERROR: <input>:1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or \
         dynamic)\n | 1.all(x, true)\n | ^",
    );
}

#[test]
fn optionals() {
    check("{'a': 1}.?a", "some(1)");
    check("{'a': 1}.?b", "none");
    check("{'a': {'b': 1}}.?a.?b.orValue(0)", "1");
    check("{'a': {'b': 1}}.?x.b.orValue(0)", "0");
    check("{'a': 1}[?'a'].value()", "1");
    check("[1][?5].hasValue()", "false");
    check("optional.none().value()", "error: optional.none() dereference");
    check("optional.of(1).optMap(x, x + 1)", "some(2)");
    check("optional.ofNonZeroValue('').optMap(x, x + 'a')", "none");
    check("{'a': {'b': 2}}.?a.optFlatMap(x, x.?b)", "some(2)");
    check("optional.none().or(optional.of(2)).value()", "2");
    check("[?{'a': 1}.?a, ?{'a': 1}.?b]", "[1]");
    check("{?'x': optional.none(), 'y': 1}", "{\"y\":1}");
    check("[1, 2].first()", "some(1)");
    check("[optional.of(1), optional.none()].unwrapOpt()", "[1]");
    check("has({'a': {'b': 1}}.?a.b)", "true");
}

#[test]
fn strings() {
    check("'hello'.charAt(1) + 'x'.upperAscii()", "\"eX\"");
    check("'hello'.indexOf('l') + 'hello'.lastIndexOf('l')", "5");
    check("'hello'.substring(1, 3)", "\"el\"");
    check(
        "'hello'.substring(3, 1)",
        "error: invalid substring range. start: 3, end: 1",
    );
    check("'a,b,c'.split(',', 2)", "[\"a\",\"b,c\"]");
    check("'abc'.split('')", "[\"a\",\"b\",\"c\"]");
    check("['a', 'b'].join('-')", "\"a-b\"");
    check("'banana'.replace('a', 'o', 2)", "\"bonona\"");
    check("'  x '.trim()", "\"x\"");
    check(
        "'%s is %d and %.2f %x %b %e'.format(['a', dyn(3), 1.5, 255, 5, 1234.5])",
        "\"a is 3 and 1.50 ff 101 1.234500e+03\"",
    );
    check("'%s'.format([[1, 2]])", "\"[1, 2]\"");
    check("strings.quote('a\"b')", "\"\\\"a\\\\\\\"b\\\"\"");
    check("'abc 123'.find('[0-9]+')", "\"123\"");
    check("'a1b2'.findAll('[0-9]', 1)", "[\"1\"]");
    check("'abc'.matches('^a.c$')", "true");
    check(
        "'abc'.matches('(')",
        "ERROR: <input>:1:15: invalid matches argument\n | 'abc'.matches('(')\n | ..............^",
    );
    check(
        "'abc'.reverse()",
        "ERROR: <input>:1:14: found no matching overload for 'reverse' applied to 'string.()'\n | 'abc'.reverse()\n | .............^",
    );
}

#[test]
fn conversions() {
    check("string(1) + string(1u) + string(true) + string(1.5)", "\"11true1.5\"");
    check("int('12') + int(3.9) + int(4u)", "19");
    check("int('x')", "error: type conversion error from 'string' to 'int'");
    check("double('1.5') + double(2)", "3.5");
    check("bytes('ab') + b'c'", "\"YWJj\"");
    check("bool('true')", "true");
    check("uint(-1)", "error: unsigned integer overflow");
    check("duration('1h30m').getMinutes()", "90");
    check("string(duration('90s'))", "\"90s\"");
    check("timestamp('2026-02-03T04:05:06Z').getDayOfMonth()", "2");
    check("timestamp('2026-02-03T04:05:06Z').getHours('-02:00')", "2");
    check(
        "timestamp('2026-02-03T04:05:06Z') + duration('1h') > timestamp('2026-02-03T04:05:06Z')",
        "true",
    );
    check(
        "duration('x')",
        "ERROR: <input>:1:10: invalid duration argument\n | duration('x')\n | .........^",
    );
}

#[test]
fn lists_and_sets() {
    check("[1, 3, 2].isSorted()", "false");
    check("[1, 3, 2].sum() + [1, 3].max() + [1, 3].min()", "10");
    check("[].min()", "error: min called on empty list");
    check("[1, 2, 1].indexOf(1) + [1, 2, 1].lastIndexOf(1)", "2");
    check("[[1], [2, 3]].flatten()", "[1,2,3]");
    check("[1, 2, 3, 4].slice(1, 3)", "[2,3]");
    check("lists.range(3).reverse()", "[2,1,0]");
    check("[3, 1, 3].distinct().sort()", "[1,3]");
    check(
        "sets.contains([1, 2], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1], [1])",
        "true",
    );
    check("[1] + [2]", "[1,2]");
}

#[test]
fn kubernetes_libraries() {
    check("quantity('1.5Gi').isGreaterThan(quantity('1Gi'))", "true");
    check("quantity('1Ki').add(24).asInteger()", "1048");
    check("sign(quantity('-1'))", "-1");
    check("isQuantity('x')", "false");
    check(
        "url('https://user@example.com:8080/a b?x=1&x=2').getHost()",
        "\"example.com:8080\"",
    );
    check("url('https://[::1]:80/p').getHostname()", "\"::1\"");
    check("url('https://example.com/p?x=1&x=2').getQuery()['x']", "[\"1\",\"2\"]");
    check("isURL('no url')", "false");
    check("ip('192.168.0.1').family()", "4");
    check("isIP('::ffff:1.2.3.4')", "false");
    check("ip.isCanonical('2001:db8::abcd')", "true");
    check("cidr('192.168.0.0/16').containsIP('192.168.3.4')", "true");
    check("cidr('192.168.0.0/16').containsCIDR(cidr('192.168.1.0/24'))", "true");
    check("string(cidr('192.168.1.5/16').masked())", "\"192.168.0.0/16\"");
    check("semver('1.2.3').isLessThan(semver('1.2.4-rc.1'))", "true");
    check("semver('v1.2', true).minor()", "2");
    check("isSemver('1.2')", "false");
    check("format.dns1123Label().validate('ok')", "none");
    check("format.dns1123Label().validate('Not Ok').hasValue()", "true");
    check("format.named('nope')", "none");
}

#[test]
fn the_budget_stops_loops_that_look_endless() {
    let loops = "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))";
    check(loops, "error: operation cancelled: actual cost limit exceeded");
    check(
        "lists.range(1000000000000).size()",
        "error: operation cancelled: actual cost limit exceeded",
    );
}

#[test]
fn deep_nesting_is_refused_and_never_overflows_the_stack() {
    let deep = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
    assert!(compile(&deep, &Env::new()).is_err());
    let long = vec!["1"; 5000].join(" + ");
    assert!(compile(&long, &Env::new()).is_err());
    let logical = vec!["true"; 5000].join(" && ");
    check(&logical, "true");
    let nested = format!("{}1{}", "[".repeat(95), "]".repeat(95));
    assert!(compile(&nested, &Env::new()).is_ok());
    let mut maps = "x".to_string();
    for _ in 0..80 {
        maps = format!("[1].map(x, {maps})");
    }
    let _ = compile(&maps, &Env::new()).map(|program| program.evaluate(&[], &mut Budget::per_call()).is_ok());
    let ternaries = format!("{}1", "true ? 2 : ".repeat(240));
    check(&ternaries, "2");
}

//! Validation rules for random schemas: some hold, some do not, some do not even compile.

use super::Story;
use rand::Rng;
use serde_json::{Value, json};

const ANY: &[&str] = &["self == self", "oldSelf == self", "true", "has(self)", "self != null"];

const STRING: &[&str] = &[
    "self.size() < 5",
    "self.startsWith('a')",
    "self == oldSelf",
    "self.matches('^[a-z]+$')",
    "!self.contains(' ')",
    "self in ['a', 'abc']",
    "self.lowerAscii() == self",
    "self.split('-').size() <= 2",
    "isURL(self)",
    "isQuantity(self)",
    "quantity(self).isGreaterThan(quantity('1'))",
    "duration(self) > duration('1m')",
    "isIP(self)",
    "isCIDR(self)",
    "self.find('[0-9]+') != ''",
    "int(self) > 3",
    "self.reverse() == self",
    "self.upperAscii() != 'ABC'",
    "self > 'b'",
    "timestamp(self) > timestamp('2024-01-01T00:00:00Z')",
    "self.charAt(0) == 'a'",
    "self.replace('a', 'b').size() == size(self)",
    "self + 1 == 'x'",
    "self.unknown()",
    "format.dns1123Label().validate(self).hasValue() == false",
    "self.substring(1) == 'bc'",
    "self.trim() == self",
    "isSemver(self)",
    "self.indexOf('b') == 1",
    "[self].join(',') == self",
    "self.findAll('[a-z]').size() > 0",
];

const INTEGER: &[&str] = &[
    "self > 1",
    "self >= oldSelf",
    "self % 2 == 0",
    "self == oldSelf",
    "10 / self > 1",
    "self in [1, 2, 10]",
    "self < 1.5",
    "string(self) == '10'",
    "self - 5 > 0 ? self < 100 : true",
    "double(self) > 0.5",
    "self > 'x'",
    "self * 9223372036854775807 > 0",
    "dyn(self) == 2.0",
    "type(self) == int",
    "-self < 0",
    "uint(self) > 1u",
    "[1, 2, 3].exists(x, x == self)",
];

const NUMBER: &[&str] = &[
    "self > 0.5",
    "self >= oldSelf",
    "self < 10.0",
    "self == 2.25",
    "self > 1",
    "int(self) == 2",
    "type(self) == double",
];

const BOOLEAN: &[&str] = &[
    "self",
    "!self",
    "self || !oldSelf",
    "self == true",
    "self ? true : false",
];

const LIST: &[&str] = &[
    "self.size() > 0",
    "self.all(x, x == x)",
    "size(self) <= 3",
    "self == oldSelf",
    "self.exists(x, true)",
    "self.exists_one(x, true)",
    "self.map(x, x).size() == self.size()",
    "self.filter(x, true).size() > 1",
    "self.all(x, x in oldSelf)",
    "oldSelf.all(x, self.exists(y, y == x))",
    "self[0] == self[0]",
    "self.isSorted()",
    "self.sum() > 3",
    "self.min() <= self.max()",
    "self.indexOf(self[0]) == 0",
    "self.all(i, x, i >= 0)",
    "self.unknown",
    "sets.contains(self, self)",
    "self.slice(0, 1).size() == 1",
    "self.distinct().size() == self.size()",
];

const OBJECT: &[&str] = &[
    "has(self.p)",
    "!has(self.q) || has(self.p)",
    "self.p == oldSelf.p",
    "has(self.p) == has(oldSelf.p)",
    "self == oldSelf",
    "self.p > 3",
    "self.q.size() > 1",
    "has(self.unknown)",
    "self.?p.hasValue()",
    "self.?p.orValue(1) == 1",
    "size(self.p) < 3",
    "self.p == self.q",
    "has(self.p) ? self.p == self.p : true",
    "!has(oldSelf.p) || has(self.p)",
];

const MAP: &[&str] = &[
    "self.size() < 2",
    "self.all(k, k.startsWith('k'))",
    "self.exists(k, k == 'k1')",
    "'k1' in self",
    "self.all(k, self[k] == self[k])",
    "self == oldSelf",
    "self.all(k, v, k != 'k3')",
    "self.transformList(k, v, k).size() > 0",
    "has(self.k1)",
    "self['k1'] == self['k1']",
    "self.filter(k, k == 'k1').size() == 1",
    // Nothing about the order of keys: kube-apiserver leaves it to chance.
    "self.map(k, k).size() == self.size()",
];

const ROOT: &[&str] = &[
    "self.metadata.name.size() < 10",
    "self.metadata.name != 'b'",
    "self.kind != ''",
    "has(self.spec)",
    "self.apiVersion.contains('/')",
    "self.metadata.generateName == ''",
    "self.metadata.labels.size() == 0",
    "has(self.status) || true",
];

/// Gives a schema a rule for its type.
pub fn attach(story: &mut Story, schema: &mut Value) {
    let pool = match schema["type"].as_str() {
        Some("string") => STRING,
        Some("integer") => INTEGER,
        Some("number") => NUMBER,
        Some("boolean") => BOOLEAN,
        Some("array") => LIST,
        Some("object") if schema["additionalProperties"].is_object() => MAP,
        Some("object") => OBJECT,
        _ => ANY,
    };
    let count = if story.one_in(4) { 2 } else { 1 };
    let rules: Vec<Value> = (0..count)
        .map(|_| {
            let rule = match story.one_in(20) {
                true => story.word(ANY),
                false => story.word(pool),
            };
            decorated(story, &rule)
        })
        .collect();
    schema["x-kubernetes-validations"] = rules.into();
}

/// Rules about the whole object.
pub fn attach_to_root(story: &mut Story, schema: &mut Value) {
    let rule = story.word(ROOT);
    schema["x-kubernetes-validations"] = json!([decorated(story, &rule)]);
}

fn decorated(story: &mut Story, rule: &str) -> Value {
    let mut decorated = json!({"rule": rule});
    match story.rng.random_range(0..14) {
        0 | 1 => decorated["message"] = "must be as we say".into(),
        2 => decorated["messageExpression"] = "'got ' + string(type(self) == int)".into(),
        3 => decorated["messageExpression"] = "'is ' + string(self)".into(),
        4 => {
            decorated["reason"] = story
                .word(&[
                    "FieldValueInvalid",
                    "FieldValueForbidden",
                    "FieldValueRequired",
                    "FieldValueDuplicate",
                    "Other",
                ])
                .into()
        }
        5 => decorated["fieldPath"] = story.word(&[".p", ".q", ".unknown", "p", ""]).into(),
        6 => decorated["optionalOldSelf"] = true.into(),
        7 => {
            decorated["optionalOldSelf"] = true.into();
            decorated["rule"] = story
                .word(&[
                    "!oldSelf.hasValue() || oldSelf.value() == self",
                    "oldSelf.hasValue()",
                    "oldSelf.orValue(self) == self",
                ])
                .into();
        }
        _ => {}
    }
    decorated
}

//! Rules of schemas, with the verdicts that kube-apiserver 1.36.4 gave on the same definitions and objects.

use crate::rules::{self, CompiledRules};
use serde_json::{Value as Json, json};
use stead_machinery::field::FieldError;
use stead_machinery::schema::Schemas;

const AT: &str = "spec.validation.openAPIV3Schema";

fn compiled(json: &Json) -> Result<CompiledRules, Vec<FieldError>> {
    let mut schemas = Schemas::default();
    let root = schemas.read(json);
    rules::compile(schemas.at(root), AT)
}

fn lines(errors: &[FieldError]) -> Vec<String> {
    let mut lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.sort();
    lines
}

/// What Kubernetes said, sorted.
fn recorded(verdict: &Json, key: &str) -> Option<Vec<String>> {
    let mut lines: Vec<String> = verdict
        .get(key)?
        .as_array()?
        .iter()
        .filter_map(Json::as_str)
        .map(String::from)
        .collect();
    lines.sort();
    Some(lines)
}

/// Type names are made up anew for every definition; only their beginning is comparable.
fn anonymous(lines: Vec<String>) -> Vec<String> {
    let names = regex::Regex::new(r"selfType[a-zA-Z.@]*").unwrap();
    lines
        .into_iter()
        .map(|line| names.replace_all(&line, "selfType").into_owned())
        .collect()
}

#[test]
fn every_recorded_verdict_of_kubernetes_is_ours() {
    let cases: Vec<Json> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    assert!(cases.len() > 300, "only {} cases", cases.len());
    for case in &cases {
        let name = case["name"].as_str().unwrap_or_default();
        let verdict = &case["verdict"];
        match compiled(&case["schema"]) {
            Err(errors) => {
                let expect = recorded(verdict, "compile").map(anonymous);
                assert_eq!(Some(anonymous(lines(&errors))), expect, "{name}");
            }
            Ok(rules) => {
                let found = rules.validate(&case["new"], case.get("old"));
                assert_eq!(Some(lines(&found.errors)), recorded(verdict, "errors"), "{name}");
            }
        }
    }
}

fn unchanged_rule() -> Json {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5"}]},
        "b": {"type": "integer"},
    }}}})
}

#[test]
fn what_a_write_leaves_as_it_was_is_a_warning() {
    let rules = compiled(&unchanged_rule()).unwrap();
    let old = json!({"spec": {"a": 1, "b": 1}});
    let verdict = rules.validate(&json!({"spec": {"a": 1, "b": 2}}), Some(&old));
    assert_eq!(verdict.errors, []);
    assert_eq!(verdict.warnings, ["spec.a: Invalid value: 1: failed rule: self > 5"]);
    let verdict = rules.validate(&json!({"spec": {"a": 2, "b": 1}}), Some(&old));
    assert_eq!(
        lines(&verdict.errors),
        ["spec.a: Invalid value: 2: failed rule: self > 5"]
    );
}

#[test]
fn a_schema_without_rules_costs_nothing() {
    let rules = compiled(&json!({"type": "object", "properties": {"a": {"type": "integer"}}})).unwrap();
    assert!(rules.is_empty());
}

#[test]
fn all_rules_together_have_one_budget() {
    let sum = "self.all(a, self.all(b, a + b > 0))";
    let list = json!({"type": "array", "maxItems": 300, "items": {"type": "integer"},
        "x-kubernetes-validations": [{"rule": sum}]});
    let properties: serde_json::Map<String, Json> = (0..20).map(|n| (format!("l{n:02}"), list.clone())).collect();
    let rules = compiled(&json!({"type": "object", "properties": properties})).unwrap();
    let object: serde_json::Map<String, Json> = (0..20).map(|n| (format!("l{n:02}"), json!(vec![1; 300]))).collect();
    let verdict = rules.validate(&Json::Object(object), None);
    let found = lines(&verdict.errors);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("validation failed due to running out of cost budget"),
        "{found:?}"
    );
}

/// Prints how long fifty rules take; the limit is generous because tests run unoptimised on busy machines.
#[test]
fn fifty_rules_are_fast() {
    let kinds = [
        (
            "n",
            json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self >= 0 && self <= 1000"}]}),
        ),
        (
            "s",
            json!({"type": "string", "maxLength": 63,
            "x-kubernetes-validations": [{"rule": "self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"}]}),
        ),
    ];
    let mut properties = serde_json::Map::new();
    let mut object = serde_json::Map::new();
    for n in 0..50 {
        let (name, schema) = &kinds[n % 2];
        properties.insert(format!("{name}{n}"), schema.clone());
        object.insert(
            format!("{name}{n}"),
            if n % 2 == 0 { json!(n) } else { json!("my-name") },
        );
    }
    let rules = compiled(&json!({"type": "object", "properties": properties})).unwrap();
    let object = Json::Object(object);
    let rounds = 200;
    let start = std::time::Instant::now();
    for _ in 0..rounds {
        assert_eq!(rules.validate(&object, None).errors, []);
    }
    let each = start.elapsed() / rounds;
    println!("fifty rules: {each:?}");
    assert!(each < std::time::Duration::from_millis(20), "{each:?}");
}

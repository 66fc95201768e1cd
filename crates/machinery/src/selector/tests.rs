use super::*;
use proptest::prelude::*;
use serde_json::json;

fn selects(selector: &str, labels: Value) -> bool {
    LabelSelector::parse(selector).expect(selector).matches(&labels)
}

#[test]
fn equality_and_set_based_requirements_pick_by_label() {
    let labels = json!({"app": "web", "tier": "front", "n": "5"});
    for matching in [
        "",
        "app=web",
        "app==web",
        "app!=x",
        "app in (a,web)",
        "app notin (a)",
        "tier",
        "!zone",
        "n>4",
        "n<6",
        "zone!=a",
        " app = web , tier ",
    ] {
        assert!(selects(matching, labels.clone()), "{matching}");
    }
    for other in [
        "app=x",
        "app!=web",
        "app notin (web)",
        "zone",
        "!app",
        "n>5",
        "app in ()",
        "zone in (a)",
    ] {
        assert!(!selects(other, labels.clone()), "{other}");
    }
    assert!(selects("in in (in,notin)", json!({"in": "in"})));
}

#[test]
fn a_selector_prints_in_canonical_form() {
    let text = LabelSelector::parse("z, b in (y,x),!a,c!=d").unwrap().to_string();
    assert_eq!(text, "!a,b in (x,y),c!=d,z");
    let empty = LabelSelector::parse("a in (,)").unwrap().to_string();
    assert_eq!(empty, "a in ()");
}

#[test]
fn what_cannot_be_parsed_is_refused_in_kubernetes_words() {
    let refuse = |text: &str| LabelSelector::parse(text).expect_err(text).0;
    assert_eq!(refuse("a,"), "found '', expected: identifier after ','");
    assert_eq!(refuse("=a"), "found '=', expected: !, identifier, or 'end of string'");
    assert_eq!(
        refuse("a b"),
        "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
    );
    assert_eq!(refuse("a in b"), "unable to parse requirement: found 'b' expected: '('");
    assert_eq!(refuse("!a=b"), "found '=', expected: ',' or 'end of string'");
    assert!(
        refuse("a=-b")
            .starts_with("unable to parse requirement: values[0][a]: Invalid value: \"-b\": a valid label must be")
    );
    assert!(
        refuse("a//b=c").starts_with("unable to parse requirement: <nil>: Invalid value: \"a//b\": a valid label key")
    );
}

#[test]
fn a_selector_object_selects_like_its_text() {
    let object = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
        {"key": "c", "operator": "NotIn", "values": ["x"]}, {"key": "d", "operator": "DoesNotExist"}]});
    let selector = LabelSelector::from_object(&object).unwrap();
    assert_eq!(selector.to_string(), "a=b,c notin (x),!d");
    assert!(LabelSelector::from_object(&json!({})).unwrap().is_everything());
    assert!(!LabelSelector::from_object(&Value::Null).unwrap().matches(&json!({})));
    let unknown = LabelSelector::from_object(&json!({"matchExpressions": [{"key": "c", "operator": "Gt"}]}));
    assert_eq!(unknown.unwrap_err().0, "\"Gt\" is not a valid label selector operator");
}

#[test]
fn field_selectors_compare_and_escape() {
    let selector = FieldSelector::parse(r"metadata.name=a\,b,status.phase!=Running").unwrap();
    assert!(selector.matches(|field| (field == "metadata.name").then_some("a,b")));
    assert_eq!(selector.exact("metadata.name"), Some("a,b"));
    assert_eq!(selector.to_string(), r"metadata.name=a\,b,status.phase!=Running");
    assert_eq!(
        FieldSelector::parse("a,b=c").unwrap_err().0,
        "invalid selector: 'a,b=c'; can't understand 'a'"
    );
    assert!(FieldSelector::parse(r"a=b\c").is_err());
    assert!(FieldSelector::parse("a=b=c").is_err());
    assert!(FieldSelector::parse("").unwrap().is_everything());
}

proptest! {
    #[test]
    fn no_text_panics_and_what_parses_prints_and_parses_again(text in "[ab!=,()<> in/.\\\\é-]{0,24}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
        }
        if let Ok(selector) = FieldSelector::parse(&text) {
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
        }
    }
}

//! What holds for every set of fields, configuration and object, tried with generated ones.

use super::*;
use proptest::prelude::*;

fn element() -> impl Strategy<Value = Element> {
    let literal = prop_oneof![
        any::<i64>().prop_map(Value::from),
        ".{0,4}".prop_map(Value::from),
        any::<bool>().prop_map(Value::from)
    ];
    let literal = literal.prop_map(Literal).boxed();
    prop_oneof![
        ".{0,6}".prop_map(|name| Element::field(&name)),
        prop::collection::btree_map(".{0,4}", literal.clone(), 1..3)
            .prop_map(|keys| Element::Key(keys.into_iter().map(|(name, value)| (name.into(), value)).collect())),
        literal.prop_map(Element::Value),
        any::<i32>().prop_map(|index| Element::Index(index.into())),
    ]
}

fn field_set() -> impl Strategy<Value = FieldSet> {
    prop::collection::vec(prop::collection::vec(element(), 1..4), 0..8).prop_map(|paths| {
        let mut set = FieldSet::new();
        paths.iter().for_each(|path| set.insert(path));
        set
    })
}

/// Configurations that mostly fit the schema.
fn spec() -> impl Strategy<Value = Value> {
    let small = || prop_oneof![Just("a"), Just("b"), Just("c")].prop_map(String::from);
    let strings = move || prop::collection::vec(small(), 0..3);
    let map = move || prop::collection::btree_map(small(), small(), 0..3);
    let container = (small(), prop::option::of(small()), prop::option::of(map())).prop_map(|(name, image, env)| {
        let mut container = json!({"name": name});
        if let Some(image) = image {
            container["image"] = image.into()
        }
        if let Some(env) = env {
            container["env"] = json!(env)
        }
        container
    });
    let port =
        (0..3, prop::option::of(prop_oneof![Just("TCP"), Just("UDP")])).prop_map(|(port, protocol)| match protocol {
            Some(protocol) => json!({"port": port, "protocol": protocol}),
            None => json!({"port": port}),
        });
    let field = prop_oneof![
        (0..3).prop_map(|n| ("replicas", json!(n))),
        any::<bool>().prop_map(|b| ("paused", json!(b))),
        strings().prop_map(|s| ("args", json!(s))),
        map().prop_map(|m| ("selector", json!(m))),
        prop::collection::vec(container, 0..3).prop_map(|c| ("containers", json!(c))),
        prop::collection::vec(port, 0..3).prop_map(|c| ("ports", json!(c))),
        crate::patch::tests::any_json().prop_map(|free| ("free", free)),
    ];
    prop::collection::vec(field, 0..5).prop_map(|fields| {
        Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| (name.to_string(), value))
                .collect(),
        )
    })
}

proptest! {
    #[test]
    fn field_sets_are_equal_after_encode_and_decode(set in field_set()) {
        prop_assert_eq!(FieldSet::decode(&set.encode()), Ok(set));
    }

    #[test]
    fn a_set_knows_its_own_spelling_and_no_other(a in field_set(), b in field_set()) {
        prop_assert!(a.is_spelled(&a.encode()));
        prop_assert_eq!(a.is_spelled(&b.encode()), a == b);
    }

    #[test]
    fn sets_follow_the_algebra(a in field_set(), b in field_set()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert!(a.difference(&a).is_empty());
    }

    #[test]
    fn nonsense_field_sets_do_not_panic(value in crate::patch::tests::any_json(), key in "[fkvi.:{}\"a0-9]{0,8}") {
        prop_assert!(!FieldSet::of(&["a.b"]).is_spelled(&value) || FieldSet::decode(&value) == Ok(FieldSet::of(&["a.b"])));
        let _ = Element::decode(&key);
        let _ = Managers::decode(&json!([{"operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": value}]));
    }

    #[test]
    fn an_apply_is_idempotent(first in spec(), second in spec()) {
        let mut thing = Story::new();
        if thing.apply("a", first).is_ok() && thing.apply_with("b", second.clone(), Force::Yes).is_ok() {
            let before = thing.object.clone();
            thing.apply_with("b", second, Force::Yes).unwrap();
            prop_assert_eq!(&thing.object, &before);
        }
    }

    #[test]
    fn an_apply_that_is_said_to_change_nothing_changes_nothing(first in spec(), second in spec(), third in spec()) {
        let mut thing = Story::new();
        let applied = thing.apply("a", first).is_ok() && thing.apply_with("b", second.clone(), Force::Yes).is_ok();
        for again in [second, third] {
            if applied && thing.is_settled("b", &again) {
                let before = thing.object.clone();
                thing.apply_with("b", again, Force::Yes).unwrap();
                prop_assert_eq!(&thing.object, &before);
            }
        }
    }

    #[test]
    fn sets_change_in_place_as_they_do_in_copies(a in field_set(), b in field_set()) {
        let (mut both, mut rest) = (a.clone(), a.clone());
        both.absorb(b.clone());
        prop_assert_eq!(both, a.union(&b));
        rest.subtract(&b);
        prop_assert_eq!(rest, a.difference(&b));
    }

    #[test]
    fn letting_go_of_everything_gives_the_object_back(first in spec(), mut second in spec()) {
        let mut thing = Story::new();
        // A value that changes its form takes what others own along without a conflict, here as in Kubernetes.
        second.as_object_mut().unwrap().remove("free");
        if thing.apply("a", first).is_ok() {
            let before = thing.object.clone();
            if thing.apply("b", second).is_ok() {
                thing.apply("b", json!({})).unwrap();
                let root = Type::of(thing.schemas.at(thing.root));
                let values = |object: &Option<Value>| {
                    let set = compare::field_set(object.as_ref().unwrap(), root);
                    set.difference(&UNOWNED)
                };
                let (before_set, after_set) = (values(&before), values(&thing.object));
                // What was emptied is nothing and has its place still; what was empty may vanish with the last thing that
                // was put into it.
                let sides = [
                    (after_set.difference(&before_set), &thing.object),
                    (before_set.difference(&after_set), &before),
                ];
                for (only, object) in sides {
                    only.each(&mut |path| {
                        let steps: String = path.iter().map(|step| step.to_string().replace('.', "/")).collect();
                        let value = object.as_ref().unwrap().pointer(&steps).cloned().unwrap_or_default();
                        assert!(value.is_null() || value == json!({}), "{steps} is {value}");
                    });
                }
            }
        }
    }

    #[test]
    fn no_write_panics(first in crate::patch::tests::any_json(), second in crate::patch::tests::any_json(), third in spec()) {
        let mut thing = Story::new();
        thing.update("u", |object| object["spec"] = first);
        thing.update("v", |object| object["spec"] = second);
        let _ = thing.apply_with("a", third, Force::Yes);
    }
}

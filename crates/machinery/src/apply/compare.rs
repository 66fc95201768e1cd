//! What differs between two objects, as sets of fields; and what a single object sets.

use super::element::Element;
use super::fields::{Entry, FieldSet};
use super::typed::{Form, ListForm, MapForm, Type};
use serde_json::Value;
use std::collections::BTreeMap;

/// The fields that a write removed, changed and added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    pub removed: FieldSet,
    pub modified: FieldSet,
    pub added: FieldSet,
}

impl Comparison {
    /// Leaves out fields that this endpoint does not let anybody set.
    pub(super) fn without(mut self, reset: &FieldSet) -> Self {
        self.removed.cut(reset);
        self.modified.cut(reset);
        self.added.cut(reset);
        self
    }
}

/// Compares two values of a type.
pub(super) fn compare(old: &Value, new: &Value, kind: Type<'_>) -> Comparison {
    let mut walk = Walk {
        found: Comparison::default(),
        path: Vec::new(),
    };
    walk.both(Some(old), Some(new), Some(kind));
    walk.found
}

struct Walk {
    found: Comparison,
    path: Vec<Element>,
}

impl Walk {
    fn both(&mut self, old: Option<&Value>, new: Option<&Value>, kind: Option<Type<'_>>) {
        // Most of an update is the same on both sides, and then there is nothing to find below.
        if old == new {
            return;
        }
        let kind = kind.unwrap_or(Type::Deduced);
        match (old, new) {
            (None, None) => {}
            (Some(old), None) => self.found.removed.insert_tree(&self.path, tree(old, kind)),
            (None, Some(new)) => self.found.added.insert_tree(&self.path, tree(new, kind)),
            (Some(old), Some(new)) => {
                let (before, after) = (kind.form(old), kind.form(new));
                if !same_form(&before, &after) {
                    // A leaf that becomes a map, or the other way round: the place changed, the parts of the old
                    // value are gone and those of the new one came.
                    for (form, sides) in [(before, (Some(old), None)), (after, (None, Some(new)))] {
                        match form {
                            Form::Leaf => self.found.modified.insert(&self.path),
                            parts => self.parts(sides.0, sides.1, parts),
                        }
                    }
                    return;
                }
                self.parts(Some(old), Some(new), after);
            }
        }
    }

    fn parts(&mut self, old: Option<&Value>, new: Option<&Value>, form: Form<'_>) {
        let empty = |value: Option<&Value>| match value {
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            _ => true,
        };
        match form {
            Form::Map { map } if !(empty(old) && empty(new)) => self.map(old, new, map),
            Form::List { list } if !(empty(old) && empty(new)) => self.list(old, new, list),
            _ => match (old, new) {
                (None, _) => self.found.added.insert(&self.path),
                (_, None) => self.found.removed.insert(&self.path),
                _ => self.found.modified.insert(&self.path),
            },
        }
    }

    fn map(&mut self, old: Option<&Value>, new: Option<&Value>, map: MapForm<'_>) {
        let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
        for (key, value) in old.into_iter().flatten() {
            self.below(
                Element::field(key),
                Some(value),
                new.and_then(|new| new.get(key)),
                map.value_type(key),
            );
        }
        for (key, value) in new.into_iter().flatten() {
            if !old.is_some_and(|old| old.contains_key(key)) {
                self.below(Element::field(key), None, Some(value), map.value_type(key));
            }
        }
    }

    fn below(&mut self, element: Element, old: Option<&Value>, new: Option<&Value>, kind: Option<Type<'_>>) {
        self.path.push(element);
        self.both(old, new, kind);
        self.path.pop();
    }

    fn list(&mut self, old: Option<&Value>, new: Option<&Value>, list: ListForm<'_>) {
        let mut items: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old.and_then(Value::as_array).into_iter().flatten() {
            if let Ok(element) = list.element(item) {
                items.entry(element).or_default().0.push(item);
            }
        }
        for item in new.and_then(Value::as_array).into_iter().flatten() {
            if let Ok(element) = list.element(item) {
                items.entry(element).or_default().1.push(item);
            }
        }
        for (element, (before, after)) in items {
            match (before.len() > 1, after.len() > 1) {
                (false, false) => {
                    self.below(
                        element,
                        before.first().copied(),
                        after.first().copied(),
                        Some(list.items),
                    );
                }
                // Items with the same key cannot be told apart and are owned together, as one piece.
                (true, true) => {
                    if before != after {
                        self.mark(element, |found, path| found.modified.insert(path));
                    }
                }
                (true, false) => {
                    self.below(element.clone(), None, after.first().copied(), Some(list.items));
                    self.mark(element, |found, path| found.removed.insert(path));
                }
                (false, true) => {
                    self.below(element.clone(), before.first().copied(), None, Some(list.items));
                    self.mark(element, |found, path| found.added.insert(path));
                }
            }
        }
    }

    fn mark(&mut self, element: Element, insert: fn(&mut Comparison, &[Element])) {
        self.path.push(element);
        insert(&mut self.found, &self.path);
        self.path.pop();
    }
}

fn same_form(left: &Form<'_>, right: &Form<'_>) -> bool {
    std::mem::discriminant(left) == std::mem::discriminant(right)
}

/// Every leaf that a value sets, every key of a map, and every item of a list.
pub(super) fn field_set(value: &Value, kind: Type<'_>) -> FieldSet {
    collect(value, kind).below
}

/// What a value sets, and whether it is set as one piece.
fn collect(value: &Value, kind: Type<'_>) -> Entry {
    let mut set = FieldSet::new();
    match (kind.form(value), value) {
        (Form::Map { map }, Value::Object(fields)) => {
            for (key, value) in fields {
                let mut entry = collect(value, map.value_type(key).unwrap_or(Type::Deduced));
                let empty = value.is_null() || value.as_object().is_some_and(|fields| fields.is_empty());
                entry.member |= empty || !map.is_named(key);
                set.put(Element::field(key), entry);
            }
        }
        (Form::List { list }, Value::Array(items)) => {
            for (element, only) in told_apart(items, list) {
                let below = only.map(|item| collect(item, list.items).below);
                set.put(element, Entry::member(below.unwrap_or_default()));
            }
        }
        (Form::Map { .. } | Form::List { .. }, _) => {}
        (Form::Leaf, _) => return Entry::member(set),
    }
    Entry {
        member: false,
        below: set,
    }
}

/// A value that came or went, with everything in it.
fn tree(value: &Value, kind: Type<'_>) -> Entry {
    let mut below = FieldSet::new();
    match (kind.form(value), value) {
        (Form::Map { map }, Value::Object(fields)) => {
            for (key, value) in fields {
                let kind = map.value_type(key).unwrap_or(Type::Deduced);
                below.put(Element::field(key), tree(value, kind));
            }
        }
        (Form::List { list }, Value::Array(items)) => {
            for (element, only) in told_apart(items, list) {
                let entry = only.map(|item| tree(item, list.items));
                below.put(element, entry.unwrap_or_else(|| Entry::member(FieldSet::new())));
            }
        }
        _ => {}
    }
    Entry::member(below)
}

/// The items of a list by what identifies them; none where several have the same key, which are owned together, as one
/// piece.
fn told_apart<'a>(items: &'a [Value], list: ListForm<'_>) -> BTreeMap<Element, Option<&'a Value>> {
    let mut found = BTreeMap::new();
    for item in items {
        if let Ok(element) = list.element(item) {
            found
                .entry(element)
                .and_modify(|only| *only = None)
                .or_insert(Some(item));
        }
    }
    found
}

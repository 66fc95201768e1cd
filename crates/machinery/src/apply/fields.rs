//! Sets of fields: what a manager owns.

use super::element::{Element, ElementError};
use super::typed::Type;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// How deep a stored field set may nest; deeper than any schema goes, and shallow enough for the stack.
const DEEPEST: usize = 100;

/// A set of paths. A path can be a member itself, lead to members below it, or both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    entries: BTreeMap<Element, Entry>,
}

/// What is known of one step: never neither a member nor a way to one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) member: bool,
    pub(super) below: FieldSet,
}

impl Entry {
    pub(super) fn member(below: FieldSet) -> Self {
        Entry { member: true, below }
    }
}

impl FieldSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of these dotted field paths: `metadata.labels`.
    pub fn of(paths: &[&str]) -> Self {
        let mut set = FieldSet::new();
        for path in paths {
            let steps: Vec<Element> = path.split('.').map(Element::field).collect();
            set.insert(&steps);
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a path; the empty path is nobody's and ignored.
    pub fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let entry = match self.entries.get_mut(first) {
            Some(entry) => entry,
            None => self.entries.entry(first.clone()).or_default(),
        };
        if rest.is_empty() {
            entry.member = true;
        } else {
            entry.below.insert(rest);
        }
    }

    /// Adds a path and everything below it.
    pub(super) fn insert_tree(&mut self, path: &[Element], tree: Entry) {
        let Some((first, rest)) = path.split_first() else {
            self.absorb(tree.below);
            return;
        };
        let entry = match self.entries.get_mut(first) {
            Some(entry) => entry,
            None => self.entries.entry(first.clone()).or_default(),
        };
        if rest.is_empty() {
            entry.member |= tree.member;
            entry.below.absorb(tree.below);
        } else {
            entry.below.insert_tree(rest, tree);
        }
    }

    /// Adds a step with everything that is known of it.
    pub(super) fn put(&mut self, element: Element, entry: Entry) {
        if entry.member || !entry.below.is_empty() {
            self.entries.insert(element, entry);
        }
    }

    /// Whether this very path is a member.
    pub fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [only] => self.entries.get(only).is_some_and(|entry| entry.member),
            [first, rest @ ..] => self.entries.get(first).is_some_and(|entry| entry.below.has(rest)),
        }
    }

    /// Whether the step itself is a member, and what the set says below it.
    pub(super) fn at(&self, element: &Element) -> (bool, Option<&FieldSet>) {
        match self.entries.get(element) {
            Some(entry) => (entry.member, Some(&entry.below).filter(|below| !below.is_empty())),
            None => (false, None),
        }
    }

    pub fn union(&self, other: &FieldSet) -> FieldSet {
        let mut union = self.clone();
        union.extend(other);
        union
    }

    /// Adds all members of another set.
    pub fn extend(&mut self, other: &FieldSet) {
        for (element, entry) in &other.entries {
            match self.entries.get_mut(element) {
                Some(mine) => {
                    mine.member |= entry.member;
                    mine.below.extend(&entry.below);
                }
                None => {
                    self.entries.insert(element.clone(), entry.clone());
                }
            }
        }
    }

    /// Adds all members of a set that nobody else needs.
    pub fn absorb(&mut self, other: FieldSet) {
        if self.entries.is_empty() {
            *self = other;
            return;
        }
        for (element, entry) in other.entries {
            let mine = self.entries.entry(element).or_default();
            mine.member |= entry.member;
            mine.below.absorb(entry.below);
        }
    }

    /// Takes the members of another set out of this one; what is below them stays.
    pub fn subtract(&mut self, other: &FieldSet) {
        if other.is_empty() {
            return;
        }
        self.entries.retain(|element, entry| {
            if let Some(other) = other.entries.get(element) {
                entry.member &= !other.member;
                entry.below.subtract(&other.below);
            }
            entry.member || !entry.below.is_empty()
        });
    }

    /// Takes the members of another set out of this one, with everything below them.
    pub fn cut(&mut self, other: &FieldSet) {
        if other.is_empty() {
            return;
        }
        self.entries.retain(|element, entry| {
            match other.entries.get(element) {
                Some(other) if other.member => return false,
                Some(other) => entry.below.cut(&other.below),
                None => {}
            }
            entry.member || !entry.below.is_empty()
        });
    }

    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        self.combine(|element, entry| {
            let other = other.entries.get(element)?;
            Some(Entry {
                member: entry.member && other.member,
                below: entry.below.intersection(&other.below),
            })
        })
    }

    /// The members that are not in the other set; what is below a removed member stays.
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        self.combine(|element, entry| {
            let Some(other) = other.entries.get(element) else {
                return Some(entry.clone());
            };
            Some(Entry {
                member: entry.member && !other.member,
                below: entry.below.difference(&other.below),
            })
        })
    }

    fn combine(&self, keep: impl Fn(&Element, &Entry) -> Option<Entry>) -> FieldSet {
        let kept = self.entries.iter().filter_map(|(element, entry)| {
            let entry = keep(element, entry)?;
            (entry.member || !entry.below.is_empty()).then(|| (element.clone(), entry))
        });
        FieldSet {
            entries: kept.collect(),
        }
    }

    /// Calls `visit` with each member: those of a level before those below it.
    pub fn each(&self, visit: &mut impl FnMut(&[Element])) {
        self.each_below(&mut Vec::new(), visit);
    }

    fn each_below(&self, path: &mut Vec<Element>, visit: &mut impl FnMut(&[Element])) {
        for (element, _) in self.entries.iter().filter(|(_, entry)| entry.member) {
            path.push(element.clone());
            visit(path);
            path.pop();
        }
        for (element, entry) in self.entries.iter().filter(|(_, entry)| !entry.below.is_empty()) {
            path.push(element.clone());
            entry.below.each_below(path, visit);
            path.pop();
        }
    }

    /// The set with every named field on the way to a member made a member too, so that removing a struct's
    /// last field removes the struct.
    pub(super) fn with_named_fields(&self, kind: Option<Type<'_>>) -> FieldSet {
        let entries = self.entries.iter().map(|(element, entry)| {
            let (named, below) = match kind {
                Some(kind) => kind.step(element),
                None => (false, None),
            };
            let member = entry.member || (named && !entry.below.is_empty());
            (
                element.clone(),
                Entry {
                    member,
                    below: entry.below.with_named_fields(below),
                },
            )
        });
        FieldSet {
            entries: entries.collect(),
        }
    }

    /// Follows a type of the schema that became atomic: it is owned as a whole, with nothing below.
    pub(super) fn fit(&mut self, kind: Type<'_>) {
        for (element, entry) in self.entries.iter_mut().filter(|(_, entry)| !entry.below.is_empty()) {
            match kind.step(element).1 {
                Some(below) if below.is_atomic() => *entry = Entry::member(FieldSet::new()),
                Some(below) => entry.below.fit(below),
                None => {}
            }
        }
    }

    /// `FieldsV1`.
    pub fn encode(&self) -> Value {
        let fields = self.entries.iter().map(|(element, entry)| {
            let mut below = entry.below.encode();
            if let (true, Value::Object(map)) = (entry.member && !entry.below.is_empty(), &mut below) {
                map.insert(".".to_string(), Value::Object(Map::new()));
            }
            (element.encode(), below)
        });
        Value::Object(fields.collect())
    }

    /// Whether this set is spelled like that, told without reading the spelling into a set. A spelling that this
    /// version would not write is none.
    pub(super) fn is_spelled(&self, fields: &Value) -> bool {
        let Value::Object(fields) = fields else {
            return false;
        };
        let members = fields.iter().filter(|(key, _)| *key != ".");
        let mut in_order = members.clone();
        // Fields come before all other steps, in a set as in its spelling, and in the same order.
        members.count() == self.entries.len()
            && self.entries.iter().all(|(element, entry)| {
                let spelled = match element {
                    Element::Field(name) => in_order
                        .next()
                        .filter(|(key, _)| key.strip_prefix("f:") == Some(name))
                        .map(|(_, below)| below),
                    other => fields.get(&other.encode()),
                };
                spelled.is_some_and(|below| {
                    let is_member = below
                        .as_object()
                        .is_some_and(|below| below.is_empty() || below.contains_key("."));
                    entry.member == is_member && entry.below.is_spelled(below)
                })
            })
    }

    pub fn decode(fields: &Value) -> Result<FieldSet, ElementError> {
        Ok(Self::decode_level(fields, DEEPEST)?.1)
    }

    /// Whether the level is a member itself, and the set below it.
    fn decode_level(fields: &Value, depth: usize) -> Result<(bool, FieldSet), ElementError> {
        let Value::Object(fields) = fields else {
            return Err(ElementError::Malformed("expected a map of fields".to_string()));
        };
        if depth == 0 {
            return Err(ElementError::Malformed("nested too deeply".to_string()));
        }
        let mut set = FieldSet::new();
        let mut member = false;
        for (key, value) in fields {
            if key == "." {
                member = true;
                continue;
            }
            let element = match Element::decode(key) {
                Err(ElementError::Unknown) => continue,
                element => element?,
            };
            let (is_member, below) = Self::decode_level(value, depth - 1)?;
            set.entries.insert(
                element,
                Entry {
                    member: is_member,
                    below,
                },
            );
        }
        Ok((member || set.is_empty(), set))
    }
}

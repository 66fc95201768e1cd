//! What is known of children from earlier runs.
//!
//! Comparing needs the JSON of the live object; remembering that this very version was found to be fine
//! with this very wish costs a hash. It is also the only way to be sure where a live object has more
//! than we sent inside a field that we own as a whole: defaults, or the rest of an earlier wish?

use crate::key::Key;
use crate::kind::Kind;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Children that are remembered; beyond it everything is forgotten, which costs a comparison each.
const KEPT: usize = 200_000;

/// What is known.
#[derive(Default)]
pub(crate) struct Memory {
    by_object: Mutex<HashMap<(Kind, Key), Fact>>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Fact {
    pub uid: String,
    /// The version that was found to agree with the wish.
    pub version: String,
    /// The wish.
    pub wish: u64,
    /// What the fields that we own looked like then.
    pub owned: u64,
}

impl Memory {
    pub fn get(&self, kind: &Kind, key: &Key) -> Option<Fact> {
        self.by_object.lock().get(&(kind.clone(), key.clone())).cloned()
    }

    pub fn keep(&self, kind: &Kind, key: &Key, fact: Fact) {
        let mut facts = self.by_object.lock();
        if facts.len() >= KEPT {
            facts.clear();
        }
        facts.insert((kind.clone(), key.clone()), fact);
    }

    pub fn forget(&self, kind: &Kind, key: &Key) {
        self.by_object.lock().remove(&(kind.clone(), key.clone()));
    }
}

/// A hash of a JSON value. Maps are sorted, so equal values have equal hashes.
pub(crate) fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    feed(value, &mut hasher);
    hasher.finish()
}

fn feed(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Null => 0u8.hash(hasher),
        Value::Bool(value) => (1u8, value).hash(hasher),
        Value::Number(number) => {
            2u8.hash(hasher);
            match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => whole.hash(hasher),
                (None, float) => float.unwrap_or_default().to_bits().hash(hasher),
            }
        }
        Value::String(text) => (3u8, text).hash(hasher),
        Value::Array(items) => {
            (4u8, items.len()).hash(hasher);
            items.iter().for_each(|item| feed(item, hasher));
        }
        Value::Object(fields) => {
            (5u8, fields.len()).hash(hasher);
            for (name, value) in fields {
                name.hash(hasher);
                feed(value, hasher);
            }
        }
    }
}

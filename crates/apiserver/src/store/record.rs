//! Objects as they are stored: encoded once, shared by everyone, parsed when somebody looks inside.

use super::parsed::Parsed;
use super::{Key, Revision};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

/// The most digits that a revision has.
const REVISION_DIGITS: usize = 20;

/// An object's JSON without its resourceVersion, and the place where that goes.
///
/// The revision is only known when the write commits, and with etcd only afterwards. The committer
/// splices it in once; from then on the bytes are shared and never encoded again.
#[derive(Debug, Clone)]
pub struct Draft {
    pub json: Vec<u8>,
    /// Offset at which the digits of the resourceVersion are inserted (between two quotes).
    pub revision_at: usize,
}

/// An object as it was at one revision.
#[derive(Debug)]
pub struct Record {
    pub key: Arc<Key>,
    pub revision: Revision,
    /// The revision of the create, which tells an object from a later one of the same name.
    pub created: Revision,
    /// Its JSON, resourceVersion included; what a get sends as it is.
    pub json: Bytes,
    metadata: OnceLock<Box<Metadata>>,
    fields: OnceLock<Box<[(String, String)]>>,
    value: Mutex<Weak<Value>>,
    parsed: Arc<Parsed>,
}

/// The part of `metadata` that selectors and preconditions look at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub generation: i64,
    pub deletion_timestamp: Option<String>,
}

impl Draft {
    /// Encodes an object. `kind` and `apiVersion` come first, so that an item of a list, which Kubernetes sends
    /// without them, is a slice of the stored bytes. A resourceVersion that it carries is left out; the commit
    /// sets the real one.
    pub fn of(object: &Value) -> Draft {
        let empty = Map::new();
        let top = object.as_object().unwrap_or(&empty);
        let metadata = top.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
        let mut json = Vec::with_capacity(1024);
        json.push(b'{');
        for field in ["kind", "apiVersion"] {
            if let Some(value) = top.get(field) {
                entry(&mut json, field, value);
            }
        }
        name(&mut json, "metadata");
        json.extend_from_slice(b"{\"resourceVersion\":\"");
        let revision_at = json.len();
        json.push(b'"');
        for (field, value) in metadata.iter().filter(|(field, _)| *field != "resourceVersion") {
            entry(&mut json, field, value);
        }
        json.push(b'}');
        for (field, value) in top {
            if !matches!(field.as_str(), "kind" | "apiVersion" | "metadata") {
                entry(&mut json, field, value);
            }
        }
        json.push(b'}');
        Draft { json, revision_at }
    }

    /// The finished JSON.
    pub(super) fn at(&self, revision: Revision) -> Bytes {
        let (head, tail) = self.json.split_at(self.revision_at.min(self.json.len()));
        let mut json = Vec::with_capacity(self.json.len() + REVISION_DIGITS);
        json.extend_from_slice(head);
        json.extend_from_slice(itoa::Buffer::new().format(revision.0).as_bytes());
        json.extend_from_slice(tail);
        // The spare room would stay for as long as the object lives.
        json.shrink_to_fit();
        Bytes::from(json)
    }
}

fn entry(json: &mut Vec<u8>, field: &str, value: &Value) {
    name(json, field);
    serde_json::to_writer(json, value).expect("a Value is always encodable, a Vec always writable");
}

fn name(json: &mut Vec<u8>, field: &str) {
    if json.last() != Some(&b'{') {
        json.push(b',');
    }
    serde_json::to_writer(&mut *json, field).expect("a string is always encodable, a Vec always writable");
    json.push(b':');
}

impl Record {
    pub(super) fn new(
        key: Arc<Key>,
        revision: Revision,
        created: Revision,
        json: Bytes,
        parsed: Arc<Parsed>,
    ) -> Record {
        Record {
            key,
            revision,
            created,
            json,
            metadata: OnceLock::new(),
            fields: OnceLock::new(),
            value: Mutex::new(Weak::new()),
            parsed,
        }
    }

    /// The same record under a key that it shares with others.
    pub(super) fn with_key(self, key: Arc<Key>) -> Record {
        Record { key, ..self }
    }

    /// The parsed object. Readers at about the same time share one.
    pub fn value(&self) -> Arc<Value> {
        let mut slot = self.value.lock();
        if let Some(value) = slot.upgrade() {
            return value;
        }
        // Only valid JSON gets here: drafts are encoded from values, and remote bytes are checked on arrival.
        let value = Arc::new(serde_json::from_slice(&self.json).unwrap_or_default());
        *slot = Arc::downgrade(&value);
        self.parsed.keep(&value, self.json.len());
        value
    }

    /// Labels and the like, parsed once without the rest of the object.
    pub fn metadata(&self) -> &Metadata {
        #[derive(Default, Deserialize)]
        struct Head {
            #[serde(default)]
            metadata: Metadata,
        }
        self.metadata.get_or_init(|| {
            let head: Head = serde_json::from_slice(&self.json).unwrap_or_default();
            Box::new(head.metadata)
        })
    }

    /// The fields that field selectors of this kind can name, extracted by whoever asks first. The function
    /// must depend on the object alone.
    pub fn fields(&self, extract: impl FnOnce(&Value) -> Vec<(String, String)>) -> &[(String, String)] {
        self.fields.get_or_init(|| extract(&self.value()).into_boxed_slice())
    }
}

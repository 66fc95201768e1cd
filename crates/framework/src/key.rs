//! Names of objects: the key of a work item and of a cache entry.
//!
//! A key is copied into queues, indexes, histories and logs all the time, so it is one shared string
//! and an offset, not two strings.

use kube::Resource;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The namespace (absent for cluster-scoped objects) and the name of an object.
///
/// ```
/// use stead::Key;
/// let key = Key::namespaced("shop", "web");
/// assert_eq!(key.namespace(), Some("shop"));
/// assert_eq!(key.name(), "web");
/// assert_eq!(key.to_string(), "shop/web");
/// assert_eq!(Key::cluster("node-1").to_string(), "node-1");
/// ```
#[derive(Clone)]
pub struct Key {
    /// `namespace/name`, or the name alone.
    text: Arc<str>,
    /// Where the name starts; 0 for cluster-scoped objects.
    name_at: u32,
}

/// A borrowed [`Key`], so that a lookup by two strings allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyRef<'a> {
    /// The namespace; none for a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// The name.
    pub name: &'a str,
}

impl Key {
    /// The key of an object in a namespace.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        let mut text = String::with_capacity(namespace.len() + name.len() + 1);
        text.push_str(namespace);
        text.push('/');
        text.push_str(name);
        Key {
            text: text.into(),
            // Names have at most 253 characters and namespaces 63, so this never truncates.
            name_at: u32::try_from(namespace.len() + 1).unwrap_or(u32::MAX),
        }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Key {
            text: name.into(),
            name_at: 0,
        }
    }

    /// The key of an object that has a namespace only if its kind is namespaced.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) if !namespace.is_empty() => Key::namespaced(namespace, name),
            _ => Key::cluster(name),
        }
    }

    /// The key under which an object is stored.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Key::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    /// The namespace; none for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        match self.name_at {
            0 => None,
            at => self.text.get(..at as usize - 1),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.text.get(self.name_at as usize..).unwrap_or_default()
    }

    /// The borrowed form.
    pub fn borrow(&self) -> KeyRef<'_> {
        KeyRef {
            namespace: self.namespace(),
            name: self.name(),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.name_at == other.name_at && self.text == other.text
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.namespace(), self.name()).cmp(&(other.namespace(), other.name()))
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.borrow().hash(state);
    }
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.namespace.hash(state);
        self.name.hash(state);
    }
}

impl hashbrown::Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self == key.borrow()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, f)
    }
}

impl serde::Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

//! The store: every object at every retained revision, and the log of changes between them.
//!
//! One global, strictly increasing revision orders all writes. The newest state is held in memory as
//! encoded bytes that readers and watchers share; an engine behind it makes writes durable.

use bytes::Bytes;

/// A global revision: the number behind `resourceVersion`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

/// The place of an object: `group/plural`, namespace (empty for cluster-scoped) and name.
///
/// The resource comes first, so that one prefix holds all objects of a kind and one longer prefix
/// those of a namespace. The version is not part of it: an object is stored once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub resource: String,
    pub namespace: String,
    pub name: String,
}

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
    pub key: Key,
    pub revision: Revision,
    /// The revision of the create, which tells an object from a later one of the same name.
    pub created: Revision,
    /// Its JSON, resourceVersion included; what a get sends as it is.
    pub json: Bytes,
}

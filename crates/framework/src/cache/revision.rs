//! Resource versions as numbers.
//!
//! Kubernetes promises since 1.35 that they can be compared as whole numbers. The consistency gate, the
//! detection of duplicates and of a store that was restored from a backup live on that promise. A server
//! that breaks it gives revision 0, which orders nothing.

use std::fmt;

/// A resource version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// The number in a `resourceVersion`; 0 if it is not one.
    pub fn parse(text: &str) -> Self {
        Revision(text.parse().unwrap_or(0))
    }

    /// The resource version of an object.
    pub fn of(meta: &kube::core::ObjectMeta) -> Self {
        Revision::parse(meta.resource_version.as_deref().unwrap_or_default())
    }

    /// Whether it orders anything.
    pub fn is_known(self) -> bool {
        self.0 != 0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

//! A store as its reflector sees it: without the type of its objects.
//!
//! What is generic here is compiled anew for each kind, in each crate that watches it: it is kept to decoding an
//! object and putting it into its store.

use super::decode::{self, Decoded};
use super::progress::Progress;
use super::{Revision, Store, Transform};
use crate::kind::Object;
use serde_json::value::RawValue;

/// Where a reflector puts what it is sent.
pub(super) trait Sink: Send + Sync {
    fn progress(&self) -> &Progress;
    /// Whether the server is to send nothing but metadata.
    fn only_metadata(&self) -> bool;
    /// Begins a list, which replaces everything when it is finished.
    fn listing(&self) -> Box<dyn Listing>;
    /// The revision of the object; none if it says nothing of itself.
    fn put(&self, raw: &RawValue) -> Option<Revision>;
    fn delete(&self, raw: &RawValue) -> Option<Revision>;
}

/// A list that comes page by page.
pub(super) trait Listing: Send {
    fn add(&mut self, page: &[&RawValue]);
    /// Replaces what the store has (of a namespace).
    fn finish(self: Box<Self>, namespace: Option<&str>);
}

/// A store, and how its objects are changed before they are kept.
pub(super) struct Shaped<K> {
    pub store: Store<K>,
    pub transform: Option<Transform<K>>,
}

impl<K> Clone for Shaped<K> {
    fn clone(&self) -> Self {
        Shaped {
            store: self.store.clone(),
            transform: self.transform.clone(),
        }
    }
}

impl<K: Object> Shaped<K> {
    fn decode(&self, raw: &RawValue) -> Option<Decoded<K>> {
        let mut item = decode::object(raw)?;
        if let (Some(transform), Decoded::Object { object, .. }) = (&self.transform, &mut item) {
            transform(object);
        }
        Some(item)
    }
}

impl<K: Object> Sink for Shaped<K> {
    fn progress(&self) -> &Progress {
        self.store.progress()
    }

    fn only_metadata(&self) -> bool {
        K::metadata_api()
    }

    fn listing(&self) -> Box<dyn Listing> {
        Box::new(Pages {
            sink: self.clone(),
            items: Vec::new(),
        })
    }

    fn put(&self, raw: &RawValue) -> Option<Revision> {
        let item = self.decode(raw)?;
        let revision = item.revision();
        self.store.put(item);
        Some(revision)
    }

    fn delete(&self, raw: &RawValue) -> Option<Revision> {
        let item = self.decode(raw)?;
        let revision = item.revision();
        self.store.delete(item);
        Some(revision)
    }
}

struct Pages<K> {
    sink: Shaped<K>,
    items: Vec<Decoded<K>>,
}

impl<K: Object> Listing for Pages<K> {
    fn add(&mut self, page: &[&RawValue]) {
        let Pages { sink, items } = self;
        items.extend(page.iter().filter_map(|raw| sink.decode(raw)));
    }

    fn finish(self: Box<Self>, namespace: Option<&str>) {
        self.sink.store.replace(namespace, self.items);
    }
}

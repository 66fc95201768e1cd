//! From bytes to objects.
//!
//! Each object is decoded straight from the bytes of the answer into the type that the cache keeps, so a
//! projected type never costs what it leaves out. An object that does not decode is reported alone; its
//! neighbours in the same list are not affected.

use super::Revision;
use crate::key::Key;
use kube::core::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// One object of an answer.
pub(super) enum Decoded<K> {
    Object { object: K, bytes: usize },
    Broken(Broken),
}

/// What can be said about an object that does not decode as its type.
pub(super) struct Broken {
    pub key: Key,
    pub uid: Option<String>,
    pub revision: Revision,
    pub message: String,
}

/// A page of a list.
pub(super) struct Page<'a> {
    pub items: Vec<&'a RawValue>,
    pub revision: Revision,
    pub resource_version: String,
    pub next: Option<String>,
}

/// One line of a watch.
pub(super) enum Line<'a> {
    Put(&'a RawValue),
    Deleted(&'a RawValue),
    /// Everything up to here was sent.
    Bookmark(String),
    Error(Box<kube::core::Status>),
    /// A type of event that this version does not know.
    Unknown,
}

#[derive(Deserialize)]
struct RawList<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct OnlyMeta {
    #[serde(default)]
    metadata: ObjectMeta,
}

#[derive(Deserialize)]
struct BookmarkObject {
    metadata: ListMeta,
}

pub(super) fn page(bytes: &[u8]) -> Result<Page<'_>, serde_json::Error> {
    let list: RawList<'_> = serde_json::from_slice(bytes)?;
    Ok(Page {
        items: list.items.unwrap_or_default(),
        revision: Revision::parse(&list.metadata.resource_version),
        resource_version: list.metadata.resource_version,
        next: list.metadata.next.filter(|token| !token.is_empty()),
    })
}

pub(super) fn line(bytes: &[u8]) -> Result<Line<'_>, serde_json::Error> {
    let event: RawEvent<'_> = serde_json::from_slice(bytes)?;
    Ok(match event.r#type {
        "ADDED" | "MODIFIED" => Line::Put(event.object),
        "DELETED" => Line::Deleted(event.object),
        "BOOKMARK" => {
            let bookmark: BookmarkObject = serde_json::from_str(event.object.get())?;
            Line::Bookmark(bookmark.metadata.resource_version)
        }
        "ERROR" => Line::Error(Box::new(serde_json::from_str(event.object.get())?)),
        _ => Line::Unknown,
    })
}

/// Nothing, if not even the metadata can be read: such an object has no name to report.
pub(super) fn object<K: DeserializeOwned>(raw: &RawValue) -> Option<Decoded<K>> {
    match serde_json::from_str::<K>(raw.get()) {
        Ok(object) => Some(Decoded::Object {
            object,
            bytes: raw.get().len(),
        }),
        Err(error) => broken(raw, &error).map(Decoded::Broken),
    }
}

fn broken(raw: &RawValue, error: &serde_json::Error) -> Option<Broken> {
    let meta = serde_json::from_str::<OnlyMeta>(raw.get()).ok()?.metadata;
    Some(Broken {
        key: Key::new(meta.namespace.as_deref(), meta.name.as_deref()?),
        revision: Revision::of(&meta),
        uid: meta.uid,
        message: error.to_string(),
    })
}

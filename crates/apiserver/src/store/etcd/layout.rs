//! How objects lie in etcd.
//!
//! Below the root, `registry/RESOURCE/NAMESPACE/NAME` holds the object without its resourceVersion, since that is
//! only known once etcd has decided; before the JSON stands the offset at which it belongs, and a line feed.
//! `deleted` holds the final state of the object that was deleted last. It is written in the transaction of the
//! delete and so arrives with it; no later delete needs an earlier one's.

use super::proto::{Compare, DeleteRangeRequest, MOD, PutRequest, Request, RequestOp, TxnRequest};
use crate::store::{Draft, Key, Write};
use bytes::Bytes;
use serde::de::IgnoredAny;

#[derive(Debug, Clone)]
pub(super) struct Layout {
    root: String,
}

impl Layout {
    pub(super) fn under(root: &str) -> Layout {
        Layout { root: root.to_string() }
    }

    /// The range of all our keys: its first key and its end.
    pub(super) fn everything(&self) -> (Bytes, Bytes) {
        range(format!("{}/", self.root))
    }

    /// The range of the objects.
    pub(super) fn objects(&self) -> (Bytes, Bytes) {
        range(format!("{}/registry/", self.root))
    }

    pub(super) fn deleted(&self) -> Bytes {
        Bytes::from(format!("{}/deleted", self.root))
    }

    pub(super) fn path(&self, key: &Key) -> Bytes {
        let Key {
            resource,
            namespace,
            name,
        } = key;
        Bytes::from(format!("{}/registry/{resource}/{namespace}/{name}", self.root))
    }

    /// The key of an object; `None` for what is none of ours.
    pub(super) fn key(&self, path: &[u8]) -> Option<Key> {
        let path = std::str::from_utf8(path).ok()?;
        let path = path.strip_prefix(&self.root)?.strip_prefix("/registry/")?;
        // A resource may hold a slash itself, namespaces and names cannot.
        let mut parts = path.rsplitn(3, '/');
        let name = parts.next()?;
        let namespace = parts.next()?;
        let resource = parts.next()?;
        Some(Key::new(resource, namespace, name))
    }

    /// What etcd is asked to do, and on which condition.
    pub(super) fn transaction(&self, write: &Write) -> TxnRequest {
        let key = self.path(write.key());
        let value = encode(write.draft());
        let put = |key: Bytes, value: Bytes| Request::Put(PutRequest { key, value });
        let (expect, requests) = match write {
            Write::Create { .. } => (0, vec![put(key.clone(), value)]),
            Write::Update { expect, .. } => (expect.0, vec![put(key.clone(), value)]),
            Write::Delete { expect, .. } => {
                let delete = Request::DeleteRange(DeleteRangeRequest { key: key.clone() });
                let mut last = key.to_vec();
                last.push(b'\n');
                last.extend_from_slice(&value);
                (expect.0, vec![put(self.deleted(), last.into()), delete])
            }
        };
        let compare = Compare {
            target: MOD,
            key,
            // One above etcd's range can never match, which is the right answer to such an expectation.
            mod_revision: Some(i64::try_from(expect).unwrap_or(i64::MAX)),
        };
        let operation = |request| RequestOp { request: Some(request) };
        TxnRequest {
            compare: vec![compare],
            success: requests.into_iter().map(operation).collect(),
        }
    }
}

fn range(start: String) -> (Bytes, Bytes) {
    let mut end = start.clone().into_bytes();
    // The start ends in a slash, so the end is the same with the next character.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    (Bytes::from(start), Bytes::from(end))
}

fn encode(draft: &Draft) -> Bytes {
    let mut value = Vec::with_capacity(draft.json.len() + 8);
    value.extend_from_slice(itoa::Buffer::new().format(draft.revision_at).as_bytes());
    value.push(b'\n');
    value.extend_from_slice(&draft.json);
    Bytes::from(value)
}

/// Reads a value back; `None` where somebody else has written it.
pub(super) fn decode(value: &[u8]) -> Option<Draft> {
    let line = value.iter().position(|byte| *byte == b'\n')?;
    let revision_at: usize = std::str::from_utf8(&value[..line]).ok()?.parse().ok()?;
    let json = &value[line + 1..];
    let between_quotes = json.get(revision_at.checked_sub(1)?) == Some(&b'"') && json.get(revision_at) == Some(&b'"');
    if !between_quotes || serde_json::from_slice::<IgnoredAny>(json).is_err() {
        return None;
    }
    let json = json.to_vec();
    Some(Draft { json, revision_at })
}

/// Splits what `deleted` holds into the path of the object and its final state.
pub(super) fn decode_deleted(value: &[u8]) -> Option<(&[u8], Draft)> {
    let line = value.iter().position(|byte| *byte == b'\n')?;
    Some((&value[..line], decode(&value[line + 1..])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_and_values_survive_the_way_through_etcd() {
        let layout = Layout::under("/stead");
        for key in [Key::new("apps/deployments", "a", "x"), Key::new("nodes", "", "n")] {
            assert_eq!(layout.key(&layout.path(&key)), Some(key));
        }
        assert_eq!(layout.key(b"/stead/deleted"), None);
        assert_eq!(layout.key(b"/stead/registry/x"), None);
        let draft = Draft::of(&json!({"metadata": {"name": "x"}}));
        assert_eq!(decode(&encode(&draft)).unwrap().json, draft.json);
        for nonsense in ["", "\n", "1", "5\n{}", "99\n{}", "1\n\"\"{", "x\n{}"] {
            assert!(decode(nonsense.as_bytes()).is_none(), "{nonsense}");
        }
        assert_eq!(layout.everything(), (Bytes::from("/stead/"), Bytes::from("/stead0")));
    }
}

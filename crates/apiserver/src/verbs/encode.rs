//! Objects to the bytes that are stored and served.
//!
//! `kind` and `apiVersion` come first, so that an item of a list, which Kubernetes sends without them, is
//! a slice of the stored bytes. The place of the resourceVersion is noted while writing, because the store
//! fills it in when the write commits.

use crate::store::Draft;
use serde_json::Value;

/// The object's bytes without a resourceVersion, and where that goes.
pub fn draft(object: &Value) -> Draft {
    Draft::of(object)
}

/// Where an item of a list begins in stored bytes: after `kind` and `apiVersion`, and with the brace
/// before it left to the writer of the list. Zero if the bytes do not begin as ours do.
pub fn item_start(json: &[u8]) -> usize {
    const HEAD: &[u8] = b",\"metadata\":{";
    // Kind and version are short, so the search is too.
    let window = &json[..json.len().min(512)];
    window
        .windows(HEAD.len())
        .position(|bytes| bytes == HEAD)
        .map_or(0, |comma| comma + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_draft_is_the_object_with_a_gap_for_its_revision() {
        let object =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "resourceVersion": "7"}, "spec": {}});
        let draft = draft(&object);
        let mut text = String::from_utf8(draft.json).unwrap();
        text.insert_str(draft.revision_at, "12");
        assert_eq!(
            text,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12","name":"a"},"spec":{}}"#
        );
        let start = item_start(text.as_bytes());
        assert!(text[start..].starts_with("\"metadata\":{"));
    }
}

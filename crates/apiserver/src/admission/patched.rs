//! What webhooks and policies make of an object.
//!
//! They write JSON, and know no better than a client what a kind looks like. So what they made is read as strictly as a
//! body is: a value that does not fit its field is refused, what a kind does not have goes, and defaults come.

use super::Review;
use crate::catalogue::Resource;
use crate::error::{ApiError, Result};
use crate::server::decode::{self, Mistakes};
use crate::verbs::Call;
use serde_json::Value;

/// What becomes of fields that a kind does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    Dropped,
    Refused,
}

/// Takes a changed object in, from the version that was changed.
pub async fn take_in(
    call: &Call,
    review: &mut Review,
    seen: &Resource,
    changed: Value,
    unknown: Unknown,
) -> Result<()> {
    let mut changed = changed;
    let whole = is_whole(review);
    if whole && seen.origin_is_built_in() {
        let decoded =
            decode::decode_value(changed, Some(seen.schema()), Mistakes::PassOver).map_err(ApiError::internal)?;
        if unknown == Unknown::Refused && !decoded.strict.is_empty() {
            let why = format!("strict decoding error: {}", decoded.strict.join(", "));
            return Err(ApiError::internal(why));
        }
        changed = decoded.value;
    }
    call.convert(&mut changed, seen, &review.resource).await?;
    if whole {
        crate::custom::prune(&review.resource, &mut changed);
        crate::kinds::default(&review.resource, &mut changed);
    }
    review.object = Some(changed);
    Ok(())
}

/// Whether the review is about an object of its resource. An eviction, a scale or a binding is something else.
pub fn is_whole(review: &Review) -> bool {
    let kind = review.object.as_ref().map(|object| &object["kind"]);
    kind.is_some_and(|kind| *kind == review.resource.kind)
}

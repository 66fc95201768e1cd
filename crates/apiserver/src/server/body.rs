//! Bodies of requests and answers.
//!
//! A request's body is read whole, up to a limit; an answer is one buffer, or a stream of shared buffers
//! for lists and watches.

use crate::error::{ApiError, Result};
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use std::convert::Infallible;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Bytes that are read of a body that is too large, so that its sender gets to read the answer.
const MOST_DISCARDED: usize = 64 * 1024 * 1024;

/// A body that is all there.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// A body made of buffers as they come.
pub fn stream(buffers: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    StreamBody::new(buffers.map(|buffer| Ok(http_body::Frame::data(buffer)))).boxed_unsync()
}

/// Reads a body, refusing one of more than `limit` bytes before it is in memory.
pub async fn read(mut body: Body, limit: usize) -> Result<Bytes> {
    if http_body::Body::size_hint(&body).lower() > limit as u64 {
        return Err(too_large(body, limit).await);
    }
    let mut first: Option<Bytes> = None;
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::bad_request(format!("failed to read the body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if joined.len() + first.as_ref().map_or(0, Bytes::len) + data.len() > limit {
            return Err(too_large(body, limit).await);
        }
        match first.take() {
            // Most bodies come in one piece, which needs no copy.
            None if joined.is_empty() => first = Some(data),
            None => joined.extend_from_slice(&data),
            Some(before) => {
                joined.extend_from_slice(&before);
                joined.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| joined.freeze()))
}

/// Reads on for a while, keeping nothing: a client that is still writing when its connection closes sees a broken
/// pipe, and never the reason.
async fn too_large(mut body: Body, limit: usize) -> ApiError {
    let mut patience = MOST_DISCARDED;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        match patience.checked_sub(length) {
            Some(left) => patience = left,
            None => break,
        }
    }
    ApiError::new(
        413,
        "RequestEntityTooLarge",
        format!("Request entity too large: limit is {limit}"),
    )
}

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
        return Err(too_large(limit));
    }
    let mut first: Option<Bytes> = None;
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::bad_request(format!("failed to read the body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if joined.len() + first.as_ref().map_or(0, Bytes::len) + data.len() > limit {
            return Err(too_large(limit));
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

fn too_large(limit: usize) -> ApiError {
    ApiError::new(
        413,
        "RequestEntityTooLarge",
        format!("Request entity too large: limit is {limit}"),
    )
}

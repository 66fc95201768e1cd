//! Server-side apply.

use super::Call;
use super::write_options::WriteOptions;
use crate::error::{ApiError, Result};
use crate::server::Body;
use crate::server::negotiate::BodyEncoding;
use bytes::Bytes;
use http::Response;

pub async fn apply(
    _call: &Call,
    _bytes: &Bytes,
    _encoding: BodyEncoding,
    _options: &WriteOptions,
) -> Result<Response<Body>> {
    Err(ApiError::new(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json",
    ))
}

//! Answers: objects, lists, errors, in the form that was negotiated.

use super::body::{self, Body};
use super::negotiate::{Accepted, Encoding};
use crate::error::{ApiError, Result};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, Response, StatusCode};
use serde_json::Value;
use std::io::Write;

/// Answers of this size and more are compressed for clients that want it, as in Kubernetes.
pub const GZIP_THRESHOLD: usize = 128 * 1024;

/// An answer from bytes that are JSON already.
pub fn json_bytes(code: u16, json: Bytes, accepted: Accepted) -> Result<Response<Body>> {
    if accepted.encoding == Encoding::Json && !accepted.pretty {
        return Ok(finish(code, "application/json", json, accepted.gzip));
    }
    let value: Value = serde_json::from_slice(&json).map_err(ApiError::internal)?;
    object(code, &value, accepted)
}

/// An answer from a value.
pub fn object(code: u16, value: &Value, accepted: Accepted) -> Result<Response<Body>> {
    let bytes = encode(value, accepted)?;
    Ok(finish(
        code,
        accepted.encoding.media_type(),
        bytes.into(),
        accepted.gzip,
    ))
}

/// Encodes a value as negotiated.
pub fn encode(value: &Value, accepted: Accepted) -> Result<Vec<u8>> {
    match accepted.encoding {
        Encoding::Json if accepted.pretty => {
            let mut bytes = serde_json::to_vec_pretty(value).map_err(ApiError::internal)?;
            bytes.push(b'\n');
            Ok(bytes)
        }
        Encoding::Json => {
            let mut bytes = serde_json::to_vec(value).map_err(ApiError::internal)?;
            bytes.push(b'\n');
            Ok(bytes)
        }
        Encoding::Yaml => serde_saphyr::to_string(value)
            .map(String::into_bytes)
            .map_err(ApiError::internal),
    }
}

/// The answer to a failed request.
pub fn error(error: &ApiError, accepted: Option<Accepted>) -> Response<Body> {
    let status = error.to_status();
    let plain = || (status.to_string().into_bytes(), "application/json");
    let (bytes, media) = match accepted {
        Some(accepted) => encode(&status, accepted)
            .map(|bytes| (bytes, accepted.encoding.media_type()))
            .unwrap_or_else(|_| plain()),
        None => plain(),
    };
    let mut response = finish(error.code, media, bytes.into(), false);
    // For the audit log, which tells why.
    response.extensions_mut().insert(error.clone());
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert("retry-after", HeaderValue::from(seconds));
    }
    response
}

/// Plain text, as the health endpoints answer.
pub fn text(code: u16, text: impl Into<String>) -> Response<Body> {
    let mut response = finish(code, "text/plain; charset=utf-8", text.into().into(), false);
    response
        .headers_mut()
        .insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// An answer of one buffer, compressed if that is wanted and worth it.
pub fn finish(code: u16, media: &'static str, bytes: Bytes, gzip: bool) -> Response<Body> {
    let mut response = Response::new(Body::default());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static(media));
    headers.insert("cache-control", HeaderValue::from_static("no-cache, private"));
    let compressed = (gzip && bytes.len() > GZIP_THRESHOLD)
        .then(|| compress(&bytes))
        .flatten();
    let bytes = match compressed {
        Some(compressed) => {
            headers.insert("content-encoding", HeaderValue::from_static("gzip"));
            headers.append("vary", HeaderValue::from_static("Accept-Encoding"));
            Bytes::from(compressed)
        }
        None => bytes,
    };
    headers.insert("content-length", HeaderValue::from(bytes.len() as u64));
    *response.body_mut() = body::full(bytes);
    response
}

fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

/// A `Warning` header in the form that client-go prints.
pub fn warning_header(text: &str) -> Option<HeaderValue> {
    let cleaned: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let escaped = cleaned.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_bytes(format!("299 - \"{escaped}\"").as_bytes()).ok()
}

//! The gRPC health check, by hand: one request of a few bytes does not need a framework.
//!
//! `grpc.health.v1.Health/Check` takes a message with the service's name and answers with a number; 1 means serving.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// Asks for the health of `service`.
pub async fn check(stream: TcpStream, service: &str) -> Result<(), String> {
    let failed = |error: hyper::Error| format!("service unhealthy: {error}");
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(failed)?;
    let connection = tokio::spawn(connection);
    let request = http::Request::post("http://pod/grpc.health.v1.Health/Check")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from(message(service))))
        .map_err(|error| error.to_string())?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(failed)?;
        answer.into_body().collect().await.map_err(failed)
    };
    let answer = answer.await;
    connection.abort();
    let body = answer?.to_bytes();
    // Five bytes of frame, then field 1 (status) as a number.
    match body.get(5..) {
        Some([0x08, 1, ..]) => Ok(()),
        _ => Err("service unhealthy (responded with \"NOT_SERVING\")".to_owned()),
    }
}

/// The request: an uncompressed frame around one string field.
fn message(service: &str) -> Vec<u8> {
    // A service's name is at most 253 bytes; a length below 128 is one byte, and longer ones are two.
    let name = &service.as_bytes()[..service.len().min(253)];
    let mut body = Vec::new();
    if !name.is_empty() {
        body.push(0x0a);
        if name.len() >= 128 {
            body.push((name.len() & 0x7f) as u8 | 0x80);
            body.push((name.len() >> 7) as u8);
        } else {
            body.push(name.len() as u8);
        }
        body.extend_from_slice(name);
    }
    let mut frame = vec![0];
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
    frame.extend(body);
    frame
}

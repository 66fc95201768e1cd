//! The agent's own HTTPS server: logs, exec, attach, port-forward and numbers, as a kubelet serves them.
//!
//! Only the API server calls it, with a client certificate that the listener checks; it passes upgraded
//! connections through, so that the WebSocket protocols of clients arrive here as they were sent.

mod exec;
pub mod forward;
pub mod identity;
mod line;
mod logs;
mod session;
pub mod signed;
mod spdy;
mod upgrade;

use super::process::Process;
use bytes::Bytes;
use futures::TryStreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// The body of an answer.
type Body = BoxBody<Bytes, io::Error>;

/// Where the server listens, and as whom.
pub struct Serving {
    pub listener: TcpListener,
    /// Must ask for a client certificate of the API server: whoever connects may run commands in pods.
    pub tls: Arc<rustls::ServerConfig>,
    pub guard: Guard,
}

/// Who may use the server, of those whose certificate the listener takes.
#[derive(Clone)]
pub enum Guard {
    /// Who shows this certificate: that of the API server in the same process.
    Only(CertificateDer<'static>),
    /// Those whom the cluster lets use its nodes: its authority signs certificates of users too.
    Reviewed { client: kube::Client, node: String },
}

impl Guard {
    async fn admits(&self, certificate: Option<&CertificateDer<'_>>) -> bool {
        let (client, node) = match self {
            Guard::Only(shown) => return certificate == Some(shown),
            Guard::Reviewed { client, node } => (client, node),
        };
        let Some((user, groups)) = certificate.and_then(identity::subject) else {
            return false;
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user),
                groups: Some(groups),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some("create".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some("proxy".to_owned()),
                    name: Some(node.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await;
        answer.is_ok_and(|answer| answer.status.is_some_and(|status| status.allowed))
    }
}

/// Connections at once; more wait to be accepted. The API server makes one for each log, exec and port-forward.
const MOST_CONNECTIONS: usize = 1024;
/// How long a client may take to show who it is.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// Serves until `stop`.
pub async fn serve(serving: Serving, process: Arc<Process>, stop: CancellationToken) {
    let acceptor = TlsAcceptor::from(serving.tls);
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let next = async {
            // The semaphore is never closed; without a permit the connection is merely not counted.
            let permit = room.clone().acquire_owned().await.ok();
            serving
                .listener
                .accept()
                .await
                .map(|(stream, from)| (stream, from, permit))
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = next => accepted,
        };
        let Ok((stream, _, permit)) = accepted else {
            // Out of file descriptors: give others the time to close some.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (acceptor, process, guard) = (acceptor.clone(), process.clone(), serving.guard.clone());
        // Nodes of one process are told apart by the address that they are asked at.
        let at = stream.local_addr().ok().map(|address| address.ip());
        let line = process.lines.at(&process.hosts, at);
        if line.is_cancelled() {
            // The client hears at once that nobody is there. If it cannot be told so, closing tells it too.
            let _ = stream.set_zero_linger();
            continue;
        }
        let stream = line::OnLine::new(stream, line);
        tokio::spawn(async move {
            let _permit = permit;
            let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_PATIENCE, acceptor.accept(stream)).await else {
                return;
            };
            let certificates = stream.get_ref().1.peer_certificates();
            let admitted = guard.admits(certificates.and_then(<[_]>::first)).await;
            let service = hyper::service::service_fn(move |request| {
                let process = process.clone();
                async move {
                    Ok::<_, Infallible>(match admitted {
                        true => answer(process, at, request).await,
                        false => text(StatusCode::FORBIDDEN, "Forbidden"),
                    })
                }
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            // A broken connection concerns its client alone.
            let _ = builder
                .serve_connection_with_upgrades(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// The query of a request, names in order with all their values.
#[derive(Debug, Default)]
pub struct Parameters(BTreeMap<String, Vec<String>>);

impl Parameters {
    pub fn parse(query: &str) -> Parameters {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            found.entry(decode(name)).or_default().push(decode(value));
        }
        Parameters(found)
    }

    pub fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.all(name).first().map(String::as_str)
    }

    /// Whether a switch is on, under either of its names: kubelets and API servers spell them differently.
    pub fn is_on(&self, names: [&str; 2]) -> bool {
        names.iter().any(|name| matches!(self.text(name), Some("1" | "true")))
    }
}

/// Decodes `%20` and `+`. What is no code stays as it is.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut result = Vec::with_capacity(bytes.len());
    let mut place = 0;
    while let Some(byte) = bytes.get(place) {
        let code = bytes
            .get(place + 1..place + 3)
            .and_then(|code| std::str::from_utf8(code).ok());
        match (byte, code.and_then(|code| u8::from_str_radix(code, 16).ok())) {
            (b'%', Some(decoded)) => {
                result.push(decoded);
                place += 2;
            }
            (b'+', _) => result.push(b' '),
            (other, _) => result.push(*other),
        }
        place += 1;
    }
    String::from_utf8_lossy(&result).into_owned()
}

async fn answer(process: Arc<Process>, at: Option<IpAddr>, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let parameters = Parameters::parse(request.uri().query().unwrap_or_default());
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["healthz"] => text(StatusCode::OK, "ok"),
        ["containerLogs", namespace, pod, container] if request.method() == Method::GET => {
            logs(&process, namespace, pod, container, &parameters).await
        }
        [verb @ ("exec" | "attach"), namespace, pod, rest @ ..] => {
            let container = rest
                .last()
                .copied()
                .or(parameters.text("container"))
                .unwrap_or_default()
                .to_owned();
            let Some(uid) = process.uid(namespace, pod) else {
                return no_pod(namespace, pod);
            };
            let command = match *verb {
                "exec" => Some(parameters.all("command").to_vec()),
                _ => None,
            };
            exec::upgrade(
                process,
                request,
                exec::Wanted {
                    uid,
                    container,
                    command,
                    parameters,
                },
            )
        }
        ["portForward", namespace, pod, ..] => {
            let Some(uid) = process.uid(namespace, pod) else {
                return no_pod(namespace, pod);
            };
            forward::upgrade(process, request, &uid, &parameters)
        }
        ["stats", "summary"] => json(process.summary(at)),
        _ => text(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

async fn logs(
    process: &Arc<Process>,
    namespace: &str,
    pod: &str,
    container: &str,
    parameters: &Parameters,
) -> Response<Body> {
    let wanted = match logs::Wanted::parse(parameters, process.clock.now()) {
        Ok(wanted) => wanted,
        Err(message) => return text(StatusCode::BAD_REQUEST, &message),
    };
    let uid = process.uid(namespace, pod);
    let path = uid
        .as_ref()
        .and_then(|uid| process.log_path(uid, container, wanted.which));
    let (Some(uid), Some(path)) = (uid, path) else {
        // It has not run, and why is what its status says.
        let pods: Api<Pod> = Api::namespaced(process.voices.reader.clone(), namespace);
        return match pods.get_opt(pod).await {
            Ok(Some(found)) => text(StatusCode::BAD_REQUEST, &logs::absent(&found, container, wanted.which)),
            Ok(None) => no_pod(namespace, pod),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        };
    };
    let process = process.clone();
    let container = container.to_owned();
    let alive = move || process.is_running(&uid, &container);
    let chunks = logs::read(path, wanted, alive).map_ok(Frame::data);
    respond(StatusCode::OK, "text/plain", BodyExt::boxed(StreamBody::new(chunks)))
}

fn no_pod(namespace: &str, pod: &str) -> Response<Body> {
    text(
        StatusCode::NOT_FOUND,
        &format!("pod \"{pod}\" in namespace \"{namespace}\" is not on this node"),
    )
}

fn text(status: StatusCode, message: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(message.to_owned())).map_err(|never| match never {});
    respond(status, "text/plain", body.boxed())
}

fn json(value: serde_json::Value) -> Response<Body> {
    let body = Full::new(Bytes::from(value.to_string())).map_err(|never| match never {});
    respond(StatusCode::OK, "application/json", body.boxed())
}

fn respond(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded_and_keeps_every_value() {
        let parameters = Parameters::parse("command=echo&command=a%20b%2Bc&stdin=true&x=100%");
        assert_eq!(parameters.all("command"), ["echo", "a b+c"]);
        assert!(parameters.is_on(["input", "stdin"]));
        assert_eq!(parameters.text("x"), Some("100%"));
    }
}

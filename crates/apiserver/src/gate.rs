//! The gate in front of a server that strangers can reach: who are you, and what did you do.
//!
//! It authenticates every request, hands the user to the server behind it, and writes the audit log. A
//! caller inside the process needs no gate: whoever holds the server's value holds the cluster.

use crate::audit::{Annotations, AuditLog, Entry, ObjectReference, RequestBody};
use crate::auth::{Auth, Credentials, PeerCertificate, User};
use crate::environment::Environment;
use crate::error::ApiError;
use crate::listen::{self, RemoteAddress};
use crate::server::body::BoxError;
use crate::server::query::Query;
use crate::server::request::RequestInfo;
use crate::server::{ApiServer, Body, respond};
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{Extensions, HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::ServerConfig;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Bytes of a body that the audit log keeps; a larger one could not have been stored either.
const LONGEST_BODY: usize = 3 * 1024 * 1024;

/// Set on answers by the server: the user that a request ran as, where it was not the one who sent it.
#[derive(Debug, Clone)]
pub struct RanAs(pub User);

/// An API server behind authentication and audit. Clones share everything.
#[derive(Clone)]
pub struct Gate {
    server: ApiServer,
    auth: Auth,
    environment: Environment,
    audit: Option<AuditLog>,
}

impl Gate {
    pub fn new(server: ApiServer, audit: Option<AuditLog>) -> Self {
        let shared = server.shared();
        Gate {
            auth: shared.auth.clone(),
            environment: shared.environment.clone(),
            audit,
            server,
        }
    }

    /// Serves strangers on a socket, as [`listen::serve`] says.
    ///
    /// Not `async`: a future is compiled in the crate that makes it, with all that it awaits, and the whole of HTTP and
    /// of a request should be where the compiler is told to optimise.
    #[inline(never)]
    pub fn serve(
        self,
        listener: TcpListener,
        tls: Arc<ServerConfig>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        Box::pin(listen::serve(listener, tls, self, stop))
    }

    /// Made here for the same reason, when somebody else serves.
    #[inline(never)]
    fn pass(self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Infallible>> {
        Box::pin(async move { Ok(self.handle(request).await) })
    }

    async fn handle(&self, mut request: Request<Body>) -> Response<Body> {
        let received = self.environment.clock.now();
        let (extensions, headers) = (request.extensions(), request.headers());
        let user = self.sender(extensions, headers, request.uri().path()).await;
        // Nothing behind this needs the token, and a proxy must never pass it on.
        request.headers_mut().remove(header::AUTHORIZATION);
        let Some(audit) = &self.audit else {
            return self.answer(request, user).await;
        };
        let id = self.environment.uid();
        let seen = Seen::of(&request, user.as_ref().ok(), &id, received);
        let (request, body) = seen.overhear(request);
        let mut response = self.answer(request, user).await;
        if let Ok(value) = HeaderValue::from_str(&id) {
            response.headers_mut().insert("audit-id", value);
        }
        let finished = Finished {
            entry: Some(seen.entry(&response)),
            body,
            audit: audit.clone(),
            environment: self.environment.clone(),
        };
        // A watch is complete when its stream ends, everything else when it is answered.
        if seen.info.long_running() {
            return response.map(|body| until_end(body, finished));
        }
        drop(finished);
        response
    }

    /// Who sends a request. One that has a user already comes from inside the process: nothing that arrives
    /// on a connection can carry one.
    async fn sender(&self, extensions: &Extensions, headers: &HeaderMap, path: &str) -> Result<User, ApiError> {
        if let Some(user) = extensions.get::<User>() {
            return Ok(user.clone());
        }
        let certificate = extensions.get::<Arc<PeerCertificate>>().map(Arc::as_ref);
        self.auth
            .authenticate(Credentials::of(headers, certificate), path)
            .await
    }

    async fn answer(&self, mut request: Request<Body>, user: Result<User, ApiError>) -> Response<Body> {
        match user {
            Ok(user) => {
                request.extensions_mut().insert(user);
                self.server.handle(request).await
            }
            Err(error) => respond::error(&error, None),
        }
    }
}

impl<B> tower::Service<Request<B>> for Gate
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        self.clone().pass(request)
    }
}

/// What the log needs of a request before the server takes it apart.
struct Seen {
    info: RequestInfo,
    id: String,
    uri: String,
    user: User,
    source: Option<std::net::IpAddr>,
    user_agent: String,
    received: Timestamp,
}

impl Seen {
    fn of(request: &Request<Body>, user: Option<&User>, id: &str, received: Timestamp) -> Self {
        let uri = request.uri();
        let query = Query::parse(uri.query().unwrap_or_default());
        let agent = request.headers().get(header::USER_AGENT);
        Seen {
            info: RequestInfo::parse(request.method(), uri.path(), &query),
            id: id.to_string(),
            uri: uri.path_and_query().map_or("/", |whole| whole.as_str()).to_string(),
            user: user.cloned().unwrap_or_default(),
            source: request.extensions().get::<RemoteAddress>().map(|remote| remote.0.ip()),
            user_agent: agent
                .map(|agent| String::from_utf8_lossy(agent.as_bytes()).into_owned())
                .unwrap_or_default(),
            received,
        }
    }

    /// Keeps a copy of the body as the server reads it.
    fn overhear(&self, request: Request<Body>) -> (Request<Body>, Overheard) {
        let writes = matches!(self.info.verb, "create" | "update" | "patch");
        let json = |media: &str| media.contains("json");
        let media = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|media| media.to_str().ok());
        let format = match media {
            _ if !writes => Format::None,
            Some(media) if media.contains("protobuf") => Format::Protobuf,
            Some(media) if json(media) => Format::Json,
            _ => Format::None,
        };
        let heard = Overheard {
            format,
            bytes: Arc::default(),
        };
        if format == Format::None {
            return (request, heard);
        }
        let copy = heard.bytes.clone();
        let request = request.map(|body| {
            body.map_frame(move |frame| {
                if let Some(data) = frame.data_ref() {
                    let mut copy = copy.lock();
                    // Once a piece did not fit, the later ones would make another document of it.
                    let room = LONGEST_BODY.saturating_sub(copy.len());
                    copy.extend_from_slice(&data[..data.len().min(room)]);
                }
                frame
            })
            .boxed_unsync()
        });
        (request, heard)
    }

    fn entry(&self, response: &Response<Body>) -> Entry {
        let failure = response.extensions().get::<ApiError>();
        Entry {
            id: self.id.clone(),
            verb: self.info.verb.to_string(),
            uri: self.uri.clone(),
            user: self.user.clone(),
            impersonated: response.extensions().get::<RanAs>().map(|ran| ran.0.clone()),
            source: self.source,
            user_agent: self.user_agent.clone(),
            object: self.info.resource.as_ref().map(|path| ObjectReference {
                group: path.group.clone(),
                version: path.version.clone(),
                resource: path.resource.clone(),
                subresource: path.subresource.clone(),
                namespace: path.namespace.clone(),
                name: path.name.clone(),
            }),
            body: RequestBody::None,
            annotations: response.extensions().get::<Annotations>().cloned().unwrap_or_default(),
            code: response.status().as_u16(),
            failure: failure.map(|error| (error.message.clone(), error.reason.to_string())),
            received: self.received,
            answered: self.received,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    None,
    Json,
    Protobuf,
}

/// The body of a request, as far as the server has read it.
struct Overheard {
    format: Format,
    bytes: Arc<Mutex<BytesMut>>,
}

/// An answered request; dropping it writes the log.
struct Finished {
    entry: Option<Entry>,
    body: Overheard,
    audit: AuditLog,
    environment: Environment,
}

impl Drop for Finished {
    fn drop(&mut self) {
        let Some(mut entry) = self.entry.take() else { return };
        let bytes = std::mem::take(&mut *self.body.bytes.lock()).freeze();
        entry.body = match self.body.format {
            Format::Json => RequestBody::Json(bytes),
            Format::Protobuf => RequestBody::Protobuf(bytes),
            Format::None => RequestBody::None,
        };
        entry.answered = self.environment.clock.now();
        self.audit.record(entry);
    }
}

/// A body that finishes the log entry when it ends or its reader goes away.
fn until_end(body: Body, finished: Finished) -> Body {
    body.map_frame(move |frame| {
        let _alive = &finished;
        frame
    })
    .boxed_unsync()
}

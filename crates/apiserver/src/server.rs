//! The API server as a value: a `tower::Service` over HTTP requests.
//!
//! An in-process client calls it directly; the same value stands behind TLS. It holds no task of its own:
//! everything happens inside a request, so a test can make hundreds of servers and drop them.

mod access;
pub mod body;
pub mod decode;
mod dispatch;
pub mod forward;
mod health;
mod limits;
mod metrics;
pub mod negotiate;
pub mod query;
pub mod request;
pub mod respond;
mod state;
pub mod wires;

pub use body::Body;
pub(crate) use dispatch::generic;
pub use limits::Limits;
pub(crate) use metrics::WatchGuard;
pub use state::{Config, Network, Shared};

use crate::store::StoreError;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A running API server. Clones share everything.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

impl ApiServer {
    /// Builds a server on a store, and creates the objects that every cluster has.
    pub async fn new(config: Config) -> Result<Self, StoreError> {
        let server = ApiServer {
            shared: Arc::new(Shared::new(config)),
        };
        crate::kinds::bootstrap(&server.shared).await?;
        Ok(server)
    }

    /// What all requests share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Answers one request. Never fails: what goes wrong is a `Status` in the answer.
    pub async fn handle(&self, request: Request<Body>) -> Response<Body> {
        dispatch::handle(self.shared.clone(), request).await
    }

    /// A future is compiled in the crate that makes it, with all that it awaits. This one is made here, where the
    /// compiler is told to optimise, and once, instead of for every body in every crate that calls.
    #[inline(never)]
    fn answer(self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Infallible>> {
        Box::pin(async move { Ok(self.handle(request).await) })
    }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<body::BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The bound on requests in flight answers 429 instead of holding callers back.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        self.clone().answer(request)
    }
}

//! The client through which an operator talks to the API server.
//!
//! It is an ordinary kube client with one layer around it: writes pass the leadership fence, every request is
//! measured and says in its User-Agent which replica sent it.

use crate::leader::{Fence, NotLeader};
use crate::metrics::Metrics;
use http::{HeaderValue, Method, Request, Response, header};
use kube::Client;
use kube::client::Body;
use std::sync::Arc;
use tokio::time::Instant;
use tracing::Instrument;

/// Wraps a client, so that its writes are fenced and its requests are measured.
pub fn wrap(client: Client, fence: Fence, metrics: Metrics, user_agent: Option<HeaderValue>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let wrapped = Arc::new(Wrapped {
        client,
        fence,
        metrics,
        user_agent,
    });
    let service = tower::service_fn(move |request: Request<Body>| {
        let wrapped = wrapped.clone();
        async move { wrapped.send(request).await }
    });
    Client::new(service, namespace)
}

struct Wrapped {
    client: Client,
    fence: Fence,
    metrics: Metrics,
    user_agent: Option<HeaderValue>,
}

impl Wrapped {
    async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        if let Some(agent) = &self.user_agent {
            request.headers_mut().insert(header::USER_AGENT, agent.clone());
        }
        let method = request.method().clone();
        let verb = verb(&method, request.uri());
        let host = request.uri().host().unwrap_or("kubernetes").to_owned();
        let started = Instant::now();
        let path = request.uri().path();
        let span = tracing::info_span!("request", %method, path, code = tracing::field::Empty);
        let result = match is_write(&method) {
            true => self.send_as_leader(request).instrument(span.clone()).await,
            false => {
                let sent = self.client.send(request).instrument(span.clone());
                sent.await.map_err(tower::BoxError::from)
            }
        };
        let code = match &result {
            Ok(response) => response.status().as_str().to_owned(),
            Err(_) => "<error>".to_owned(),
        };
        span.record("code", code.as_str());
        self.metrics
            .request(method.as_str(), verb, &host, &code, started.elapsed());
        result
    }

    async fn send_as_leader(&self, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        self.fence.check()?;
        tokio::select! {
            biased;
            // Whoever leads next may act from now on; an answer that comes later is of no use to us.
            () = self.fence.lost() => Err(NotLeader.into()),
            result = self.client.send(request) => result.map_err(tower::BoxError::from),
        }
    }
}

fn is_write(method: &Method) -> bool {
    !(method == Method::GET || method == Method::HEAD || method == Method::OPTIONS)
}

/// The verb that client-go puts into its latency metric.
fn verb(method: &Method, uri: &http::Uri) -> &'static str {
    let watch = uri.query().is_some_and(|query| query.contains("watch=true"));
    match method.as_str() {
        "GET" if watch => "WATCH",
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "OTHER",
    }
}

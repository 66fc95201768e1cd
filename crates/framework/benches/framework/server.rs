//! An API server that knows two kinds and nothing else: enough for a cache, and it counts what it is asked.

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type AnyBody = UnsyncBoxBody<Bytes, Infallible>;
/// Makes the object of a number.
pub type Make = Arc<dyn Fn(usize) -> Value + Send + Sync>;

/// What is served: by plural, how many objects and how each looks.
#[derive(Clone, Default)]
pub struct Server {
    kinds: HashMap<&'static str, (usize, Make)>,
    /// Requests so far.
    pub asked: Arc<AtomicUsize>,
}

impl Server {
    pub fn with(mut self, plural: &'static str, objects: usize, make: Make) -> Self {
        self.kinds.insert(plural, (objects, make));
        self
    }

    pub fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(&request)) }
        });
        Client::new(service, "bench")
    }

    fn answer(&self, request: &Request<Body>) -> Response<AnyBody> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let query = request.uri().query().unwrap_or_default();
        let parameter = |name: &str| {
            let pairs = form_urlencoded::parse(query.as_bytes());
            pairs
                .into_iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.into_owned())
        };
        if parameter("watch").is_some() {
            // It stays open and says nothing.
            let silent = futures::stream::pending::<Result<http_body::Frame<Bytes>, Infallible>>();
            return Response::new(StreamBody::new(silent.boxed()).boxed_unsync());
        }
        let plural = request.uri().path().rsplit('/').next().unwrap_or_default();
        let Some((objects, make)) = self.kinds.get(plural) else {
            return Response::new(full(
                json!({"metadata": {"resourceVersion": "1"}, "items": []}).to_string(),
            ));
        };
        let number = |name: &str| parameter(name).and_then(|text| text.parse::<usize>().ok());
        let from = number("continue").unwrap_or(0);
        let to = (from + number("limit").unwrap_or(*objects)).min(*objects);
        let mut metadata = json!({"resourceVersion": objects.to_string()});
        if to < *objects {
            metadata["continue"] = json!(to.to_string());
        }
        let items: Vec<Value> = (from..to).map(|number| make(number)).collect();
        Response::new(full(json!({"metadata": metadata, "items": items}).to_string()))
    }
}

fn full(text: String) -> AnyBody {
    Full::new(Bytes::from(text)).boxed_unsync()
}

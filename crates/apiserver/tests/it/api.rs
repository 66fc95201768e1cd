//! A server in the process, and a client that speaks plain HTTP to it.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use stead_apiserver::catalogue::Catalogue;
use stead_apiserver::environment::{Clock, Entropy, Environment};
use stead_apiserver::server::{ApiServer, Body, Config, Limits};
use stead_apiserver::store::{History, Store};
use tower::ServiceExt;

/// A server on a clock that stands still unless it is moved, with countable randomness.
pub struct Api {
    pub server: ApiServer,
    #[allow(dead_code, reason = "not every story moves the clock")]
    pub clock: Arc<TestClock>,
}

pub struct TestClock(AtomicI64);

impl TestClock {
    #[allow(dead_code, reason = "not every story moves the clock")]
    pub fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::SeqCst)).unwrap()
    }
}

struct Counter(AtomicU64);

impl Entropy for Counter {
    fn fill(&self, bytes: &mut [u8]) {
        for byte in bytes {
            let next = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
            *byte = (next >> 32) as u8;
        }
    }
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub headers: http::HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub fn warnings(&self) -> Vec<String> {
        let all = self.headers.get_all("warning").iter();
        all.map(|warning| warning.to_str().unwrap().to_string()).collect()
    }

    /// The object, if the request succeeded.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{}: {}", self.code, self.json());
        self.json()
    }

    /// Code, reason and message of a failure.
    #[track_caller]
    pub fn failure(&self) -> (u16, String, String) {
        let status = self.json();
        assert_eq!(status["kind"], "Status", "{status}");
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_string();
        (self.code, text("reason"), text("message"))
    }

    #[track_caller]
    pub fn fails(&self, code: u16, reason: &str, message: &str) {
        assert_eq!(self.failure(), (code, reason.to_string(), message.to_string()));
    }
}

impl Api {
    pub async fn start() -> Api {
        Api::with_limits(Limits::default()).await
    }

    pub async fn with_limits(limits: Limits) -> Api {
        Api::on(limits, |clock| Store::in_memory(clock, History::default())).await
    }

    /// On a store whose writes take their time.
    pub async fn on_disk(directory: &Path) -> Api {
        let open = |clock: Arc<TestClock>| Store::open(directory, clock, History::default()).unwrap();
        Api::on(Limits::default(), open).await
    }

    async fn on(limits: Limits, open: impl FnOnce(Arc<TestClock>) -> Store) -> Api {
        let clock = Arc::new(TestClock(AtomicI64::new(1_800_000_000)));
        let environment = Environment {
            clock: clock.clone(),
            entropy: Arc::new(Counter(AtomicU64::new(7))),
        };
        let store = open(clock.clone());
        let mut config = Config::new(store, environment, Catalogue::with_usage());
        config.limits = limits;
        let server = ApiServer::new(config).await.unwrap();
        Api { server, clock }
    }

    pub async fn send(&self, request: Request<Full<Bytes>>) -> http::Response<Body> {
        match self.server.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    pub async fn call(&self, method: &str, path: &str, content_type: &str, body: impl Into<Bytes>) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .header("user-agent", "story/1.0")
            .body(Full::new(body.into()))
            .unwrap();
        self.answer(request).await
    }

    pub async fn answer(&self, request: Request<Full<Bytes>>) -> Answer {
        let response = self.send(request).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            code: parts.status.as_u16(),
            headers: parts.headers,
            body,
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "", Bytes::new()).await
    }

    pub async fn post(&self, path: &str, object: Value) -> Answer {
        self.call("POST", path, "application/json", object.to_string()).await
    }

    pub async fn put(&self, path: &str, object: Value) -> Answer {
        self.call("PUT", path, "application/json", object.to_string()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, "", Bytes::new()).await
    }

    pub async fn merge(&self, path: &str, patch: Value) -> Answer {
        self.call("PATCH", path, "application/merge-patch+json", patch.to_string())
            .await
    }
}

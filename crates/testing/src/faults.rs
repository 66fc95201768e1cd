//! Faults between a client and the API server: lost requests, lost answers, delays, refusals, frozen watches.
//!
//! It wraps any client, so the same story runs on the embedded cluster and on a real one. Every request is
//! written down, so that a test can count and compare what was sent.

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

type AnyBody = UnsyncBoxBody<Bytes, tower::BoxError>;

/// What happens to a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It never reaches the server.
    LoseRequest,
    /// The server does what it asks, and the answer is lost.
    LoseAnswer,
    /// It is answered by this status instead of by the server.
    Refuse(Refusal),
    /// It reaches the server late.
    Delay(Duration),
    /// It left the process before something happened to the process, and reaches the server after so long whether or
    /// not anybody waits for the answer: bytes in a socket's buffer are not taken back.
    Late(Duration),
    /// The server does what it asks twice, as when a proxy repeats a request whose answer it did not see.
    Double,
    /// Nothing ever comes back, and the connection stays open.
    Silence,
    /// A watch is answered by one error event, as after a compaction.
    Expire,
}

/// An answer in the server's place.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// The `reason` of the Status.
    pub reason: &'static str,
    /// The `message` of the Status.
    pub message: String,
    /// When to come back, in seconds.
    pub retry_after: Option<u32>,
}

/// One request, as it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When it was sent.
    pub at: Instant,
    /// Its method.
    pub method: Method,
    /// The path of its URL.
    pub path: String,
    /// The query of its URL.
    pub query: String,
    /// What it carries.
    pub body: Bytes,
    /// Who says to send it: the User-Agent.
    pub agent: String,
    /// What came back; none while it is under way or if nothing did.
    pub code: Option<u16>,
}

impl Sent {
    /// Whether it changes anything.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// Whether it is a watch.
    pub fn is_watch(&self) -> bool {
        self.query.contains("watch=true")
    }

    /// Whether it is about this resource, by its plural.
    pub fn is_about(&self, plural: &str) -> bool {
        self.path.split('/').any(|segment| segment == plural)
    }
}

type Matcher = Arc<dyn Fn(&Sent) -> bool + Send + Sync>;

struct Rule {
    matches: Matcher,
    fault: Fault,
    /// How many more requests it meets.
    left: usize,
}

/// A shared handle to the faults of one client.
#[derive(Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

struct Shared {
    rules: Mutex<Vec<Rule>>,
    log: Mutex<Log>,
    /// Resources whose watches deliver nothing.
    frozen: watch::Sender<HashSet<String>>,
    cut: watch::Sender<Link>,
    /// Counts how often all watches were ended.
    hung_up: watch::Sender<u64>,
}

/// What was sent, numbered from the first request on; numbers stay right when the beginning is forgotten.
#[derive(Default)]
struct Log {
    forgotten: usize,
    entries: Vec<Sent>,
}

#[derive(Clone, Copy, PartialEq)]
enum Link {
    Whole,
    Cut,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            shared: Arc::new(Shared {
                rules: Mutex::default(),
                log: Mutex::default(),
                frozen: watch::Sender::new(HashSet::new()),
                cut: watch::Sender::new(Link::Whole),
                hung_up: watch::Sender::new(0),
            }),
        }
    }
}

impl Faults {
    /// A client whose requests meet these faults.
    pub fn wrap(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let shared = self.shared.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (shared, client) = (shared.clone(), client.clone());
            async move { shared.send(client, request).await }
        });
        Client::new(service, namespace)
    }

    /// The next requests that a function accepts meet a fault, so many times.
    pub fn next(&self, times: usize, fault: Fault, matches: impl Fn(&Sent) -> bool + Send + Sync + 'static) {
        self.shared.rules.lock().push(Rule {
            matches: Arc::new(matches),
            fault,
            left: times,
        });
    }

    /// No more faults; frozen watches go on, a cut connection is whole again.
    pub fn heal(&self) {
        self.shared.rules.lock().clear();
        self.shared.frozen.send_modify(HashSet::clear);
        self.shared.cut.send_replace(Link::Whole);
    }

    /// Watches of a resource deliver nothing more until [`Faults::heal`]: its cache stays where it is.
    pub fn freeze(&self, plural: &str) {
        self.shared.frozen.send_modify(|frozen| {
            frozen.insert(plural.to_owned());
        });
    }

    /// Ends every watch that is open now, as a server that restarts does.
    pub fn hang_up(&self) {
        self.shared.hung_up.send_modify(|times| *times += 1);
    }

    /// Nothing gets through any more, as if a cable were pulled.
    pub fn cut(&self) {
        self.shared.cut.send_replace(Link::Cut);
    }

    /// Everything that was sent.
    pub fn sent(&self) -> Vec<Sent> {
        self.shared.log.lock().entries.clone()
    }

    /// The writes that the server accepted; events and leases aside, which are not the operator's work.
    pub fn effective_writes(&self) -> Vec<Sent> {
        let accepted = |sent: &Sent| sent.code.is_some_and(|code| code < 300);
        let work = |sent: &Sent| !sent.is_about("events") && !sent.is_about("leases");
        self.sent()
            .into_iter()
            .filter(|sent| sent.is_write() && accepted(sent) && work(sent))
            .collect()
    }

    /// Forgets what was sent.
    pub fn forget(&self) {
        let mut log = self.shared.log.lock();
        log.forgotten += log.entries.len();
        log.entries.clear();
    }
}

impl Shared {
    async fn send(
        self: &Arc<Self>,
        client: Client,
        request: Request<Body>,
    ) -> Result<Response<AnyBody>, tower::BoxError> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let agent = parts.headers.get(http::header::USER_AGENT);
        let sent = Sent {
            at: Instant::now(),
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            body: bytes.clone(),
            agent: agent
                .and_then(|agent| agent.to_str().ok())
                .unwrap_or_default()
                .to_owned(),
            code: None,
        };
        let number = {
            let mut log = self.log.lock();
            log.entries.push(sent.clone());
            log.forgotten + log.entries.len() - 1
        };
        let request = Request::from_parts(parts, Body::from(bytes));
        let mut cut = self.cut.subscribe();
        let response = tokio::select! {
            response = self.deliver(client, request, &sent, number) => response?,
            // The sender lives as long as `self`.
            _ = cut.wait_for(|link| *link == Link::Cut) => return Err("the connection is cut".into()),
        };
        self.answered(number, response.status().as_u16());
        Ok(response)
    }

    fn answered(&self, number: usize, code: u16) {
        let mut log = self.log.lock();
        let position = number.checked_sub(log.forgotten);
        if let Some(entry) = position.and_then(|position| log.entries.get_mut(position)) {
            entry.code = Some(code);
        }
    }

    async fn deliver(
        self: &Arc<Self>,
        client: Client,
        request: Request<Body>,
        sent: &Sent,
        number: usize,
    ) -> Result<Response<AnyBody>, tower::BoxError> {
        match self.fault_for(sent) {
            None => {}
            Some(Fault::LoseRequest) => return Err("the request was lost".into()),
            Some(Fault::LoseAnswer) => {
                client.send(request).await?;
                return Err("the answer was lost".into());
            }
            Some(Fault::Refuse(refusal)) => return refusal.answer(),
            Some(Fault::Delay(delay)) => tokio::time::sleep(delay).await,
            Some(Fault::Late(delay)) => return self.deliver_late(client, request, delay, number).await,
            Some(Fault::Double) => {
                client.send(repeated(&request, sent)?).await?;
            }
            Some(Fault::Silence) => return std::future::pending().await,
            Some(Fault::Expire) => return expired(),
        }
        let response = client.send(request).await?;
        Ok(match sent.is_watch() {
            true => response.map(|body| self.freezable(body, sent)),
            false => response.map(|body| body.map_err(Into::into).boxed_unsync()),
        })
    }

    /// Delivers in a task of its own, which nobody's cancellation reaches.
    async fn deliver_late(
        self: &Arc<Self>,
        client: Client,
        request: Request<Body>,
        delay: Duration,
        number: usize,
    ) -> Result<Response<AnyBody>, tower::BoxError> {
        let shared = self.clone();
        let delivered = tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let response = client.send(request).await?;
            shared.answered(number, response.status().as_u16());
            Ok::<_, kube::Error>(response)
        });
        let response = delivered.await??;
        Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
    }

    fn fault_for(&self, sent: &Sent) -> Option<Fault> {
        let mut rules = self.rules.lock();
        let rule = rules.iter_mut().find(|rule| rule.left > 0 && (rule.matches)(sent))?;
        rule.left -= 1;
        Some(rule.fault.clone())
    }

    /// A watch whose events stop while its resource is frozen, and which ends when the link is cut.
    fn freezable(&self, body: Body, sent: &Sent) -> AnyBody {
        let path = sent.path.clone();
        let is_frozen =
            move |frozen: &HashSet<String>| frozen.iter().any(|name| path.split('/').any(|part| part == name));
        let (frozen, cut, hung_up) = (self.frozen.subscribe(), self.cut.subscribe(), self.hung_up.subscribe());
        let state = (body, frozen, (cut, hung_up), is_frozen);
        let frames = futures::stream::unfold(state, |(mut body, mut frozen, mut ends, is_frozen)| async move {
            let (cut, hung_up) = &mut ends;
            let next = async {
                let frame = body.frame().await;
                // Held back until the resource thaws; the sender may be gone when the test ends.
                let _ = frozen.wait_for(|frozen| !is_frozen(frozen)).await;
                frame
            };
            let frame = tokio::select! {
                frame = next => frame,
                _ = cut.wait_for(|link| *link == Link::Cut) => None,
                _ = hung_up.changed() => None,
            };
            let frame = frame?.map_err(tower::BoxError::from);
            Some((frame, (body, frozen, ends, is_frozen)))
        });
        StreamBody::new(frames.boxed()).boxed_unsync()
    }
}

impl Refusal {
    /// A refusal with a code and a reason.
    pub fn new(code: u16, reason: &'static str, message: &str) -> Self {
        Refusal {
            code,
            reason,
            message: message.to_owned(),
            retry_after: None,
        }
    }

    fn answer(self) -> Result<Response<AnyBody>, tower::BoxError> {
        let mut status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(seconds) = self.retry_after {
            status["details"] = serde_json::json!({"retryAfterSeconds": seconds});
        }
        answer(self.code, status.to_string())
    }
}

/// The same request once more.
fn repeated(request: &Request<Body>, sent: &Sent) -> Result<Request<Body>, tower::BoxError> {
    let mut again = Request::builder()
        .method(request.method().clone())
        .uri(request.uri().clone());
    for (name, value) in request.headers() {
        again = again.header(name, value);
    }
    Ok(again.body(Body::from(sent.body.clone()))?)
}

fn expired() -> Result<Response<AnyBody>, tower::BoxError> {
    let status = serde_json::json!({"type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    }});
    answer(200, format!("{status}\n"))
}

fn answer(code: u16, body: String) -> Result<Response<AnyBody>, tower::BoxError> {
    let body = Full::new(Bytes::from(body))
        .map_err(|never| match never {})
        .boxed_unsync();
    let response = Response::builder()
        .status(code)
        .header(http::header::CONTENT_TYPE, "application/json");
    Ok(response.body(body)?)
}

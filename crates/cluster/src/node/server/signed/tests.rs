//! A node against an authority that is not always there.

use super::*;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use rcgen::{CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use tokio::time::Instant;

/// A clock that stands still while the test works, and is where it is waited for at once.
#[derive(Clone, Copy)]
struct Stepping {
    start: Timestamp,
    since: Instant,
}

impl Clock for Stepping {
    fn now(&self) -> Timestamp {
        after(self.start, self.since.elapsed())
    }

    fn sleep_until(&self, deadline: Timestamp) -> BoxFuture<'static, ()> {
        let left = Duration::try_from(deadline.duration_since(self.now())).unwrap_or_default();
        Box::pin(tokio::time::sleep(left))
    }
}

/// How long the certificates live that are signed here.
const LIFE: Duration = Duration::from_secs(100 * 24 * 3600);

/// An API server that signs what is approved, except where it is told to fail.
struct Signer {
    clock: Stepping,
    issuer: Issuer<'static, KeyPair>,
    /// How many requests are yet to fail.
    failing: Mutex<usize>,
    /// When it was asked, and the last request.
    asked: Mutex<Vec<Timestamp>>,
    last: Mutex<Value>,
}

impl Signer {
    fn new(failing: usize) -> Arc<Signer> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let clock = Stepping {
            start: Timestamp::from_second(1_800_000_000).unwrap(),
            since: Instant::now(),
        };
        Arc::new(Signer {
            clock,
            issuer: Issuer::new(params, KeyPair::generate().unwrap()),
            failing: Mutex::new(failing),
            asked: Mutex::default(),
            last: Mutex::default(),
        })
    }

    fn holder(self: &Arc<Signer>) -> Holder {
        let signer = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let signer = signer.clone();
            async move {
                let method = request.method().clone();
                let bytes = request.into_body().collect_bytes().await?;
                let (status, answer) = signer.answer(&method, &bytes);
                let body = Body::from(answer.to_string().into_bytes());
                Response::builder()
                    .status(status)
                    .body(body)
                    .map_err(tower::BoxError::from)
            }
        });
        Holder {
            voices: Voices::one(kube::Client::new(service, "default")),
            clock: Arc::new(self.clock),
            node: "worker".to_owned(),
            address: "127.0.0.1".to_owned(),
        }
    }

    fn answer(&self, method: &Method, body: &[u8]) -> (u16, Value) {
        let mut last = self.last.lock();
        match *method {
            Method::POST => {
                self.asked.lock().push(self.clock.now());
                let mut failing = self.failing.lock();
                if *failing > 0 {
                    *failing -= 1;
                    let status =
                        json!({"kind": "Status", "status": "Failure", "code": 500, "message": "no", "reason": ""});
                    return (500, status);
                }
                *last = serde_json::from_slice(body).unwrap();
                last["metadata"]["name"] = "csr-1".into();
            }
            Method::PATCH => {
                let request: CertificateSigningRequest = serde_json::from_value(last.clone()).unwrap();
                let pem = String::from_utf8(request.spec.request.0).unwrap();
                let mut wanted = CertificateSigningRequestParams::from_pem(&pem).unwrap();
                let now = std::time::UNIX_EPOCH + Duration::try_from(self.clock.now().as_duration()).unwrap();
                wanted.params.not_before = now.into();
                wanted.params.not_after = (now + LIFE).into();
                let signed = wanted.signed_by(&self.issuer).unwrap().pem();
                last["status"] = json!({"certificate": ByteString(signed.into_bytes())});
            }
            _ => {}
        }
        (200, last.clone())
    }

    /// Lets a node keep its certificate until it has asked so often. Gives how many seconds after the first second each was.
    async fn kept(self: &Arc<Signer>, times: usize) -> Vec<i64> {
        let holder = self.holder();
        let own = Own::generate("worker", "127.0.0.1").unwrap();
        let shown = Shown::new(&own, None).unwrap();
        let asked = async {
            while self.asked.lock().len() < times {
                tokio::time::sleep(LONGEST_SLEEP).await;
            }
        };
        tokio::select! {
            () = holder.keep(&shown, None) => {}
            () = asked => {}
        }
        let asked = self.asked.lock();
        asked
            .iter()
            .map(|time| time.duration_since(self.clock.start).as_secs())
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_is_sent_again_ever_later_and_a_certificate_is_renewed_in_time() {
    let asked = Signer::new(3).kept(6).await;
    assert_eq!(asked[..4], [10, 30, 70, 150]);
    let fifths: Vec<u64> = asked[3..]
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).unsigned_abs() * 5 / LIFE.as_secs())
        .collect();
    assert_eq!(fifths, [4, 4], "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_signed_is_shown_and_its_key_is_new() {
    let signer = Signer::new(0);
    let holder = signer.holder();
    let own = Own::generate("worker", "127.0.0.1").unwrap();
    let shown = Shown::new(&own, None).unwrap();
    let due = holder.renew(&shown).await.unwrap();
    assert_eq!(
        due.duration_since(signer.clock.now()).as_secs().unsigned_abs(),
        LIFE.as_secs() / 5 * 4
    );
    let last: CertificateSigningRequest = serde_json::from_value(signer.last.lock().clone()).unwrap();
    let pem = last.status.and_then(|status| status.certificate).unwrap();
    let signed = String::from_utf8(pem.0).unwrap();
    assert!(shown.shows(&signed));
    shown.change(&own, &signed).expect_err("it is another key's");
}

use super::*;
use crate::auth::User;
use jiff::Timestamp;
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn entry(resource: &str, body: &str) -> Entry {
    let at = |micros: i64| Timestamp::from_microsecond(1_794_798_701_000_000 + micros).expect("a time");
    Entry {
        id: "id".into(),
        verb: "create".into(),
        uri: format!("/api/v1/namespaces/x/{resource}?fieldManager=kubectl"),
        user: User::named("alice", &["system:authenticated"]),
        impersonated: None,
        source: Some([127, 0, 0, 1].into()),
        user_agent: "kubectl/v1.36".into(),
        object: Some(ObjectReference {
            version: "v1".into(),
            resource: resource.into(),
            namespace: "x".into(),
            ..ObjectReference::default()
        }),
        body: RequestBody::Json(body.to_string().into()),
        code: 201,
        failure: None,
        annotations: Default::default(),
        received: at(1),
        answered: at(250),
    }
}

fn written(level: Level, entries: Vec<Entry>) -> Vec<Value> {
    let memory = Memory::default();
    let log = AuditLog::to(memory.clone(), level).expect("a log");
    for entry in entries {
        log.record(entry);
    }
    drop(log);
    let text = String::from_utf8(memory.0.lock().clone()).expect("text");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn an_event_says_who_did_what_to_which_object() {
    let events = written(Level::Metadata, vec![entry("pods", r#"{"metadata":{"name":"web"}}"#)]);
    assert_eq!(
        events,
        [json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "id",
            "stage": "ResponseComplete", "requestURI": "/api/v1/namespaces/x/pods?fieldManager=kubectl",
            "verb": "create", "user": {"username": "alice", "groups": ["system:authenticated"]},
            "sourceIPs": ["127.0.0.1"], "userAgent": "kubectl/v1.36",
            "objectRef": {"resource": "pods", "namespace": "x", "name": "web", "apiVersion": "v1"},
            "responseStatus": {"metadata": {}, "code": 201},
            "requestReceivedTimestamp": "2026-11-16T03:11:41.000001Z",
            "stageTimestamp": "2026-11-16T03:11:41.000250Z",
        })]
    );
}

#[test]
fn bodies_are_written_at_level_request_but_never_those_with_secrets() {
    let body = r#"{"metadata":{"name":"web"},"data":{"k":"hidden"}}"#;
    let events = written(Level::Request, vec![entry("configmaps", body), entry("secrets", body)]);
    assert_eq!(events[0]["requestObject"]["data"]["k"], "hidden");
    assert!(events[1].get("requestObject").is_none());
    assert_eq!(events[1]["objectRef"]["name"], "web");
}

#[test]
fn a_refusal_is_written_with_its_reason_and_an_impersonation_with_both_users() {
    let mut refused = entry("pods", "");
    refused.failure = Some(("no".into(), "Forbidden".into()));
    refused.code = 403;
    refused.impersonated = Some(User::named("bob", &[]));
    let events = written(Level::Metadata, vec![refused]);
    assert_eq!(events[0]["responseStatus"]["reason"], "Forbidden");
    assert_eq!(events[0]["impersonatedUser"]["username"], "bob");
}

#[test]
fn a_sink_that_stands_still_holds_up_no_request_and_the_gap_is_told() {
    /// Writes nothing until it is opened.
    #[derive(Clone, Default)]
    struct Stuck(Memory, Arc<(Mutex<bool>, Condvar)>);
    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (open, opened) = &*self.1;
            opened.wait_while(&mut open.lock(), |open| !*open);
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let sink = Stuck::default();
    let log = AuditLog::to(sink.clone(), Level::Metadata).expect("a log");
    let sent = QUEUE + 2_000;
    for _ in 0..sent {
        log.record(entry("pods", ""));
    }
    let dropped = log.shared.dropped.load(Ordering::Relaxed);
    assert!(dropped > 0);
    *sink.1.0.lock() = true;
    sink.1.1.notify_all();
    drop(log);
    let text = String::from_utf8(sink.0.0.lock().clone()).expect("text");
    let lost: u64 = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter_map(|event| {
            event["annotations"]["audit.stead.dev/lost-before"]
                .as_str()?
                .parse::<u64>()
                .ok()
        })
        .sum();
    assert_eq!(text.lines().count() as u64 + lost, sent as u64);
}

#[test]
fn what_admission_noted_is_in_the_event() {
    let mut noted = entry("configmaps", "{}");
    noted
        .annotations
        .0
        .push(("policy.example.com/why".to_string(), "because".to_string()));
    let event = noted.event(Level::Metadata, 2);
    assert_eq!(event["annotations"]["policy.example.com/why"], "because");
    assert_eq!(event["annotations"]["audit.stead.dev/lost-before"], "2");
}

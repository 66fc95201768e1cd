//! Bad input, sent to the real kube-apiserver and to the embedded one: both refuse it with the same words.
//!
//! And both go on: the last request of the list is a good one.

use crate::binary::Up;
use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use stead_test::kubernetes::{Kubernetes, Parts, client_for};
use stead_test::skip::skipped;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const GOOD: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"good"},"data":{"a":"b"}}"#;

/// One request: what it is about, and all that is sent.
struct Sent {
    about: &'static str,
    method: &'static str,
    path: String,
    content: &'static str,
    accept: &'static str,
    body: String,
}

fn sent(about: &'static str, method: &'static str, path: &str, content: &'static str, body: &str) -> Sent {
    Sent {
        about,
        method,
        path: path.to_owned(),
        content,
        accept: JSON,
        body: body.to_owned(),
    }
}

/// Requests to which both say no, each in its own words: `docs/compatibility.md` has the reasons.
const OTHER_WORDS: [&str; 6] = [
    "nesting without end",
    "more than an object may have",
    "YAML with a key twice",
    "a continue token of nonsense in base64",
    "a merge patch of the kind",
    "a strategic patch that is no JSON",
];

/// What both servers must say alike.
#[derive(Debug, PartialEq)]
struct Refusal {
    code: u16,
    reason: String,
    message: String,
}

// One request a line reads as the table that it is.
#[rustfmt::skip]
fn requests() -> Vec<Sent> {
    let map = |rest: &str| format!(r#"{{"apiVersion":"v1","kind":"ConfigMap",{rest}}}"#);
    let named = format!("{MAPS}/good");
    let query = |query: &str| format!("{MAPS}?{query}");
    let strict = query("fieldValidation=Strict");
    let nested = format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000));
    vec![
        sent("the object that the others are about", "POST", MAPS, JSON, GOOD),
        // Bodies.
        sent("no body", "POST", MAPS, JSON, ""),
        sent("half a document", "POST", MAPS, JSON, r#"{"kind":"ConfigMap","#),
        sent("no JSON at all", "POST", MAPS, JSON, "colour: red"),
        sent("a list for an object", "POST", MAPS, JSON, "[1,2]"),
        sent("a string for a map", "POST", MAPS, JSON, &map(r#""metadata":{"name":"x"},"data":"text""#)),
        sent("a number for a string", "POST", MAPS, JSON, &map(r#""metadata":{"name":"x"},"data":{"a":1}"#)),
        sent("an unknown field", "POST", &strict, JSON, &map(r#""metadata":{"name":"x"},"colour":"red""#)),
        sent("a field twice", "POST", &strict, JSON, &map(r#""metadata":{"name":"x"},"data":{"a":"1","a":"2"}"#)),
        sent("no kind", "POST", MAPS, JSON, r#"{"apiVersion":"v1","metadata":{"name":"x"}}"#),
        sent("no version", "POST", MAPS, JSON, r#"{"kind":"ConfigMap","metadata":{"name":"x"}}"#),
        sent("another kind", "POST", MAPS, JSON, r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}"#),
        sent("a kind that is not", "POST", MAPS, JSON, r#"{"apiVersion":"v1","kind":"Colour","metadata":{"name":"x"}}"#),
        sent("another namespace", "POST", MAPS, JSON, &map(r#""metadata":{"name":"x","namespace":"other"}"#)),
        sent("a namespace that is not", "POST", "/api/v1/namespaces/nowhere/configmaps", JSON, GOOD),
        sent("nesting without end", "POST", MAPS, JSON, &map(&format!(r#""metadata":{{"name":"x"}},"data":{nested}"#))),
        sent("more than a request may have", "POST", MAPS, JSON, &format!("\"{}\"", "x".repeat(3 * 1024 * 1024 + 10))),
        sent("more than an object may have", "POST", MAPS, JSON, &map(&format!(r#""metadata":{{"name":"x"}},"data":{{"a":"{}"}}"#, "x".repeat(1100 * 1024)))),
        sent("a content type that is not", "POST", MAPS, "text/plain", GOOD),
        sent("YAML with a key twice", "POST", &strict, YAML, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: b, a: c}\n"),
        // Names and other metadata.
        sent("it is there already", "POST", MAPS, JSON, GOOD),
        sent("no name", "POST", MAPS, JSON, &map(r#""metadata":{}"#)),
        sent("a name in capitals", "POST", MAPS, JSON, &map(r#""metadata":{"name":"UPPER"}"#)),
        sent("a name with a slash", "POST", MAPS, JSON, &map(r#""metadata":{"name":"a/b"}"#)),
        sent("a name that is too long", "POST", MAPS, JSON, &map(&format!(r#""metadata":{{"name":"{}"}}"#, "a".repeat(254)))),
        sent("a label with a space", "POST", MAPS, JSON, &map(r#""metadata":{"name":"x","labels":{"a":"b c"}}"#)),
        sent("a label key with two slashes", "POST", MAPS, JSON, &map(r#""metadata":{"name":"x","labels":{"a/b/c":"d"}}"#)),
        sent("a finalizer without a domain", "POST", MAPS, JSON, &map(r#""metadata":{"name":"x","finalizers":["nonsense"]}"#)),
        sent("an owner without a uid", "POST", MAPS, JSON, &map(r#""metadata":{"name":"x","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":""}]}"#)),
        sent("a version on create", "POST", MAPS, JSON, &map(r#""metadata":{"name":"x","resourceVersion":"5"}"#)),
        sent("a key of data with a space", "POST", MAPS, JSON, &map(r#""metadata":{"name":"x"},"data":{"a b":"c"}"#)),
        // Reading.
        sent("nothing of that name", "GET", &format!("{MAPS}/absent"), JSON, ""),
        sent("a label selector that is none", "GET", &query("labelSelector=a%20in%20"), JSON, ""),
        sent("a label selector with a bad value", "GET", &query("labelSelector=a=b%20c"), JSON, ""),
        sent("a field selector that is none", "GET", &query("fieldSelector=metadata.name"), JSON, ""),
        sent("a field that cannot be selected", "GET", &query("fieldSelector=data.a=b"), JSON, ""),
        sent("a continue token that is none", "GET", &query("limit=1&continue=nonsense"), JSON, ""),
        sent("a continue token of nonsense in base64", "GET", &query("limit=1&continue=eyJ2IjoibWV0YSJ9"), JSON, ""),
        sent("a limit that is no number", "GET", &query("limit=many"), JSON, ""),
        sent("a negative limit", "GET", &query("limit=-1"), JSON, ""),
        sent("a version that is no number", "GET", &query("resourceVersion=new"), JSON, ""),
        sent("a match without a version", "GET", &query("resourceVersionMatch=Exact"), JSON, ""),
        sent("a match that is not", "GET", &query("resourceVersion=1&resourceVersionMatch=Nearly"), JSON, ""),
        sent("exactly version zero", "GET", &query("resourceVersion=0&resourceVersionMatch=Exact"), JSON, ""),
        sent("a watch from no number", "GET", &query("watch=true&resourceVersion=new"), JSON, ""),
        sent("a watch with initial events and no match", "GET", &query("watch=true&sendInitialEvents=true"), JSON, ""),
        sent("initial events of a list", "GET", &query("sendInitialEvents=true&resourceVersionMatch=NotOlderThan"), JSON, ""),
        Sent {
            accept: "application/xml",
            ..sent("an answer in XML", "GET", &named, JSON, "")
        },
        // Changing.
        sent("another name in the body", "PUT", &named, JSON, &GOOD.replace("good", "better")),
        sent("a version that is past", "PUT", &named, JSON, &map(r#""metadata":{"name":"good","resourceVersion":"1"}"#)),
        sent("a version that is no number in an update", "PUT", &named, JSON, &map(r#""metadata":{"name":"good","resourceVersion":"new"}"#)),
        sent("another uid", "PUT", &named, JSON, &map(r#""metadata":{"name":"good","uid":"11111111-2222-3333-4444-555555555555"}"#)),
        sent("an update of what is not", "PUT", &format!("{MAPS}/absent"), JSON, &GOOD.replace("good", "absent")),
        sent("a patch of no known type", "PATCH", &named, "application/colour-patch", "{}"),
        sent("a merge patch that is no JSON", "PATCH", &named, MERGE, "{"),
        sent("a merge patch that is a list", "PATCH", &named, MERGE, "[]"),
        sent("a merge patch of the kind", "PATCH", &named, MERGE, r#"{"kind":"Secret"}"#),
        sent("a merge patch of the name", "PATCH", &named, MERGE, r#"{"metadata":{"name":"other"}}"#),
        sent("a merge patch to a wrong type", "PATCH", &named, MERGE, r#"{"data":{"a":[1]}}"#),
        sent("a JSON patch that is an object", "PATCH", &named, JSON_PATCH, "{}"),
        sent("a JSON patch of an unknown operation", "PATCH", &named, JSON_PATCH, r#"[{"op":"paint","path":"/data/a","value":"b"}]"#),
        sent("a JSON patch whose test fails", "PATCH", &named, JSON_PATCH, r#"[{"op":"test","path":"/data/a","value":"z"}]"#),
        sent("a JSON patch that removes what is not", "PATCH", &named, JSON_PATCH, r#"[{"op":"remove","path":"/data/zzz"}]"#),
        sent("a JSON patch into what is not", "PATCH", &named, JSON_PATCH, r#"[{"op":"add","path":"/colour/red/dark","value":1}]"#),
        sent("a strategic patch that is no JSON", "PATCH", &named, STRATEGIC, "nonsense"),
        sent("a strategic patch with an unknown directive", "PATCH", &named, STRATEGIC, r#"{"data":{"$patch":"paint"}}"#),
        sent("a patch of what is not", "PATCH", &format!("{MAPS}/absent"), MERGE, "{}"),
        sent("an apply without a manager", "PATCH", &named, APPLY, GOOD),
        sent("an apply with another name", "PATCH", &format!("{named}?fieldManager=me"), APPLY, &GOOD.replace("good", "better")),
        sent("an apply of managed fields", "PATCH", &format!("{named}?fieldManager=me"), APPLY, &map(r#""metadata":{"name":"good","managedFields":[{"manager":"me"}]}"#)),
        sent("an apply of no known field", "PATCH", &format!("{named}?fieldManager=me"), APPLY, &map(r#""metadata":{"name":"good"},"colour":"red""#)),
        sent("force without apply", "PATCH", &format!("{named}?force=true"), MERGE, "{}"),
        sent("a manager's name that is too long", "PATCH", &format!("{named}?fieldManager={}", "m".repeat(129)), MERGE, "{}"),
        sent("a dry run that is half", "PATCH", &format!("{named}?dryRun=Half"), MERGE, "{}"),
        sent("a field validation that is not", "POST", &query("fieldValidation=Loose"), JSON, GOOD),
        // Deleting.
        sent("options that are no JSON", "DELETE", &named, JSON, "{"),
        sent("another uid as precondition", "DELETE", &named, JSON, r#"{"preconditions":{"uid":"11111111-2222-3333-4444-555555555555"}}"#),
        sent("an unknown propagation", "DELETE", &named, JSON, r#"{"propagationPolicy":"Sideways"}"#),
        sent("two propagations", "DELETE", &named, JSON, r#"{"propagationPolicy":"Orphan","orphanDependents":true}"#),
        sent("a negative grace", "DELETE", &named, JSON, r#"{"gracePeriodSeconds":-1}"#),
        sent("a delete of what is not", "DELETE", &format!("{MAPS}/absent"), JSON, ""),
        // Paths.
        sent("a kind that is not served", "GET", "/api/v1/namespaces/default/colours", JSON, ""),
        sent("a group that is not served", "GET", "/apis/colours.example.com/v1/reds", JSON, ""),
        sent("a subresource that is not", "GET", &format!("{named}/scale"), JSON, ""),
        sent("no such page", "GET", "/nonsense", JSON, ""),
        sent("a create under a name", "POST", &named, JSON, GOOD),
        sent("an update of a collection", "PUT", MAPS, JSON, GOOD),
        sent("a patch of a collection", "PATCH", MAPS, MERGE, "{}"),
        // And both go on.
        sent("the good object, still", "GET", &named, JSON, ""),
    ]
}

async fn answer(client: &Client, sent: &Sent) -> Refusal {
    let request = Request::builder()
        .method(sent.method)
        .uri(&sent.path)
        .header("content-type", sent.content)
        .header("accept", sent.accept)
        .body(Body::from(sent.body.clone().into_bytes()))
        .expect("a request");
    let (head, body) = client.send(request).await.expect("an answer").into_parts();
    let bytes = body.collect_bytes().await.expect("a whole answer");
    let status: Value = serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into());
    let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    Refusal {
        code: head.status.as_u16(),
        reason: text("reason"),
        message: comparable(status.as_str().map_or_else(|| text("message"), str::to_owned)),
    }
}

/// A message without what is different on every server: the object that some print, and its uid.
fn comparable(message: String) -> String {
    const PATCHED: &str = "patch: Invalid value: \"{";
    let message = match (message.find(PATCHED), message.rfind("}\": ")) {
        (Some(start), Some(end)) if start < end => {
            format!("{}...{}", &message[..start + PATCHED.len()], &message[end..])
        }
        _ => message,
    };
    let is_uid = |word: &str| word.len() == 36 && word.bytes().filter(|byte| *byte == b'-').count() == 4;
    let words = message.split_inclusive([' ', ')']).map(|word| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_hexdigit());
        match is_uid(bare) && !bare.starts_with("1111") {
            true => word.replace(bare, "UID"),
            false => word.to_owned(),
        }
    });
    words.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_refused_in_kubernetes_words() {
    let real = match Kubernetes::start(Parts::Api).await {
        Ok(real) => real,
        Err(error) => return skipped(error),
    };
    let Some(up) = Up::start(&["--ephemeral"]) else { return };
    let theirs = real.client().await.expect("a client");
    let ours = client_for(&up.kubeconfig).await.expect("a client");
    let mut differences = Vec::new();
    for sent in requests() {
        let (expected, actual) = (answer(&theirs, &sent).await, answer(&ours, &sent).await);
        let alike = match OTHER_WORDS.contains(&sent.about) {
            true => (expected.code, &expected.reason) == (actual.code, &actual.reason),
            false => expected == actual,
        };
        if !alike {
            differences.push(format!(
                "{}:\n  kubernetes {expected:?}\n  stead      {actual:?}",
                sent.about
            ));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

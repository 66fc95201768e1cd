//! A registry of a few lines on this machine, and what is pulled from it.

use super::*;
use crate::node::process::images::store::Store;
use crate::node::process::images::store::tests::{digest, tar};
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// What a registry has, by path: a type and bytes.
#[derive(Default)]
struct Shelf {
    things: BTreeMap<String, Vec<u8>>,
    /// The password that it wants, as a token.
    secret: Option<String>,
    /// For how many requests each token is good, if not for all.
    lasts: Option<usize>,
    /// Tokens given, and requests answered for the last of them.
    tokens: (usize, usize),
    /// What it was asked.
    asked: Vec<String>,
}

struct TestRegistry {
    host: String,
    shelf: Arc<Mutex<Shelf>>,
}

impl TestRegistry {
    fn start() -> TestRegistry {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let shelf: Arc<Mutex<Shelf>> = Arc::default();
        let (own, shared) = (host.clone(), shelf.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &own, &shared);
            }
        });
        TestRegistry { host, shelf }
    }

    fn put(&self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.shelf.lock().unwrap().things.insert(path.to_owned(), bytes.into());
    }

    /// Puts an image of one layer there, behind a list of platforms; gives the digest of the list.
    fn image(&self, repository: &str, tag: &str, layer: &[u8]) -> String {
        self.image_that_names(repository, tag, layer, layer)
    }

    /// The same, with a configuration that names one layer and a manifest that has another.
    fn image_that_names(&self, repository: &str, tag: &str, named: &[u8], layer: &[u8]) -> String {
        let config = json!({"config": {"Entrypoint": ["/bin/app"], "Env": ["A=b"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(named)]}})
        .to_string();
        let describe = |bytes: &[u8]| json!({"digest": digest(bytes), "size": bytes.len()});
        let manifest = json!({"config": describe(config.as_bytes()), "layers": [describe(layer)]}).to_string();
        let architecture = crate::node::registration::architecture();
        let mut own = describe(manifest.as_bytes());
        own["platform"] = json!({"os": "linux", "architecture": architecture});
        let other = json!({"digest": "sha256:0", "platform": {"os": "plan9", "architecture": architecture}});
        let index = json!({"manifests": [other, own]}).to_string();
        for (kind, name, bytes) in [
            ("manifests", tag.to_owned(), index.as_bytes()),
            ("manifests", digest(manifest.as_bytes()), manifest.as_bytes()),
            ("blobs", digest(config.as_bytes()), config.as_bytes()),
            ("blobs", digest(layer), layer),
        ] {
            self.put(&format!("/v2/{repository}/{kind}/{name}"), bytes);
        }
        digest(index.as_bytes())
    }
}

fn answer(mut stream: std::net::TcpStream, host: &str, shelf: &Mutex<Shelf>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap())
        .lines()
        .map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let shown = headers.iter().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("authorization").then(|| value.to_owned())
    });
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut shelf = shelf.lock().unwrap();
    shelf.asked.push(path.clone());
    let (plain, _) = path.split_once('?').unwrap_or((&path, ""));
    let (given, used) = shelf.tokens;
    let expired = shelf.lasts.is_some_and(|lasts| used >= lasts);
    let token = shelf.secret.as_ref().map(|_| format!("Bearer t0ken{given}"));
    let moved = format!("/moved{plain}");
    let (status, extra, body) = if plain == "/token" {
        match shown == shelf.secret {
            true => {
                shelf.tokens = (given + 1, 0);
                let token = json!({"token": format!("t0ken{}", given + 1)});
                ("200 OK", String::new(), token.to_string().into_bytes())
            }
            false => ("403 Forbidden", String::new(), Vec::new()),
        }
    } else if token.is_some() && (shown != token || expired) {
        let asks = format!("Bearer realm=\"http://{host}/token\",service=\"test\",scope=\"repository:x:pull\"");
        ("401 Unauthorized", format!("WWW-Authenticate: {asks}\r\n"), Vec::new())
    } else if let Some(bytes) = shelf.things.get(plain).cloned() {
        shelf.tokens.1 += 1;
        ("200 OK", String::new(), bytes)
    } else if shelf.things.contains_key(&moved) {
        ("307 Temporary Redirect", format!("Location: {moved}\r\n"), Vec::new())
    } else {
        let told = json!({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]});
        ("404 Not Found", String::new(), told.to_string().into_bytes())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\n{extra}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
}

fn layer() -> Vec<u8> {
    tar(&[("bin/app", b"#!/bin/sh\n")])
}

#[tokio::test]
async fn an_image_is_pulled_for_this_machine_and_found_by_its_name() {
    let registry = TestRegistry::start();
    let listed = registry.image("team/app", "1", &layer());
    let place = tempfile::tempdir().unwrap();
    let images = Store::new(place.path().join("images"));
    let name = format!("{}/team/app:1", registry.host);
    images.pull(&name, &Keys::default()).await.unwrap();
    let (image, root) = images.find(&name).unwrap();
    assert_eq!(image.entrypoint, ["/bin/app"]);
    assert!(root.join("bin/app").exists());
    assert_eq!(image.source.unwrap(), format!("{}/team/app@{listed}", registry.host));
    let blob = format!("/v2/team/app/blobs/{}", digest(&layer()));
    let times = || {
        registry
            .shelf
            .lock()
            .unwrap()
            .asked
            .iter()
            .filter(|path| **path == blob)
            .count()
    };
    assert_eq!(times(), 1);
    images.pull(&name, &Keys::default()).await.unwrap();
    assert_eq!(times(), 1, "what is here is not fetched again");
    let left: Vec<_> = std::fs::read_dir(place.path().join("images"))
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("pulling"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn the_configuration_of_another_image_does_not_bring_layers_of_ones_own_under_its_name() {
    let (evil, good) = (TestRegistry::start(), TestRegistry::start());
    let own = tar(&[("bin/app", b"evil")]);
    evil.image_that_names("team/app", "1", &layer(), &own);
    good.image("team/app", "1", &layer());
    let place = tempfile::tempdir().unwrap();
    let images = Store::new(place.path().join("images"));
    let pull = async |registry: &TestRegistry| {
        let name = format!("{}/team/app:1", registry.host);
        images.pull(&name, &Keys::default()).await.map(|()| images.find(&name))
    };
    let error = pull(&evil).await.unwrap_err().to_string();
    assert!(error.contains("is not the layer"), "{error}");
    assert!(images.names().is_empty());
    let (_, root) = pull(&good).await.unwrap().unwrap();
    assert_eq!(std::fs::read(root.join("bin/app")).unwrap(), b"#!/bin/sh\n");
}

#[tokio::test]
async fn a_layer_may_be_elsewhere_and_an_image_may_be_named_by_its_digest() {
    let registry = TestRegistry::start();
    let listed = registry.image("team/app", "1", &layer());
    let blob = format!("/v2/team/app/blobs/{}", digest(&layer()));
    let index = {
        let mut shelf = registry.shelf.lock().unwrap();
        let bytes = shelf.things.remove(&blob).unwrap();
        shelf.things.insert(format!("/moved{blob}"), bytes);
        shelf.things["/v2/team/app/manifests/1"].clone()
    };
    registry.put(&format!("/v2/team/app/manifests/{listed}"), index);
    let place = tempfile::tempdir().unwrap();
    let images = Store::new(place.path().join("images"));
    let name = format!("{}/team/app@{listed}", registry.host);
    images.pull(&name, &Keys::default()).await.unwrap();
    assert!(images.find(&name).is_some());
}

/// A registry that wants a password, and keys that have it.
fn private() -> (TestRegistry, Keys) {
    let registry = TestRegistry::start();
    registry.image("team/app", "1", &layer());
    // user:password
    registry.shelf.lock().unwrap().secret = Some("Basic dXNlcjpwYXNzd29yZA==".to_owned());
    let auths = json!({"auths": {&registry.host: {"username": "user", "password": "password"}}}).to_string();
    let secret: Secret = serde_json::from_value(json!({
        "data": {".dockerconfigjson": base64::Engine::encode(&base64::engine::general_purpose::STANDARD, auths)},
    }))
    .unwrap();
    let mut keys = Keys::default();
    keys.add(&secret);
    (registry, keys)
}

#[tokio::test]
async fn a_token_that_expires_in_the_middle_of_a_pull_is_asked_for_again() {
    let (registry, keys) = private();
    registry.shelf.lock().unwrap().lasts = Some(1);
    let place = tempfile::tempdir().unwrap();
    let images = Store::new(place.path().join("images"));
    let name = format!("{}/team/app:1", registry.host);
    images.pull(&name, &keys).await.unwrap();
    assert!(images.find(&name).is_some());
    assert_eq!(registry.shelf.lock().unwrap().tokens.0, 4, "one for each request");
    registry.shelf.lock().unwrap().lasts = Some(0);
    let other = tempfile::tempdir().unwrap();
    let refused = Store::new(other.path().join("images"))
        .pull(&name, &keys)
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("401 Unauthorized"),
        "and not for ever: {refused}"
    );
}

#[tokio::test]
async fn a_private_registry_is_shown_the_pods_secret_and_nothing_else() {
    let (registry, keys) = private();
    let place = tempfile::tempdir().unwrap();
    let images = Store::new(place.path().join("images"));
    let name = format!("{}/team/app:1", registry.host);
    let error = images.pull(&name, &Keys::default()).await.unwrap_err();
    assert!(error.to_string().contains("403 Forbidden for a token"), "{error}");
    assert!(!format!("{keys:?}").contains("dXNl"), "{keys:?}");
    images.pull(&name, &keys).await.unwrap();
    assert!(images.find(&name).is_some());
    let asked = registry.shelf.lock().unwrap().asked.clone();
    assert!(
        asked
            .iter()
            .any(|path| path.starts_with("/token?scope=repository:x:pull&service=test")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn what_cannot_be_pulled_says_why_and_leaves_nothing() {
    let registry = TestRegistry::start();
    let place = tempfile::tempdir().unwrap();
    let images = Store::new(place.path().join("images"));
    let check = async |name: String, words: &str| {
        let error = images.pull(&name, &Keys::default()).await.unwrap_err().to_string();
        assert!(error.contains(words), "{name}: {error}");
        assert!(images.names().is_empty());
    };
    check(
        format!("{}/none:1", registry.host),
        "404 Not Found for none/manifests/1: manifest unknown",
    )
    .await;
    registry.image("short", "1", &layer());
    registry.put(&format!("/v2/short/blobs/{}", digest(&layer())), &b"other bytes"[..]);
    check(format!("{}/short:1", registry.host), "another digest").await;
    registry.image("long", "1", b"x");
    registry.put(&format!("/v2/long/blobs/{}", digest(b"x")), &b"more than one byte"[..]);
    check(format!("{}/long:1", registry.host), "larger than announced").await;
    registry.put("/v2/odd/manifests/1", &b"[1]"[..]);
    check(format!("{}/odd:1", registry.host), "none of an image").await;
    let foreign = json!({"manifests": [{"platform": {"os": "plan9"}}]}).to_string();
    registry.put("/v2/foreign/manifests/1", foreign.into_bytes());
    check(format!("{}/foreign:1", registry.host), "no form for this machine").await;
    // Nobody listens there.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    check(format!("{closed}/app:1"), "cannot be reached").await;
}

#[test]
fn names_say_where_to_ask_and_for_what() {
    let parsed = |name: &str| Name::parse(name).map(|name| (name.host, name.repository, name.version));
    let expected =
        |host: &str, repository: &str, version: &str| (host.to_owned(), repository.to_owned(), version.to_owned());
    assert_eq!(
        parsed("nginx").unwrap(),
        expected("registry-1.docker.io", "library/nginx", "latest")
    );
    assert_eq!(
        parsed("team/app:1").unwrap(),
        expected("registry-1.docker.io", "team/app", "1")
    );
    let exact = format!("sha256:{}", "0".repeat(64));
    let both = format!("example.com:5000/a/b:1@{exact}");
    assert_eq!(parsed(&both).unwrap(), expected("example.com:5000", "a/b", &exact));
    for wrong in [
        "example.com/../x",
        "example.com/A/b",
        "example.com/a:b/c",
        "example.com/a:?x=1",
        "a/b@md5:0",
    ] {
        assert!(Name::parse(wrong).is_err(), "{wrong}");
    }
    let url = |name: &str| Name::parse(name).unwrap().url("manifests/1").unwrap();
    assert!(url("example.com/a").is_private());
    assert_eq!(
        url("localhost:5000/a"),
        Url::parse("http://localhost:5000/v2/a/manifests/1").unwrap()
    );
}

#[test]
fn a_challenge_is_read_with_its_quotes() {
    let all =
        parameters("realm=\"https://auth.example.com/t?a=1,2\", service=\"r\",scope=\"repository:a/b:pull,push\"");
    let find = |wanted: &str| {
        all.iter()
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| value.as_str())
    };
    assert_eq!(find("realm"), Some("https://auth.example.com/t?a=1,2"));
    assert_eq!(find("scope"), Some("repository:a/b:pull,push"));
    assert!(parameters("nonsense").is_empty());
}

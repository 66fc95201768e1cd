//! Pulling images from registries, by the protocol that all of them speak (OCI distribution).
//!
//! It is a handful of GET requests: a manifest by its name, its configuration and its layers by their digests. Nothing
//! that arrives is trusted: everything must have the digest and the size that it was announced with. A registry on this
//! machine's loopback is spoken to in plain text, as other clients do; every other one with TLS.

mod http;
mod keys;
mod name;

pub use keys::Keys;

use super::archive::{Budget, Found};
use super::store::StoreError;
use ::http::StatusCode;
use ::http::header::{LOCATION, WWW_AUTHENTICATE};
use http::{Answer, Request, Url};
use http_body_util::{BodyExt, Limited};
use name::Name;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// The longest manifest, configuration or token that is read.
const LONGEST_DOCUMENT: usize = 4 << 20;
/// The largest layer that is fetched.
const LARGEST_LAYER: u64 = 16 << 30;
/// The most layers that an image may have; overlay file systems of other runtimes allow 128.
const MOST_LAYERS: usize = 256;
const MOST_REDIRECTS: usize = 5;
/// How long a registry may be silent in the middle of an answer.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a whole image may take. Others wait for their turn meanwhile, and a byte now and then is not silence.
const LONGEST_PULL: Duration = Duration::from_secs(30 * 60);
/// Manifests of one platform, and lists of them.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// Why an image cannot be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error("couldn't parse image name {0:?}")]
    Name(String),
    #[error("{host} cannot be reached: {why}")]
    Unreachable { host: String, why: String },
    #[error("{host} answered {status} for {what}{detail}")]
    Refused {
        host: String,
        status: StatusCode,
        what: String,
        detail: String,
    },
    #[error("{host} sent what cannot be used: {why}")]
    Content { host: String, why: String },
    #[error("it was not complete after {} minutes", LONGEST_PULL.as_secs() / 60)]
    Late,
    #[error("cannot keep what was sent: {0}")]
    Disk(#[from] std::io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a registry has under a name.
pub enum Fetched {
    /// An image that is here already: the digest of its configuration.
    Known(String),
    /// One that has been fetched, not yet unpacked, with the repository and the digest that the registry has it under.
    New { image: Found, source: String },
}

/// Fetches an image into an empty directory, unless it is known by the digest of its configuration.
pub async fn fetch(image: &str, keys: &Keys, into: &Path, known: impl Fn(&str) -> bool) -> Result<Fetched, PullError> {
    let whole = fetch_all(image, keys, into, known);
    tokio::time::timeout(LONGEST_PULL, whole)
        .await
        .map_err(|_| PullError::Late)?
}

async fn fetch_all(image: &str, keys: &Keys, into: &Path, known: impl Fn(&str) -> bool) -> Result<Fetched, PullError> {
    let name = Name::parse(image)?;
    let mut session = Session {
        authorization: None,
        keys,
        name: &name,
    };
    let (mut manifest, digest) = session.manifest(&name.version).await?;
    if manifest["manifests"].is_array() {
        let listed = manifest["manifests"].as_array().cloned().unwrap_or_default();
        let own = listed.iter().find(|entry| runs_here(&entry["platform"]));
        let own = own.and_then(|entry| entry["digest"].as_str());
        let own = own.ok_or_else(|| session.content("the image has no form for this machine"))?;
        manifest = session.manifest(own).await?.0;
    }
    let layers = manifest["layers"].as_array().cloned().unwrap_or_default();
    if !manifest["config"]["digest"].is_string() || layers.len() > MOST_LAYERS {
        return Err(session.content("the manifest is none of an image"));
    }
    // Also for a known image: only who has its configuration may give it a name.
    let config = session.blob(&manifest["config"], into).await?;
    if let Some(own) = manifest["config"]["digest"].as_str().filter(|digest| known(digest)) {
        return Ok(Fetched::Known(own.to_owned()));
    }
    let budget = Budget::on_disk(into)?;
    for layer in &layers {
        budget.spend(layer["size"].as_u64().unwrap_or_default())?;
    }
    let mut files = Vec::new();
    for layer in &layers {
        files.push(session.blob(layer, into).await?);
    }
    let image = Found::fetched(vec![image.to_owned()], &config, files)?;
    Ok(Fetched::New {
        image,
        source: format!("{}/{}@{digest}", name.registry, name.repository),
    })
}

fn runs_here(platform: &Value) -> bool {
    platform["os"] == "linux" && platform["architecture"] == crate::node::registration::architecture()
}

/// Requests for one image.
struct Session<'a> {
    name: &'a Name,
    keys: &'a Keys,
    /// What the registry asked for, once it has.
    authorization: Option<String>,
}

impl Session<'_> {
    fn content(&self, why: impl Into<String>) -> PullError {
        PullError::Content {
            host: self.name.host.clone(),
            why: why.into(),
        }
    }

    /// A manifest, and its digest; one that is asked for by a digest must have it.
    async fn manifest(&mut self, version: &str) -> Result<(Value, String), PullError> {
        let answer = self.get(&format!("manifests/{version}"), MANIFESTS).await?;
        let bytes = document(&self.name.host, answer).await?;
        let digest = format!("sha256:{}", hex(&Sha256::digest(&bytes)));
        if version.starts_with("sha256:") && version != digest {
            return Err(self.content(format!("the bytes of {version} have another digest")));
        }
        let manifest = serde_json::from_slice(&bytes).map_err(|error| self.content(error.to_string()))?;
        Ok((manifest, digest))
    }

    /// Fetches what a descriptor announces into a file of the directory.
    async fn blob(&mut self, descriptor: &Value, into: &Path) -> Result<PathBuf, PullError> {
        let digest = descriptor["digest"].as_str().unwrap_or_default();
        let plain = digest.strip_prefix("sha256:").unwrap_or_default();
        if plain.len() != 64 || !plain.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(self.content(format!("{digest:?} is no sha256 digest")));
        }
        let size = descriptor["size"].as_u64().filter(|size| *size <= LARGEST_LAYER);
        let size = size.ok_or_else(|| self.content(format!("{digest} is too large, or has no size")))?;
        let path = into.join(plain);
        if path.exists() {
            // The same layer twice.
            return Ok(path);
        }
        let mut body = self.get(&format!("blobs/{digest}"), "*/*").await?.into_body();
        let part = into.join(format!("{plain}.part"));
        let mut file = tokio::fs::File::create(&part).await?;
        let (mut hash, mut count) = (Sha256::new(), 0u64);
        loop {
            let next = tokio::time::timeout(SILENCE, body.frame()).await;
            let frame = match next.map_err(|_| self.content(format!("{digest} did not go on")))? {
                None => break,
                Some(frame) => frame.map_err(|error| self.content(format!("{digest}: {error}")))?,
            };
            let Ok(bytes) = frame.into_data() else { continue };
            count += bytes.len() as u64;
            if count > size {
                return Err(self.content(format!("{digest} is larger than announced")));
            }
            hash.update(&bytes);
            file.write_all(&bytes).await?;
        }
        file.flush().await?;
        if count != size || hex(&hash.finalize()) != plain {
            return Err(self.content(format!("the bytes of {digest} have another digest")));
        }
        tokio::fs::rename(&part, &path).await?;
        Ok(path)
    }

    /// Asks the registry for something of the image; shows who asks, if it wants to know.
    async fn get(&mut self, what: &str, accept: &str) -> Result<Answer, PullError> {
        let place = self.name.url(what)?;
        let mut answer = follow(&place, accept, self.authorization.as_deref()).await?;
        // Also for who has shown something: tokens live for minutes, and a large image takes longer.
        if answer.status() == StatusCode::UNAUTHORIZED {
            let asked = answer
                .headers()
                .get(WWW_AUTHENTICATE)
                .and_then(|value| value.to_str().ok());
            let challenge = asked.map(str::to_owned).unwrap_or_default();
            self.authorization = Some(self.authorize(&challenge).await?);
            answer = follow(&place, accept, self.authorization.as_deref()).await?;
        }
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        Err(PullError::Refused {
            host: self.name.host.clone(),
            status,
            what: format!("{}/{what}", self.name.repository),
            detail: detail(&document(&self.name.host, answer).await.unwrap_or_default()),
        })
    }

    /// What the registry wants to see in further requests.
    async fn authorize(&self, challenge: &str) -> Result<String, PullError> {
        let own = self.keys.of(&self.name.registry, &self.name.repository);
        let (scheme, rest) = challenge.split_once(' ').unwrap_or((challenge, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return own.ok_or_else(|| self.content("it wants a password; name a secret in imagePullSecrets"));
        }
        let asked = parameters(rest);
        let find = |wanted: &str| {
            asked
                .iter()
                .find(|(name, _)| name == wanted)
                .map(|(_, value)| value.as_str())
        };
        let realm = find("realm").filter(|_| scheme.eq_ignore_ascii_case("bearer"));
        let realm = realm.ok_or_else(|| self.content(format!("it wants to know who asks by {scheme:?}")))?;
        let scope = format!("repository:{}:pull", self.name.repository);
        let joint = if realm.contains('?') { '&' } else { '?' };
        let mut place = format!("{realm}{joint}scope={}", escaped(find("scope").unwrap_or(&scope)));
        if let Some(service) = find("service") {
            place.push_str(&format!("&service={}", escaped(service)));
        }
        // A password goes nowhere in plain text but to this machine.
        let place = Url::parse(&place).filter(Url::is_private).ok_or_else(|| {
            self.content(format!(
                "it gives tokens at {realm}, where a password would not be safe"
            ))
        })?;
        let answer = follow(&place, "application/json", own.as_deref()).await?;
        let status = answer.status();
        let bytes = document(&self.name.host, answer).await?;
        if !status.is_success() {
            return Err(PullError::Refused {
                host: place.host().to_owned(),
                status,
                what: format!("a token for {}", self.name.repository),
                detail: detail(&bytes),
            });
        }
        let told: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let token = told["token"].as_str().or_else(|| told["access_token"].as_str());
        let token = token.ok_or_else(|| self.content("it gave no token"))?;
        Ok(format!("Bearer {token}"))
    }
}

/// Sends a request and follows where the answer leads. Who asks is shown to the first host only.
async fn follow(place: &Url, accept: &str, authorization: Option<&str>) -> Result<Answer, PullError> {
    let mut next = place.clone();
    for _ in 0..MOST_REDIRECTS {
        let shown = authorization.filter(|_| next.same_host(place));
        let request = Request {
            accept,
            authorization: shown,
        };
        let answer = http::get(&next, request).await?;
        if !answer.status().is_redirection() {
            return Ok(answer);
        }
        let told = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        next = told
            .and_then(|told| next.join(told))
            // Who asked in secret is not led into the open.
            .filter(|found| found.is_private() || !next.is_private())
            .ok_or_else(|| PullError::Content {
                host: place.host().to_owned(),
                why: "it leads elsewhere without a place that can be used".to_owned(),
            })?;
    }
    Err(PullError::Content {
        host: place.host().to_owned(),
        why: "it leads from place to place without an end".to_owned(),
    })
}

/// A whole answer that is not long.
async fn document(host: &str, answer: Answer) -> Result<Vec<u8>, PullError> {
    let failed = |why: String| PullError::Content {
        host: host.to_owned(),
        why,
    };
    let all = Limited::new(answer.into_body(), LONGEST_DOCUMENT).collect();
    let all = tokio::time::timeout(SILENCE, all).await;
    let all = all.map_err(|_| failed("an answer did not go on".to_owned()))?;
    Ok(all.map_err(|error| failed(error.to_string()))?.to_bytes().to_vec())
}

/// What a registry says about a refusal, as an addition to a sentence.
fn detail(bytes: &[u8]) -> String {
    let told: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let first = &told["errors"][0];
    let words = first["message"].as_str().or_else(|| first["code"].as_str());
    let words: String = words.unwrap_or_default().chars().take(200).collect();
    if words.is_empty() { words } else { format!(": {words}") }
}

/// `a="b",c="d"`: what a registry wants to be shown.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while let Some((name, after)) = rest.split_once('=') {
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.push((name.trim().to_ascii_lowercase(), value.to_owned()));
        rest = left.trim_start_matches([',', ' ']);
    }
    found
}

/// A text as a part of a query.
fn escaped(text: &str) -> String {
    let mut all = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                all.push(char::from(byte));
            }
            other => all.push_str(&format!("%{other:02X}")),
        }
    }
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;

//! Authentication: from what a connection and its headers carry to a user.
//!
//! Client certificates come first, then bearer tokens: static ones, bootstrap tokens that are Secrets, and
//! service-account tokens. Who shows nothing is anonymous on the few open paths and refused elsewhere; who
//! shows something wrong is refused everywhere.

use super::tokens::{Bindings, Claims, Reference, TokenError};
use super::{AUTHENTICATED, Auth, User};
use crate::error::{ApiError, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Paths that anybody may read, as Kubernetes opens them: probes, and the version.
const OPEN_PATHS: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// The client certificate of a connection, already verified against our authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    pub common_name: String,
    pub organizations: Vec<String>,
    /// SHA-256 of the certificate, for the audit log.
    pub fingerprint: [u8; 32],
}

/// What a request shows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credentials<'a> {
    pub certificate: Option<&'a PeerCertificate>,
    pub bearer: Option<&'a str>,
}

/// Tokens that are fixed when the server starts. Only their hashes are kept, so that a lookup takes the
/// same time whatever was sent.
#[derive(Default)]
pub struct StaticTokens {
    users: HashMap<[u8; 32], User>,
}

/// Why a token names nobody.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The message that a TokenReview shows.
    Invalid(String),
    /// The store could not be asked.
    Unavailable(ApiError),
}

impl PeerCertificate {
    /// Reads the subject of a DER certificate.
    pub fn parse(der: &[u8]) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let subject = certificate.subject();
        let common_name = subject.iter_common_name().next()?.as_str().ok()?.to_string();
        let organizations = subject
            .iter_organization()
            .filter_map(|name| name.as_str().ok().map(str::to_string))
            .collect();
        Some(PeerCertificate {
            common_name,
            organizations,
            fingerprint: Sha256::digest(der).into(),
        })
    }

    fn user(&self) -> User {
        let mut user = User {
            name: self.common_name.clone(),
            groups: self.organizations.clone(),
            ..User::default()
        };
        user.join(AUTHENTICATED);
        let hex: String = self.fingerprint.iter().map(|byte| format!("{byte:02x}")).collect();
        user.extra
            .insert(CREDENTIAL_ID.to_string(), vec![format!("X509SHA256={hex}")]);
        user
    }
}

impl<'a> Credentials<'a> {
    /// The bearer token of the headers, and the certificate of the connection.
    pub fn of(headers: &'a http::HeaderMap, certificate: Option<&'a PeerCertificate>) -> Self {
        let bearer = headers
            .get(http::header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.trim().split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim())
            .filter(|token| !token.is_empty());
        Credentials { certificate, bearer }
    }
}

impl StaticTokens {
    pub fn insert(&mut self, token: &str, mut user: User) {
        user.join(AUTHENTICATED);
        self.users.insert(Sha256::digest(token).into(), user);
    }

    fn get(&self, token: &str) -> Option<&User> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        self.users.get(&hash)
    }
}

/// Who this server is to nodes. It never asks itself: whoever had a node's address changed to the server's own would
/// otherwise speak through it with all of its rights.
const TO_NODES: &str = "kube-apiserver-kubelet-client";

impl Auth {
    /// Who sends a request, or 401.
    pub async fn authenticate(&self, credentials: Credentials<'_>, path: &str) -> Result<User> {
        if let Some(certificate) = credentials.certificate {
            let user = certificate.user();
            return match user.name == TO_NODES {
                true => Err(ApiError::unauthorized()),
                false => Ok(user),
            };
        }
        match credentials.bearer {
            Some(token) => {
                let audiences = [self.inner.issuer.url.clone()];
                match self.token_user(token, &audiences).await {
                    Ok((user, _)) => Ok(user),
                    Err(Refusal::Invalid(_)) => Err(ApiError::unauthorized()),
                    Err(Refusal::Unavailable(error)) => Err(error),
                }
            }
            None if OPEN_PATHS.contains(&path) => Ok(User::anonymous()),
            None => Err(ApiError::unauthorized()),
        }
    }

    /// The user of a bearer token, and those of the audiences that it is meant for.
    pub(super) async fn token_user(
        &self,
        token: &str,
        audiences: &[String],
    ) -> std::result::Result<(User, Vec<String>), Refusal> {
        let for_us = audiences.contains(&self.inner.issuer.url);
        if for_us && let Some(user) = self.inner.tokens.get(token) {
            return Ok((user.clone(), vec![self.inner.issuer.url.clone()]));
        }
        if for_us && let Some(user) = self.bootstrap_user(token).await? {
            return Ok((user, vec![self.inner.issuer.url.clone()]));
        }
        let now = self.inner.environment.clock.now();
        let checked = match self.inner.issuer.verify(token, audiences, now) {
            Err(TokenError::Foreign) => return Err(Refusal::Invalid(TokenError::Foreign.to_string())),
            Err(error) => Err(error.to_string()),
            Ok((claims, shared)) => self.bound(&claims, now).await?.map(|user| (user, shared)),
        };
        checked.map_err(|why| Refusal::Invalid(format!("[{}, {why}]", TokenError::Foreign)))
    }

    /// Whether the service account and the object that the token ends with are still the same ones.
    async fn bound(
        &self,
        claims: &Claims,
        now: Timestamp,
    ) -> std::result::Result<std::result::Result<User, String>, Refusal> {
        let Bindings {
            namespace,
            serviceaccount: account,
            ..
        } = &claims.kubernetes;
        let Some(found) = self.fetch("serviceaccounts", namespace, &account.name).await? else {
            return Ok(Err(format!(
                "serviceaccounts {} not found",
                super::go_quote(&account.name)
            )));
        };
        let uid = found["metadata"]["uid"].as_str().unwrap_or_default();
        if uid != account.uid {
            return Ok(Err(format!(
                "service account UID ({uid}) does not match claim ({})",
                account.uid
            )));
        }
        if deleted(&found, now) {
            return Ok(Err(format!(
                "service account {namespace}/{} has been deleted",
                account.name
            )));
        }
        // A pod's token names the pod's node too; only a token without a pod ends with the node.
        let node = claims.kubernetes.node.as_ref();
        let alone = node.filter(|_| claims.kubernetes.pod.is_none());
        let references = [
            (
                "secrets",
                "secret",
                namespace.as_str(),
                claims.kubernetes.secret.as_ref(),
            ),
            ("pods", "pod", namespace.as_str(), claims.kubernetes.pod.as_ref()),
            ("nodes", "node", "", alone),
        ];
        for (resource, kind, namespace, reference) in references {
            let Some(Reference { name, uid }) = reference else {
                continue;
            };
            let Some(found) = self
                .fetch(resource, namespace, name)
                .await?
                .filter(|found| !deleted(found, now))
            else {
                return Ok(Err("service account token has been invalidated".to_string()));
            };
            let current = found["metadata"]["uid"].as_str().unwrap_or_default();
            if current != uid {
                return Ok(Err(format!(
                    "{kind} UID ({current}) does not match service account {kind} ref claim ({uid})"
                )));
            }
        }
        Ok(Ok(account_user(claims)))
    }

    /// The user of a bootstrap token (`id.secret`), which is a Secret in kube-system.
    async fn bootstrap_user(&self, token: &str) -> std::result::Result<Option<User>, Refusal> {
        let Some((id, secret)) = token.split_once('.') else {
            return Ok(None);
        };
        let valid = |text: &str, length| {
            text.len() == length
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        if !valid(id, 6) || !valid(secret, 16) {
            return Ok(None);
        }
        let name = format!("bootstrap-token-{id}");
        let Some(stored) = self.fetch("secrets", "kube-system", &name).await? else {
            return Ok(None);
        };
        let field = |name: &str| {
            let encoded = stored["data"][name].as_str().unwrap_or_default();
            let bytes = STANDARD.decode(encoded).unwrap_or_default();
            String::from_utf8(bytes).unwrap_or_default()
        };
        let same_secret = Sha256::digest(field("token-secret")) == Sha256::digest(secret);
        // A time that cannot be read is no permission to live for ever.
        let now = self.inner.environment.clock.now();
        let expiration = field("expiration");
        let expired = !expiration.is_empty() && expiration.parse::<Timestamp>().map_or(true, |at| at <= now);
        let usable = stored["type"] == "bootstrap.kubernetes.io/token"
            && field("token-id") == id
            && field("usage-bootstrap-authentication") == "true"
            && stored["metadata"]["deletionTimestamp"].is_null();
        if !same_secret || !usable || expired {
            return Ok(None);
        }
        let groups = field("auth-extra-groups");
        let groups: Vec<&str> = groups.split(',').filter(|group| !group.is_empty()).collect();
        if !groups.iter().all(|group| is_bootstrap_group(group)) {
            return Ok(None);
        }
        let mut user = User::named(&format!("system:bootstrap:{id}"), &["system:bootstrappers"]);
        for group in groups {
            user.join(group);
        }
        user.join(AUTHENTICATED);
        Ok(Some(user))
    }

    async fn fetch(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> std::result::Result<Option<std::sync::Arc<Value>>, Refusal> {
        self.object(resource, namespace, name)
            .await
            .map_err(Refusal::Unavailable)
    }
}

/// Whether a bootstrap token may put its user into this group. With any other, whoever may write a Secret in kube-system
/// could make an administrator.
fn is_bootstrap_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else {
        return false;
    };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    rest.len() <= 256
        && rest.bytes().all(|byte| plain(byte) || byte == b':' || byte == b'-')
        && rest.bytes().last().is_some_and(plain)
}

/// Objects that wait for their finalizers no longer vouch for anybody, after a grace for clocks that differ.
fn deleted(object: &Value, now: Timestamp) -> bool {
    object["metadata"]["deletionTimestamp"]
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok())
        .is_some_and(|at| at.as_second().saturating_add(60) < now.as_second())
}

fn account_user(claims: &Claims) -> User {
    let Bindings {
        namespace,
        serviceaccount,
        pod,
        node,
        ..
    } = &claims.kubernetes;
    let mut user = User::service_account(namespace, &serviceaccount.name);
    user.uid.clone_from(&serviceaccount.uid);
    let mut extra = |key: &str, value: &str| {
        if !value.is_empty() {
            user.extra.insert(key.to_string(), vec![value.to_string()]);
        }
    };
    if !claims.jti.is_empty() {
        extra(CREDENTIAL_ID, &format!("JTI={}", claims.jti));
    }
    if let Some(pod) = pod {
        extra("authentication.kubernetes.io/pod-name", &pod.name);
        extra("authentication.kubernetes.io/pod-uid", &pod.uid);
    }
    if let Some(node) = node {
        extra("authentication.kubernetes.io/node-name", &node.name);
        extra("authentication.kubernetes.io/node-uid", &node.uid);
    }
    user
}

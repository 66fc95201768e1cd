//! TokenRequest: a signed token for a service account, bound to an object if asked.

use super::Auth;
use super::reviews::{strings, whole_seconds};
use super::tokens::{Bindings, Claims, Reference};
use crate::error::{ApiError, GroupResource, Result};
use serde_json::{Value, json};
use stead_machinery::field::FieldError;

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
const SHORTEST_SECONDS: i64 = 10 * 60;
const LONGEST_SECONDS: i64 = 1 << 32;
const DEFAULT_SECONDS: i64 = 60 * 60;

/// Older clients read a projected token once; one that is asked for with this very lifetime lives a year
/// and only warns after it, as Kubernetes does it.
const WARN_ONLY_SECONDS: i64 = 3607;
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;

/// The objects that a token can end with.
#[derive(Default)]
struct Bound {
    pod: Option<Reference>,
    node: Option<Reference>,
    secret: Option<Reference>,
}

impl Auth {
    /// `POST .../serviceaccounts/NAME/token`.
    pub async fn token_request(&self, namespace: &str, name: &str, body: &Value) -> Result<Value> {
        let metadata = &body["metadata"];
        let mismatch = |field: &str, wanted: &str| {
            let given = metadata[field].as_str().unwrap_or_default();
            (!given.is_empty() && given != wanted).then(|| {
                let why = format!("must match the service account {field} if specified");
                ApiError::invalid(
                    GROUP,
                    KIND,
                    name,
                    &[FieldError::invalid(format!("metadata.{field}"), given, why)],
                )
            })
        };
        if let Some(error) = mismatch("name", name).or_else(|| mismatch("namespace", namespace)) {
            return Err(error);
        }
        let account = self.existing("serviceaccounts", namespace, name).await?;
        let account_uid = account["metadata"]["uid"].as_str().unwrap_or_default();
        if let Some(given) = metadata["uid"]
            .as_str()
            .filter(|uid| !uid.is_empty() && *uid != account_uid)
        {
            let why = format!(
                "the UID in the token request ({given}) does not match the UID of the service account ({account_uid})"
            );
            return Err(ApiError::conflict(&group_resource(GROUP, KIND), name, why));
        }
        let spec = &body["spec"];
        let mut audiences = strings(&spec["audiences"]);
        if audiences.is_empty() {
            audiences.push(self.inner.issuer.url.clone());
        }
        let seconds = expiration(spec)?;
        let bound = self.bound_object(namespace, name, &spec["boundObjectRef"]).await?;
        let now = self.inner.environment.clock.now();
        let extended =
            bound.pod.is_some() && seconds == WARN_ONLY_SECONDS && audiences == [self.inner.issuer.url.clone()];
        let lifetime = if extended { EXTENDED_SECONDS } else { seconds };
        let claims = Claims {
            aud: audiences.clone(),
            exp: now.as_second() + lifetime,
            iat: now.as_second(),
            nbf: now.as_second(),
            iss: self.inner.issuer.url.clone(),
            jti: self.inner.environment.uid(),
            sub: super::User::service_account(namespace, name).name,
            kubernetes: Bindings {
                namespace: namespace.to_string(),
                node: bound.node,
                pod: bound.pod,
                secret: bound.secret,
                serviceaccount: Reference {
                    name: name.to_string(),
                    uid: account_uid.to_string(),
                },
                warnafter: extended.then(|| now.as_second() + seconds),
            },
        };
        let token = self.inner.issuer.sign(&claims).map_err(ApiError::internal)?;
        let expires = now + jiff::SignedDuration::from_secs(seconds);
        let mut answer = json!({
            "kind": KIND, "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": name, "namespace": namespace, "uid": account_uid,
                "creationTimestamp": whole_seconds(now),
            },
            "spec": {"audiences": audiences, "expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": whole_seconds(expires)},
        });
        if spec["boundObjectRef"].is_object() {
            answer["spec"]["boundObjectRef"] = spec["boundObjectRef"].clone();
        }
        Ok(answer)
    }

    async fn bound_object(&self, namespace: &str, account: &str, reference: &Value) -> Result<Bound> {
        let mut bound = Bound::default();
        if !reference.is_object() {
            return Ok(bound);
        }
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let (kind, name) = (text("kind"), text("name"));
        let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
        let found = match (group, kind) {
            ("", "Pod") => {
                let pod = self.existing("pods", namespace, name).await?;
                if pod["spec"]["serviceAccountName"].as_str() != Some(account) {
                    return Err(ApiError::bad_request(format!(
                        "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                        super::go_quote(account)
                    )));
                }
                if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
                    let found = self.object("nodes", "", node).await?;
                    bound.node = Some(match found {
                        Some(found) => reference_to(&found),
                        None => Reference {
                            name: node.to_string(),
                            uid: String::new(),
                        },
                    });
                }
                bound.pod.insert(reference_to(&pod)).uid.clone()
            }
            ("", "Node") => {
                let node = self.existing("nodes", "", name).await?;
                bound.node.insert(reference_to(&node)).uid.clone()
            }
            ("", "Secret") => {
                let secret = self.existing("secrets", namespace, name).await?;
                bound.secret.insert(reference_to(&secret)).uid.clone()
            }
            _ => {
                let version = text("apiVersion").rsplit('/').next().unwrap_or_default();
                return Err(ApiError::bad_request(format!(
                    "cannot bind token to object of type {group}/{version}, Kind={kind}"
                )));
            }
        };
        if let Some(given) = reference["uid"].as_str().filter(|uid| !uid.is_empty() && *uid != found) {
            let why = format!(
                "the UID in the bound object reference ({given}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(&group_resource(group, kind), name, why));
        }
        Ok(bound)
    }

    async fn existing(&self, resource: &str, namespace: &str, name: &str) -> Result<std::sync::Arc<Value>> {
        let found = self.object(resource, namespace, name).await?;
        found.ok_or_else(|| ApiError::not_found(&group_resource("", resource), name))
    }
}

fn expiration(spec: &Value) -> Result<i64> {
    let field = "spec.expirationSeconds";
    let given = &spec["expirationSeconds"];
    if given.is_null() {
        return Ok(DEFAULT_SECONDS);
    }
    let seconds = given.as_i64().unwrap_or_default();
    let why = if seconds < SHORTEST_SECONDS {
        "may not specify a duration less than 10 minutes"
    } else if seconds > LONGEST_SECONDS {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(seconds);
    };
    Err(ApiError::invalid(
        GROUP,
        KIND,
        "",
        &[FieldError::invalid(field, given.clone(), why)],
    ))
}

fn reference_to(object: &Value) -> Reference {
    let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_string();
    Reference {
        name: field("name"),
        uid: field("uid"),
    }
}

fn group_resource(group: &str, resource: &str) -> GroupResource {
    GroupResource {
        group: group.to_string(),
        resource: resource.to_string(),
    }
}

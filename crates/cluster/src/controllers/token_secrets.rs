//! Secrets of the type `kubernetes.io/service-account-token`: they are filled with a token of their account, and go
//! with it.
//!
//! The token is asked for from the API server and bound to the Secret, so that it ends with it.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use serde_json::{Value, json};
use stead::{
    Context, Controller, Error, Key, Kind, Manager, Outcome, Propagation, Reconciler, Rule, Source, Store, Watch,
};

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// Long enough to outlive the cluster; the Secret's deletion ends it sooner.
const SECONDS: i64 = 10 * 365 * 24 * 60 * 60;

/// Adds the controller of token Secrets.
pub fn add_to(manager: &Manager, authority: Option<&str>) {
    let cache = manager.cache();
    let selected = || Watch::<Secret>::all().fields("type=kubernetes.io/service-account-token");
    let secrets = cache.watch(selected());
    let of_account = secrets.clone();
    let reconciler = Tokens {
        secrets,
        accounts: cache.store(),
        authority: authority.map(|pem| ByteString(pem.as_bytes().to_vec())),
    };
    let controller = Controller::new("serviceaccount-token", reconciler)
        .for_source(Source::from(selected()))
        .watches::<ServiceAccount>(move |account| {
            let namespace = account.metadata.namespace.as_deref().unwrap_or_default();
            let all = of_account.in_namespace(namespace);
            let own = all
                .iter()
                .filter(|secret| account_of(secret) == account.metadata.name.as_deref());
            own.map(|secret| Key::of(&**secret)).collect()
        })
        .may(Rule::new("", &["secrets"], &["patch", "delete"]))
        .may(Rule::new("", &["serviceaccounts"], &["get"]))
        .may(Rule::new("", &["serviceaccounts/token"], &["create"]))
        .without_resync()
        .concurrency(2);
    manager.add(controller);
}

fn account_of(secret: &Secret) -> Option<&str> {
    secret
        .metadata
        .annotations
        .as_ref()?
        .get(ACCOUNT_NAME)
        .map(String::as_str)
}

struct Tokens {
    secrets: Store<Secret>,
    accounts: Store<ServiceAccount>,
    authority: Option<ByteString>,
}

impl Reconciler for Tokens {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(secret) = self
            .secrets
            .get(key)
            .filter(|secret| secret.type_.as_deref() == Some(TYPE))
        else {
            return Ok(Outcome::Settled);
        };
        let Some(name) = account_of(&secret).filter(|_| secret.metadata.deletion_timestamp.is_none()) else {
            return Ok(Outcome::Settled);
        };
        let account = Key::new(key.namespace(), name);
        let annotations = secret.metadata.annotations.as_ref();
        let uid = annotations.and_then(|all| all.get(ACCOUNT_UID));
        let Some(found) = self.accounts.get(&account) else {
            // The account may be newer than the cache: only the server knows that it is gone.
            let live = context.writer().read::<ServiceAccount>(&account).await?;
            if live.is_none() {
                context.writer().delete(&*secret, Propagation::Background).await?;
            }
            return Ok(Outcome::Settled);
        };
        if uid.is_some() && uid != found.metadata.uid.as_ref() {
            context.writer().delete(&*secret, Propagation::Background).await?;
            return Ok(Outcome::Settled);
        }
        let has = |name: &str| secret.data.as_ref().is_some_and(|data| data.contains_key(name));
        if has("token") && has("namespace") && uid.is_some() && (has("ca.crt") || self.authority.is_none()) {
            return Ok(Outcome::Settled);
        }
        let bound =
            json!({"apiVersion": "v1", "kind": "Secret", "name": secret.metadata.name, "uid": secret.metadata.uid});
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"boundObjectRef": bound, "expirationSeconds": SECONDS},
        });
        let kind = Kind::of::<ServiceAccount>();
        let path = format!("{}/token", kind.path_of(&account));
        let answer = send(context, "POST", &path, &request).await?;
        let token = answer["status"]["token"].as_str().unwrap_or_default();
        let data = json!({
            "token": ByteString(token.as_bytes().to_vec()),
            "namespace": ByteString(key.namespace().unwrap_or_default().as_bytes().to_vec()),
            "ca.crt": self.authority,
        });
        let patch = json!({"data": data, "metadata": {
            "annotations": {ACCOUNT_UID: found.metadata.uid},
            "uid": secret.metadata.uid, "resourceVersion": secret.metadata.resource_version,
        }});
        send(context, "PATCH", &Kind::of::<Secret>().path_of(key), &patch).await?;
        Ok(Outcome::Settled)
    }
}

/// Sends past the writer, which would remember what was sent for people to read: a token is for nobody's eyes.
async fn send(context: &Context, method: &str, path: &str, body: &Value) -> Result<Value, Error> {
    let fail = |error| Error::api("fill a token Secret", error);
    let media = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, media)
        .body(body.to_string().into_bytes())
        .map_err(|error| fail(kube::Error::HttpError(error)))?;
    context.client().request(request).await.map_err(fail)
}

use super::*;
use crate::auth::tokens::Issuer;
use crate::auth::{Directory, StaticTokens, bootstrap, rbac};
use crate::environment::Environment;
use crate::store::Key;
use std::collections::HashMap;
use std::sync::Arc;

/// A few fixed objects and the default roles.
struct Fixed(HashMap<Key, Arc<Value>>);

#[async_trait::async_trait]
impl Directory for Fixed {
    async fn object(&self, key: &Key) -> Result<Option<Arc<Value>>> {
        Ok(self.0.get(key).cloned())
    }

    fn policy(&self) -> Result<rbac::Policy> {
        Ok(rbac::tests::policy(&bootstrap::objects()))
    }
}

fn auth(objects: &[(&str, Value)]) -> Auth {
    let stored = objects.iter().map(|(resource, object)| {
        let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
        (
            rbac::key(resource, field("namespace"), field("name")),
            Arc::new(object.clone()),
        )
    });
    let issuer = Issuer::from_pem(
        &Issuer::generate_pem().expect("a key"),
        "https://kubernetes.default.svc",
    );
    let mut tokens = StaticTokens::default();
    tokens.insert("bobtoken", User::named("bob", &["devs"]));
    Auth::new(
        Arc::new(Fixed(stored.collect())),
        Environment::real(),
        issuer.expect("an issuer"),
        tokens,
    )
}

fn robot() -> (&'static str, Value) {
    let metadata = json!({"namespace": "default", "name": "robot", "uid": "robot-1"});
    ("/serviceaccounts", json!({"metadata": metadata}))
}

async fn review(auth: &Auth, resource: &str, body: Value) -> Result<Value> {
    let user = User::named("bob", &["devs", "system:authenticated"]);
    auth.review(resource, "x", &body, &user).await.expect("a review")
}

#[tokio::test]
async fn an_access_review_says_who_allowed_it() {
    let auth = auth(&[]);
    let spec = json!({"user": "bob", "groups": ["system:authenticated"],
                      "nonResourceAttributes": {"path": "/api", "verb": "get"}});
    let answer = review(&auth, "subjectaccessreviews", json!({"spec": spec}))
        .await
        .expect("an answer");
    assert_eq!(answer["status"]["allowed"], true);
    assert_eq!(
        answer["status"]["reason"],
        r#"RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated""#
    );
    let own = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "x"}}});
    let answer = review(&auth, "selfsubjectaccessreviews", own).await.expect("an answer");
    assert_eq!(answer["status"], json!({"allowed": false}));
}

#[tokio::test]
async fn a_malformed_access_review_is_refused_as_kubernetes_words_it() {
    let auth = auth(&[]);
    let refused = async |resource: &str, spec: Value| {
        review(&auth, resource, json!({"spec": spec}))
            .await
            .expect_err("invalid")
            .message
    };
    assert_eq!(
        refused("subjectaccessreviews", json!({"resourceAttributes": {"verb": "get"}})).await,
        r#".authorization.k8s.io "" is invalid: spec.user: Invalid value: "": at least one of user or group must be specified"#
    );
    assert_eq!(
        refused("subjectaccessreviews", json!({"user": "bob"})).await,
        r#".authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"#
    );
    assert_eq!(
        refused(
            "localsubjectaccessreviews",
            json!({"user": "bob", "resourceAttributes": {"namespace": "y"}})
        )
        .await,
        r#".authorization.k8s.io "" is invalid: spec.resourceAttributes.namespace: Invalid value: "y": must match metadata.namespace"#
    );
    assert_eq!(
        refused(
            "localsubjectaccessreviews",
            json!({"user": "bob", "nonResourceAttributes": {"path": "/pods", "verb": "get"}})
        )
        .await,
        r#".authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/pods","Verb":"get"}: disallowed on this kind of request"#
    );
}

#[tokio::test]
async fn a_requested_token_names_its_service_account_until_that_is_gone() {
    let auth = auth(&[robot()]);
    let request = auth
        .token_request("default", "robot", &json!({"spec": {}}))
        .await
        .expect("a token");
    assert_eq!(request["spec"]["expirationSeconds"], 3600);
    let token = request["status"]["token"].clone();
    let answer = review(&auth, "tokenreviews", json!({"spec": {"token": token}}))
        .await
        .expect("an answer");
    assert_eq!(
        answer["status"]["user"]["username"],
        "system:serviceaccount:default:robot"
    );
    assert_eq!(answer["status"]["user"]["uid"], "robot-1");
    assert_eq!(
        answer["status"]["user"]["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ])
    );

    let (_, mut recreated) = robot();
    recreated["metadata"]["uid"] = "robot-2".into();
    let (pem, url) = (Issuer::generate_pem().expect("a key"), "https://kubernetes.default.svc");
    let with = |objects: HashMap<Key, Arc<Value>>| {
        let issuer = Issuer::from_pem(&pem, url).expect("an issuer");
        Auth::new(
            Arc::new(Fixed(objects)),
            Environment::real(),
            issuer,
            StaticTokens::default(),
        )
    };
    let key = rbac::key("/serviceaccounts", "default", "robot");
    let before = with(HashMap::from([(key.clone(), Arc::new(robot().1))]));
    let after = with(HashMap::from([(key, Arc::new(recreated))]));
    let request = before
        .token_request("default", "robot", &json!({}))
        .await
        .expect("a token");
    let body = json!({"spec": {"token": request["status"]["token"]}});
    let answer = review(&after, "tokenreviews", body).await.expect("an answer");
    assert_eq!(
        answer["status"]["error"],
        "[invalid bearer token, service account UID (robot-2) does not match claim (robot-1)]"
    );
}

#[tokio::test]
async fn a_token_request_is_checked_as_kubernetes_does() {
    let secret = json!({"metadata": {"namespace": "default", "name": "sec", "uid": "s-1"}});
    let auth = auth(&[robot(), ("/secrets", secret)]);
    let refused = async |name: &str, body: Value| {
        auth.token_request("default", name, &body)
            .await
            .expect_err("refused")
            .message
    };
    assert_eq!(
        refused("robot", json!({"spec": {"expirationSeconds": 5}})).await,
        r#"TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes"#
    );
    assert_eq!(
        refused("nosuch", json!({})).await,
        r#"serviceaccounts "nosuch" not found"#
    );
    assert_eq!(
        refused("robot", json!({"metadata": {"name": "other"}})).await,
        r#"TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "other": must match the service account name if specified"#
    );
    let bound = |kind: &str, name: &str, uid: &str| json!({"spec": {"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}}});
    assert_eq!(refused("robot", bound("Pod", "p", "")).await, r#"pods "p" not found"#);
    assert_eq!(
        refused("robot", bound("Foo", "p", "")).await,
        "cannot bind token to object of type /v1, Kind=Foo"
    );
    assert_eq!(
        refused("robot", bound("Secret", "sec", "foo")).await,
        r#"Operation cannot be fulfilled on Secret "sec": the UID in the bound object reference (foo) does not match the UID in record. The object might have been deleted and then recreated"#
    );
    auth.token_request("default", "robot", &bound("Secret", "sec", ""))
        .await
        .expect("a bound token");
}

#[tokio::test]
async fn only_probes_and_the_version_are_open_to_strangers() {
    use crate::auth::Credentials;
    let auth = auth(&[]);
    let none = Credentials::default();
    let stranger = auth.authenticate(none, "/readyz").await.expect("an open path");
    assert_eq!(stranger, User::anonymous());
    assert_eq!(
        auth.authenticate(none, "/api/v1/pods").await.expect_err("closed").code,
        401
    );
    let wrong = Credentials {
        bearer: Some("bad"),
        certificate: None,
    };
    assert_eq!(
        auth.authenticate(wrong, "/readyz").await.expect_err("refused").code,
        401
    );
    let mut headers = http::HeaderMap::new();
    headers.insert("authorization", http::HeaderValue::from_static("Bearer bobtoken"));
    let bob = auth
        .authenticate(Credentials::of(&headers, None), "/api")
        .await
        .expect("a token");
    assert_eq!(bob.groups, ["devs", "system:authenticated"]);
}

#[tokio::test]
async fn a_bootstrap_token_secret_lets_a_node_in_until_it_expires() {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let joining = |groups: &str, expiration: &str| {
        json!({"metadata": {"namespace": "kube-system", "name": "bootstrap-token-abcdef"},
               "type": "bootstrap.kubernetes.io/token",
               "data": {"token-id": STANDARD.encode("abcdef"), "token-secret": STANDARD.encode("0123456789abcdef"),
                        "usage-bootstrap-authentication": STANDARD.encode("true"),
                        "auth-extra-groups": STANDARD.encode(groups),
                        "expiration": STANDARD.encode(expiration)}})
    };
    let secret = |expiration: &str| joining("system:bootstrappers:worker", expiration);
    let body = json!({"spec": {"token": "abcdef.0123456789abcdef"}});
    let valid = auth(&[("/secrets", secret("2999-01-01T00:00:00Z"))]);
    let answer = review(&valid, "tokenreviews", body.clone()).await.expect("an answer");
    assert_eq!(answer["status"]["user"]["username"], "system:bootstrap:abcdef");
    let expired = auth(&[("/secrets", secret("2000-01-01T00:00:00Z"))]);
    let answer = review(&expired, "tokenreviews", body.clone()).await.expect("an answer");
    assert_eq!(answer["status"]["error"], "invalid bearer token");
    for refused in [
        secret("some day"),
        joining("system:masters", "2999-01-01T00:00:00Z"),
        joining("system:bootstrappers:worker,system:masters", "2999-01-01T00:00:00Z"),
        joining("system:bootstrappers:", "2999-01-01T00:00:00Z"),
    ] {
        let server = auth(&[("/secrets", refused)]);
        let answer = review(&server, "tokenreviews", body.clone()).await.expect("an answer");
        assert_eq!(answer["status"]["error"], "invalid bearer token");
    }
}

#[tokio::test]
async fn the_server_does_not_let_itself_in() {
    use crate::auth::{Credentials, MASTERS, PeerCertificate};
    let auth = auth(&[]);
    let asks = async |name: &str| {
        let certificate = PeerCertificate {
            common_name: name.to_string(),
            organizations: vec![MASTERS.to_string()],
            fingerprint: [0; 32],
        };
        let shown = Credentials {
            certificate: Some(&certificate),
            bearer: None,
        };
        auth.authenticate(shown, "/api/v1/secrets")
            .await
            .map_err(|error| error.code)
    };
    assert!(asks("an-admin").await.is_ok());
    assert_eq!(asks("kube-apiserver-kubelet-client").await, Err(401));
}

use super::*;
use crate::auth::rbac::tests::{binding, policy};
use http::{HeaderName, HeaderValue};
use serde_json::json;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name: HeaderName = name.parse().expect("a header name");
        headers.append(name, HeaderValue::from_str(value).expect("a header value"));
    }
    headers
}

fn list_pods() -> Attributes {
    Attributes::resource("list", "", "pods", "x", "")
}

#[test]
fn a_master_runs_as_anybody_with_the_headers_taken_away() {
    let mut headers = headers(&[
        ("Impersonate-User", "alice"),
        ("Impersonate-Group", "g"),
        ("Impersonate-Uid", "77"),
        ("Impersonate-Extra-Foo%2fbar", "1"),
        ("Accept", "application/json"),
    ]);
    let user = impersonate(&mut headers, &User::admin(), &list_pods(), &Policy::default())
        .expect("allowed")
        .expect("a user");
    assert_eq!(user.name, "alice");
    assert_eq!(user.uid, "77");
    assert_eq!(user.groups, ["g", AUTHENTICATED]);
    assert_eq!(user.extra["foo/bar"], ["1"]);
    assert_eq!(headers.len(), 1);
}

#[test]
fn a_service_account_brings_its_groups() {
    let mut headers = headers(&[("Impersonate-User", "system:serviceaccount:x:y")]);
    let user = impersonate(&mut headers, &User::admin(), &list_pods(), &Policy::default())
        .expect("allowed")
        .expect("a user");
    assert_eq!(
        user.groups,
        ["system:serviceaccounts", "system:serviceaccounts:x", AUTHENTICATED]
    );
}

#[test]
fn who_may_not_is_refused_in_the_words_of_the_first_mode() {
    let refused = |user: &str| {
        let mut headers = headers(&[("Impersonate-User", user)]);
        let bob = User::named("bob", &[AUTHENTICATED]);
        impersonate(&mut headers, &bob, &list_pods(), &Policy::default())
            .expect_err("refused")
            .message
    };
    assert_eq!(
        refused("alice"),
        r#"pods is forbidden: User "bob" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "x""#
    );
    assert!(refused("system:serviceaccount:x:y").contains("impersonate-on:serviceaccount:list"));
    assert!(refused("system:node:n").contains("impersonate-on:arbitrary-node:list"));
}

#[test]
fn the_old_verb_still_allows_it() {
    let policy = policy(&[
        json!({"kind": "ClusterRole", "metadata": {"name": "sudo"},
               "rules": [{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["alice"]}]}),
        binding(
            "ClusterRoleBinding",
            "",
            "sudo",
            "sudo",
            json!({"kind": "User", "name": "bob"}),
        ),
    ]);
    let bob = User::named("bob", &[AUTHENTICATED]);
    let mut as_alice = headers(&[("Impersonate-User", "alice")]);
    let user = impersonate(&mut as_alice, &bob, &list_pods(), &policy)
        .expect("allowed")
        .expect("a user");
    assert_eq!(user.name, "alice");
    let mut as_carol = headers(&[("Impersonate-User", "carol")]);
    impersonate(&mut as_carol, &bob, &list_pods(), &policy).expect_err("only alice");
}

#[test]
fn a_group_without_a_user_is_a_bad_request() {
    let mut headers = headers(&[("Impersonate-Group", "g")]);
    let error = impersonate(&mut headers, &User::admin(), &list_pods(), &Policy::default()).expect_err("no user");
    assert_eq!(
        error.message,
        r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)} without impersonating a user name"#
    );
}

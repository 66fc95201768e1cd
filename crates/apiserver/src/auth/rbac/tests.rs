use super::*;
use crate::auth::bootstrap;

/// A policy from objects as the API has them.
pub(crate) fn policy(objects: &[serde_json::Value]) -> Policy {
    let mut policy = Policy::default();
    for object in objects {
        let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_string();
        let (namespace, name) = (field("namespace"), field("name"));
        let role = || Arc::new(Role::deserialize(object).expect("a role"));
        let binding = || Arc::new(Binding::deserialize(object).expect("a binding"));
        match object["kind"].as_str() {
            Some("ClusterRole") => {
                Arc::make_mut(&mut policy.cluster_roles).insert(key(CLUSTER_ROLES, "", &name), role());
            }
            Some("Role") => {
                Arc::make_mut(&mut policy.roles).insert(key(ROLES, &namespace, &name), role());
            }
            Some("ClusterRoleBinding") => {
                Arc::make_mut(&mut policy.cluster_role_bindings)
                    .insert(key(CLUSTER_ROLE_BINDINGS, "", &name), binding());
            }
            Some("RoleBinding") => {
                Arc::make_mut(&mut policy.role_bindings).insert(key(ROLE_BINDINGS, &namespace, &name), binding());
            }
            other => panic!("not an RBAC kind: {other:?}"),
        }
    }
    policy
}

pub(crate) fn binding(
    kind: &str,
    namespace: &str,
    name: &str,
    role: &str,
    subject: serde_json::Value,
) -> serde_json::Value {
    serde_json::json!({
        "kind": kind, "metadata": {"name": name, "namespace": namespace}, "subjects": [subject],
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
    })
}

fn bob() -> User {
    User::named("bob", &["devs", "system:authenticated"])
}

fn with_defaults(extra: Vec<serde_json::Value>) -> Policy {
    let mut objects = bootstrap::objects();
    objects.extend(extra);
    policy(&objects)
}

#[track_caller]
fn allowed(policy: &Policy, user: &User, wanted: &Attributes) -> String {
    match policy.authorize(user, wanted) {
        Decision::Allow { reason } => reason,
        Decision::Deny { reason } => panic!("denied {wanted:?}: {reason}"),
    }
}

#[track_caller]
fn denied(policy: &Policy, user: &User, wanted: &Attributes) -> String {
    match policy.authorize(user, wanted) {
        Decision::Allow { reason } => panic!("allowed {wanted:?}: {reason}"),
        Decision::Deny { reason } => wanted.forbidden(user, &reason).message,
    }
}

fn path(path: &str) -> Attributes {
    Attributes {
        verb: "get".into(),
        target: Target::Path(path.into()),
    }
}

#[test]
fn a_refusal_reads_as_kubernetes_words_it() {
    let policy = with_defaults(vec![]);
    let at = |resource: &str, namespace: &str, name: &str| Attributes::resource("get", "", resource, namespace, name);
    assert_eq!(
        denied(&policy, &bob(), &Attributes::resource("list", "", "pods", "", "")),
        r#"pods is forbidden: User "bob" cannot list resource "pods" in API group "" at the cluster scope"#
    );
    assert_eq!(
        denied(&policy, &bob(), &at("pods", "x", "y")),
        r#"pods "y" is forbidden: User "bob" cannot get resource "pods" in API group "" in the namespace "x""#
    );
    assert_eq!(
        denied(
            &policy,
            &bob(),
            &Attributes::resource("list", "apps", "deployments", "", "")
        ),
        r#"deployments.apps is forbidden: User "bob" cannot list resource "deployments" in API group "apps" at the cluster scope"#
    );
    assert_eq!(
        denied(&policy, &bob(), &path("/foo")),
        r#"forbidden: User "bob" cannot get path "/foo""#
    );
}

#[test]
fn masters_may_do_everything_and_everybody_may_discover() {
    let policy = with_defaults(vec![]);
    let delete = Attributes::resource("delete", "", "nodes", "", "n");
    assert_eq!(allowed(&Policy::default(), &User::admin(), &delete), "");
    allowed(&policy, &bob(), &path("/apis/apps/v1"));
    allowed(&policy, &User::anonymous(), &path("/version"));
    denied(&policy, &User::anonymous(), &path("/api"));
}

#[test]
fn a_role_binding_gives_a_cluster_role_in_its_namespace_alone() {
    let subject = serde_json::json!({"kind": "ServiceAccount", "name": "robot"});
    let policy = with_defaults(vec![binding("RoleBinding", "x", "viewer", "view", subject)]);
    let robot = User::service_account("x", "robot");
    let list = |namespace: &str| Attributes::resource("list", "", "pods", namespace, "");
    assert_eq!(
        allowed(&policy, &robot, &list("x")),
        r#"RBAC: allowed by RoleBinding "viewer/x" of ClusterRole "view" to ServiceAccount "robot/x""#
    );
    denied(&policy, &robot, &list("y"));
    denied(&policy, &robot, &list(""));
    denied(&policy, &User::service_account("y", "robot"), &list("x"));
    denied(&policy, &robot, &Attributes::resource("list", "", "secrets", "x", ""));
}

#[test]
fn a_binding_to_a_missing_role_is_named_in_the_refusal() {
    let subject = serde_json::json!({"kind": "User", "name": "bob"});
    let policy = with_defaults(vec![binding("ClusterRoleBinding", "", "b", "nosuch", subject)]);
    assert_eq!(
        denied(&policy, &bob(), &Attributes::resource("list", "", "pods", "", "")),
        r#"pods is forbidden: User "bob" cannot list resource "pods" in API group "" at the cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io "nosuch" not found"#
    );
}

#[test]
fn subresources_need_a_rule_of_their_own() {
    let rule = |resource: &str| Rule {
        verbs: vec!["get".into()],
        api_groups: vec![String::new()],
        resources: vec![resource.into()],
        ..Rule::default()
    };
    let mut wanted = Attributes::resource("get", "", "pods", "x", "y");
    assert!(rule("pods").allows(&wanted));
    assert!(!rule("pods/log").allows(&wanted));
    if let Target::Resource { subresource, .. } = &mut wanted.target {
        *subresource = "log".into();
    }
    assert!(!rule("pods").allows(&wanted));
    assert!(rule("pods/log").allows(&wanted));
    assert!(rule("*/log").allows(&wanted));
    assert!(rule("*").allows(&wanted));
    assert!(!rule("*/status").allows(&wanted));
}

use super::*;
use crate::auth::bootstrap;
use crate::auth::rbac::tests::{binding, policy};
use serde_json::json;

fn bob() -> User {
    User::named("bob", &["devs", "system:authenticated"])
}

fn setting() -> Policy {
    let mut objects = bootstrap::objects();
    objects.push(json!({
        "kind": "ClusterRole", "metadata": {"name": "rolemaker"},
        "rules": [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["get", "create", "update"]}],
    }));
    let subject = json!({"kind": "User", "name": "bob"});
    objects.push(binding("ClusterRoleBinding", "", "bobmaker", "rolemaker", subject));
    policy(&objects)
}

fn write(resource: &str, new: &Value) -> Result<()> {
    let grant = Grant {
        resource,
        namespace: "",
        name: "esc",
        new,
        old: None,
    };
    check(&setting(), &bob(), &grant)
}

#[test]
fn a_role_with_more_than_its_writer_holds_is_refused_with_what_is_missing() {
    let role = json!({"rules": [
        {"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get", "list"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["x"], "verbs": ["get"]},
        {"nonResourceURLs": ["/foo"], "verbs": ["get"]},
    ]});
    let error = write("clusterroles", &role).expect_err("an escalation");
    assert_eq!(error.code, 403);
    assert_eq!(
        error.message,
        concat!(
            "clusterroles.rbac.authorization.k8s.io \"esc\" is forbidden: user \"bob\" ",
            "(groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n",
            "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}\n",
            "{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}\n",
            "{APIGroups:[\"apps\"], Resources:[\"deployments\"], ResourceNames:[\"x\"], Verbs:[\"get\"]}\n",
            "{NonResourceURLs:[\"/foo\"], Verbs:[\"get\"]}",
        )
    );
}

#[test]
fn a_role_with_what_its_writer_holds_is_fine() {
    let role = json!({"rules": [{"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["get"]}]});
    write("clusterroles", &role).expect("held permissions");
}

#[test]
fn an_aggregation_rule_takes_full_authority() {
    let role = json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}, "rules": []});
    let error = write("clusterroles", &role).expect_err("an escalation");
    assert!(
        error
            .message
            .ends_with("must have cluster-admin privileges to use the aggregationRule")
    );
}

#[test]
fn binding_a_role_takes_holding_it_and_a_missing_role_is_not_found() {
    let subject = json!({"kind": "User", "name": "bob"});
    let to = |role: &str| binding("ClusterRoleBinding", "", "esc", role, subject.clone());
    let error = write("clusterrolebindings", &to("cluster-admin")).expect_err("an escalation");
    assert!(
        error.message.contains(
            "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"
        )
    );
    let error = write("clusterrolebindings", &to("nosuch")).expect_err("no such role");
    assert_eq!(
        error.message,
        "clusterrolebindings.rbac.authorization.k8s.io \"nosuch\" not found"
    );
    write("clusterrolebindings", &to("rolemaker")).expect("a role that bob has");
}

#[test]
fn the_garbage_collector_may_take_finalizers_from_a_role_it_could_not_write() {
    let old = json!({"metadata": {"name": "esc", "finalizers": ["x"]}, "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!([]);
    let grant = Grant {
        resource: "clusterroles",
        namespace: "",
        name: "esc",
        new: &new,
        old: Some(&old),
    };
    check(&setting(), &bob(), &grant).expect("only references differ");
}

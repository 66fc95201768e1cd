//! What a node may read and change, and what it may not.

use super::*;
use crate::auth::bootstrap;
use crate::error::Result;
use async_trait::async_trait;
use serde_json::json;
use std::sync::Arc;

/// Two pods on two nodes, each with a secret, a config map, a claim and an account.
struct Two;

fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "a", "uid": format!("{name}-uid")},
        "spec": {
            "nodeName": node,
            "serviceAccountName": format!("{name}-account"),
            "resourceClaims": [{"name": "device", "resourceClaimName": format!("{name}-device")}],
            "imagePullSecrets": [{"name": format!("{name}-pull")}],
            "containers": [{"name": "c", "env": [
                {"name": "S", "valueFrom": {"secretKeyRef": {"name": format!("{name}-env"), "key": "k"}}},
            ], "envFrom": [{"configMapRef": {"name": format!("{name}-all")}}]}],
            "volumes": [
                {"name": "s", "secret": {"secretName": format!("{name}-secret")}},
                {"name": "d", "persistentVolumeClaim": {"claimName": format!("{name}-claim")}},
                {"name": "e", "ephemeral": {}},
                {"name": "p", "projected": {"sources": [
                    {"configMap": {"name": "kube-root-ca.crt"}},
                    {"serviceAccountToken": {"path": "token"}},
                    {"serviceAccountToken": {"path": "vault", "audience": "vault"}},
                ]}},
                {"name": "keys", "csi": {"driver": "keys.example.com"}},
            ],
        },
    })
}

#[async_trait]
impl Directory for Two {
    async fn object(&self, _: &Key) -> Result<Option<Arc<Value>>> {
        Ok(None)
    }

    fn policy(&self) -> Result<Policy> {
        Ok(rbac::tests::policy(&bootstrap::objects()))
    }

    fn bonds(&self, namespace: &str, node: &str, has: &dyn Fn(&Bonds) -> bool) -> bool {
        let pods = [pod("one", "n1"), pod("two", "n2")];
        let keys = [rbac::key("/pods", "a", "one"), rbac::key("/pods", "a", "two")];
        let all = keys.iter().zip(&pods).filter_map(|(key, pod)| Bonds::of(key, pod));
        namespace == "a" && all.filter(|bonds| bonds.node == node).any(|bonds| has(&bonds))
    }

    fn current(&self, key: &Key) -> Option<Arc<Value>> {
        match (key.resource.as_ref(), key.name.as_ref()) {
            ("/pods", "one") => Some(Arc::new(pod("one", "n1"))),
            ("/pods", "two") => Some(Arc::new(pod("two", "n2"))),
            ("storage.k8s.io/volumeattachments" | "resource.k8s.io/resourceslices", name) => {
                Some(Arc::new(json!({"spec": {"nodeName": name.replace("of-", "")}})))
            }
            ("/persistentvolumes", name) => Some(Arc::new(
                json!({"spec": {"claimRef": {"namespace": "a", "name": name.replace("volume", "claim")},
                    "csi": {"driver": "data.example.com"}}}),
            )),
            ("/persistentvolumeclaims", name) => Some(Arc::new(
                json!({"spec": {"volumeName": name.replace("claim", "volume")}}),
            )),
            ("storage.k8s.io/csidrivers", name) => {
                let audience = name.split('.').next();
                Some(Arc::new(json!({"spec": {"tokenRequests": [{"audience": audience}]}})))
            }
            _ => None,
        }
    }
}

fn asks(verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> Opinion {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let mut wanted = Attributes::resource(verb, group, resource, namespace, name);
    if let Target::Resource { subresource: field, .. } = &mut wanted.target {
        *field = subresource.to_string();
    }
    judge("n1", &wanted, &Two.policy().expect("roles"), &Two)
}

#[test]
fn a_node_reads_what_its_pods_name_and_nothing_else() {
    let read = |resource: &str, name: &str| asks("get", "", resource, "a", name) == Opinion::Allow;
    for name in ["one-env", "one-pull", "one-secret"] {
        assert!(read("secrets", name), "{name}");
    }
    for name in ["one-all", "kube-root-ca.crt"] {
        assert!(read("configmaps", name), "{name}");
    }
    for name in ["one-claim", "one-e"] {
        assert!(read("persistentvolumeclaims", name), "{name}");
    }
    assert!(read("pods", "one"));
    assert_eq!(asks("get", "", "persistentvolumes", "", "one-volume"), Opinion::Allow);
    for (resource, name) in [
        ("secrets", "two-secret"),
        ("configmaps", "two-all"),
        ("persistentvolumeclaims", "two-claim"),
        ("pods", "two"),
    ] {
        let Opinion::None(why) = asks("get", "", resource, "a", name) else {
            panic!("{resource} {name} of another node was open");
        };
        assert_eq!(why, "no relationship found between node 'n1' and this object");
    }
    assert_ne!(asks("get", "", "persistentvolumes", "", "two-volume"), Opinion::Allow);
    assert_ne!(asks("list", "", "secrets", "a", ""), Opinion::Allow);
    assert_ne!(asks("get", "", "secrets", "b", "one-secret"), Opinion::Allow);
    assert_ne!(asks("update", "", "secrets", "a", "one-secret"), Opinion::Allow);
}

#[test]
fn a_node_has_tokens_for_the_accounts_of_its_pods_only() {
    let token = |name: &str| asks("create", "", "serviceaccounts/token", "a", name) == Opinion::Allow;
    assert!(token("one-account"));
    assert!(!token("two-account"));
    assert!(!token(""));
}

#[test]
fn a_node_has_tokens_for_the_audiences_that_volumes_of_its_pods_name() {
    let asked = |name: &str, audiences: Value| {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": format!("{name}-uid")});
        let request = json!({"spec": {"audiences": audiences, "boundObjectRef": bound}});
        match token("n1", "a", &request, &Two) {
            Ok(()) => String::new(),
            Err(NoToken::Refused(why)) => why,
            Err(NoToken::Unnamed { audience }) => format!("no volume is for {audience}"),
        }
    };
    assert_eq!(asked("one", json!([])), "");
    assert_eq!(asked("one", Value::Null), "");
    assert_eq!(asked("one", json!(["vault"])), "");
    assert_eq!(asked("one", json!(["keys"])), "");
    assert_eq!(asked("one", json!(["data"])), "");
    assert_eq!(asked("one", json!(["bank"])), "no volume is for bank");
    assert_eq!(
        asked("one", json!(["vault", "bank"])),
        "node may only request 0 or 1 audiences"
    );
    assert_eq!(
        asked("two", json!(["vault"])),
        "node requested token bound to a pod scheduled on a different node"
    );
}

#[test]
fn a_node_reads_attachments_slices_and_claims_of_its_own() {
    let ask = |verb: &str, group: &str, resource: &str, name: &str| {
        let namespace = if resource == "resourceclaims" { "a" } else { "" };
        asks(verb, group, resource, namespace, name) == Opinion::Allow
    };
    assert!(ask("get", "storage.k8s.io", "volumeattachments", "of-n1"));
    assert!(!ask("get", "storage.k8s.io", "volumeattachments", "of-n2"));
    assert!(!ask("list", "storage.k8s.io", "volumeattachments", ""));
    assert!(!ask("delete", "resource.k8s.io", "resourceslices", "of-n2"));
    assert!(!ask("deletecollection", "resource.k8s.io", "resourceslices", ""));
    assert!(ask("get", "resource.k8s.io", "resourceclaims", "one-device"));
    assert!(!ask("get", "resource.k8s.io", "resourceclaims", "two-device"));
}

#[test]
fn a_node_writes_its_own_lease_and_its_own_node() {
    let lease = |verb: &str, name: &str| asks(verb, "coordination.k8s.io", "leases", LEASES, name) == Opinion::Allow;
    assert!(lease("patch", "n1"));
    assert!(lease("create", ""));
    assert!(!lease("patch", "n2"));
    assert_ne!(
        asks("patch", "coordination.k8s.io", "leases", "kube-system", "n1"),
        Opinion::Allow
    );
    assert_eq!(asks("patch", "", "nodes/status", "", "n1"), Opinion::Allow);
    assert_ne!(asks("patch", "", "nodes/status", "", "n2"), Opinion::Allow);
    assert_ne!(asks("delete", "", "nodes", "", "n1"), Opinion::Allow);
    assert_ne!(asks("create", "apps", "deployments", "a", ""), Opinion::Allow);
}

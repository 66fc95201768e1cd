//! Who owns whom, by UID. Pure: it is fed with metadata and answers questions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use std::collections::{BTreeSet, HashMap};
use stead::{Key, Kind};

/// One object.
#[derive(Debug, Clone)]
pub struct Node {
    pub kind: Kind,
    pub key: Key,
    pub uid: String,
    pub owners: Vec<OwnerReference>,
    pub finalizers: Vec<String>,
    pub deleting: bool,
}

/// Every object that has owners or could be one.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: HashMap<String, Node>,
    /// Owner to dependents.
    dependents: HashMap<String, BTreeSet<String>>,
}

impl Node {
    pub fn new(kind: &Kind, meta: &ObjectMeta) -> Option<Self> {
        Some(Node {
            kind: kind.clone(),
            key: Key::new(meta.namespace.as_deref(), meta.name.as_deref()?),
            uid: meta.uid.clone()?,
            owners: meta.owner_references.clone().unwrap_or_default(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
        })
    }

    /// Whether what the graph knows of an object is as it was.
    fn same_bonds(&self, other: &Node) -> bool {
        (self.deleting, &self.owners, &self.finalizers) == (other.deleting, &other.owners, &other.finalizers)
            && (&self.kind, &self.key) == (&other.kind, &other.key)
    }

    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|have| have == name)
    }

    /// Whether its deletion waits for us: for its dependents to go, or to be let go.
    pub fn waits_for(&self, finalizer: &str) -> bool {
        self.deleting && self.has_finalizer(finalizer)
    }
}

impl Graph {
    /// Takes in an object as it is now, and names the objects to look at.
    ///
    /// An object whose owners are all known needs no look: it gets one when one of them goes. Most writes change
    /// neither owners nor finalizers, and ten thousand pods are written several times each.
    pub fn put(&mut self, node: Node) -> Vec<String> {
        let uid = node.uid.clone();
        let mut look = Vec::new();
        if let Some(old) = self.nodes.get(&uid) {
            if old.same_bonds(&node) {
                return look;
            }
            let owners: Vec<String> = old.owners.iter().map(|owner| owner.uid.clone()).collect();
            for owner in owners {
                self.unlink(&owner, &uid);
                // An owner that waits for its dependents may have lost the last one.
                look.extend(
                    self.nodes
                        .get(&owner)
                        .filter(|owner| owner.deleting)
                        .map(|owner| owner.uid.clone()),
                );
            }
        }
        for owner in &node.owners {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(uid.clone());
        }
        if node.deleting || !node.owners.iter().all(|owner| self.vouches(owner, &node)) {
            look.push(uid.clone());
        }
        self.nodes.insert(uid, node);
        look
    }

    /// Whether an owner is known, stays, and is what the reference says that it is.
    fn vouches(&self, owner: &OwnerReference, node: &Node) -> bool {
        self.nodes.get(&owner.uid).is_some_and(|known| {
            let near = known.key.namespace().is_none() || known.key.namespace() == node.key.namespace();
            let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
            let same = known.key.name() == owner.name && *known.kind.kind == owner.kind && *known.kind.group == *group;
            near && same && !known.deleting
        })
    }

    /// Objects with an owner of one of these groups and kinds.
    pub fn owned_by_kinds(&self, kinds: &BTreeSet<(String, String)>) -> Vec<String> {
        let concerned = |node: &&Node| {
            node.owners.iter().any(|owner| {
                let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
                kinds.contains(&(group.to_string(), owner.kind.clone()))
            })
        };
        let nodes = self.nodes.values().filter(concerned);
        nodes.map(|node| node.uid.clone()).collect()
    }

    /// Forgets an object, and names the objects to look at.
    pub fn remove(&mut self, uid: &str) -> Vec<String> {
        let Some(node) = self.nodes.remove(uid) else {
            return Vec::new();
        };
        for owner in &node.owners {
            self.unlink(&owner.uid, uid);
        }
        let owners = node
            .owners
            .iter()
            .map(|owner| owner.uid.clone())
            .filter(|owner| self.nodes.contains_key(owner));
        owners.chain(self.dependents_of(uid)).collect()
    }

    pub fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    pub fn dependents_of(&self, uid: &str) -> Vec<String> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(set) = self.dependents.get_mut(owner) {
            set.remove(dependent);
            if set.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(uid: &str, owners: &[&str]) -> Node {
        let kind = Kind::of::<k8s_openapi::api::core::v1::ConfigMap>();
        let owners: Vec<_> = owners
            .iter()
            .map(|uid| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": uid, "uid": uid}))
            .collect();
        let meta: ObjectMeta =
            serde_json::from_value(json!({"name": uid, "namespace": "n", "uid": uid, "ownerReferences": owners}))
                .unwrap();
        Node::new(&kind, &meta).unwrap()
    }

    #[test]
    fn dependents_are_looked_at_when_their_owner_goes() {
        let mut graph = Graph::default();
        assert!(graph.put(node("a", &[])).is_empty());
        assert!(graph.put(node("b", &["a"])).is_empty());
        assert!(graph.put(node("c", &["a"])).is_empty());
        assert_eq!(graph.remove("a"), ["b", "c"]);
    }

    #[test]
    fn only_an_object_whose_owner_is_unknown_or_another_is_looked_at() {
        let mut graph = Graph::default();
        assert_eq!(graph.put(node("b", &["a"])), ["b"]);
        // Written again with the same owners: the look is under way.
        assert!(graph.put(node("b", &["a"])).is_empty());
        graph.put(node("a", &[]));
        assert!(graph.put(node("c", &["a"])).is_empty());
        let mut elsewhere = node("d", &["a"]);
        elsewhere.key = Key::new(Some("m"), "d");
        assert_eq!(graph.put(elsewhere), ["d"]);
        let mut misnamed = node("e", &["a"]);
        misnamed.owners[0].name = "z".to_string();
        assert_eq!(graph.put(misnamed), ["e"]);
        let mut going = node("a", &[]);
        going.deleting = true;
        assert_eq!(graph.put(going), ["a"]);
        assert_eq!(graph.put(node("f", &["a"])), ["f"]);
    }

    #[test]
    fn objects_are_found_by_the_kind_of_their_owners() {
        let mut graph = Graph::default();
        graph.put(node("b", &["a"]));
        let kinds = |kind: &str| BTreeSet::from([(String::new(), kind.to_string())]);
        assert_eq!(graph.owned_by_kinds(&kinds("ConfigMap")), ["b"]);
        assert!(graph.owned_by_kinds(&kinds("Secret")).is_empty());
    }

    #[test]
    fn an_owner_that_is_dropped_is_not_remembered() {
        let mut graph = Graph::default();
        graph.put(node("a", &[]));
        graph.put(node("b", &["a"]));
        graph.put(node("b", &[]));
        assert!(graph.remove("a").is_empty());
        assert!(graph.dependents_of("a").is_empty());
    }
}

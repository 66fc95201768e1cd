//! Where objects live: keys, and prefixes that hold many of them.

/// The place of an object: `group/plural`, namespace (empty for cluster-scoped) and name.
///
/// The resource comes first, so that one prefix holds all objects of a kind and one longer prefix
/// those of a namespace. The version is not part of it: an object is stored once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub resource: String,
    pub namespace: String,
    pub name: String,
}

/// All objects of a resource, those of one namespace, or a single one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Prefix {
    pub(super) resource: String,
    pub(super) scope: Scope,
}

/// How much of a resource a prefix holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    All,
    Namespace(String),
    /// The path of one object within its resource.
    Object(String),
}

impl Key {
    pub fn new(resource: impl Into<String>, namespace: impl Into<String>, name: impl Into<String>) -> Key {
        Key {
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The place within the resource. Lists come in the order of these strings, which is the order that
    /// clients know from etcd's keys: namespace `a-b` sorts before `a`, because `-` sorts before `/`.
    pub(super) fn path(&self) -> String {
        if self.namespace.is_empty() {
            return self.name.clone();
        }
        [&self.namespace, "/", &self.name].concat()
    }
}

impl Prefix {
    /// All objects of a resource, in all namespaces.
    pub fn resource(resource: impl Into<String>) -> Prefix {
        Prefix {
            resource: resource.into(),
            scope: Scope::All,
        }
    }

    /// The objects of a resource in one namespace.
    pub fn namespace(resource: impl Into<String>, namespace: impl Into<String>) -> Prefix {
        Prefix {
            resource: resource.into(),
            scope: Scope::Namespace(namespace.into()),
        }
    }

    /// One object, which may not exist.
    pub fn object(key: &Key) -> Prefix {
        Prefix {
            resource: key.resource.clone(),
            scope: Scope::Object(key.path()),
        }
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.resource == key.resource
            && match &self.scope {
                Scope::All => true,
                Scope::Namespace(namespace) => *namespace == key.namespace,
                Scope::Object(path) => match path.split_once('/') {
                    Some((namespace, name)) => namespace == key.namespace && name == key.name,
                    None => key.namespace.is_empty() && *path == key.name,
                },
            }
    }
}

impl Scope {
    /// The first path that can belong to the scope, and what each of its paths begins with.
    pub(super) fn start(&self) -> String {
        match self {
            Scope::All => String::new(),
            Scope::Namespace(namespace) => [namespace, "/"].concat(),
            Scope::Object(path) => path.clone(),
        }
    }
}

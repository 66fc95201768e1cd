//! Who asks, and what they may do.
//!
//! Authentication turns credentials into a [`User`]; authorisation answers whether that user may do what
//! a request wants. Both read the store at its newest state, so a revoked role or a deleted service
//! account counts from the very next request on.

pub mod authenticate;
pub mod bootstrap;
pub mod certificates;
pub mod directory;
pub mod escalation;
pub mod impersonate;
pub mod nodes;
pub mod rbac;
pub mod reviews;
pub mod token_request;
pub mod tokens;

use crate::environment::Environment;
use crate::error::{ApiError, GroupResource, Result};
use crate::store::Key;
use async_trait::async_trait;
use rbac::Policy;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokens::Issuer;

pub use authenticate::{Credentials, PeerCertificate, StaticTokens};

/// Members may do everything; no role can take that away.
pub const MASTERS: &str = "system:masters";
pub const AUTHENTICATED: &str = "system:authenticated";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
pub const ANONYMOUS: &str = "system:anonymous";
pub const NODES: &str = "system:nodes";

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
const NODE_PREFIX: &str = "system:node:";

/// An authenticated user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Inserted beside the [`User`] when the request runs as somebody else: who really sent it, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impersonator(pub User);

/// What a request wants to do, as authorisation sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    pub verb: String,
    pub target: Target,
}

/// A resource, or a path that is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Resource {
        group: String,
        version: String,
        resource: String,
        subresource: String,
        namespace: String,
        name: String,
    },
    Path(String),
}

/// The answer of the authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The reason says which binding allowed it; it is empty for `system:masters`.
    Allow { reason: String },
    /// No rule allows it. The reason is empty unless a binding names a role that does not exist.
    Deny { reason: String },
}

/// What authentication and authorisation read: the newest state of single objects, and of all roles.
#[async_trait]
pub trait Directory: Send + Sync {
    async fn object(&self, key: &Key) -> Result<Option<Arc<Value>>>;
    fn policy(&self) -> Result<Policy>;

    /// Whether a pod of the namespace that is bound to the node has something.
    fn bonds(&self, _namespace: &str, _node: &str, _has: &dyn Fn(&nodes::Bonds) -> bool) -> bool {
        false
    }

    /// An object as this process knows it, without asking anybody.
    fn current(&self, _key: &Key) -> Option<Arc<Value>> {
        None
    }
}

/// Everything that decides who asks and what they may do. Cheap to clone.
#[derive(Clone)]
pub struct Auth {
    inner: Arc<Inner>,
}

struct Inner {
    directory: Arc<dyn Directory>,
    environment: Environment,
    issuer: Issuer,
    tokens: StaticTokens,
}

impl Auth {
    pub fn new(directory: Arc<dyn Directory>, environment: Environment, issuer: Issuer, tokens: StaticTokens) -> Self {
        Auth {
            inner: Arc::new(Inner {
                directory,
                environment,
                issuer,
                tokens,
            }),
        }
    }

    /// For a server on this store alone: its roles, and a token key that lasts as long as the process.
    pub fn of_store(store: crate::store::Store, environment: Environment) -> Self {
        let directory = Arc::new(directory::StoreDirectory::new(store));
        Auth::new(directory, environment, Issuer::ephemeral(), StaticTokens::default())
    }

    /// Signs and verifies service-account tokens.
    pub fn issuer(&self) -> &Issuer {
        &self.inner.issuer
    }

    pub fn policy(&self) -> Result<Policy> {
        self.inner.directory.policy()
    }

    /// What roles say of a request, and of a node's also what it has to do with the object.
    pub fn decide(&self, user: &User, wanted: &Attributes) -> Result<Decision> {
        if user.is_master() {
            return Ok(Decision::Allow { reason: String::new() });
        }
        let policy = self.policy()?;
        let Some(node) = nodes::node_of(user) else {
            return Ok(policy.authorize(user, wanted));
        };
        match nodes::judge(node, wanted, &policy, &*self.inner.directory) {
            nodes::Opinion::Allow => Ok(Decision::Allow { reason: String::new() }),
            nodes::Opinion::None(why) => Ok(match policy.authorize(user, wanted) {
                Decision::Deny { reason } if reason.is_empty() => Decision::Deny { reason: why },
                decision => decision,
            }),
        }
    }

    /// Refuses what no rule allows, with Kubernetes' message.
    pub fn authorize(&self, user: &User, wanted: &Attributes) -> Result<()> {
        match self.decide(user, wanted)? {
            Decision::Allow { .. } => Ok(()),
            Decision::Deny { reason } => Err(wanted.forbidden(user, &reason)),
        }
    }

    pub fn asks_to_impersonate(headers: &http::HeaderMap) -> bool {
        headers.keys().any(|name| name.as_str().starts_with("impersonate-"))
    }

    /// The user to go on as, where the headers ask for another one (see [`impersonate`]).
    pub fn impersonate(
        &self,
        headers: &mut http::HeaderMap,
        sender: &User,
        wanted: &Attributes,
    ) -> Result<Option<User>> {
        // Nearly no request impersonates; reading all roles for each would be waste.
        if !Self::asks_to_impersonate(headers) {
            return Ok(None);
        }
        impersonate::impersonate(headers, sender, wanted, &self.policy()?)
    }

    /// Refuses a token that a node asks for, unless it is for one of its own pods.
    pub fn check_token(&self, user: &User, namespace: &str, account: &str, request: &Value) -> Result<()> {
        let Some(node) = nodes::node_of(user) else {
            return Ok(());
        };
        let why = match nodes::token(node, namespace, request, &*self.inner.directory) {
            Ok(()) => return Ok(()),
            Err(nodes::NoToken::Refused(why)) => why,
            Err(nodes::NoToken::Unnamed { audience }) => {
                let verb = "request-serviceaccounts-token-audience";
                let wanted = Attributes::resource(verb, "", &audience, namespace, account);
                if let Decision::Allow { .. } = self.decide(user, &wanted)? {
                    return Ok(());
                }
                format!(
                    "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this \
                     audience",
                    user.name
                )
            }
        };
        let resource = GroupResource {
            group: String::new(),
            resource: "serviceaccounts".to_string(),
        };
        Err(ApiError::forbidden(&resource, account, why))
    }

    /// Refuses a write to an RBAC kind that grants more than the writer holds.
    pub fn check_grant(&self, user: &User, grant: &escalation::Grant<'_>) -> Result<()> {
        if user.is_master() {
            return Ok(());
        }
        escalation::check(&self.policy()?, user, grant)
    }

    /// An object of the core group.
    async fn object(&self, resource: &str, namespace: &str, name: &str) -> Result<Option<Arc<Value>>> {
        let key = rbac::key(&format!("/{resource}"), namespace, name);
        self.inner.directory.object(&key).await
    }
}

impl User {
    pub fn named(name: &str, groups: &[&str]) -> Self {
        User {
            name: name.to_string(),
            groups: groups.iter().map(|group| (*group).to_string()).collect(),
            ..User::default()
        }
    }

    /// The all-powerful user of in-process callers: tests and Stead's own parts.
    pub fn admin() -> Self {
        User::named("system:admin", &[MASTERS, AUTHENTICATED])
    }

    pub fn anonymous() -> Self {
        User::named(ANONYMOUS, &[UNAUTHENTICATED])
    }

    pub fn service_account(namespace: &str, name: &str) -> Self {
        User {
            name: format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"),
            groups: service_account_groups(namespace),
            ..User::default()
        }
    }

    pub fn is_master(&self) -> bool {
        self.in_group(MASTERS)
    }

    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|member| member == group)
    }

    /// Adds a group that is not there yet.
    pub(crate) fn join(&mut self, group: &str) {
        if !self.in_group(group) {
            self.groups.push(group.to_string());
        }
    }
}

/// The fixed groups of every service account of a namespace.
fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![
        "system:serviceaccounts".to_string(),
        format!("system:serviceaccounts:{namespace}"),
        AUTHENTICATED.to_string(),
    ]
}

/// Namespace and name, when a user name is that of a service account.
pub fn split_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let valid = !namespace.is_empty() && !name.is_empty() && !name.contains(':');
    valid.then_some((namespace, name))
}

/// The node's name, when a user name is that of a node.
pub fn split_node(user: &str) -> Option<&str> {
    user.strip_prefix(NODE_PREFIX).filter(|name| !name.is_empty())
}

impl Attributes {
    /// What the refusal says after the subject: `User "u" cannot list resource "pods" in API group "" ...`.
    fn refusal(&self, user: &User, reason: &str) -> String {
        let user = go_quote(&user.name);
        let mut message = match &self.target {
            Target::Path(path) => format!("User {user} cannot {} path {}", self.verb, go_quote(path)),
            Target::Resource {
                group,
                resource,
                subresource,
                namespace,
                ..
            } => {
                let resource = if subresource.is_empty() {
                    resource.clone()
                } else {
                    format!("{resource}/{subresource}")
                };
                let scope = if namespace.is_empty() {
                    "at the cluster scope".to_string()
                } else {
                    format!("in the namespace {}", go_quote(namespace))
                };
                format!(
                    "User {user} cannot {} resource {} in API group {} {scope}",
                    self.verb,
                    go_quote(&resource),
                    go_quote(group)
                )
            }
        };
        if !reason.is_empty() {
            message.push_str(": ");
            message.push_str(reason);
        }
        message
    }

    /// The 403 that a refused request gets.
    pub fn forbidden(&self, user: &User, reason: &str) -> ApiError {
        let (resource, name) = match &self.target {
            Target::Path(_) => (String::new(), ""),
            Target::Resource { resource, name, .. } => (resource.clone(), name.as_str()),
        };
        let group = match &self.target {
            Target::Path(_) => String::new(),
            Target::Resource { group, .. } => group.clone(),
        };
        ApiError::forbidden(&GroupResource { group, resource }, name, self.refusal(user, reason))
    }

    /// A resource request without a subresource.
    pub fn resource(verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        Attributes {
            verb: verb.to_string(),
            target: Target::Resource {
                group: group.to_string(),
                version: "*".to_string(),
                resource: resource.to_string(),
                subresource: String::new(),
                namespace: namespace.to_string(),
                name: name.to_string(),
            },
        }
    }
}

/// A user as `authentication.k8s.io/v1 UserInfo`.
pub fn user_info(user: &User) -> Value {
    let mut info = serde_json::Map::new();
    info.insert("username".into(), user.name.as_str().into());
    if !user.uid.is_empty() {
        info.insert("uid".into(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        info.insert("groups".into(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        let extra = user
            .extra
            .iter()
            .map(|(key, values)| (key.clone(), values.clone().into()));
        info.insert("extra".into(), Value::Object(extra.collect()));
    }
    Value::Object(info)
}

/// A string in double quotes, escaped as Go's `%q` does for what can appear in names and messages.
pub(crate) fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            other if other.is_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(other))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// A list as Go's `%q` prints it: `["a" "b"]`.
pub(crate) fn go_quote_list(items: &[String]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| go_quote(item)).collect();
    format!("[{}]", quoted.join(" "))
}

//! Impersonation: a request that asks to run as somebody else.
//!
//! Constrained impersonation is tried first, each kind of user with verbs of its own, then the one old
//! verb `impersonate`. The refusal that the client sees is that of the first way that could have applied.

use super::rbac::Policy;
use super::{ANONYMOUS, AUTHENTICATED, Attributes, Decision, MASTERS, NODES, Target, UNAUTHENTICATED, User};
use crate::error::{ApiError, Result};
use http::HeaderMap;
use std::collections::BTreeMap;

const AUTHENTICATION: &str = "authentication.k8s.io";
const EXTRA_PREFIX: &str = "impersonate-extra-";
const NODE_NAME_EXTRA: &str = "authentication.kubernetes.io/node-name";

/// One way of being allowed to impersonate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

/// The user that the request shall run as, when its headers ask for another one and the sender may do that.
/// The headers are taken away, so that nothing behind this acts on them.
pub fn impersonate(
    headers: &mut HeaderMap,
    sender: &User,
    wanted: &Attributes,
    policy: &Policy,
) -> Result<Option<User>> {
    let Some(asked) = asked_for(headers)? else {
        return Ok(None);
    };
    let mut refusal = None;
    for mode in [
        Mode::AssociatedNode,
        Mode::ArbitraryNode,
        Mode::ServiceAccount,
        Mode::UserInfo,
        Mode::Legacy,
    ] {
        if !mode.applies(sender, &asked) {
            continue;
        }
        match mode.check(sender, &asked, wanted, policy) {
            Ok(user) => return Ok(Some(user)),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    Err(refusal.unwrap_or_else(|| ApiError::internal("all impersonation modes failed")))
}

fn asked_for(headers: &mut HeaderMap) -> Result<Option<User>> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers.iter() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            extra.entry(unescape(key)).or_default().push(text(value));
        }
    }
    let asked = User {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: headers.get_all("impersonate-group").iter().map(text).collect(),
        extra,
    };
    if asked.name.is_empty() {
        if asked == User::default() {
            return Ok(None);
        }
        return Err(ApiError::bad_request(format!(
            "requested {} without impersonating a user name",
            go_syntax(&asked)
        )));
    }
    let names: Vec<_> = headers.keys().cloned().collect();
    for name in names {
        if name.as_str().starts_with("impersonate-") {
            headers.remove(name);
        }
    }
    Ok(Some(asked))
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Legacy => "",
        }
    }

    fn applies(self, sender: &User, asked: &User) -> bool {
        let only_name = asked.uid.is_empty() && asked.groups.is_empty() && asked.extra.is_empty();
        let node = super::split_node(&asked.name);
        let account = super::split_service_account(&asked.name);
        match self {
            Mode::AssociatedNode => {
                let own = sender.extra.get(NODE_NAME_EXTRA).map(Vec::as_slice);
                only_name
                    && super::split_service_account(&sender.name).is_some()
                    && node.is_some_and(|node| own == Some(&[node.to_string()]))
            }
            Mode::ArbitraryNode => only_name && node.is_some(),
            Mode::ServiceAccount => only_name && account.is_some(),
            Mode::UserInfo => node.is_none() && account.is_none(),
            Mode::Legacy => true,
        }
    }

    fn check(self, sender: &User, asked: &User, wanted: &Attributes, policy: &Policy) -> Result<User> {
        let constrained = self != Mode::Legacy;
        let allowed = |attributes: Attributes| match policy.authorize(sender, &attributes) {
            Decision::Allow { .. } => Ok(()),
            Decision::Deny { reason } => Err(attributes.forbidden(sender, &reason)),
        };
        let (verb, group) = if constrained {
            allowed(Attributes {
                verb: format!("impersonate-on:{}:{}", self.name(), wanted.verb),
                target: wanted.target.clone(),
            })?;
            (format!("impersonate:{}", self.name()), AUTHENTICATION)
        } else {
            ("impersonate".to_string(), "")
        };
        let mut user = asked.clone();
        if let Some((namespace, name)) = super::split_service_account(&asked.name) {
            allowed(Attributes::resource(&verb, group, "serviceaccounts", namespace, name))?;
            if asked.groups.is_empty() {
                user.groups = super::service_account_groups(namespace);
            }
        } else if let (true, Some(node)) = (constrained, super::split_node(&asked.name)) {
            let node = if self == Mode::AssociatedNode { "*" } else { node };
            allowed(Attributes::resource(&verb, group, "nodes", "", node))?;
            user.groups = vec![NODES.to_string()];
        } else {
            allowed(Attributes::resource(&verb, group, "users", "", &asked.name))?;
        }
        if !asked.uid.is_empty() {
            allowed(Attributes::resource(&verb, AUTHENTICATION, "uids", "", &asked.uid))?;
        }
        for wanted_group in &asked.groups {
            let attributes = Attributes::resource(&verb, group, "groups", "", wanted_group);
            if constrained && wanted_group == MASTERS {
                let why = "impersonating the system:masters group is not allowed";
                return Err(attributes.forbidden(sender, why));
            }
            allowed(attributes)?;
        }
        for (key, value) in asked
            .extra
            .iter()
            .flat_map(|(key, values)| values.iter().map(move |value| (key, value)))
        {
            let mut attributes = Attributes::resource(&verb, AUTHENTICATION, "userextras", "", value);
            if let Target::Resource { subresource, .. } = &mut attributes.target {
                subresource.clone_from(key);
            }
            allowed(attributes)?;
        }
        if user.name == ANONYMOUS {
            user.join(UNAUTHENTICATED);
        } else if !user.in_group(UNAUTHENTICATED) {
            user.join(AUTHENTICATED);
        }
        Ok(user)
    }
}

/// Decodes `%2f`; what is not well formed stays as it is, as Kubernetes keeps it.
fn unescape(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            let hex = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
            match hex.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                Some(decoded) => bytes.push(decoded),
                None => return key.to_string(),
            }
            rest = after.get(2..).unwrap_or_default();
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_string())
}

/// A user as Go's `%#v` prints it; clients see it in one error message.
fn go_syntax(user: &User) -> String {
    let list = |items: &[String]| {
        let quoted: Vec<String> = items.iter().map(|item| super::go_quote(item)).collect();
        format!("[]string{{{}}}", quoted.join(", "))
    };
    let groups = if user.groups.is_empty() {
        "[]string(nil)".to_string()
    } else {
        list(&user.groups)
    };
    let extra = if user.extra.is_empty() {
        "map[string][]string(nil)".to_string()
    } else {
        let entries: Vec<String> = user
            .extra
            .iter()
            .map(|(key, values)| format!("{}:{}", super::go_quote(key), list(values)))
            .collect();
        format!("map[string][]string{{{}}}", entries.join(", "))
    };
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{groups}, Extra:{extra}}}",
        super::go_quote(&user.name),
        super::go_quote(&user.uid)
    )
}

#[cfg(test)]
mod tests;

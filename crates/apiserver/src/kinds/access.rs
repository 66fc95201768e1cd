//! The kinds that decide or ask who may do what: reviews, tokens, roles and their bindings.

use super::id;
use crate::auth::escalation::Grant;
use crate::auth::rbac;
use crate::auth::{bootstrap, tokens};
use crate::error::{ApiError, Result};
use crate::server::negotiate::{self, Form};
use crate::server::{Body, Shared};
use crate::store::{Key, StoreError, Write};
use crate::verbs::write_options::{OptionsKind, WriteOptions};
use crate::verbs::{Call, encode, object};
use futures::future::try_join_all;
use http::Response;
use serde_json::{Value, json};

/// Whether a request creates something that is answered and never stored.
pub fn is_question(call: &Call) -> bool {
    let review = matches!(
        call.resource.group.as_str(),
        "authorization.k8s.io" | "authentication.k8s.io"
    );
    call.verb == "create" && (review || asks_for_token(call))
}

fn asks_for_token(call: &Call) -> bool {
    id(&call.resource) == ("", "serviceaccounts") && call.path.subresource == "token"
}

/// Answers what [`is_question`] recognised.
pub async fn answer(call: &Call, body: Body) -> Result<Response<Body>> {
    if call.accepted.form == Form::Table {
        // What is never stored has no columns.
        return Err(negotiate::not_acceptable());
    }
    let options = WriteOptions::parse(&call.query, &call.headers, OptionsKind::Create)?;
    let sent = call.read_object(body, options.validation).await?;
    let auth = &call.shared.auth;
    let answer = if asks_for_token(call) {
        auth.check_token(&call.user, call.namespace(), &call.path.name, &sent)?;
        auth.token_request(call.namespace(), &call.path.name, &sent).await?
    } else {
        let review = auth
            .review(&call.resource.plural, call.namespace(), &sent, &call.user)
            .await;
        review.unwrap_or_else(|| Err(ApiError::no_such_path()))?
    };
    call.answer(201, &answer)
}

/// Refuses a role or binding that gives more than its writer holds.
pub fn check_grant(call: &Call, new: &Value, old: Option<&Value>) -> Result<()> {
    if call.resource.group != rbac::GROUP {
        return Ok(());
    }
    let grant = Grant {
        resource: &call.resource.plural,
        namespace: call.namespace(),
        name: object::name(new),
        new,
        old,
    };
    call.shared.auth.check_grant(&call.user, &grant)
}

/// Creates and heals the default roles and bindings, all at once: a durable store writes them in one go.
pub async fn default_roles(shared: &Shared) -> Result<(), StoreError> {
    let defaults = bootstrap::objects();
    try_join_all(defaults.iter().map(|default| ensure(shared, default))).await?;
    Ok(())
}

async fn ensure(shared: &Shared, default: &Value) -> Result<(), StoreError> {
    let resource = match default["kind"].as_str() {
        Some("ClusterRole") => rbac::CLUSTER_ROLES,
        Some("ClusterRoleBinding") => rbac::CLUSTER_ROLE_BINDINGS,
        Some("Role") => rbac::ROLES,
        _ => rbac::ROLE_BINDINGS,
    };
    let key = Key::new(resource, object::namespace(default), object::name(default));
    let write = match shared.store.get(&key).await? {
        None => {
            let mut new = default.clone();
            object::set_meta(&mut new, "uid", &shared.environment.uid());
            object::set_meta(
                &mut new,
                "creationTimestamp",
                &object::time(shared.environment.clock.now()),
            );
            Write::Create {
                key,
                draft: encode::draft(&new),
            }
        }
        Some(stored) => match bootstrap::reconciled(&stored.value(), default) {
            None => return Ok(()),
            Some(healed) => Write::Update {
                key,
                draft: encode::draft(&healed),
                expect: stored.revision,
            },
        },
    };
    match shared.store.write(write).await {
        // Somebody else was there first: another server on the same store, which does the same.
        Ok(_) | Err(StoreError::Exists { .. } | StoreError::Conflict { .. } | StoreError::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The documents with which others verify service-account tokens.
pub fn issuer_document(issuer: &tokens::Issuer, path: &str, host: &str) -> Option<Value> {
    match path {
        "/.well-known/openid-configuration" => {
            Some(issuer.discovery_document(&format!("https://{host}/openid/v1/jwks")))
        }
        "/openid/v1/jwks" => Some(issuer.key_set()),
        _ => None,
    }
}

/// Writes down who asks for a certificate: what the request itself says of that counts for nothing.
pub fn name_requester(call: &Call, request: &mut Value) {
    let user = &call.user;
    let Some(Value::Object(spec)) = request.get_mut("spec") else {
        return;
    };
    for (name, value) in [
        ("username", json!(user.name)),
        ("uid", json!(user.uid)),
        ("groups", json!(user.groups)),
        ("extra", json!(user.extra)),
    ] {
        spec.remove(name);
        if ![json!(""), json!([]), json!({})].contains(&value) {
            spec.insert(name.to_string(), value);
        }
    }
}

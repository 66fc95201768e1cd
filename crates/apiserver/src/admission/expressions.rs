//! Expressions of policies and match conditions: what they see of a write.

mod scope;

pub use scope::{Scope, conditions_hold};

use super::Review;
use crate::auth::directory::StoreDirectory;
use crate::auth::{Attributes, Decision, Directory, Target, User};
use crate::catalogue::Resource;
use crate::verbs::Call;
use serde_json::{Value as Json, json};
use std::sync::Arc;
use stead_cel::admission::{NAMESPACE, REQUEST};
use stead_cel::authorizer::{Answer, Authorizer, Question};
use stead_cel::value::from_json;
use stead_cel::{Env, Program, Value, compile, shown};

/// Compiles an expression, or says why not, in Kubernetes' words.
pub fn program(source: &str, env: &Env) -> Result<Program, String> {
    match compile(source, env) {
        Ok(program) => match program.defect() {
            Some(defect) => Err(format!("program instantiation failed: {defect}")),
            None => Ok(program),
        },
        Err(issues) => Err(format!("compilation failed: {}", shown(&issues, source))),
    }
}

/// The JSON that the values of one write borrow from.
pub struct Inputs {
    request: Json,
    object: Json,
    old: Json,
    namespace: Json,
    params: Json,
    asker: Asker,
    resource: Question,
}

impl Inputs {
    /// What a policy sees that may be about another version of the kind: the objects are converted to that one.
    pub async fn seen_as(call: &Call, review: &Review, seen: &Resource, params: Option<&Json>) -> Result<Self, String> {
        let mut inputs = Inputs::new(call, review, params);
        for object in [&mut inputs.object, &mut inputs.old] {
            let converted = call.convert(object, &review.resource, seen).await;
            converted.map_err(|error| error.message)?;
        }
        inputs.request = request(review, seen);
        Ok(inputs)
    }

    /// What the match conditions of a webhook see: the objects and their kind as its rules name them, but the
    /// resource as the client named it.
    pub async fn of_condition(call: &Call, review: &Review, seen: &Resource) -> Result<Self, String> {
        let mut inputs = Inputs::seen_as(call, review, seen, None).await?;
        inputs.request["resource"] = inputs.request["requestResource"].clone();
        Ok(inputs)
    }

    fn new(call: &Call, review: &Review, params: Option<&Json>) -> Self {
        let namespace = match review.resource.namespaced {
            true => call.shared.admission.object("/namespaces", "", &review.namespace),
            false => None,
        };
        Inputs {
            request: request(review, &review.resource),
            object: review.object.clone().unwrap_or_default(),
            old: review.old.as_deref().cloned().unwrap_or_default(),
            namespace: namespace.map(|namespace| (*namespace).clone()).unwrap_or_default(),
            params: params.cloned().unwrap_or_default(),
            asker: Asker {
                user: review.user.clone(),
                policy: call.shared.admission.clone(),
            },
            resource: Question {
                group: review.resource.group.clone(),
                resource: review.resource.plural.clone(),
                subresource: review.subresource.clone(),
                namespace: review.namespace.clone(),
                name: review.name.clone(),
                ..Question::default()
            },
        }
    }

    /// The values of the environment's variables, without the policy's own.
    fn values(&self) -> Vec<Value<'_>> {
        vec![
            Value::dynamic(&self.object),
            Value::dynamic(&self.old),
            from_json(&self.request, &REQUEST).unwrap_or(Value::Null),
            from_json(&self.namespace, &NAMESPACE).unwrap_or(Value::Null),
            Value::dynamic(&self.params),
            Value::authorizer(&self.asker),
            Value::resource_check(&self.asker, self.resource.clone()),
        ]
    }
}

/// Asks RBAC on behalf of the request's user.
struct Asker {
    user: User,
    policy: Arc<super::Views>,
}

impl std::fmt::Debug for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Asker")
    }
}

impl Authorizer for Asker {
    fn authorize(&self, question: &Question) -> Answer {
        let user = match &question.service_account {
            Some((namespace, name)) => User {
                name: format!("system:serviceaccount:{namespace}:{name}"),
                groups: vec![
                    "system:serviceaccounts".to_string(),
                    format!("system:serviceaccounts:{namespace}"),
                    crate::auth::AUTHENTICATED.to_string(),
                ],
                ..User::default()
            },
            None => self.user.clone(),
        };
        let target = match &question.path {
            Some(path) => Target::Path(path.clone()),
            None => Target::Resource {
                group: question.group.clone(),
                version: "*".to_string(),
                resource: question.resource.clone(),
                subresource: question.subresource.clone(),
                namespace: question.namespace.clone(),
                name: question.name.clone(),
            },
        };
        let wanted = Attributes {
            verb: question.verb.clone(),
            target,
        };
        decide(&self.policy.directory, &user, &wanted)
    }
}

fn decide(directory: &StoreDirectory, user: &User, wanted: &Attributes) -> Answer {
    let answer = |allowed, reason| Answer {
        allowed,
        reason,
        error: None,
    };
    if user.is_master() {
        return answer(true, String::new());
    }
    match directory.policy() {
        Ok(policy) => match policy.authorize(user, wanted) {
            Decision::Allow { reason } => answer(true, reason),
            Decision::Deny { reason } => answer(false, reason),
        },
        Err(error) => Answer {
            allowed: false,
            reason: String::new(),
            error: Some(error.to_string()),
        },
    }
}

/// The `request` of expressions and the core of an AdmissionReview, with the kind and resource as which the write is
/// seen and those of the request itself.
pub fn request(review: &Review, seen: &Resource) -> Json {
    let kind = |r: &Resource| json!({"group": r.group, "version": r.version, "kind": r.kind});
    let plural = |r: &Resource| json!({"group": r.group, "version": r.version, "resource": r.plural});
    let own = &review.resource;
    let user = &review.user;
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    let mut request = json!({
        "kind": kind(seen), "resource": plural(seen), "requestKind": kind(own), "requestResource": plural(own),
        "operation": review.operation.name(), "userInfo": info, "dryRun": review.dry_run, "options": review.options,
    });
    let mut present = |field: &str, value: &str| {
        if !value.is_empty() {
            request[field] = value.into();
        }
    };
    present("name", &review.name);
    present("namespace", &review.namespace);
    present("subResource", &review.subresource);
    present("requestSubResource", &review.subresource);
    request
}

//! Expressions of policies and match conditions: what they see of a write.

use super::Review;
use crate::auth::directory::StoreDirectory;
use crate::auth::{Attributes, Decision, Directory, Target, User};
use crate::verbs::Call;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use stead_cel::authorizer::{Answer, Authorizer, Question};
use stead_cel::decl::{Decl, type_of};
use stead_cel::value::{Key, from_json};
use stead_cel::{Budget, Env, EvalError, Program, Type, Value, compile, shown};

/// `object`, `oldObject`, `request`, `namespaceObject`, `params`, `authorizer`, `authorizer.requestResource`.
const BASE_VARIABLES: usize = 7;

static REQUEST: LazyLock<Arc<Decl>> = LazyLock::new(|| {
    let text = Decl::string;
    let kind = || {
        let fields = vec![("group", text()), ("version", text()), ("kind", text())];
        Decl::object("kubernetes.GroupVersionKind", fields)
    };
    let resource = || {
        let fields = vec![("group", text()), ("version", text()), ("resource", text())];
        Decl::object("kubernetes.GroupVersionResource", fields)
    };
    let user = Decl::object(
        "kubernetes.UserInfo",
        vec![
            ("username", text()),
            ("uid", text()),
            ("groups", Decl::list(text())),
            ("extra", Decl::map(Decl::list(text()))),
        ],
    );
    Decl::object(
        "kubernetes.AdmissionRequest",
        vec![
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", text()),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", Decl::boolean()),
            ("options", Decl::dynamic()),
        ],
    )
});

/// What expressions may construct beside what they read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constructs {
    Nothing,
    /// `Object{...}` and `JSONPatch{...}`.
    Patches,
}

/// The names that an expression may use.
pub fn environment(variables: &[(String, Type)], constructs: Constructs) -> Env {
    let fields = variables
        .iter()
        .map(|(name, kind)| (name.as_str(), declared(kind)))
        .collect();
    let env = Env::new()
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("request", type_of(&REQUEST))
        .variable("namespaceObject", Type::Dyn)
        .variable("params", Type::Dyn)
        .variable("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"))
        .variable(
            "authorizer.requestResource",
            Type::Opaque("kubernetes.authorization.ResourceCheck"),
        )
        .variable("variables", type_of(&Decl::object("kubernetes.variables", fields)));
    match constructs {
        Constructs::Nothing => env,
        Constructs::Patches => {
            let fields = vec![
                ("op", Decl::string()),
                ("path", Decl::string()),
                ("from", Decl::string()),
                ("value", Decl::dynamic()),
            ];
            env.constructs(Decl::object("JSONPatch", fields))
                .constructs_below("Object")
        }
    }
}

/// The declaration of a variable: scalars keep their type, everything else is looked at when it is evaluated.
fn declared(kind: &Type) -> Arc<Decl> {
    match kind {
        Type::Bool => Decl::boolean(),
        Type::String => Decl::string(),
        _ => Decl::dynamic(),
    }
}

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
    pub fn new(call: &Call, review: &Review, params: Option<&Json>) -> Self {
        let namespace = match review.resource.namespaced {
            true => call.shared.admission.object("/namespaces", "", &review.namespace),
            false => None,
        };
        Inputs {
            request: request(review),
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

    /// The values of the environment's variables, with none of the policy's own yet.
    pub fn values(&self) -> Vec<Value<'_>> {
        vec![
            Value::dynamic(&self.object),
            Value::dynamic(&self.old),
            from_json(&self.request, &REQUEST).unwrap_or(Value::Null),
            Value::dynamic(&self.namespace),
            Value::dynamic(&self.params),
            Value::authorizer(&self.asker),
            Value::resource_check(&self.asker, self.resource.clone()),
            Value::map(BTreeMap::new()),
        ]
    }
}

/// Evaluates a policy's own variables in order; each sees those before it. One that fails is missing, and its error
/// is told when an expression asks for it.
pub fn with_variables<'a>(
    mut values: Vec<Value<'a>>,
    variables: &[(String, Program)],
    spent: &mut u64,
) -> (Vec<Value<'a>>, Vec<(String, EvalError)>) {
    let mut known: BTreeMap<Key<'a>, Value<'a>> = BTreeMap::new();
    let mut failed = Vec::new();
    for (name, program) in variables {
        let mut budget = Budget::per_call();
        let outcome = program.evaluate(&values, &mut budget);
        *spent = spent.saturating_add(budget.spent());
        match outcome {
            Ok(value) => {
                known.insert(Key::String(name.clone().into()), value);
                values[BASE_VARIABLES] = Value::map(known.clone());
            }
            Err(error) => failed.push((name.clone(), error)),
        }
    }
    (values, failed)
}

/// Evaluates one expression within what is left of the budget.
pub fn evaluate<'a>(
    program: &Program,
    values: &[Value<'a>],
    failed: &[(String, EvalError)],
    spent: &mut u64,
    limit: u64,
) -> Result<Value<'a>, EvalError> {
    if *spent > limit {
        return Err(EvalError::CostLimit);
    }
    let mut budget = Budget::new(Budget::PER_CALL.min(limit - *spent));
    let outcome = program.evaluate(values, &mut budget);
    *spent = spent.saturating_add(budget.spent());
    outcome.map_err(|error| match &error {
        EvalError::NoSuchKey(name) => match failed.iter().find(|(failed, _)| failed == name) {
            Some((name, cause)) => {
                EvalError::invalid(format!("composited variable {name:?} fails to evaluate: {cause}"))
            }
            None => error,
        },
        _ => error,
    })
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

/// The `request` of expressions and the core of an AdmissionReview.
pub fn request(review: &Review) -> Json {
    let resource = &review.resource;
    let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let plural = json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
    let user = &review.user;
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    let mut request = json!({
        "kind": kind.clone(), "resource": plural.clone(), "requestKind": kind, "requestResource": plural,
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

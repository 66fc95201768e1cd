//! Expressions of policies and match conditions: what they see of a write.

use super::Review;
use crate::auth::directory::StoreDirectory;
use crate::auth::{Attributes, Decision, Directory, Target, User};
use crate::catalogue::Resource;
use crate::verbs::Call;
use serde_json::{Value as Json, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use stead_cel::authorizer::{Answer, Authorizer, Question};
use stead_cel::decl::{Decl, type_of};
use stead_cel::value::{Key, from_json};
use stead_cel::{Budget, Env, EvalError, Lazy, Program, Type, Value, compile, shown};

/// `object`, `oldObject`, `request`, `namespaceObject`, `params`, `authorizer`, `authorizer.requestResource`; the
/// policy's own variables come after them.
const BASE_VARIABLES: usize = 7;
/// How deep an expression and the variables that it waits for may nest together: they share one stack, so it is what
/// one expression may.
const DEPTH_LIMIT: usize = 250;
/// What one variable adds to how deep its own expression nests.
const DEPTH_OF_VARIABLE: usize = 1;

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

    pub fn new(call: &Call, review: &Review, params: Option<&Json>) -> Self {
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
            Value::dynamic(&self.namespace),
            Value::dynamic(&self.params),
            Value::authorizer(&self.asker),
            Value::resource_check(&self.asker, self.resource.clone()),
        ]
    }
}

/// What the expressions of one policy see of one write, and what they may still cost.
pub struct Scope<'a> {
    variables: Variables<'a>,
    spent: u64,
}

impl<'a> Scope<'a> {
    pub fn new(inputs: &'a Inputs, variables: &'a [(String, Program)]) -> Self {
        Scope {
            variables: Variables {
                base: inputs.values(),
                programs: variables,
                known: RefCell::default(),
                spent: Cell::new(0),
            },
            spent: 0,
        }
    }

    /// Evaluates one expression within what is left of the budget, and the variables that it comes to use.
    pub fn evaluate(&mut self, program: &Program, limit: u64) -> Result<Value<'a>, EvalError> {
        if self.spent > limit {
            return Err(EvalError::CostLimit);
        }
        let mut budget = Budget::new(Budget::PER_CALL.min(limit - self.spent));
        let seen = Seen {
            variables: &self.variables,
            programs: self.variables.programs,
            depth: program.depth(),
        };
        let outcome = program.evaluate_lazily(&self.variables.base, &seen, &mut budget);
        let cost = budget.spent().saturating_add(self.variables.spent.take());
        self.spent = self.spent.saturating_add(cost);
        outcome
    }
}

/// Whether all match conditions hold.
pub fn conditions_hold(
    conditions: &[(String, Result<Program, String>)],
    inputs: &Inputs,
    variables: &[(String, Program)],
) -> Result<bool, String> {
    let mut scope = Scope::new(inputs, variables);
    let mut problem = None;
    for (name, program) in conditions {
        let outcome = match program {
            Ok(program) => scope
                .evaluate(program, Budget::MATCH_CONDITIONS)
                .map_err(|error| error.to_string()),
            Err(why) => Err(why.clone()),
        };
        match outcome {
            Ok(Value::Bool(true)) => {}
            // One that does not hold decides, whatever the others do.
            Ok(_) => return Ok(false),
            Err(why) => problem = Some(format!("expression of match condition '{name}' failed: {why}")),
        }
    }
    problem.map_or(Ok(true), Err)
}

/// A policy's own variables. Each is evaluated when an expression first comes to use it, so that one that fails, or
/// costs much, does no harm where nobody needs it.
struct Variables<'a> {
    base: Vec<Value<'a>>,
    programs: &'a [(String, Program)],
    known: RefCell<BTreeMap<&'a str, Result<Value<'a>, EvalError>>>,
    spent: Cell<u64>,
}

/// The variables that one expression may use.
struct Seen<'v, 'a> {
    variables: &'v Variables<'a>,
    /// Those declared before the expression.
    programs: &'a [(String, Program)],
    /// How deep the expression nests, together with those that wait for it.
    depth: usize,
}

impl<'a> Lazy<'a> for Seen<'_, 'a> {
    fn place(&self) -> usize {
        BASE_VARIABLES
    }

    fn field(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        let place = self.programs.iter().position(|(known, _)| known == name)?;
        let (name, program) = &self.programs[place];
        let variables = self.variables;
        if let Some(known) = variables.known.borrow().get(name.as_str()) {
            return Some(known.clone());
        }
        let seen = Seen {
            variables,
            programs: &self.programs[..place],
            depth: self.depth + program.depth() + DEPTH_OF_VARIABLE,
        };
        if seen.depth > DEPTH_LIMIT {
            // It is not kept, as the variable can be evaluated by what is less deep.
            return Some(Err(EvalError::TooDeep));
        }
        let mut budget = Budget::per_call();
        let outcome = match program.evaluate_lazily(&variables.base, &seen, &mut budget) {
            Err(cause) if cause != EvalError::TooDeep => Err(EvalError::invalid(format!(
                "composited variable {name:?} fails to evaluate: {cause}"
            ))),
            outcome => outcome,
        };
        let spent = variables.spent.get().saturating_add(budget.spent());
        variables.spent.set(spent);
        if !matches!(outcome, Err(EvalError::TooDeep)) {
            variables.known.borrow_mut().insert(name, outcome.clone());
        }
        Some(outcome)
    }

    fn whole(&self) -> Result<Value<'a>, EvalError> {
        let mut made = BTreeMap::new();
        // In the order of their declaration, so that none waits for another.
        for (name, _) in self.programs {
            if let Some(value) = self.field(name) {
                made.insert(Key::String(name.clone().into()), value?);
            }
        }
        Ok(Value::map(made))
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

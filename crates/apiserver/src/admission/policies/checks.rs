//! Policies and bindings as they are stored, with their expressions compiled.

use crate::admission::expressions;
use crate::admission::matching::Matcher;
use crate::store::Record;
use crate::verbs::object;
use serde_json::Value;
use stead_cel::admission::{Constructs, Names};
use stead_cel::{Env, Program, Type};
use stead_machinery::field::FieldError;

/// A policy with everything compiled.
#[derive(Debug)]
pub struct Policy {
    pub name: String,
    pub matcher: Matcher,
    pub param_kind: Option<(String, String)>,
    pub failure: FailurePolicy,
    pub reinvocation: bool,
    pub conditions: Vec<(String, Result<Program, String>)>,
    pub variables: Vec<(String, Program)>,
    pub validations: Vec<Validation>,
    pub annotations: Vec<(String, Result<Program, String>)>,
    pub mutations: Vec<Mutation>,
    /// A variable that does not compile makes all of it unusable.
    pub broken: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    Fail,
    Ignore,
}

#[derive(Debug)]
pub struct Validation {
    pub source: String,
    pub program: Result<Program, String>,
    pub message: String,
    pub message_program: Option<Program>,
    pub reason: String,
}

#[derive(Debug)]
pub struct Mutation {
    pub kind: MutationKind,
    pub program: Result<Program, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MutationKind {
    /// An object that is merged in.
    Apply,
    /// A list of operations.
    JsonPatch,
}

/// A binding.
#[derive(Debug)]
pub struct Binding {
    pub name: String,
    pub policy: String,
    pub matcher: Matcher,
    pub params: Option<Value>,
    pub actions: Vec<String>,
}

impl Binding {
    pub fn parse(record: &Record) -> Option<Binding> {
        let value = record.value();
        let spec = &value["spec"];
        Some(Binding {
            name: object::name(&value).to_string(),
            policy: spec["policyName"].as_str()?.to_string(),
            matcher: Matcher::of_policy(&spec["matchResources"]),
            params: spec.get("paramRef").filter(|params| params.is_object()).cloned(),
            actions: object::strings(&spec["validationActions"]),
        })
    }
}

impl Policy {
    pub fn parse(record: &Record) -> Option<Policy> {
        Some(Policy::of(&record.value()))
    }

    fn of(value: &Value) -> Policy {
        let spec = &value["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let items = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
        let mut names = names(value);
        let (mut variables, mut broken) = (Vec::new(), None);
        for variable in items("variables") {
            let name = text(&variable["name"]);
            match expressions::program(&text(&variable["expression"]), &names.environment()) {
                Ok(program) => {
                    names.declare(&name, program.result_type().clone());
                    variables.push((name, program));
                }
                Err(why) => broken = Some(why),
            }
        }
        let env = names.environment();
        let compiled = |expression: &Value| expressions::program(&text(expression), &env);
        let validations = items("validations").into_iter().map(|validation| Validation {
            source: text(&validation["expression"]),
            program: compiled(&validation["expression"]),
            message: text(&validation["message"]),
            message_program: validation
                .get("messageExpression")
                .and_then(|source| compiled(source).ok()),
            reason: text(&validation["reason"]),
        });
        let mutations = items("mutations").into_iter().map(|mutation| {
            let (kind, field) = match mutation["patchType"].as_str() {
                Some("JSONPatch") => (MutationKind::JsonPatch, "jsonPatch"),
                _ => (MutationKind::Apply, "applyConfiguration"),
            };
            Mutation {
                kind,
                program: compiled(&mutation[field]["expression"]),
            }
        });
        Policy {
            name: object::name(value).to_string(),
            matcher: Matcher::of_policy(&spec["matchConstraints"]),
            param_kind: spec["paramKind"]
                .as_object()
                .map(|kind| (text(&kind["apiVersion"]), text(&kind["kind"]))),
            failure: match spec["failurePolicy"].as_str() {
                Some("Ignore") => FailurePolicy::Ignore,
                _ => FailurePolicy::Fail,
            },
            reinvocation: spec["reinvocationPolicy"] == "IfNeeded",
            conditions: items("matchConditions")
                .iter()
                .map(|condition| (text(&condition["name"]), compiled(&condition["expression"])))
                .collect(),
            validations: validations.collect(),
            annotations: items("auditAnnotations")
                .iter()
                .map(|annotation| (text(&annotation["key"]), compiled(&annotation["valueExpression"])))
                .collect(),
            mutations: mutations.collect(),
            variables,
            broken,
        }
    }
}

/// The names that the expressions of a policy may use, without its variables.
fn names(policy: &Value) -> Names {
    let constructs = match policy["kind"].as_str() {
        Some("MutatingAdmissionPolicy") => Constructs::Patches,
        _ => Constructs::Nothing,
    };
    let params = policy["spec"]["paramKind"].is_object().then_some(Type::Dyn);
    Names::of_policy(Type::Dyn, params, constructs)
}

/// What is wrong with the expressions of a policy that is being written.
pub fn check(policy: &Value) -> Vec<FieldError> {
    let spec = &policy["spec"];
    let mut errors = Vec::new();
    let mut names = names(policy);
    let each = |field: &str| {
        spec[field]
            .as_array()
            .cloned()
            .unwrap_or_default()
            .into_iter()
            .enumerate()
    };
    for (place, variable) in each("variables") {
        let at = format!("spec.variables[{place}].expression");
        // What is wrong with a variable is told once, and not again of those who use it.
        let kind = checked(&variable["expression"], &at, &names.environment(), &mut errors);
        names.declare(variable["name"].as_str().unwrap_or_default(), kind.unwrap_or(Type::Dyn));
    }
    let env = names.environment();
    let mut must = |value: &Value, at: String, kind: Option<(&Type, &str)>| {
        let Some(found) = checked(value, &at, &env, &mut errors) else {
            return;
        };
        if let Some((kind, words)) = kind
            && !matches!(found, Type::Dyn)
            && found.to_string() != kind.to_string()
        {
            errors.push(FieldError::invalid(
                at,
                value.clone(),
                format!("must evaluate to {words}"),
            ));
        }
    };
    for (place, condition) in each("matchConditions") {
        let at = format!("spec.matchConditions[{place}].expression");
        must(&condition["expression"], at, Some((&Type::Bool, "bool")));
    }
    for (place, validation) in each("validations") {
        let at = format!("spec.validations[{place}]");
        must(
            &validation["expression"],
            format!("{at}.expression"),
            Some((&Type::Bool, "bool")),
        );
        if validation["messageExpression"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
        {
            let at = format!("{at}.messageExpression");
            must(&validation["messageExpression"], at, Some((&Type::String, "string")));
        }
    }
    for (place, annotation) in each("auditAnnotations") {
        must(
            &annotation["valueExpression"],
            format!("spec.auditAnnotations[{place}].valueExpression"),
            None,
        );
    }
    for (place, mutation) in each("mutations") {
        for field in ["applyConfiguration", "jsonPatch"] {
            if mutation[field].is_object() {
                must(
                    &mutation[field]["expression"],
                    format!("spec.mutations[{place}].{field}.expression"),
                    None,
                );
            }
        }
    }
    errors
}

/// What is wrong with the match conditions of a webhook configuration.
pub fn check_webhooks(configuration: &Value) -> Vec<FieldError> {
    let env = Names::of_webhook().environment();
    let mut errors = Vec::new();
    for (number, webhook) in configuration["webhooks"].as_array().into_iter().flatten().enumerate() {
        let conditions = webhook["matchConditions"].as_array().into_iter().flatten();
        for (place, condition) in conditions.enumerate() {
            let at = format!("webhooks[{number}].matchConditions[{place}].expression");
            let found = checked(&condition["expression"], &at, &env, &mut errors);
            if found.is_some_and(|found| !matches!(found, Type::Dyn | Type::Bool)) {
                errors.push(FieldError::invalid(
                    at,
                    condition["expression"].clone(),
                    "must evaluate to bool",
                ));
            }
        }
    }
    errors
}

fn checked(source: &Value, at: &str, env: &Env, errors: &mut Vec<FieldError>) -> Option<Type> {
    let text = source.as_str().unwrap_or_default();
    if text.trim().is_empty() {
        let why = match at {
            at if at.contains(".matchConditions[") => "",
            at if at.ends_with(".valueExpression") => "valueExpression is not specified",
            _ => "expression is not specified",
        };
        errors.push(FieldError::required(at, why));
        return None;
    }
    match expressions::program(text, env) {
        Ok(program) => Some(program.result_type().clone()),
        Err(why) => {
            errors.push(FieldError::invalid(at, text, why));
            None
        }
    }
}

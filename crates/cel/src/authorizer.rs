//! `authorizer` in expressions: asks whether a user may do something.

use crate::error::EvalError;
use crate::value::Value;
use std::sync::Arc;

/// Answers authorisation questions of expressions.
pub trait Authorizer: std::fmt::Debug + Sync {
    /// Whether the request's user may do this.
    fn authorize(&self, question: &Question) -> Answer;
}

/// What is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// Asked on behalf of this service account (namespace and name) instead of the request's user.
    pub service_account: Option<(String, String)>,
    /// Set for a path that is no resource.
    pub path: Option<String>,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: String,
    pub label_selector: String,
    pub verb: String,
}

/// The authoriser's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub allowed: bool,
    pub reason: String,
    /// Why there is no answer.
    pub error: Option<String>,
}

/// The values that the questions are built of.
#[derive(Debug, Clone)]
pub enum Check<'a> {
    Authorizer {
        by: &'a dyn Authorizer,
        service_account: Option<(String, String)>,
    },
    Path {
        by: &'a dyn Authorizer,
        question: Question,
    },
    Group {
        by: &'a dyn Authorizer,
        question: Question,
    },
    Resource {
        by: &'a dyn Authorizer,
        question: Question,
    },
    Decision(Answer),
}

impl<'a> Value<'a> {
    /// The variable `authorizer`.
    pub fn authorizer(by: &'a dyn Authorizer) -> Self {
        Value::Check(Arc::new(Check::Authorizer {
            by,
            service_account: None,
        }))
    }

    /// The variable `authorizer.requestResource`.
    pub fn resource_check(by: &'a dyn Authorizer, question: Question) -> Self {
        Value::Check(Arc::new(Check::Resource { by, question }))
    }
}

impl<'a> Check<'a> {
    pub fn type_name(&self) -> &'static str {
        match self {
            Check::Authorizer { .. } => "kubernetes.authorization.Authorizer",
            Check::Path { .. } => "kubernetes.authorization.PathCheck",
            Check::Group { .. } => "kubernetes.authorization.GroupCheck",
            Check::Resource { .. } => "kubernetes.authorization.ResourceCheck",
            Check::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    /// One method of the builders.
    pub(crate) fn call(&self, method: &str, args: &[&str]) -> Result<Value<'a>, EvalError> {
        let made = match (self, method, args) {
            (Check::Authorizer { by, .. }, "serviceAccount", [namespace, name]) => Check::Authorizer {
                by: *by,
                service_account: Some((namespace.to_string(), name.to_string())),
            },
            (Check::Authorizer { by, service_account }, "path", [path]) => Check::Path {
                by: *by,
                question: Question {
                    service_account: service_account.clone(),
                    path: Some(path.to_string()),
                    ..Question::default()
                },
            },
            (Check::Authorizer { by, service_account }, "group", [group]) => Check::Group {
                by: *by,
                question: Question {
                    service_account: service_account.clone(),
                    group: group.to_string(),
                    ..Question::default()
                },
            },
            (Check::Group { by, question }, "resource", [resource]) => Check::Resource {
                by: *by,
                question: Question {
                    resource: resource.to_string(),
                    ..question.clone()
                },
            },
            (Check::Resource { by, question }, "check", [verb]) | (Check::Path { by, question }, "check", [verb]) => {
                let mut question = question.clone();
                question.verb = verb.to_string();
                Check::Decision(by.authorize(&question))
            }
            (Check::Resource { by, question }, _, [value]) => {
                let mut question = question.clone();
                let place = match method {
                    "subresource" => &mut question.subresource,
                    "namespace" => &mut question.namespace,
                    "name" => &mut question.name,
                    "fieldSelector" => &mut question.field_selector,
                    "labelSelector" => &mut question.label_selector,
                    _ => return Err(EvalError::NoSuchOverload),
                };
                *place = value.to_string();
                Check::Resource { by: *by, question }
            }
            (Check::Decision(answer), _, []) => {
                return Ok(match method {
                    "allowed" => Value::Bool(answer.allowed),
                    "reason" => Value::string(answer.reason.clone()),
                    "errored" => Value::Bool(answer.error.is_some()),
                    "error" => Value::string(answer.error.clone().unwrap_or_default()),
                    _ => return Err(EvalError::NoSuchOverload),
                });
            }
            _ => return Err(EvalError::NoSuchOverload),
        };
        Ok(Value::Check(Arc::new(made)))
    }
}

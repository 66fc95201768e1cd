//! The kinds that are only ever created and answered: access reviews, rules reviews, token reviews.

use super::authenticate::Refusal;
use super::{Attributes, Auth, Decision, Target, User, user_info};
use crate::error::{ApiError, Result};
use serde_json::{Value, json};
use stead_machinery::field::FieldError;

const AUTHORIZATION: &str = "authorization.k8s.io";

impl Auth {
    /// Answers a review. `None` when the resource is not one.
    pub async fn review(&self, resource: &str, namespace: &str, body: &Value, user: &User) -> Option<Result<Value>> {
        match resource {
            "subjectaccessreviews" => Some(self.subject_access(body)),
            "localsubjectaccessreviews" => Some(self.local_subject_access(body, namespace)),
            "selfsubjectaccessreviews" => Some(self.self_subject_access(body, user)),
            "selfsubjectrulesreviews" => Some(self.self_subject_rules(body, user)),
            "selfsubjectreviews" => Some(Ok(self.self_subject(user))),
            "tokenreviews" => Some(self.token_review(body).await),
            _ => None,
        }
    }

    fn subject_access(&self, body: &Value) -> Result<Value> {
        let mut errors = Vec::new();
        let subject = named_subject(&body["spec"], &mut errors);
        let wanted = wanted(&body["spec"], &mut errors);
        require_empty_metadata(body, &mut errors);
        self.answer_access("SubjectAccessReview", body, &subject, wanted, errors)
    }

    fn local_subject_access(&self, body: &Value, namespace: &str) -> Result<Value> {
        let spec = &body["spec"];
        let mut errors = Vec::new();
        let subject = named_subject(spec, &mut errors);
        let wanted = wanted(spec, &mut errors);
        if let Some(other) = spec["resourceAttributes"]["namespace"]
            .as_str()
            .filter(|other| *other != namespace)
        {
            errors.push(FieldError::invalid(
                "spec.resourceAttributes.namespace",
                other,
                "must match metadata.namespace",
            ));
        }
        if spec["nonResourceAttributes"].is_object() {
            let why = "disallowed on this kind of request";
            errors.retain(|error| error.field != "spec.nonResourceAttributes");
            errors.push(FieldError::invalid("spec.nonResourceAttributes", shown_path(spec), why));
        }
        self.answer_access("LocalSubjectAccessReview", body, &subject, wanted, errors)
    }

    fn self_subject_access(&self, body: &Value, user: &User) -> Result<Value> {
        let mut errors = Vec::new();
        let wanted = wanted(&body["spec"], &mut errors);
        require_empty_metadata(body, &mut errors);
        self.answer_access("SelfSubjectAccessReview", body, user, wanted, errors)
    }

    fn answer_access(
        &self,
        kind: &str,
        body: &Value,
        subject: &User,
        wanted: Option<Attributes>,
        errors: Vec<FieldError>,
    ) -> Result<Value> {
        let (Some(wanted), true) = (wanted, errors.is_empty()) else {
            return Err(ApiError::invalid(AUTHORIZATION, "", "", &errors));
        };
        let (allowed, reason) = match self.decide(subject, &wanted)? {
            Decision::Allow { reason } => (true, reason),
            Decision::Deny { reason } => (false, reason),
        };
        let mut status = json!({"allowed": allowed});
        if !reason.is_empty() {
            status["reason"] = reason.into();
        }
        let mut metadata = json!({});
        if let Some(namespace) = body["metadata"]["namespace"].as_str() {
            metadata["namespace"] = namespace.into();
        }
        Ok(answer("authorization.k8s.io/v1", kind, metadata, &body["spec"], status))
    }

    fn self_subject_rules(&self, body: &Value, user: &User) -> Result<Value> {
        let namespace = text(&body["spec"], "namespace");
        if namespace.is_empty() {
            return Err(ApiError::bad_request("no namespace on request"));
        }
        let policy = self.policy()?;
        let bound = policy.rules_for(user, namespace);
        let mut resources = Vec::new();
        let mut urls = Vec::new();
        for rule in bound.rules {
            if !rule.resources.is_empty() {
                let mut entry = json!({
                    "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources,
                });
                if !rule.resource_names.is_empty() {
                    entry["resourceNames"] = rule.resource_names.clone().into();
                }
                resources.push(entry);
            }
            if !rule.non_resource_urls.is_empty() {
                urls.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
            }
        }
        let mut status = json!({"resourceRules": resources, "nonResourceRules": urls, "incomplete": false});
        if !bound.errors.is_empty() {
            status["evaluationError"] = super::rbac::aggregate(&bound.errors).into();
        }
        Ok(answer(
            "authorization.k8s.io/v1",
            "SelfSubjectRulesReview",
            json!({}),
            &json!({}),
            status,
        ))
    }

    fn self_subject(&self, user: &User) -> Value {
        let now = self.inner.environment.clock.now();
        json!({
            "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"creationTimestamp": whole_seconds(now)},
            "status": {"userInfo": user_info(user)},
        })
    }

    async fn token_review(&self, body: &Value) -> Result<Value> {
        let spec = &body["spec"];
        let token = text(spec, "token");
        if token.is_empty() {
            return Err(ApiError::bad_request(
                "token is required for TokenReview in authentication",
            ));
        }
        let mut audiences = strings(&spec["audiences"]);
        if audiences.is_empty() {
            audiences.push(self.inner.issuer.url.clone());
        }
        let status = match self.token_user(token, &audiences).await {
            Ok((user, audiences)) => json!({"authenticated": true, "user": user_info(&user), "audiences": audiences}),
            Err(Refusal::Invalid(why)) => json!({"user": {}, "error": why}),
            Err(Refusal::Unavailable(error)) => return Err(error),
        };
        Ok(answer(
            "authentication.k8s.io/v1",
            "TokenReview",
            json!({}),
            spec,
            status,
        ))
    }
}

fn answer(api_version: &str, kind: &str, metadata: Value, spec: &Value, status: Value) -> Value {
    json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "spec": spec, "status": status})
}

/// The API's times have whole seconds.
pub(super) fn whole_seconds(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

pub(super) fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item.as_str().map(str::to_string))
        .collect()
}

/// The user that a review speaks of.
fn named_subject(spec: &Value, errors: &mut Vec<FieldError>) -> User {
    let groups = strings(&spec["groups"]);
    if text(spec, "user").is_empty() && groups.is_empty() {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", "", why));
    }
    let extra = spec["extra"].as_object();
    User {
        name: text(spec, "user").to_string(),
        uid: text(spec, "uid").to_string(),
        groups,
        extra: extra
            .into_iter()
            .flatten()
            .map(|(key, values)| (key.to_lowercase(), strings(values)))
            .collect(),
    }
}

fn wanted(spec: &Value, errors: &mut Vec<FieldError>) -> Option<Attributes> {
    let resource = &spec["resourceAttributes"];
    let path = &spec["nonResourceAttributes"];
    match (resource.is_object(), path.is_object()) {
        (true, true) => {
            let why = "cannot be specified in combination with resourceAttributes";
            errors.push(FieldError::invalid("spec.nonResourceAttributes", shown_path(spec), why));
            None
        }
        (false, false) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.push(FieldError::invalid("spec.resourceAttributes", Value::Null, why));
            None
        }
        (true, false) => Some(Attributes {
            verb: text(resource, "verb").to_string(),
            target: Target::Resource {
                group: text(resource, "group").to_string(),
                version: text(resource, "version").to_string(),
                resource: text(resource, "resource").to_string(),
                subresource: text(resource, "subresource").to_string(),
                namespace: text(resource, "namespace").to_string(),
                name: text(resource, "name").to_string(),
            },
        }),
        (false, true) => Some(Attributes {
            verb: text(path, "verb").to_string(),
            target: Target::Path(text(path, "path").to_string()),
        }),
    }
}

/// The refused value as Kubernetes shows it, with the names of its Go fields.
fn shown_path(spec: &Value) -> Value {
    let path = &spec["nonResourceAttributes"];
    json!({"Path": text(path, "path"), "Verb": text(path, "verb")})
}

fn require_empty_metadata(body: &Value, errors: &mut Vec<FieldError>) {
    let mut metadata = body["metadata"].clone();
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|name, value| name != "managedFields" && name != "creationTimestamp" && !value.is_null());
    }
    if metadata.as_object().is_some_and(|fields| !fields.is_empty()) {
        errors.push(FieldError::invalid("metadata", metadata, "must be empty"));
    }
}

#[cfg(test)]
mod tests;

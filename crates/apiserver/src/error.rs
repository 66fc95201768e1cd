//! Errors as clients see them: a `Status` object with code, reason, details and causes.
//!
//! Clients and tests match on parts of these messages, so each constructor makes Kubernetes' own
//! wording; nobody else writes such a message by hand.

use serde_json::{Value, json};
use stead_machinery::field::FieldError;

/// A failed request, ready to be sent.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// `details` of the Status; `Value::Null` where there are none.
    pub details: Value,
    /// A token to go on with, when the one that was sent has expired; empty otherwise.
    pub list_continue: String,
}

/// The group and resource that an error speaks of (`deployments.apps`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupResource {
    pub group: String,
    pub resource: String,
}

impl std::fmt::Display for GroupResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}", self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

pub type Result<T, E = ApiError> = std::result::Result<T, E>;

impl ApiError {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        ApiError {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
            list_continue: String::new(),
        }
    }

    pub fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    pub fn with_list_continue(mut self, token: &str) -> Self {
        self.list_continue = token.to_string();
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// `pods "x" is forbidden: why`.
    pub fn forbidden(resource: &GroupResource, name: &str, why: impl std::fmt::Display) -> Self {
        let message = match (resource.resource.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{resource} is forbidden: {why}"),
            (false, false) => format!("{resource} \"{name}\" is forbidden: {why}"),
        };
        Self::new(403, "Forbidden", message).with_details(details(resource, name))
    }

    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found")).with_details(details(resource, name))
    }

    /// A path that no resource answers to.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_details(json!({}))
    }

    pub fn method_not_allowed(resource: &GroupResource, verb: &str) -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            format!("{verb} is not supported on resources of kind \"{resource}\""),
        )
        .with_details(details(resource, ""))
    }

    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{resource} \"{name}\" already exists"))
            .with_details(details(resource, name))
    }

    pub fn conflict(resource: &GroupResource, name: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self::new(409, "Conflict", message).with_details(details(resource, name))
    }

    /// The optimistic lock failed.
    pub fn modified(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// `Deployment.apps "x" is invalid: [...]` with a cause for each field.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let subject = if group.is_empty() {
            kind.to_string()
        } else {
            format!("{kind}.{group}")
        };
        let mut lines: Vec<String> = Vec::new();
        for line in errors.iter().map(FieldError::to_string) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let message = match lines.as_slice() {
            [] => format!("{subject} \"{name}\" is invalid"),
            [only] => format!("{subject} \"{name}\" is invalid: {only}"),
            many => format!("{subject} \"{name}\" is invalid: [{}]", many.join(", ")),
        };
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({"reason": e.kind.reason(), "message": e.body(), "field": e.field}))
            .collect();
        let mut details = json!({"name": name, "group": group, "kind": kind, "causes": causes});
        drop_empty(&mut details);
        Self::new(422, "Invalid", message).with_details(details)
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", message).with_details(json!({"retryAfterSeconds": retry_after_seconds}))
    }

    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
            .with_details(json!({"causes": [{"message": message.to_string()}]}))
    }

    /// Seconds after which the client may try again, for the `Retry-After` header.
    pub fn retry_after(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    /// The `Status` object that goes over the wire.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if self.reason.is_empty()
            && let Value::Object(map) = &mut status
        {
            map.remove("reason");
        }
        if !self.list_continue.is_empty() {
            status["metadata"] = json!({"continue": self.list_continue});
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}

/// `details` that name an object; empty parts are left out, as Go's `omitempty` does.
fn details(resource: &GroupResource, name: &str) -> Value {
    let mut details = json!({"name": name, "group": resource.group, "kind": resource.resource});
    drop_empty(&mut details);
    details
}

fn drop_empty(details: &mut Value) {
    if let Value::Object(map) = details {
        map.retain(|_, value| value.as_str() != Some(""));
    }
}

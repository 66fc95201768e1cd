//! Pod Security Standards, by the labels of the namespace.

mod checks;

use super::pods::{self, text};
use super::{Operation, Review};
use crate::catalogue::Resource;
use crate::error::{ApiError, Result};
use crate::verbs::Call;
use checks::Level;
use serde_json::Value;

const PREFIX: &str = "pod-security.kubernetes.io";

/// Refuses a pod that breaks the enforced standard, and tells of those that are only watched for.
pub fn validate(call: &Call, review: &mut Review) -> Result<()> {
    let writes = matches!(review.operation, Operation::Create | Operation::Update);
    if !writes || !matches!(review.subresource.as_str(), "" | "ephemeralcontainers" | "resize") {
        return Ok(());
    }
    if review
        .object
        .as_ref()
        .and_then(|object| template(&review.resource, object))
        .is_none()
    {
        return Ok(());
    }
    if pods::is_pod(review) && review.operation == Operation::Update && !changes_security(review) {
        return Ok(());
    }
    let Some(namespace) = call.shared.admission.object("/namespaces", "", &review.namespace) else {
        return Ok(());
    };
    if !is_labelled(&namespace) {
        return Ok(());
    }
    let Some(template) = review
        .object
        .as_ref()
        .and_then(|object| template(&review.resource, object))
        .cloned()
    else {
        return Ok(());
    };
    let policy = |mode: &str| {
        let label = |key: String| namespace["metadata"]["labels"][key.as_str()].as_str().map(String::from);
        let level = Level::parse(&label(format!("{PREFIX}/{mode}"))?)?;
        let version = label(format!("{PREFIX}/{mode}-version")).unwrap_or_else(|| "latest".to_string());
        Some((level, version))
    };
    let spec = &template["spec"];
    if pods::is_pod(review)
        && let Some((level, version)) = policy("enforce")
        && let Some(violations) = checks::violations(level, spec, &template)
    {
        let why = format!("violates PodSecurity \"{}:{version}\": {violations}", level.name());
        return Err(ApiError::forbidden(
            &review.resource.group_resource(),
            &review.name,
            why,
        ));
    }
    if let Some((level, version)) = policy("audit")
        && let Some(violations) = checks::violations(level, spec, &template)
    {
        let key = format!("{PREFIX}/audit-violations");
        let value = format!("would violate PodSecurity \"{}:{version}\": {violations}", level.name());
        review.audit_annotations.push((key, value));
    }
    if let Some((level, version)) = policy("warn")
        && let Some(violations) = checks::violations(level, spec, &template)
    {
        review.warnings.push(format!(
            "would violate PodSecurity \"{}:{version}\": {violations}",
            level.name()
        ));
    }
    Ok(())
}

/// Whether the namespace of a request wants to hear of pods and of what makes them.
pub fn is_watching(call: &Call) -> bool {
    template(&call.resource, &Value::Null).is_some()
        && call
            .shared
            .admission
            .object("/namespaces", "", call.namespace())
            .is_some_and(|namespace| is_labelled(&namespace))
}

/// Most namespaces say nothing of it.
fn is_labelled(namespace: &Value) -> bool {
    let labels = namespace["metadata"]["labels"].as_object();
    labels.is_some_and(|labels| labels.keys().any(|key| key.starts_with(PREFIX)))
}

/// The pod, or the template of what makes pods.
fn template<'a>(resource: &Resource, object: &'a Value) -> Option<&'a Value> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => Some(object),
        ("", "podtemplates") => Some(&object["template"]),
        ("", "replicationcontrollers")
        | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => Some(&object["spec"]["template"]),
        ("batch", "cronjobs") => Some(&object["spec"]["jobTemplate"]["spec"]["template"]),
        _ => None,
    }
}

/// An update of a pod is looked at only when it changes what the standards are about; most change labels alone.
fn changes_security(review: &Review) -> bool {
    let (Some(new), Some(old)) = (&review.object, &review.old) else {
        return true;
    };
    new["spec"] != old["spec"]
        || new["metadata"]["annotations"] != old["metadata"]["annotations"]
        || text(&new["metadata"], "name") != text(&old["metadata"], "name")
}

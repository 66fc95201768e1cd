//! The objects that parameterise a policy.

use super::{Binding, Policy};
use crate::admission::Review;
use crate::store::{ListAt, Prefix, Window};
use crate::verbs::Call;
use serde_json::Value;
use stead_machinery::selector::LabelSelector;

/// Every parameter that a binding names: the policy is evaluated once for each. A policy without parameters is
/// evaluated once, with none.
pub async fn collect(
    call: &Call,
    review: &Review,
    policy: &Policy,
    binding: &Binding,
) -> Result<Vec<Option<Value>>, String> {
    let (Some((api_version, kind)), Some(reference)) = (&policy.param_kind, &binding.params) else {
        return Ok(vec![None]);
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let Some(resource) = call.catalogue.by_kind(group, version, kind) else {
        return Err(format!(
            "failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"
        ));
    };
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let namespace = match (resource.namespaced, text("namespace")) {
        (false, "") => String::new(),
        (false, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_string());
        }
        (true, "") if review.namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_string(),
            );
        }
        (true, "") => review.namespace.clone(),
        (true, given) => given.to_string(),
    };
    let name = text("name");
    let found: Vec<Value> = if name.is_empty() {
        let selector = LabelSelector::from_object(&reference["selector"]).map_err(|error| error.to_string())?;
        let prefix = match namespace.as_str() {
            "" => Prefix::resource(resource.storage()),
            namespace => Prefix::namespace(resource.storage(), namespace),
        };
        let page = call
            .shared
            .store
            .list(&prefix, ListAt::Latest, Window::default())
            .await
            .map_err(|error| error.to_string())?;
        let all = page.records.iter().map(|record| record.value());
        all.filter(|object| selector.matches(&object["metadata"]["labels"]))
            .map(|object| (*object).clone())
            .collect()
    } else {
        let object = call.shared.admission.object(&resource.storage(), &namespace, name);
        object.map(|object| (*object).clone()).into_iter().collect()
    };
    if !found.is_empty() {
        return Ok(found.into_iter().map(Some).collect());
    }
    match reference["parameterNotFoundAction"].as_str() {
        Some("Allow") => Ok(Vec::new()),
        _ => Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_string()),
    }
}

//! Namespaces: their life, and what it means for the objects inside them.

use crate::admission::{Operation, Review};
use crate::error::{ApiError, GroupResource, Result};
use crate::store::Key;
use crate::verbs::Call;
use crate::verbs::object;
use serde_json::{Value, json};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];
const FINALIZER: &str = "kubernetes";

pub fn prepare_create(object: &mut Value) {
    object["status"] = json!({"phase": "Active"});
    let name = object::name(object).to_string();
    let spec = object::map_mut(object, "spec");
    let mut finalizers = object::strings(spec.get("finalizers").unwrap_or(&Value::Null));
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_string());
    }
    spec.insert("finalizers".to_string(), json!(finalizers));
    set_label(object, &name);
}

/// Every namespace carries its name as a label, so that selectors can name it.
pub fn set_label(object: &mut Value, name: &str) {
    let metadata = object::metadata_mut(object);
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if !labels.is_object() {
        *labels = json!({});
    }
    labels["kubernetes.io/metadata.name"] = name.into();
}

pub fn prepare_update(object: &mut Value, old: &Value, subresource: &str) {
    let name = object::name(old).to_string();
    set_label(object, &name);
    if subresource != "finalize" {
        let spec = object::map_mut(object, "spec");
        match old["spec"].get("finalizers") {
            Some(finalizers) => spec.insert("finalizers".to_string(), finalizers.clone()),
            None => spec.remove("finalizers"),
        };
    }
}

pub fn check_delete(call: &Call, old: &Value) -> Result<()> {
    let name = object::name(old);
    match IMMORTAL.contains(&name) {
        true => Err(ApiError::forbidden(
            &call.group_resource(),
            name,
            "this namespace may not be deleted",
        )),
        false => Ok(()),
    }
}

/// A namespace stays while its own finalizers are there, and shows that it is going.
pub fn hold_delete(object: &mut Value) -> bool {
    object["status"]["phase"] = "Terminating".into();
    object["spec"]["finalizers"]
        .as_array()
        .is_some_and(|finalizers| !finalizers.is_empty())
}

/// Refuses writes to a namespace that is missing, and creates in one that is going.
pub async fn lifecycle(call: &Call, review: &Review) -> Result<()> {
    if review.operation != Operation::Create || !call.resource.namespaced || call.namespace().is_empty() {
        return Ok(());
    }
    // Access reviews are questions about a namespace, not objects in it.
    if call.resource.group == "authorization.k8s.io" {
        return Ok(());
    }
    let namespaces = GroupResource {
        group: String::new(),
        resource: "namespaces".to_string(),
    };
    let key = Key::new("/namespaces", "", call.namespace());
    let found = call
        .shared
        .store
        .get(&key)
        .await
        .map_err(|error| call.store_error(error, call.namespace()))?;
    let Some(namespace) = found else {
        return Err(ApiError::not_found(&namespaces, call.namespace()));
    };
    if namespace.metadata().deletion_timestamp.is_none() {
        return Ok(());
    }
    let why = format!(
        "unable to create new content in namespace {} because it is being terminated",
        call.namespace()
    );
    let mut error = ApiError::forbidden(&call.group_resource(), &review.name, why);
    error.details["causes"] = json!([{
        "reason": "NamespaceTerminating",
        "message": format!("namespace {} is being terminated", call.namespace()),
        "field": "metadata.namespace",
    }]);
    Err(error)
}

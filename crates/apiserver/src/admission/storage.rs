//! Claims and volumes: the default class, protection while they are used, and growing.

use super::pods::{amount, text};
use super::{Operation, Review};
use crate::error::{ApiError, Result};
use crate::verbs::Call;
use crate::verbs::object;
use serde_json::Value;

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const OLD_DEFAULT_CLASS: &str = "storageclass.beta.kubernetes.io/is-default-class";
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub fn mutate(call: &Call, review: &mut Review) {
    if review.operation != Operation::Create || !review.resource.group.is_empty() || !review.subresource.is_empty() {
        return;
    }
    let finalizer = match review.resource.plural.as_str() {
        "persistentvolumeclaims" => "kubernetes.io/pvc-protection",
        "persistentvolumes" => "kubernetes.io/pv-protection",
        _ => return,
    };
    let is_claim = review.resource.plural == "persistentvolumeclaims";
    let Some(object) = review.object.as_mut() else {
        return;
    };
    if is_claim {
        default_class(call, object);
    }
    let mut finalizers = object::finalizers(object);
    if !finalizers.iter().any(|known| known == finalizer) {
        finalizers.push(finalizer.to_string());
        object::set_finalizers(object, &finalizers);
    }
}

fn default_class(call: &Call, claim: &mut Value) {
    let chosen = claim["spec"]
        .get("storageClassName")
        .is_some_and(|class| !class.is_null())
        || claim["metadata"]["annotations"].get(CLASS_ANNOTATION).is_some();
    if chosen {
        return;
    }
    let classes = call.shared.admission.storage_classes();
    let is_default = |class: &Value| {
        let annotations = &class["metadata"]["annotations"];
        annotations[DEFAULT_CLASS] == "true" || annotations[OLD_DEFAULT_CLASS] == "true"
    };
    // The newest default wins, then the first by name.
    let newest = classes.iter().filter(|class| is_default(class)).max_by(|a, b| {
        let created = |class: &Value| text(&class["metadata"], "creationTimestamp").to_string();
        let name = |class: &Value| text(&class["metadata"], "name").to_string();
        created(a).cmp(&created(b)).then_with(|| name(b).cmp(&name(a)))
    });
    if let Some(class) = newest {
        claim["spec"]["storageClassName"] = class["metadata"]["name"].clone();
    }
}

/// A claim may only grow where its class can make volumes grow.
pub fn validate(call: &Call, review: &Review) -> Result<()> {
    let is_claim = review.resource.group.is_empty() && review.resource.plural == "persistentvolumeclaims";
    let (Some(new), Some(old)) = (&review.object, &review.old) else {
        return Ok(());
    };
    if !is_claim || review.operation != Operation::Update || !review.subresource.is_empty() {
        return Ok(());
    }
    let size = |claim: &Value| amount(&claim["spec"]["resources"]["requests"]["storage"]);
    if size(new) <= size(old) {
        return Ok(());
    }
    let refuse = |why: &str| Err(ApiError::forbidden(&call.group_resource(), &review.name, why));
    if old["status"]["phase"] != "Bound" {
        return refuse("Only bound persistent volume claims can be expanded");
    }
    let class = text(&old["spec"], "storageClassName");
    let classes = call.shared.admission.storage_classes();
    let grows = classes
        .iter()
        .any(|known| text(&known["metadata"], "name") == class && known["allowVolumeExpansion"] == true);
    if grows {
        return Ok(());
    }
    refuse(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}

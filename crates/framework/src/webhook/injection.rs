//! Keeping the `caBundle` of whatever points to our webhooks current.

use base64::Engine;
use serde_json::{Value, json};

/// A configuration that points to our webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A ValidatingWebhookConfiguration, by name.
    Validating(String),
    /// A MutatingWebhookConfiguration, by name.
    Mutating(String),
    /// The conversion of a CustomResourceDefinition.
    Conversion(String),
}

impl Target {
    pub(super) fn path(&self) -> String {
        match self {
            Target::Validating(name) => {
                format!("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{name}")
            }
            Target::Mutating(name) => {
                format!("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}")
            }
            Target::Conversion(name) => format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"),
        }
    }

    /// A merge patch that sets the bundle wherever it differs; none if it is right everywhere.
    pub(super) fn patch(&self, object: &Value, bundle: &str) -> Option<Value> {
        let wanted = json!(base64::engine::general_purpose::STANDARD.encode(bundle));
        let version = &object["metadata"]["resourceVersion"];
        match self {
            Target::Validating(_) | Target::Mutating(_) => {
                let mut webhooks = object["webhooks"].clone();
                let mut changed = false;
                for webhook in webhooks.as_array_mut()? {
                    let client = webhook.get_mut("clientConfig")?;
                    changed |= client["caBundle"] != wanted;
                    client["caBundle"] = wanted.clone();
                }
                changed.then(|| json!({"metadata": {"resourceVersion": version}, "webhooks": webhooks}))
            }
            Target::Conversion(_) => {
                let client = object.pointer("/spec/conversion/webhook/clientConfig")?;
                (client["caBundle"] != wanted).then(|| {
                    json!({
                        "metadata": {"resourceVersion": version},
                        "spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": wanted}}}},
                    })
                })
            }
        }
    }
}

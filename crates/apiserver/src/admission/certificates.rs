//! Certificate requests: whoever approves or signs must be let by the signer, and nobody asks to be everything.

use super::{Operation, Review};
use crate::auth::{Attributes, Decision, MASTERS, Target};
use crate::error::{ApiError, Result};
use crate::verbs::Call;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use stead_machinery::field::FieldError;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer, X509CertificationRequest};

const GROUP: &str = "certificates.k8s.io";
/// Who signs certificates by which clients are known to the API server.
const CLIENTS: &str = "kubernetes.io/kube-apiserver-client";
/// What was decided stays decided.
const DECISIONS: [&str; 3] = ["Approved", "Denied", "Failed"];

pub fn validate(call: &Call, review: &Review) -> Result<()> {
    if review.resource.group != GROUP || review.resource.plural != "certificatesigningrequests" {
        return Ok(());
    }
    let (Some(new), old) = (&review.object, review.old.as_deref()) else {
        return Ok(());
    };
    let forbidden = |why: String| ApiError::forbidden(&review.resource.group_resource(), &review.name, why);
    match (review.subresource.as_str(), old) {
        ("", _) if review.operation == Operation::Create && asks_for_everything(new) => Err(forbidden(format!(
            "use of {CLIENTS} signer with {MASTERS} group is not allowed"
        ))),
        ("approval", Some(old)) => {
            undone(review, new, old)?;
            lets(call, "approve", old).map_err(forbidden)
        }
        ("status", Some(old)) if changes(new, old) => lets(call, "sign", old).map_err(forbidden),
        _ => Ok(()),
    }
}

fn changes(new: &Value, old: &Value) -> bool {
    ["certificate", "conditions"]
        .iter()
        .any(|field| new["status"][field] != old["status"][field])
}

/// Refuses a write that takes a decision back.
fn undone(review: &Review, new: &Value, old: &Value) -> Result<()> {
    let count = |request: &Value, decision: &str| {
        let conditions = request["status"]["conditions"].as_array().into_iter().flatten();
        conditions.filter(|condition| condition["type"] == decision).count()
    };
    let errors: Vec<FieldError> = DECISIONS
        .iter()
        .filter(|decision| count(new, decision) < count(old, decision))
        .map(|decision| {
            let why = format!("updates may not remove a condition of type \"{decision}\"");
            FieldError::forbidden("status.conditions", why)
        })
        .collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid(GROUP, &review.resource.kind, &review.name, &errors)),
    }
}

/// Whether the sender may do this for the signer of a request, by its name or by its domain.
fn lets(call: &Call, verb: &str, request: &Value) -> std::result::Result<(), String> {
    let signer = request["spec"]["signerName"].as_str().unwrap_or_default();
    let domain = signer.split_once('/').map(|(domain, _)| format!("{domain}/*"));
    let names = std::iter::once(signer.to_string()).chain(domain);
    let may = |name: String| {
        let wanted = Attributes {
            verb: verb.to_string(),
            target: Target::Resource {
                group: GROUP.to_string(),
                version: "*".to_string(),
                resource: "signers".to_string(),
                subresource: String::new(),
                namespace: String::new(),
                name,
            },
        };
        matches!(call.shared.auth.decide(&call.user, &wanted), Ok(Decision::Allow { .. }))
    };
    match names.into_iter().any(may) {
        true => Ok(()),
        false => Err(format!(
            "user not permitted to {verb} requests with signerName \"{signer}\""
        )),
    }
}

/// Whether a client asks for a certificate of the group that may do everything.
fn asks_for_everything(request: &Value) -> bool {
    if request["spec"]["signerName"] != CLIENTS {
        return false;
    }
    let sent = STANDARD.decode(request["spec"]["request"].as_str().unwrap_or_default());
    let sent = sent.unwrap_or_default();
    let Ok((_, pem)) = parse_x509_pem(&sent) else {
        return false;
    };
    let Ok((_, asked)) = X509CertificationRequest::from_der(&pem.contents) else {
        return false;
    };
    let subject = &asked.certification_request_info.subject;
    subject
        .iter_organization()
        .any(|group| group.as_str().is_ok_and(|group| group == MASTERS))
}

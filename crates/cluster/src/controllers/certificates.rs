//! Certificate signing requests: approved where their sender may have them without a person's word, and signed once
//! they are approved.

mod request;
mod signing;
#[cfg(test)]
mod tests;

pub use signing::Authority;

use super::ownership;
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use request::Signer;
use serde_json::json;
use std::time::Duration;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Propagation, Reconciler, Rule, Severity, Store};

/// How long a request stays after it was answered with a certificate or a refusal.
const ANSWERED: SignedDuration = SignedDuration::from_hours(1);
/// How long a request stays that nobody has decided on.
const UNANSWERED: SignedDuration = SignedDuration::from_hours(24);

/// Adds the controller of certificate signing requests.
pub fn add_to(manager: &Manager, authority: Authority) {
    let requests = manager.cache().store();
    let controller = Controller::new("certificate-controller", Certificates { requests, authority })
        .for_::<CertificateSigningRequest>()
        .may(Rule::root::<CertificateSigningRequest>())
        .may(Rule::new(
            "certificates.k8s.io",
            &["certificatesigningrequests"],
            &["delete"],
        ))
        .may(Rule::new(
            "certificates.k8s.io",
            &["certificatesigningrequests/approval"],
            &["patch"],
        ))
        .may(Rule::new("certificates.k8s.io", &["signers"], &["approve", "sign"]))
        .may(Rule::new(
            "authorization.k8s.io",
            &["subjectaccessreviews"],
            &["create"],
        ))
        .without_resync()
        .concurrency(2);
    manager.add(controller);
}

struct Certificates {
    requests: Store<CertificateSigningRequest>,
    authority: Authority,
}

fn is_true(request: &CertificateSigningRequest, type_: &str) -> bool {
    let conditions = request
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|one| one.type_ == type_ && one.status == "True")
}

impl Reconciler for Certificates {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(request) = self
            .requests
            .get(key)
            .filter(|one| one.metadata.deletion_timestamp.is_none())
        else {
            return Ok(Outcome::Settled);
        };
        let signed = request
            .status
            .as_ref()
            .is_some_and(|status| status.certificate.is_some());
        let refused = is_true(&request, "Denied") || is_true(&request, "Failed");
        if let Some(signer) = Signer::of(&request).filter(|_| !signed && !refused) {
            if is_true(&request, "Approved") {
                self.sign(context, &request, signer).await?;
            } else if signer == Signer::KubeletClient {
                approve(context, &request).await?;
            }
        }
        let life = if signed || refused { ANSWERED } else { UNANSWERED };
        let created = request
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(context.now(), |time| time.0);
        match Duration::try_from((created + life).duration_since(context.now())) {
            Ok(left) if !left.is_zero() => Ok(Outcome::CheckAgain(left)),
            _ => {
                context.writer().delete(&*request, Propagation::Background).await?;
                Ok(Outcome::Settled)
            }
        }
    }
}

impl Certificates {
    async fn sign(&self, context: &Context, request: &CertificateSigningRequest, signer: Signer) -> Result<(), Error> {
        let patch = match self.authority.sign(&request.spec, signer, context.now()) {
            Ok(pem) => json!({"status": {"certificate": ByteString(pem.into_bytes())}}),
            Err(error) => {
                let about = ownership::about(request);
                let note = error.to_string();
                context
                    .events()
                    .tell(about, Severity::Warning, "SigningFailed", "Signing", &note);
                let mut conditions = conditions(request);
                conditions.push(condition("Failed", "SignerValidationFailure", &note, context));
                json!({"status": {"conditions": conditions}})
            }
        };
        context.writer().patch_status(request, patch).await.map(drop)
    }
}

fn conditions(request: &CertificateSigningRequest) -> Vec<CertificateSigningRequestCondition> {
    let status = request.status.as_ref();
    status.and_then(|status| status.conditions.clone()).unwrap_or_default()
}

fn condition(type_: &str, reason: &str, message: &str, context: &Context) -> CertificateSigningRequestCondition {
    CertificateSigningRequestCondition {
        type_: type_.to_string(),
        status: "True".to_string(),
        reason: Some(reason.to_string()),
        message: Some(message.to_string()),
        last_update_time: Some(Time(context.now())),
        last_transition_time: Some(Time(context.now())),
    }
}

/// Approves the request of a node for its own client certificate, if the node may have it.
async fn approve(context: &Context, request: &CertificateSigningRequest) -> Result<(), Error> {
    let Ok(wanted) = request::read(&request.spec) else {
        return Ok(());
    };
    if !request::is_of_node(&wanted) || request.spec.username.as_deref() != Some(wanted.name.as_str()) {
        return Ok(());
    }
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": request.spec.username, "groups": request.spec.groups, "uid": request.spec.uid,
            "resourceAttributes": {"group": "certificates.k8s.io", "resource": "certificatesigningrequests",
                "subresource": "selfnodeclient", "verb": "create", "version": "*"},
        },
    });
    let fail = |error| Error::api("review access", error);
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let post = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes())
        .map_err(|error| fail(kube::Error::HttpError(error)))?;
    let answer: serde_json::Value = context.client().request(post).await.map_err(fail)?;
    if answer["status"]["allowed"] != true {
        return Ok(());
    }
    let mut conditions = conditions(request);
    let message = "Auto approving self kubelet client certificate after SubjectAccessReview.";
    conditions.push(condition("Approved", "AutoApproved", message, context));
    let body = json!({
        "metadata": {"uid": request.metadata.uid, "resourceVersion": request.metadata.resource_version},
        "status": {"conditions": conditions},
    });
    let kind = stead::Kind::of::<CertificateSigningRequest>();
    let draft = stead::Draft::new(stead::Verb::Patch, kind, Key::of(request), body);
    context.writer().send(draft.subresource("approval")).await.map(drop)
}

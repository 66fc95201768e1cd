//! The order of admission.
//!
//! First everything that may change an object, then, when the object is final and valid, everything that may
//! refuse it; quota is last, because what it counts must not be refused afterwards. The order is that of
//! Kubernetes' own plugins, since what one sets another one reads.

use super::{Review, policies, webhooks};
use super::{
    certificates, defaults, limits, nodes, pod_security, priorities, quota, runtime_classes, service_accounts, storage,
};
use crate::error::Result;
use crate::kinds::namespace;
use crate::verbs::Call;

/// Lets every plugin change the object.
pub async fn mutate(call: &Call, review: &mut Review) -> Result<()> {
    namespace::lifecycle(call, review).await?;
    limits::mutate(call, review)?;
    service_accounts::mutate(call, review)?;
    nodes::mutate(review);
    priorities::mutate(call, review)?;
    defaults::mutate(call, review)?;
    runtime_classes::mutate(call, review)?;
    storage::mutate(call, review);
    if !call.shared.admission.is_steered() {
        return Ok(());
    }
    let before = review.object.clone();
    policies::mutate(call, review).await?;
    webhooks::mutate(call, review, before).await
}

/// Lets every plugin refuse the object.
pub async fn validate(call: &Call, review: &mut Review) -> Result<()> {
    limits::validate(call, review)?;
    service_accounts::validate(call, review)?;
    nodes::validate(review)?;
    pod_security::validate(call, review)?;
    priorities::validate(call, review)?;
    storage::validate(call, review)?;
    runtime_classes::validate(call, review)?;
    certificates::validate(call, review)?;
    policies::validate(call, review).await?;
    webhooks::validate(call, review).await?;
    quota::validate(call, review).await
}

/// Lets policies and webhooks refuse a connection to an object.
pub async fn connect(call: &Call, review: &mut Review) -> Result<()> {
    if !call.shared.admission.is_steered() {
        return Ok(());
    }
    policies::validate(call, review).await?;
    webhooks::validate(call, review).await
}

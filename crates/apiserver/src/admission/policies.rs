//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy.

mod checks;
mod mutate;
mod params;
mod validate;

pub use checks::{Binding, Policy, check, check_webhooks};
pub use mutate::mutate;
pub use validate::validate;

use super::views::Phase;
use super::{Review, matching};
use crate::verbs::Call;
use matching::WithoutRules;
use std::sync::Arc;

/// The policies of a phase that are about this write, each with its bindings that are.
fn meant(call: &Call, review: &Review, phase: Phase) -> Vec<(Arc<Policy>, Vec<Arc<Binding>>)> {
    if matching::exempt(review) {
        return Vec::new();
    }
    let policies = call.shared.admission.policies(phase);
    if policies.is_empty() {
        return Vec::new();
    }
    let bindings = call.shared.admission.bindings(phase);
    policies
        .into_iter()
        .filter(|policy| policy.matcher.matches(call, review, WithoutRules::Nothing))
        .map(|policy| {
            let bound = bindings
                .iter()
                .filter(|binding| binding.policy == policy.name)
                .filter(|binding| binding.matcher.matches(call, review, WithoutRules::Everything))
                .cloned()
                .collect();
            (policy, bound)
        })
        .collect()
}

//! What an autoscaler says of itself.

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A status under construction.
pub struct Told {
    pub status: HorizontalPodAutoscalerStatus,
    now: Timestamp,
}

impl Told {
    /// Begins with what was said before.
    pub fn new(autoscaler: &HorizontalPodAutoscaler, now: Timestamp) -> Self {
        let mut status = autoscaler.status.clone().unwrap_or_default();
        status.observed_generation = autoscaler.metadata.generation;
        Told { status, now }
    }

    /// Sets a condition; its time moves when its status does.
    pub fn set(&mut self, type_: &str, value: &str, reason: &str, message: &str) {
        let conditions = self.status.conditions.get_or_insert_default();
        let at = conditions.iter().position(|one| one.type_ == type_);
        let since = at
            .map(|at| &conditions[at])
            .filter(|one| one.status == value)
            .and_then(|one| one.last_transition_time.clone());
        let condition = HorizontalPodAutoscalerCondition {
            type_: type_.to_string(),
            status: value.to_string(),
            reason: Some(reason.to_string()),
            message: Some(message.to_string()),
            last_transition_time: since.or(Some(Time(self.now))),
        };
        match at {
            Some(at) => conditions[at] = condition,
            None => conditions.push(condition),
        }
    }
}

//! What a StatefulSet says of itself.

use super::steps::{World, is_running_and_ready, revision_of};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;

/// The status that these pods make; `None` if it is there already.
pub fn of(set: &StatefulSet, world: &World<'_>) -> Option<StatefulSetStatus> {
    let before = set.status.clone().unwrap_or_default();
    let count = |counts: &dyn Fn(&Pod) -> bool| {
        let found = world.pods().filter(|(_, pod)| counts(pod)).count();
        i32::try_from(found).unwrap_or(i32::MAX)
    };
    let made_from =
        |revision: &str| count(&|pod: &Pod| pod.metadata.deletion_timestamp.is_none() && revision_of(pod) == revision);
    let mut after = StatefulSetStatus {
        replicas: count(&|_| true),
        ready_replicas: Some(count(&is_running_and_ready)),
        available_replicas: Some(count(&|pod| world.is_available(pod))),
        current_replicas: Some(made_from(world.current)),
        updated_replicas: Some(made_from(world.update)),
        current_revision: Some(world.current.to_string()),
        update_revision: Some(world.update.to_string()),
        observed_generation: set.metadata.generation,
        collision_count: before.collision_count.or(Some(0)),
        conditions: before.conditions.clone(),
    };
    // The update is through: what it went to is what the set is at.
    let wanted = Some(world.wanted());
    if world.is_rolling() && after.updated_replicas == wanted && after.ready_replicas == wanted {
        after.current_revision = after.update_revision.clone();
        after.current_replicas = after.updated_replicas;
    }
    let known = StatefulSetStatus {
        ready_replicas: before.ready_replicas.or(Some(0)),
        available_replicas: before.available_replicas.or(Some(0)),
        current_replicas: before.current_replicas.or(Some(0)),
        updated_replicas: before.updated_replicas.or(Some(0)),
        ..before
    };
    (after != known).then_some(after)
}

//! Defaults of the kinds that make pods.

use super::{Defaulter, Fields, child, set, text};
use serde_json::{Value, json};

pub const TYPES: &[(&str, Defaulter)] = &[
    ("api.apps.v1.Deployment", deployment),
    ("api.apps.v1.DaemonSet", daemon_set),
    ("api.apps.v1.StatefulSet", stateful_set),
    ("api.apps.v1.ReplicaSet", replica_set),
    ("api.core.v1.ReplicationController", replication_controller),
    ("api.batch.v1.Job", job),
    ("api.batch.v1.CronJob", cron_job),
    ("api.batch.v1.PodFailurePolicyOnPodConditionsPattern", pod_condition),
];

fn deployment(deployment: &mut Fields) {
    let Some(spec) = child(deployment, "spec") else {
        return;
    };
    set(spec, "replicas", 1);
    if let Some(strategy) = child(spec, "strategy") {
        set(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(update) = child(strategy, "rollingUpdate")
        {
            set(update, "maxUnavailable", "25%");
            set(update, "maxSurge", "25%");
        }
    }
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "progressDeadlineSeconds", 600);
}

fn daemon_set(set_: &mut Fields) {
    let Some(spec) = child(set_, "spec") else {
        return;
    };
    if let Some(strategy) = child(spec, "updateStrategy") {
        set(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(update) = child(strategy, "rollingUpdate")
        {
            set(update, "maxUnavailable", 1);
            set(update, "maxSurge", 0);
        }
        // Numbers that are not used are numbers all the same.
        if let Some(Value::Object(update)) = strategy.get_mut("rollingUpdate") {
            set(update, "maxUnavailable", 0);
            set(update, "maxSurge", 0);
        }
    }
    set(spec, "revisionHistoryLimit", 10);
}

fn stateful_set(set_: &mut Fields) {
    let Some(spec) = child(set_, "spec") else {
        return;
    };
    set(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = child(spec, "updateStrategy") {
        if super::is_unset(strategy, "type") {
            set(strategy, "type", "RollingUpdate");
            set(strategy, "rollingUpdate", json!({}));
        }
        if text(strategy, "type") == "RollingUpdate"
            && let Some(update) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut)
        {
            set(update, "partition", 0);
        }
    }
    for template in super::each(spec, "volumeClaimTemplates") {
        set(template, "apiVersion", "v1");
        set(template, "kind", "PersistentVolumeClaim");
    }
    if let Some(policy) = child(spec, "persistentVolumeClaimRetentionPolicy") {
        set(policy, "whenDeleted", "Retain");
        set(policy, "whenScaled", "Retain");
    }
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
}

fn replica_set(set_: &mut Fields) {
    if let Some(spec) = child(set_, "spec") {
        set(spec, "replicas", 1);
    }
}

fn template_labels(owner: &Fields) -> Option<Value> {
    let labels = owner.get("spec")?.get("template")?.get("metadata")?.get("labels")?;
    labels
        .as_object()
        .filter(|labels| !labels.is_empty())
        .map(|labels| Value::Object(labels.clone()))
}

/// Older kinds take the labels of their pods for their own.
fn labels_from_template(owner: &mut Fields, labels: &Value) {
    if let Some(metadata) = child(owner, "metadata") {
        set(metadata, "labels", labels.clone());
    }
}

fn replication_controller(controller: &mut Fields) {
    let Some(labels) = template_labels(controller) else {
        return;
    };
    if let Some(spec) = child(controller, "spec") {
        set(spec, "selector", labels.clone());
    }
    labels_from_template(controller, &labels);
}

fn job(job: &mut Fields) {
    if let Some(labels) = template_labels(job) {
        labels_from_template(job, &labels);
    }
    let Some(spec) = child(job, "spec") else {
        return;
    };
    if super::is_unset(spec, "parallelism") {
        set(spec, "completions", 1);
    }
    set(spec, "parallelism", 1);
    let limit = if spec.contains_key("backoffLimitPerIndex") {
        i64::from(i32::MAX)
    } else {
        6
    };
    set(spec, "backoffLimit", limit);
    set(spec, "completionMode", "NonIndexed");
    set(spec, "suspend", false);
    let replacement = if spec.contains_key("podFailurePolicy") {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    set(spec, "podReplacementPolicy", replacement);
    set(spec, "manualSelector", false);
}

fn cron_job(job: &mut Fields) {
    let Some(spec) = child(job, "spec") else {
        return;
    };
    set(spec, "concurrencyPolicy", "Allow");
    set(spec, "suspend", false);
    set(spec, "successfulJobsHistoryLimit", 3);
    set(spec, "failedJobsHistoryLimit", 1);
}

fn pod_condition(pattern: &mut Fields) {
    set(pattern, "status", "True");
}

//! The scenarios W1 to W13: what goes wrong around an application, and what must happen. Each runs on a whole cluster
//! in this process; W8, W9 and W12 have modules of their own.

use super::stage::{NAME, PATIENCE, Stage};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use stead_apis::webapp::Phase;
use stead_test::faults::Fault;
use stead_test::wait::until;

/// Hollow pods of this annotation never get their image.
fn broken(image: &str) -> Value {
    json!({"image": image, "podAnnotations": {"hollow.stead.dev/fail": "image"},
        "strategy": {"progressDeadlineSeconds": 2}})
}

async fn template(stage: &Stage) -> Value {
    let deployment = stage.deployments().get(NAME).await.expect("its Deployment");
    serde_json::to_value(deployment.spec.expect("a spec").template).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn w1_a_bad_image_that_is_fixed_supersedes_the_stuck_rollout() {
    let stage = Stage::start().await;
    stage.create(broken("nginx:broken")).await;
    let message = stage.reason("RolloutFailed").await;
    assert!(message.contains("revision 1 did not come up"), "{message}");
    // The deadline that made the failure quick is not held against the version that is well.
    stage
        .edit(json!({"image": "nginx:1.25", "podAnnotations": null, "strategy": null}))
        .await;
    let app = stage.ready("the fixed one comes up").await;
    assert_eq!(app.status.and_then(|status| status.revision), Some(2));
    stage.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_version_that_was_set_while_suspended_is_taken_back_when_it_does_not_wake_up() {
    let stage = Stage::start().await;
    stage.create(json!({"image": "nginx:1.25", "replicas": 2})).await;
    stage.ready("it runs").await;
    stage.edit(json!({"suspend": true})).await;
    stage.ready("it is suspended").await;
    stage.edit(broken("nginx:broken")).await;
    stage.ready("nobody knows yet that it is bad").await;
    // The Deployment was complete without pods; it says nothing of being late when it is only scaled.
    stage.edit(json!({"suspend": false})).await;
    let message = stage.reason("RolledBack").await;
    assert!(
        message.contains("revision 2 did not come up; revision 1 runs"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_others_hold_back_is_shown_and_touches_nothing() {
    let stage = Stage::start().await;
    stage.create(json!({"image": "nginx:1.25"})).await;
    stage.ready("it runs").await;
    let hold = |finalizers: Value| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let how = PatchParams::default();
    stage
        .apps()
        .patch(NAME, &how, &hold(json!(["example.com/hold"])))
        .await
        .expect("a finalizer");
    stage
        .apps()
        .delete(NAME, &DeleteParams::default())
        .await
        .expect("a deletion");
    let message = stage.reason("Deleting").await;
    assert_eq!(message, "its deletion waits for example.com/hold");
    let phase = stage
        .apps()
        .get(NAME)
        .await
        .expect("it is held")
        .status
        .and_then(|status| status.phase);
    assert_eq!(phase, Some(Phase::Deleting));
    assert!(
        stage.deployments().get_opt(NAME).await.expect("an answer").is_some(),
        "its pods serve on"
    );
    stage
        .apps()
        .patch(NAME, &how, &hold(Value::Null))
        .await
        .expect("a release");
    until("all of it goes", PATIENCE, || async {
        let left = stage.names::<Pod>().await;
        left.is_empty().then_some(()).ok_or_else(|| left.join(", "))
    })
    .await
    .expect("nothing left");
}

#[tokio::test(flavor = "multi_thread")]
async fn w2_unsatisfiable_affinity_is_named_and_its_revert_recovers() {
    let stage = Stage::start().await;
    let nowhere = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "no-such-label", "operator": "Exists"}]}]}}});
    stage
        .create(json!({"image": "nginx:1.25", "replicas": 2, "affinity": nowhere}))
        .await;
    until("it is said why no pod runs", PATIENCE, || async {
        let message = stage.reason("WaitingForPods").await;
        match message.contains("Unschedulable") {
            true => Ok(()),
            false => Err(message),
        }
    })
    .await
    .expect("a reason");
    stage.edit(json!({"affinity": null})).await;
    stage.ready("it runs without the affinity").await;
    stage.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w3_scaling_up_down_and_up_leaves_nothing_behind() {
    let stage = Stage::start().await;
    stage.create(json!({"image": "nginx:1.25", "replicas": 2})).await;
    stage.ready("it runs").await;
    for replicas in [6, 1, 4] {
        stage.edit(json!({"replicas": replicas})).await;
        let app = stage.ready("it scales").await;
        assert_eq!(app.status.map(|status| status.available_replicas), Some(replicas));
    }
    until("the pods are those that are wanted", PATIENCE, || async {
        let pods = stage.names::<Pod>().await;
        (pods.len() == 4).then_some(()).ok_or_else(|| pods.join(", "))
    })
    .await
    .expect("four pods");
    assert_eq!(stage.names::<ReplicaSet>().await.len(), 1, "no rollout came of it");
    stage.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w4_a_label_or_variable_that_is_removed_is_removed_from_the_children() {
    let stage = Stage::start().await;
    stage
        .create(json!({"image": "nginx:1.25", "podLabels": {"team": "a", "tier": "web"},
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}))
        .await;
    stage.ready("it runs").await;
    stage
        .edit(json!({"podLabels": {"team": null}, "env": [{"name": "B", "value": "2"}]}))
        .await;
    stage.ready("it runs without them").await;
    let template = template(&stage).await;
    assert_eq!(template["metadata"]["labels"]["team"], Value::Null);
    assert_eq!(template["metadata"]["labels"]["tier"], "web");
    assert_eq!(
        template["spec"]["containers"][0]["env"],
        json!([{"name": "B", "value": "2"}])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn w5_a_feature_that_is_turned_off_takes_its_child_along() {
    let stage = Stage::start().await;
    stage
        .create(
            json!({"image": "nginx:1.25", "replicas": 2, "ingress": {"host": "shop.example.com"}, "network": {},
            "autoscaling": {"minReplicas": 2, "maxReplicas": 4}, "files": [{"path": "/etc/a", "content": "1"}]}),
        )
        .await;
    stage.ready("it runs with everything").await;
    assert_eq!(stage.names::<Ingress>().await, [NAME]);
    assert_eq!(stage.names::<NetworkPolicy>().await, [NAME]);
    assert_eq!(stage.names::<HorizontalPodAutoscaler>().await, [NAME]);
    assert_eq!(stage.names::<PodDisruptionBudget>().await, [NAME]);
    assert_eq!(stage.names::<ConfigMap>().await.len(), 1);
    stage
        .edit(json!({"ingress": null, "network": null, "autoscaling": null, "files": null, "replicas": 1}))
        .await;
    stage.ready("it runs with nothing").await;
    until("the children go", PATIENCE, || async {
        let left = [
            stage.names::<Ingress>().await,
            stage.names::<NetworkPolicy>().await,
            stage.names::<HorizontalPodAutoscaler>().await,
            stage.names::<PodDisruptionBudget>().await,
            stage.names::<ConfigMap>().await,
        ]
        .concat();
        left.is_empty().then_some(()).ok_or_else(|| left.join(", "))
    })
    .await
    .expect("none of them");
    assert_eq!(stage.names::<Service>().await, [NAME]);
}

#[tokio::test(flavor = "multi_thread")]
async fn w6_an_autoscaler_that_owns_the_replicas_is_not_fought() {
    let stage = Stage::start().await;
    stage
        .create(json!({"image": "nginx:1.25", "replicas": 2, "autoscaling": {"minReplicas": 2, "maxReplicas": 10}}))
        .await;
    stage.ready("it runs").await;
    let scale = json!({"spec": {"replicas": 7}});
    let how = PatchParams {
        field_manager: Some("horizontal-pod-autoscaler".to_string()),
        ..PatchParams::default()
    };
    stage
        .deployments()
        .patch_scale(NAME, &how, &Patch::Merge(scale))
        .await
        .expect("a scaled Deployment");
    until("the operator agrees", PATIENCE, || async {
        let app = stage.apps().get(NAME).await.map_err(|error| error.to_string())?;
        let status = app.status.unwrap_or_default();
        let agrees = status.available_replicas == 7 && status.summary.as_deref() == Some("7/7");
        agrees.then_some(()).ok_or_else(|| format!("{status:?}"))
    })
    .await
    .expect("seven pods");
    // Another change of the application must not take the number back.
    stage.edit(json!({"podLabels": {"team": "a"}})).await;
    stage.ready("it rolls").await;
    let deployment = stage.deployments().get(NAME).await.expect("its Deployment");
    assert_eq!(deployment.spec.and_then(|spec| spec.replicas), Some(7));
    stage.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_up_to_the_limit_and_those_that_no_service_may_have_become_ready() {
    let stage = Stage::start().await;
    let spec = json!({"image": "nginx:1.25", "replicas": 2, "files": [{"path": "/etc/a", "content": "1"}],
        "strategy": {"type": "Canary", "canary": {"steps": [{"percent": 50, "pauseSeconds": 0}]}}});
    let names = ["x".repeat(253), "y".repeat(63), "1.shop.example.com".to_string()];
    for name in &names {
        stage.create_named(name, spec.clone()).await;
    }
    for name in &names {
        stage.ready_named(name, "it runs").await;
        let how = PatchParams::default();
        let patch = Patch::Merge(json!({"spec": {"image": "nginx:1.26"}}));
        stage.apps().patch(name, &how, &patch).await.expect("a new version");
        let app = stage.ready_named(name, "a canary takes over").await;
        assert_eq!(app.metadata.finalizers, None, "nothing holds it back when it goes");
    }
    let services: Api<Service> = Api::default_namespaced(stage.client.clone());
    let services = services.list(&ListParams::default()).await.expect("a list").items;
    let ours = services
        .iter()
        .filter(|service| service.labels().contains_key("app.kubernetes.io/instance"));
    assert_eq!(ours.count(), names.len());
    for name in &names {
        let how = DeleteParams::default();
        stage.apps().delete(name, &how).await.expect("a deletion");
    }
    until("all of it goes", PATIENCE, || async {
        let left = stage.deployments().list(&ListParams::default()).await;
        let left = left.map_err(|error| error.to_string())?.items;
        left.is_empty()
            .then_some(())
            .ok_or(format!("{} Deployments", left.len()))
    })
    .await
    .expect("nothing of them");
}

#[tokio::test(flavor = "multi_thread")]
async fn w11_killed_between_the_config_map_and_the_deployment_the_rollout_still_happens() {
    let mut stage = Stage::start().await;
    stage
        .create(json!({"image": "nginx:1.25", "files": [{"path": "/etc/a", "content": "old"}]}))
        .await;
    stage.ready("it runs").await;
    let before = template(&stage).await["metadata"]["annotations"]["stead.dev/config"].clone();
    // The ConfigMap is written; of the Deployment's change nothing ever arrives.
    stage.faults.next(usize::MAX, Fault::Silence, |sent| {
        sent.is_write() && sent.is_about("deployments")
    });
    stage
        .edit(json!({"files": [{"path": "/etc/a", "content": "new"}]}))
        .await;
    let maps: Api<ConfigMap> = Api::default_namespaced(stage.client.clone());
    let ours = ListParams::default().labels(&format!("app.kubernetes.io/instance={NAME}"));
    until("the ConfigMap is new", PATIENCE, || async {
        let found = maps.list(&ours).await.map_err(|error| error.to_string())?;
        let texts: Vec<String> = found
            .items
            .into_iter()
            .filter_map(|map| map.data?.remove("file-0"))
            .collect();
        texts
            .iter()
            .any(|text| text == "new")
            .then_some(())
            .ok_or(format!("{texts:?}"))
    })
    .await
    .expect("the first of two writes");
    stage.kill_operator().await;
    stage.faults.heal();
    assert_eq!(
        template(&stage).await["metadata"]["annotations"]["stead.dev/config"],
        before,
        "the Deployment is still the old one"
    );
    stage.start_operator();
    stage.ready("the rollout still happens").await;
    assert_ne!(
        template(&stage).await["metadata"]["annotations"]["stead.dev/config"],
        before
    );
    assert_eq!(stage.names::<ReplicaSet>().await.len(), 2);
    stage.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w13_deleted_during_a_rollout_nothing_is_left() {
    let stage = Stage::start().await;
    stage
        .create(json!({"image": "nginx:1.25", "replicas": 4, "files": [{"path": "/etc/a", "content": "1"}]}))
        .await;
    stage.ready("it runs").await;
    stage
        .edit(json!({"image": "nginx:1.27", "podAnnotations": {"hollow.stead.dev/ready-after": "1s"}}))
        .await;
    until("the rollout is under way", PATIENCE, || async {
        let sets = stage.names::<ReplicaSet>().await;
        (sets.len() == 2).then_some(()).ok_or_else(|| sets.join(", "))
    })
    .await
    .expect("two ReplicaSets");
    stage
        .apps()
        .delete(NAME, &DeleteParams::default())
        .await
        .expect("a deletion");
    until("all of it goes", PATIENCE, || async {
        let mut left = Vec::new();
        for kind in stead_webapp::observe::owned_kinds() {
            // Kinds of other projects are not on this cluster.
            if kind.group.contains('.') && !kind.group.ends_with("k8s.io") || kind.kind == "HTTPRoute" {
                continue;
            }
            left.extend(stage.object(&kind, NAME).await.map(|_| format!("{kind} {NAME}")));
        }
        left.extend(stage.names::<ConfigMap>().await);
        left.extend(stage.names::<ReplicaSet>().await);
        left.extend(stage.names::<Pod>().await);
        left.is_empty().then_some(()).ok_or_else(|| left.join(", "))
    })
    .await
    .expect("no stragglers");
    // Under the same name a new one starts from nothing.
    stage.create(json!({"image": "nginx:1.25"})).await;
    let app = stage.ready("a new one under the old name").await;
    assert_eq!(app.status.and_then(|status| status.revision), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_application_has_its_own_metrics_until_it_is_gone() {
    let stage = Stage::start().await;
    stage.create(json!({"image": "nginx:1.25", "replicas": 2})).await;
    stage.ready("it runs").await;
    let shown = |series: &str| {
        let (page, series) = (stage.metrics.render(), series.to_string());
        async move { page.contains(&series).then_some(()).ok_or(page) }
    };
    for series in [
        "stead_webapp_ready{namespace=\"default\",name=\"shop\"} 1",
        "stead_webapp_available_replicas{namespace=\"default\",name=\"shop\"} 2",
        "stead_webapp_rolled_back{namespace=\"default\",name=\"shop\"} 0",
        // Those of the operator itself, under the names that the architecture draws.
        "\nreconcile_total{controller=\"webapp\"} ",
        "\nreconcile_errors_total{controller=\"webapp\"} ",
        "\nreconcile_duration_seconds_count{controller=\"webapp\"} ",
    ] {
        until("it is measured", PATIENCE, || shown(series))
            .await
            .expect("a series");
    }
    stage
        .apps()
        .delete(NAME, &DeleteParams::default())
        .await
        .expect("a deletion");
    until("its series go with it", PATIENCE, || async {
        let page = stage.metrics.render();
        (!page.contains("stead_webapp_ready{")).then_some(()).ok_or(page)
    })
    .await
    .expect("no series");
}

/// Found by W12: what the server fills in belongs to nobody and stayed behind, where it is forbidden.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_strategy_becomes_recreate_and_back() {
    let stage = Stage::start().await;
    stage.create(json!({"image": "nginx:1.25", "replicas": 2})).await;
    stage.ready("it runs").await;
    for (kind, limits) in [("Recreate", Value::Null), ("RollingUpdate", json!("25%"))] {
        stage.edit(json!({"strategy": {"type": kind}})).await;
        stage.ready("it takes the strategy").await;
        until("the Deployment has it", PATIENCE, || async {
            let deployment = stage.deployments().get(NAME).await.map_err(|error| error.to_string())?;
            let strategy = serde_json::to_value(deployment.spec.and_then(|spec| spec.strategy)).unwrap_or_default();
            let has = strategy["type"] == kind && strategy["rollingUpdate"]["maxSurge"] == limits;
            has.then_some(()).ok_or_else(|| strategy.to_string())
        })
        .await
        .expect("the strategy");
    }
    stage.quiet().await;
}

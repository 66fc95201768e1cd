//! Volumes in detail: which one a claim gets, when it is bound, and what becomes of it afterwards.

use super::story::*;
use serde_json::{Value, json};
use stead_test::hollow_cluster::HollowCluster;

async fn volume(cluster: &HollowCluster, name: &str, meta: Value, extra: Value) {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}, "storageClassName": "",
        "hostPath": {"path": format!("/tmp/{name}")}});
    let object = json!({"metadata": merged(json!({"name": name}), meta), "spec": merged(spec, extra)});
    cluster.create("persistentvolumes", object).await.expect("a volume");
    until(cluster, &format!("persistentvolumes/{name}"), SOON, |volume| {
        volume["status"]["phase"] == "Available"
    })
    .await;
}

async fn claim(cluster: &HollowCluster, name: &str, extra: Value) {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": ""});
    make(cluster, "persistentvolumeclaims", name, merged(spec, extra)).await;
}

async fn bound(cluster: &HollowCluster, name: &str) -> String {
    let claim = until(
        cluster,
        &format!("persistentvolumeclaims/{name}"),
        minutes(1),
        |claim| claim["status"]["phase"] == "Bound",
    )
    .await;
    claim["spec"]["volumeName"].as_str().unwrap_or_default().to_string()
}

async fn pending(cluster: &HollowCluster, name: &str) {
    stays(
        cluster,
        &format!("persistentvolumeclaims/{name}"),
        minutes(1),
        |claim| claim["status"]["phase"] == "Pending",
    )
    .await;
}

async fn class(cluster: &HollowCluster, name: &str, extra: Value) {
    let object = merged(
        json!({"metadata": {"name": name}, "provisioner": "stead.dev/local-directory"}),
        extra,
    );
    cluster.create("storageclasses", object).await.expect("a class");
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_the_smallest_volume_that_can_do_what_it_asks() {
    let cluster = cluster_of(0).await;
    volume(&cluster, "large", json!({}), json!({"capacity": {"storage": "50Gi"}})).await;
    volume(&cluster, "small", json!({}), json!({"capacity": {"storage": "1Gi"}})).await;
    volume(&cluster, "medium", json!({}), json!({"capacity": {"storage": "10Gi"}})).await;
    volume(
        &cluster,
        "shared",
        json!({}),
        json!({"accessModes": ["ReadWriteMany"], "capacity": {"storage": "3Gi"}}),
    )
    .await;
    claim(&cluster, "data", json!({"resources": {"requests": {"storage": "2Gi"}}})).await;
    assert_eq!(bound(&cluster, "data").await, "medium");
    claim(&cluster, "many", json!({"accessModes": ["ReadWriteMany"]})).await;
    assert_eq!(bound(&cluster, "many").await, "shared");
    claim(
        &cluster,
        "huge",
        json!({"resources": {"requests": {"storage": "90Gi"}}}),
    )
    .await;
    pending(&cluster, "huge").await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_may_choose_by_label_or_by_name() {
    let cluster = cluster_of(0).await;
    volume(&cluster, "plain", json!({}), json!({})).await;
    volume(&cluster, "fast", json!({"labels": {"disk": "fast"}}), json!({})).await;
    volume(&cluster, "named", json!({}), json!({})).await;
    claim(
        &cluster,
        "by-label",
        json!({"selector": {"matchLabels": {"disk": "fast"}}}),
    )
    .await;
    assert_eq!(bound(&cluster, "by-label").await, "fast");
    claim(&cluster, "by-name", json!({"volumeName": "named"})).await;
    assert_eq!(bound(&cluster, "by-name").await, "named");
    let volume = cluster.get("persistentvolumes/named").await.expect("it");
    assert_eq!(volume["spec"]["claimRef"]["name"], "by-name");
}

#[tokio::test(start_paused = true)]
async fn a_volume_may_be_set_aside_for_a_claim_that_comes_later() {
    let cluster = cluster_of(0).await;
    let reserved = json!({"claimRef": {"name": "late", "namespace": "default"}});
    volume(&cluster, "kept", json!({}), reserved).await;
    claim(&cluster, "early", json!({})).await;
    pending(&cluster, "early").await;
    claim(&cluster, "late", json!({})).await;
    assert_eq!(bound(&cluster, "late").await, "kept");
}

#[tokio::test(start_paused = true)]
async fn raw_devices_and_file_systems_are_not_mistaken_for_each_other() {
    let cluster = cluster_of(0).await;
    volume(&cluster, "raw", json!({}), json!({"volumeMode": "Block"})).await;
    claim(&cluster, "files", json!({})).await;
    pending(&cluster, "files").await;
    claim(&cluster, "device", json!({"volumeMode": "Block"})).await;
    assert_eq!(bound(&cluster, "device").await, "raw");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_for_its_pod_is_bound_when_that_has_a_node() {
    let cluster = cluster_of(2).await;
    class(&cluster, "lazy", json!({"volumeBindingMode": "WaitForFirstConsumer"})).await;
    claim(&cluster, "data", json!({"storageClassName": "lazy"})).await;
    pending(&cluster, "data").await;
    assert!(
        event(&cluster, "WaitForFirstConsumer")
            .await
            .contains("waiting for first consumer")
    );
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    pod(&cluster, "user", "user", json!({}), json!({"volumes": volumes})).await;
    let user = runs(&cluster, "user").await;
    bound(&cluster, "data").await;
    let claim = cluster.get("persistentvolumeclaims/data").await.expect("it");
    let chosen = &claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
    assert_eq!(chosen, &user["spec"]["nodeName"]);
}

#[tokio::test(start_paused = true)]
async fn who_names_no_class_gets_the_default_one_also_later() {
    let cluster = cluster_of(0).await;
    until(&cluster, "storageclasses/standard", SOON, |_| true).await;
    let default =
        |value: &str| json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": value}}});
    change(&cluster, "storageclasses/standard", default("false")).await;
    claim(&cluster, "early", json!({"storageClassName": null})).await;
    pending(&cluster, "early").await;
    change(&cluster, "storageclasses/standard", default("true")).await;
    bound(&cluster, "early").await;
    let early = cluster.get("persistentvolumeclaims/early").await.expect("it");
    assert_eq!(
        early["spec"]["storageClassName"], "standard",
        "the class is filled in afterwards"
    );
}

#[tokio::test(start_paused = true)]
async fn a_class_says_what_becomes_of_its_volumes() {
    let cluster = cluster_of(0).await;
    class(&cluster, "keep", json!({"reclaimPolicy": "Retain"})).await;
    claim(&cluster, "data", json!({"storageClassName": "keep"})).await;
    let volume = bound(&cluster, "data").await;
    remove(&cluster, "persistentvolumeclaims/data").await;
    let what = format!("persistentvolumes/{volume}");
    until(&cluster, &what, SOON, |volume| volume["status"]["phase"] == "Released").await;
    stays(&cluster, &what, minutes(1), |volume| {
        volume["status"]["phase"] == "Released"
    })
    .await;
    change(
        &cluster,
        &what,
        json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}),
    )
    .await;
    gone(&cluster, &what, minutes(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_nobody_can_delete_says_that_it_failed() {
    let cluster = cluster_of(0).await;
    volume(
        &cluster,
        "disk",
        json!({}),
        json!({"persistentVolumeReclaimPolicy": "Delete",
        "hostPath": null, "nfs": {"server": "example.com", "path": "/"}}),
    )
    .await;
    claim(&cluster, "data", json!({})).await;
    bound(&cluster, "data").await;
    remove(&cluster, "persistentvolumeclaims/data").await;
    let failed = until(&cluster, "persistentvolumes/disk", minutes(1), |volume| {
        volume["status"]["phase"] == "Failed"
    })
    .await;
    assert!(failed["status"]["message"].is_string(), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn a_bound_volume_that_is_deleted_waits_for_its_claim() {
    let cluster = cluster_of(0).await;
    volume(&cluster, "disk", json!({}), json!({})).await;
    claim(&cluster, "data", json!({})).await;
    bound(&cluster, "data").await;
    remove(&cluster, "persistentvolumes/disk").await;
    stays(&cluster, "persistentvolumes/disk", minutes(1), |volume| {
        volume["metadata"]["finalizers"] == json!(["kubernetes.io/pv-protection"])
    })
    .await;
    remove(&cluster, "persistentvolumeclaims/data").await;
    gone(&cluster, "persistentvolumes/disk", minutes(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_provisioner_of_somebody_else_is_named_and_waited_for() {
    let cluster = cluster_of(0).await;
    class(&cluster, "cloud", json!({"provisioner": "example.com/cloud"})).await;
    claim(&cluster, "data", json!({"storageClassName": "cloud"})).await;
    let claim = until(&cluster, "persistentvolumeclaims/data", SOON, |claim| {
        claim["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"] == "example.com/cloud"
    })
    .await;
    assert_eq!(claim["status"]["phase"], "Pending");
    assert!(
        event(&cluster, "ExternalProvisioning")
            .await
            .contains("'example.com/cloud'")
    );
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_volume_comes_and_goes_with_its_pod() {
    let cluster = cluster_of(1).await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]);
    pod(&cluster, "user", "user", json!({}), json!({"volumes": volumes})).await;
    let user = runs(&cluster, "user").await;
    bound(&cluster, "user-scratch").await;
    let claim = cluster.get("persistentvolumeclaims/user-scratch").await.expect("it");
    assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], user["metadata"]["uid"]);
    remove(&cluster, "pods/user").await;
    gone(&cluster, "persistentvolumeclaims/user-scratch", minutes(1)).await;
}

fn scratch() -> Value {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    json!({"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]})
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_volume_is_never_somebody_elses_claim() {
    let cluster = cluster_of(1).await;
    volume(&cluster, "theirs", json!({}), json!({})).await;
    claim(&cluster, "user-scratch", json!({})).await;
    bound(&cluster, "user-scratch").await;
    pod(&cluster, "user", "user", json!({}), scratch()).await;
    let user = until(&cluster, "pods/user", minutes(1), |pod| {
        told(pod, "PodScheduled")["message"]
            .as_str()
            .is_some_and(|text| text.contains("pod is not owner"))
    })
    .await;
    assert_eq!(
        told(&user, "PodScheduled")["message"],
        "0/1 nodes are available: PVC default/user-scratch was not created for pod default/user (pod is not owner). \
         preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    );
    stays(&cluster, "pods/user", minutes(5), |pod| {
        pod["spec"]["nodeName"].is_null()
    })
    .await;
    remove(&cluster, "persistentvolumeclaims/user-scratch").await;
    let user = runs(&cluster, "user").await;
    let own = cluster.get("persistentvolumeclaims/user-scratch").await.expect("it");
    assert_eq!(own["metadata"]["ownerReferences"][0]["uid"], user["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn the_claim_of_an_ephemeral_volume_is_made_again_for_a_pod_that_waits() {
    let cluster = cluster_of(1).await;
    let waiting = merged(scratch(), json!({"nodeSelector": {"disk": "yes"}}));
    pod(&cluster, "user", "user", json!({}), waiting).await;
    let what = "persistentvolumeclaims/user-scratch";
    let first = until(&cluster, what, SOON, |_| true).await;
    remove(&cluster, what).await;
    until(&cluster, what, minutes(1), |claim| {
        claim["metadata"]["uid"] != first["metadata"]["uid"]
    })
    .await;
    let label = json!({"metadata": {"labels": {"disk": "yes"}}});
    change(&cluster, "nodes/node-0", label).await;
    runs(&cluster, "user").await;
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_named_in_the_old_annotation_is_a_class() {
    let cluster = cluster_of(0).await;
    until(&cluster, "storageclasses/standard", SOON, |_| true).await;
    let old = json!({"volume.beta.kubernetes.io/storage-class": "old"});
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let object = json!({"metadata": {"name": "data", "annotations": old.clone()}, "spec": spec});
    cluster.create("persistentvolumeclaims", object).await.expect("a claim");
    stays(&cluster, "persistentvolumeclaims/data", minutes(1), |claim| {
        claim["spec"]["storageClassName"].is_null()
    })
    .await;
    volume(
        &cluster,
        "made",
        json!({"annotations": old}),
        json!({"storageClassName": null}),
    )
    .await;
    assert_eq!(bound(&cluster, "data").await, "made");
}

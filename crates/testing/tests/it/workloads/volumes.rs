//! Claims and volumes, from the first request to the last byte.

use super::story::*;
use serde_json::{Value, json};
use stead_test::hollow_cluster::HollowCluster;

async fn claim(cluster: &HollowCluster, name: &str, extra: Value) {
    let spec = merged(
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}),
        extra,
    );
    let object = json!({"metadata": {"name": name}, "spec": spec});
    cluster.create("persistentvolumeclaims", object).await.expect("a claim");
}

async fn volume(cluster: &HollowCluster, name: &str, extra: Value) {
    let spec = merged(
        json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"},
        "hostPath": {"path": format!("/tmp/{name}")}}),
        extra,
    );
    let object = json!({"metadata": {"name": name}, "spec": spec});
    cluster.create("persistentvolumes", object).await.expect("a volume");
}

fn phase(wanted: &'static str) -> impl FnMut(&Value) -> bool {
    move |object| object["status"]["phase"] == wanted
}

async fn user(cluster: &HollowCluster, name: &str, claim: &str) {
    let mut pod = template("user", json!({}));
    pod["metadata"]["name"] = json!(name);
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    cluster.create("pods", pod).await.expect("a pod");
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_a_directory_that_goes_with_it() {
    let cluster = cluster_of(1).await;
    until(&cluster, "storageclasses/standard", SOON, |_| true).await;
    claim(&cluster, "data", json!({})).await;
    let bound = until(&cluster, "persistentvolumeclaims/data", SOON, phase("Bound")).await;
    let volume = bound["spec"]["volumeName"].as_str().expect("a volume").to_string();
    assert_eq!(bound["status"]["capacity"]["storage"], "1Gi");
    let made = until(&cluster, &format!("persistentvolumes/{volume}"), SOON, phase("Bound")).await;
    let path = made["spec"]["hostPath"]["path"].as_str().expect("a path").to_string();
    std::fs::write(std::path::Path::new(&path).join("file"), "kept").expect("a directory to write to");
    cluster
        .delete("persistentvolumeclaims/data", "Background")
        .await
        .expect("a deletion");
    gone(&cluster, "persistentvolumeclaims/data", SOON).await;
    gone(&cluster, &format!("persistentvolumes/{volume}"), SOON).await;
    assert!(!std::path::Path::new(&path).exists(), "{path} is gone");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_in_use_stays_until_its_pod_is_gone() {
    let cluster = cluster_of(1).await;
    claim(&cluster, "data", json!({})).await;
    user(&cluster, "user", "data").await;
    until(&cluster, "pods/user", SOON, phase("Running")).await;
    cluster
        .delete("persistentvolumeclaims/data", "Background")
        .await
        .expect("a deletion");
    cluster.pass(minutes(2)).await;
    let held = cluster.get("persistentvolumeclaims/data").await.expect("it stays");
    assert_eq!(held["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    cluster.delete("pods/user", "Background").await.expect("a deletion");
    gone(&cluster, "persistentvolumeclaims/data", minutes(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_grows() {
    let cluster = cluster_of(1).await;
    claim(&cluster, "data", json!({})).await;
    until(&cluster, "persistentvolumeclaims/data", SOON, phase("Bound")).await;
    let more = json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}});
    cluster
        .patch("persistentvolumeclaims/data", more)
        .await
        .expect("a larger claim");
    let grown = until(&cluster, "persistentvolumeclaims/data", SOON, |claim| {
        claim["status"]["capacity"]["storage"] == "3Gi"
    })
    .await;
    let name = grown["spec"]["volumeName"].as_str().unwrap_or_default();
    let volume = cluster
        .get(&format!("persistentvolumes/{name}"))
        .await
        .expect("a volume");
    assert_eq!(volume["spec"]["capacity"]["storage"], "3Gi");
}

#[tokio::test(start_paused = true)]
async fn a_volume_made_by_hand_is_bound_retained_and_not_given_twice() {
    let cluster = cluster_of(1).await;
    volume(
        &cluster,
        "disk",
        json!({"storageClassName": "", "persistentVolumeReclaimPolicy": "Retain"}),
    )
    .await;
    until(&cluster, "persistentvolumes/disk", SOON, phase("Available")).await;
    claim(&cluster, "first", json!({"storageClassName": ""})).await;
    until(&cluster, "persistentvolumeclaims/first", SOON, phase("Bound")).await;
    claim(&cluster, "second", json!({"storageClassName": ""})).await;
    cluster.pass(minutes(1)).await;
    let waiting = cluster.get("persistentvolumeclaims/second").await.expect("it");
    assert_eq!(waiting["status"]["phase"], "Pending");
    cluster
        .delete("persistentvolumeclaims/first", "Background")
        .await
        .expect("a deletion");
    until(&cluster, "persistentvolumes/disk", SOON, phase("Released")).await;
    cluster.pass(minutes(1)).await;
    let waiting = cluster.get("persistentvolumeclaims/second").await.expect("it");
    assert_eq!(
        waiting["status"]["phase"], "Pending",
        "what was kept is nobody's by itself"
    );
    cluster
        .patch("persistentvolumes/disk", json!({"spec": {"claimRef": null}}))
        .await
        .expect("freed by hand");
    until(&cluster, "persistentvolumeclaims/second", SOON, phase("Bound")).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_volume_is_gone_says_that_it_is_lost() {
    let cluster = cluster_of(1).await;
    volume(&cluster, "disk", json!({"storageClassName": ""})).await;
    claim(&cluster, "data", json!({"storageClassName": ""})).await;
    until(&cluster, "persistentvolumeclaims/data", SOON, phase("Bound")).await;
    cluster
        .delete("persistentvolumes/disk", "Background")
        .await
        .expect("a deletion");
    cluster.pass(minutes(1)).await;
    let free = json!({"metadata": {"finalizers": null}});
    cluster.patch("persistentvolumes/disk", free).await.expect("by force");
    until(&cluster, "persistentvolumeclaims/data", SOON, phase("Lost")).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_grows_only_where_its_class_lets_it_and_never_shrinks() {
    let cluster = cluster_of(1).await;
    let class = json!({"metadata": {"name": "rigid"}, "provisioner": "stead.dev/local-directory",
        "allowVolumeExpansion": false});
    cluster.create("storageclasses", class).await.expect("a class");
    claim(&cluster, "rigid", json!({"storageClassName": "rigid"})).await;
    claim(&cluster, "soft", json!({})).await;
    for name in ["rigid", "soft"] {
        until(
            &cluster,
            &format!("persistentvolumeclaims/{name}"),
            SOON,
            phase("Bound"),
        )
        .await;
    }
    let size = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let refused = cluster
        .patch("persistentvolumeclaims/rigid", size("2Gi"))
        .await
        .unwrap_err();
    assert_eq!(refused.code, 403, "{refused}");
    let refused = cluster
        .patch("persistentvolumeclaims/soft", size("512Mi"))
        .await
        .unwrap_err();
    assert_eq!(refused.code, 422, "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_a_class_that_nobody_serves_waits() {
    let cluster = cluster_of(1).await;
    claim(&cluster, "data", json!({"storageClassName": "elsewhere"})).await;
    cluster.pass(minutes(2)).await;
    let waiting = cluster.get("persistentvolumeclaims/data").await.expect("it");
    assert_eq!(waiting["status"]["phase"], "Pending");
    user(&cluster, "user", "data").await;
    cluster.pass(minutes(1)).await;
    let pod = cluster.get("pods/user").await.expect("it");
    assert_eq!(pod["status"]["phase"], "Pending", "{pod}");
}

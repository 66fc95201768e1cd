//! The real control plane starts, works and leaves nothing behind.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::api::{Api, PostParams};
use std::time::Duration;
use stead_test::kubernetes::{Kubernetes, Parts, StartError};

/// The control plane, or `None` after saying that this test cannot run.
async fn kubernetes(parts: Parts) -> Option<Kubernetes> {
    match Kubernetes::start(parts).await {
        Ok(cluster) => Some(cluster),
        Err(StartError::Missing(missing)) => {
            stead_test::skip::skipped(missing);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_gets_its_replica_set_from_the_real_controllers() {
    let Some(cluster) = kubernetes(Parts::All).await else {
        return;
    };
    a_deployment_gets_its_replica_set(cluster.client().await.unwrap()).await;
}

#[tokio::test]
async fn a_deployment_gets_its_replica_set_from_the_controllers_in_a_test() {
    let cluster = stead_test::Cluster::builder()
        .seed(7)
        .controllers()
        .start()
        .await
        .unwrap();
    a_deployment_gets_its_replica_set(cluster.client()).await;
}

async fn a_deployment_gets_its_replica_set(client: kube::Client) {
    let deployment: Deployment = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "stead/hello"}]}}},
    }))
    .expect("a Deployment");
    Api::<Deployment>::default_namespaced(client.clone())
        .create(&PostParams::default(), &deployment)
        .await
        .expect("a created Deployment");
    let sets: Api<ReplicaSet> = Api::default_namespaced(client);
    stead_test::wait::until("a ReplicaSet of the Deployment", Duration::from_secs(30), || async {
        let found = sets.list(&Default::default()).await.map_err(|e| e.to_string())?;
        found.items.into_iter().next().ok_or_else(|| "none".to_string())
    })
    .await
    .expect("a ReplicaSet");
}

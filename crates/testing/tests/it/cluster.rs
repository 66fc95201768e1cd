//! Stories of the whole embedded cluster in this process: API server, controllers, scheduler and hollow nodes.
//!
//! Each tells in seconds what Kubernetes' own end-to-end tests found wrong in minutes.

use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Namespace, Pod, ReplicationController, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use stead::Manager;
use stead_cluster::clock::MachineClock;
use stead_cluster::node::registration::Capacity;
use stead_cluster::node::voices::Voices;
use stead_cluster::{controllers, node, scheduler};
use stead_test::{embedded, wait};
use tokio_util::sync::{CancellationToken, DropGuard};

const SOON: Duration = Duration::from_secs(60);

/// A cluster that ends with the value.
struct Cluster {
    client: Client,
    _stop: DropGuard,
}

impl Cluster {
    async fn start() -> Cluster {
        let client = embedded::client().await.expect("a server in memory starts");
        let stop = CancellationToken::new();
        let manager = Manager::builder(client.clone()).name("kube-controller-manager").build();
        controllers::add_to(&manager, &controllers::Settings::default());
        tokio::spawn(manager.run(stop.clone().cancelled_owned()));
        let manager = Manager::builder(client.clone()).name("kube-scheduler").build();
        scheduler::add_to(&manager);
        tokio::spawn(manager.run(stop.clone().cancelled_owned()));
        let nodes = vec![node::describe(0, 1, "node-0".to_string(), Capacity::hollow())];
        tokio::spawn(node::run_hollow(
            Voices::one(client.clone()),
            Arc::new(MachineClock),
            nodes,
            None,
            stop.clone(),
        ));
        Cluster {
            client,
            _stop: stop.drop_guard(),
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the story's objects are well-formed")
}

fn pod(name: &str) -> Pod {
    object(json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}))
}

#[tokio::test]
async fn a_circle_of_owners_is_deleted_in_the_foreground_all_the_same() {
    let cluster = Cluster::start().await;
    let pods: Api<Pod> = cluster.api();
    let mut uids = Vec::new();
    for name in ["p0", "p1", "p2"] {
        let made = pods.create(&PostParams::default(), &pod(name)).await.unwrap();
        uids.push(made.metadata.uid.unwrap());
    }
    for (index, owner) in [(0, 2), (1, 0), (2, 1)] {
        let reference = json!({
            "apiVersion": "v1", "kind": "Pod", "name": format!("p{owner}"), "uid": uids[owner],
            "controller": true, "blockOwnerDeletion": true,
        });
        let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [reference]}}));
        let name = format!("p{index}");
        pods.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    }
    let how = DeleteParams::foreground().grace_period(0);
    pods.delete("p0", &how).await.unwrap();
    wait::until("all pods are gone", SOON, || async {
        let left = pods
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        match left.items.len() {
            0 => Ok(()),
            left => Err(format!("{left} pods")),
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn endpoints_that_somebody_wrote_become_slices_and_go_with_their_service() {
    let cluster = Cluster::start().await;
    let (services, endpoints) = (cluster.api::<Service>(), cluster.api::<Endpoints>());
    let slices: Api<EndpointSlice> = cluster.api();
    let of_service = ListParams::default().labels("kubernetes.io/service-name=db");
    let addresses = || async {
        let found = slices.list(&of_service).await.map_err(|error| error.to_string())?;
        let all = found.items.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        Ok::<Vec<String>, String>(all.flat_map(|one| one.addresses.clone()).collect())
    };
    let see = |wanted: Vec<String>| {
        let addresses = &addresses;
        async move {
            wait::until("the slices follow", SOON, || async {
                let seen = addresses().await?;
                (seen == wanted).then_some(()).ok_or_else(|| format!("{seen:?}"))
            })
            .await
            .unwrap();
        }
    };
    let service = object(json!({"metadata": {"name": "db"}, "spec": {"ports": [{"port": 80}]}}));
    services.create(&PostParams::default(), &service).await.unwrap();
    let by_hand = |ip: &str| -> Endpoints {
        object(json!({
            "metadata": {"name": "db"}, "subsets": [{"addresses": [{"ip": ip}], "ports": [{"port": 80}]}],
        }))
    };
    endpoints
        .create(&PostParams::default(), &by_hand("10.1.2.3"))
        .await
        .unwrap();
    see(vec!["10.1.2.3".to_string()]).await;
    let patch = Patch::Merge(json!({"subsets": by_hand("10.1.2.4").subsets}));
    endpoints.patch("db", &PatchParams::default(), &patch).await.unwrap();
    see(vec!["10.1.2.4".to_string()]).await;
    services.delete("db", &DeleteParams::default()).await.unwrap();
    see(vec![]).await;
    wait::until("the endpoints are gone", SOON, || async {
        match endpoints.get_opt("db").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_namespace_keeps_everything_else_until_its_pods_are_gone() {
    let cluster = Cluster::start().await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "going");
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "going");
    let namespace = object(json!({"metadata": {"name": "going"}}));
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let mut held = pod("held");
    held.metadata.finalizers = Some(vec!["example.com/hold".to_string()]);
    pods.create(&PostParams::default(), &held).await.unwrap();
    let map = object(json!({"metadata": {"name": "m"}}));
    maps.create(&PostParams::default(), &map).await.unwrap();
    namespaces.delete("going", &DeleteParams::default()).await.unwrap();
    wait::until("the conditions tell of the pod", SOON, || async {
        let seen = namespaces.get("going").await.map_err(|error| error.to_string())?;
        let conditions = seen.status.and_then(|status| status.conditions).unwrap_or_default();
        let told = conditions.iter().any(|one| {
            let message = one.message.as_deref().unwrap_or_default();
            message.contains("example.com/hold in 1 resource instances")
        });
        told.then_some(()).ok_or_else(|| format!("{conditions:?}"))
    })
    .await
    .unwrap();
    assert!(maps.get_opt("m").await.unwrap().is_some());
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("held", &PatchParams::default(), &release).await.unwrap();
    wait::until("the namespace is gone", SOON, || async {
        match namespaces.get_opt("going").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn pods_that_are_refused_show_in_the_conditions_of_their_controller() {
    let cluster = Cluster::start().await;
    let controllers: Api<ReplicationController> = cluster.api();
    // Nobody may make pods of a class that is not there.
    let controller = object(json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 1, "selector": {"app": "web"},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
            "priorityClassName": "nope", "containers": [{"name": "c", "image": "i:1"}],
        }},
    }}));
    controllers.create(&PostParams::default(), &controller).await.unwrap();
    let failure = || async {
        let seen = controllers.get("web").await.map_err(|error| error.to_string())?;
        let conditions = seen.status.and_then(|status| status.conditions).unwrap_or_default();
        Ok::<_, String>(conditions.into_iter().find(|one| one.type_ == "ReplicaFailure"))
    };
    let told = wait::until("the failure is told", SOON, || async {
        failure().await?.ok_or_else(|| "no condition".to_string())
    })
    .await
    .unwrap();
    assert_eq!(told.reason.as_deref(), Some("FailedCreate"));
    assert!(
        told.message
            .unwrap_or_default()
            .contains("no PriorityClass with name nope was found")
    );
    let less = Patch::Merge(json!({"spec": {"replicas": 0}}));
    controllers.patch("web", &PatchParams::default(), &less).await.unwrap();
    wait::until("the failure is over", SOON, || async {
        match failure().await? {
            None => Ok(()),
            Some(left) => Err(format!("{left:?}")),
        }
    })
    .await
    .unwrap();
}

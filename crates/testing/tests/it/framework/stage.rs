//! Where stories are told: runtimes, clusters, time.

use super::world::World;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use stead_test::Cluster;
use stead_test::kubernetes::{Kubernetes, Parts, StartError};
use stead_test::skip::skipped;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub type Story = fn(World) -> BoxFuture<'static, ()>;

/// How time passes on the embedded cluster.
#[derive(Clone, Copy, PartialEq)]
pub enum Pace {
    /// Only while everybody sleeps: minutes in milliseconds, and a slow machine changes nothing.
    Virtual,
    /// As for people, for stories with sockets in them: whoever waits for a socket is not asleep.
    Real,
}

/// Longer than any story, in virtual time.
const EMBEDDED_LIMIT: Duration = Duration::from_secs(4 * 3600);
/// No story on the real server may take longer.
const REAL_LIMIT: Duration = Duration::from_secs(100);
/// Stories at the same time on the real server: enough to end within two minutes, few enough not to starve one.
const AT_ONCE: usize = 8;

/// Tells a story on an API server of its own in this process.
pub fn embedded(pace: Pace, story: Story) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(pace == Pace::Virtual);
    runtime.build().expect("a runtime").block_on(async {
        let cluster = Cluster::start().await.expect("an API server in memory");
        let told = story(World::embedded(cluster, pace));
        let in_time = tokio::time::timeout(EMBEDDED_LIMIT, told).await;
        in_time.expect("a story that ends");
    });
}

/// Tells every story on one real kube-apiserver, each in a namespace of its own.
pub fn real(stories: Vec<(&'static str, Story)>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let cluster = match Kubernetes::start(Parts::Api).await {
            Ok(cluster) => cluster,
            Err(StartError::Missing(missing)) => return skipped(missing),
            Err(error) => panic!("{error}"),
        };
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut telling = JoinSet::new();
        for (number, (name, story)) in stories.into_iter().enumerate() {
            let client = cluster.client().await.expect("a client");
            let places = places.clone();
            telling.spawn(async move {
                let _place = places.acquire().await;
                let told = tell(client, format!("story-{number}"), story);
                let told = AssertUnwindSafe(tokio::time::timeout(REAL_LIMIT, told)).catch_unwind();
                match told.await {
                    Ok(Ok(())) => None,
                    Ok(Err(_)) => Some(format!("{name}: longer than {REAL_LIMIT:?}")),
                    Err(panic) => Some(format!("{name}: {}", words(&*panic))),
                }
            });
        }
        let failed: Vec<String> = telling.join_all().await.into_iter().flatten().collect();
        assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    });
}

async fn tell(client: kube::Client, namespace: String, story: Story) {
    let mut object = Namespace::default();
    object.metadata.name = Some(namespace.clone());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .create(&PostParams::default(), &object)
        .await
        .expect("a namespace for the story");
    story(World::real(client, namespace)).await;
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}

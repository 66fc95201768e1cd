//! What the engine does when etcd moved on without it, or somebody else changed things there.

use super::proto::{DeleteRangeRequest, Request, RequestOp, TxnRequest};
use super::*;
use crate::environment::Environment;
use crate::store::tests::etcd::Cluster;
use crate::store::{Draft, EventKind, Key, ListAt, Prefix, Store, Window};
use serde_json::json;

async fn connect(address: &EtcdAddress) -> (Store, Arc<Etcd>) {
    let clock = Environment::real().clock;
    let (shared, engine) = Etcd::connect(address, clock, History::default()).await.unwrap();
    let engine = Arc::new(engine);
    let store = Store {
        shared,
        engine: engine.clone(),
    };
    (store, engine)
}

async fn create(store: &Store, name: &str) -> Arc<Record> {
    let key = Key::new("pods", "n", name);
    let draft = Draft::of(&json!({"metadata": {"name": name}}));
    store.write(Write::Create { key, draft }).await.unwrap()
}

/// What `etcdctl del` does.
async fn delete_behind_our_back(engine: &Etcd, record: &Record) {
    let key = engine.layout.path(&record.key);
    let request = Some(Request::DeleteRange(DeleteRangeRequest { key }));
    let transaction = TxnRequest {
        compare: Vec::new(),
        success: vec![RequestOp { request }],
    };
    assert!(engine.client.transact(&transaction).await.unwrap().succeeded);
}

#[tokio::test]
async fn a_delete_by_somebody_else_is_seen_with_the_last_known_state() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (store, engine) = connect(&cluster.address("foreign")).await;
    let record = create(&store, "x").await;
    let mut watch = store.watch(&Prefix::resource("pods"), None).unwrap();
    delete_behind_our_back(&engine, &record).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event.kind, EventKind::Deleted);
    assert_eq!(event.record.value()["metadata"]["name"], "x");
    assert_eq!(
        event.record.value()["metadata"]["resourceVersion"],
        event.record.revision.to_string()
    );
}

#[tokio::test]
async fn a_feed_that_fell_behind_a_compaction_reads_everything_again_and_ends_the_watches_it_concerns() {
    let Some(cluster) = Cluster::start(1) else { return };
    let address = cluster.address("behind");
    let (behind, engine) = connect(&address).await;
    let (other, other_engine) = connect(&address).await;
    let gone = create(&behind, "gone").await;
    create(&behind, "kept").await;
    let mut concerned = behind.watch(&Prefix::resource("pods"), None).unwrap();
    let mut unconcerned = behind.watch(&Prefix::resource("nodes"), None).unwrap();
    // As if the network had been away for a while.
    for task in &engine.tasks {
        task.abort();
    }
    delete_behind_our_back(&other_engine, &gone).await;
    let new = create(&other, "new").await;
    other_engine.client.compact(new.revision).await.unwrap();
    let follower = tokio::spawn(engine.feed.clone().follow());

    behind.reached(new.revision).await;
    let page = behind
        .list(&Prefix::resource("pods"), ListAt::Latest, Window::default())
        .await
        .unwrap();
    let names: Vec<_> = page.records.iter().map(|record| record.key.name.as_str()).collect();
    assert_eq!(names, ["kept", "new"]);
    assert!(matches!(concerned.next().await, Err(StoreError::Compacted { .. })));
    assert!(unconcerned.try_next().unwrap().is_none());
    let later = create(&behind, "later").await;
    assert_eq!(behind.revision(), later.revision, "and then it follows again");
    follower.abort();
}

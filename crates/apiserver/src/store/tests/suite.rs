//! The promises that every engine keeps. Each story gets a fresh store from each engine.

use super::etcd::Cluster;
use super::*;
use futures::future::join_all;
use serde_json::Value;

/// What a story's store stands on.
enum Bench {
    Memory,
    Durable(tempfile::TempDir),
    Etcd(EtcdAddress),
}

impl Bench {
    async fn store(&self, history: History) -> Store {
        let clock = Environment::real().clock;
        match self {
            Bench::Memory => Store::in_memory(clock, history),
            Bench::Durable(directory) => Store::open(directory.path(), clock, history).unwrap(),
            Bench::Etcd(address) => Store::connect(address, clock, history).await.unwrap(),
        }
    }
}

macro_rules! on_every_engine {
    ($($story:ident)*) => {
        mod memory {
            $( #[tokio::test] async fn $story() { super::$story(super::Bench::Memory).await; } )*
        }
        mod durable {
            $( #[tokio::test] async fn $story() {
                super::$story(super::Bench::Durable(tempfile::tempdir().unwrap())).await;
            } )*
        }
        /// One etcd serves them all, each under a root of its own, because it takes a while to start.
        #[tokio::test]
        async fn every_story_holds_on_etcd() {
            let Some(cluster) = Cluster::start(1) else { return };
            $(
                println!(stringify!($story));
                $story(Bench::Etcd(cluster.address(stringify!($story)))).await;
            )*
        }
    };
}

on_every_engine! {
    a_created_object_reads_back_with_its_revision_and_shared_parsed_form
    writes_are_refused_when_the_object_is_not_what_the_client_thought
    of_many_writers_with_one_expectation_exactly_one_wins
    a_paginated_list_stays_at_its_revision_while_objects_come_and_go
    a_watch_from_the_past_sees_every_change_of_its_prefix_in_order
    a_deleted_event_carries_the_final_state_at_the_revision_of_the_delete
    what_falls_out_of_the_history_is_compacted_and_nothing_else
    a_slow_watcher_is_ended_and_holds_up_nobody
    a_view_follows_the_store_without_a_task
    all_watchers_share_one_event
}

async fn a_created_object_reads_back_with_its_revision_and_shared_parsed_form(bench: Bench) {
    let store = bench.store(History::default()).await;
    let made = create(&store, &pod("a", "x")).await;
    let read = store.get(&pod("a", "x")).await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&made, &read));
    assert_eq!(read.value()["metadata"]["resourceVersion"], made.revision.to_string());
    assert!(Arc::ptr_eq(&read.value(), &read.value()));
    assert_eq!(read.metadata().labels["step"], "1");
    let fields = read.fields(|value: &Value| vec![("step".into(), value["spec"]["step"].to_string())]);
    assert_eq!(fields, [("step".to_string(), "1".to_string())]);
    assert_eq!(store.counts(), [("pods".to_string(), 1)]);
    assert!(store.get(&pod("a", "y")).await.unwrap().is_none());
}

async fn writes_are_refused_when_the_object_is_not_what_the_client_thought(bench: Bench) {
    let store = bench.store(History::default()).await;
    let key = pod("a", "x");
    let first = create(&store, &key).await;
    let again = store.write(creation(&key, 2)).await;
    assert!(matches!(again, Err(StoreError::Exists { current }) if current.revision == first.revision));
    let second = update(&store, &first, 2).await;
    assert_eq!(second.created, first.revision);
    let stale = store.write(update_of(&first, 3)).await;
    assert!(matches!(stale, Err(StoreError::Conflict { current }) if current.revision == second.revision));
    let stale = store.write(deletion_of(&first, 3)).await;
    assert!(matches!(stale, Err(StoreError::Conflict { current }) if current.revision == second.revision));
    let gone = delete(&store, &second).await;
    assert!(gone.revision > second.revision);
    assert!(store.get(&key).await.unwrap().is_none());
    assert!(matches!(
        store.write(update_of(&second, 3)).await,
        Err(StoreError::NotFound)
    ));
    assert!(matches!(
        store.write(deletion_of(&second, 3)).await,
        Err(StoreError::NotFound)
    ));
    let reborn = create(&store, &key).await;
    assert_eq!(reborn.created, reborn.revision);
}

async fn of_many_writers_with_one_expectation_exactly_one_wins(bench: Bench) {
    let store = bench.store(History::default()).await;
    let first = create(&store, &pod("a", "x")).await;
    let answers = join_all((2..34).map(|step| store.write(update_of(&first, step)))).await;
    let won: Vec<_> = answers.iter().flatten().collect();
    assert_eq!(won.len(), 1);
    for refused in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert!(matches!(refused, StoreError::Conflict { current } if current.revision == won[0].revision));
    }
    assert_eq!(step(&everything(&store).await.records[0]), step(won[0]));
}

async fn a_paginated_list_stays_at_its_revision_while_objects_come_and_go(bench: Bench) {
    let store = bench.store(History::default()).await;
    let mut records = Vec::new();
    for name in ["a", "b", "c", "d"] {
        records.push(create(&store, &pod("n", name)).await);
    }
    create(&store, &pod("n-other", "z")).await;
    let prefix = Prefix::namespace("pods", "n");
    let limit = Some(2);
    let first = store
        .list(&prefix, ListAt::Latest, Window { after: None, limit })
        .await
        .unwrap();
    assert_eq!(names(&first), ["a", "b"]);
    assert!(first.more);

    delete(&store, &records[2]).await;
    create(&store, &pod("n", "bb")).await;
    let newest = update(&store, &records[3], 9).await;
    let after = Some(&*first.records[1].key);
    let at = ListAt::Exact(first.revision);
    let second = store.list(&prefix, at, Window { after, limit }).await.unwrap();
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(step(&second.records[1]), 1);
    assert!(!second.more);
    assert_eq!(store.count_after(&prefix, first.revision, after).unwrap(), 2);
    assert_eq!(names(&everything(&store).await), ["z", "a", "b", "bb", "d"]);
    let future = ListAt::NotOlderThan(Revision(newest.revision.0 + 1_000));
    let future = store.list(&prefix, future, Window::default()).await;
    assert!(matches!(future, Err(StoreError::FutureRevision { current }) if current >= newest.revision));
}

async fn a_watch_from_the_past_sees_every_change_of_its_prefix_in_order(bench: Bench) {
    let store = bench.store(History::default()).await;
    let start = store.revision();
    let first = create(&store, &pod("a", "x")).await;
    create(&store, &pod("b", "x")).await;
    let mut watch = store.watch(&Prefix::namespace("pods", "a"), Some(start)).unwrap();
    let mut single = store.watch(&Prefix::object(&pod("b", "y")), None).unwrap();
    let second = update(&store, &first, 2).await;
    let third = delete(&store, &second).await;
    let mut seen = Vec::new();
    while let Some(event) = watch.try_next().unwrap() {
        let previous = event.previous.as_ref().map(|previous| previous.revision);
        seen.push((event.kind, event.record.revision, previous));
    }
    let expected = [
        (EventKind::Added, first.revision, None),
        (EventKind::Modified, second.revision, Some(first.revision)),
        (EventKind::Deleted, third.revision, Some(second.revision)),
    ];
    assert_eq!(seen, expected);
    assert!(watch.progress() >= third.revision);
    let other = create(&store, &pod("b", "z")).await;
    assert!(
        watch.progress() >= other.revision,
        "changes of others move the bookmark too"
    );
    assert!(single.try_next().unwrap().is_none());

    let waiting = tokio::spawn(async move { single.next().await });
    let made = create(&store, &pod("b", "y")).await;
    assert!(Arc::ptr_eq(&waiting.await.unwrap().unwrap().record, &made));
    let future = store.watch(&Prefix::resource("pods"), Some(Revision(made.revision.0 + 1_000)));
    assert!(matches!(future, Err(StoreError::FutureRevision { .. })));
}

async fn a_deleted_event_carries_the_final_state_at_the_revision_of_the_delete(bench: Bench) {
    let store = bench.store(History::default()).await;
    let mut watch = store.watch(&Prefix::resource("pods"), None).unwrap();
    let first = create(&store, &pod("a", "x")).await;
    let last = store.write(deletion_of(&first, 7)).await.unwrap();
    assert_eq!(watch.next().await.unwrap().kind, EventKind::Added);
    let event = watch.next().await.unwrap();
    assert_eq!(event.kind, EventKind::Deleted);
    assert_eq!(step(&event.record), 7);
    assert_eq!(
        event.record.value()["metadata"]["resourceVersion"],
        last.revision.to_string()
    );
    assert_eq!(event.record.created, first.revision);
    assert_eq!(step(event.previous.as_ref().unwrap()), 1);
}

async fn what_falls_out_of_the_history_is_compacted_and_nothing_else(bench: Bench) {
    let changes = 3;
    let store = bench
        .store(History {
            changes,
            ..History::default()
        })
        .await;
    let mut lazy = store.watch(&Prefix::object(&pod("a", "lazy")), None).unwrap();
    let kept = create(&store, &pod("a", "kept")).await;
    let first = create(&store, &pod("a", "x")).await;
    let mut record = first.clone();
    for step in 2..8 {
        record = update(&store, &record, step).await;
    }
    delete(&store, &record).await;
    let prefix = Prefix::resource("pods");
    let old = store.watch(&prefix, Some(kept.revision));
    assert!(matches!(old, Err(StoreError::Compacted { .. })));
    let old = store
        .list(&prefix, ListAt::Exact(first.revision), Window::default())
        .await;
    assert!(matches!(old, Err(StoreError::Compacted { .. })));
    let floor = store
        .list(&prefix, ListAt::Exact(store.floor()), Window::default())
        .await
        .unwrap();
    assert_eq!(names(&floor), ["kept", "x"]);
    assert!(Arc::ptr_eq(&floor.records[0], &kept));
    assert_eq!(names(&everything(&store).await), ["kept"]);
    assert!(
        lazy.try_next().unwrap().is_none(),
        "a watcher with nothing to see has missed nothing"
    );
    create(&store, &pod("a", "lazy")).await;
    assert!(lazy.try_next().unwrap().is_some());
}

async fn a_slow_watcher_is_ended_and_holds_up_nobody(bench: Bench) {
    let changes = 5;
    let store = bench
        .store(History {
            changes,
            ..History::default()
        })
        .await;
    let mut slow = store.watch(&Prefix::resource("pods"), None).unwrap();
    let mut fast = store.watch(&Prefix::resource("pods"), None).unwrap();
    let mut record = create(&store, &pod("a", "x")).await;
    for step in 2..20 {
        let revision = fast.next().await.unwrap().record.revision;
        assert_eq!(revision, record.revision);
        record = update(&store, &record, step).await;
    }
    assert!(matches!(slow.next().await, Err(StoreError::Compacted { .. })));
    assert!(
        matches!(slow.next().await, Err(StoreError::Compacted { .. })),
        "it stays ended"
    );
}

async fn a_view_follows_the_store_without_a_task(bench: Bench) {
    let changes = 2;
    let store = bench
        .store(History {
            changes,
            ..History::default()
        })
        .await;
    let view = View::new(Prefix::resource("pods"), |record| Some(step(record)));
    assert!(view.read(&store).is_empty());
    let first = create(&store, &pod("a", "x")).await;
    assert_eq!(*view.read(&store)[&pod("a", "x")], 1);
    let second = update(&store, &first, 5).await;
    let before = view.read(&store);
    assert_eq!(*before[&pod("a", "x")], 5);
    create(&store, &Key::new("nodes", "", "n")).await;
    assert!(
        Arc::ptr_eq(&before, &view.read(&store)),
        "changes of other kinds cost nothing"
    );
    // Far enough to fall out of the history, so that the view has to start again from the state.
    let mut record = second;
    for step in 6..10 {
        record = update(&store, &record, step).await;
    }
    assert_eq!(*view.read(&store)[&pod("a", "x")], 9);
    delete(&store, &record).await;
    assert!(view.read(&store).is_empty());
}

async fn all_watchers_share_one_event(bench: Bench) {
    let store = bench.store(History::default()).await;
    let mut watches: Vec<_> = (0..10)
        .map(|_| store.watch(&Prefix::resource("pods"), None).unwrap())
        .collect();
    let made = create(&store, &pod("a", "x")).await;
    let events = join_all(watches.iter_mut().map(Watch::next)).await;
    for event in events {
        assert!(Arc::ptr_eq(&event.unwrap().record, &made));
    }
}

//! What the store promises, told on the engine in memory.

use super::*;
use crate::environment::Environment;
use serde_json::{Value, json};

fn store(history: History) -> Store {
    Store::in_memory(Environment::real().clock, history)
}

fn pod(namespace: &str, name: &str) -> Key {
    Key::new("pods", namespace, name)
}

fn draft(key: &Key, step: u64) -> Draft {
    Draft::of(&json!({
        "apiVersion": "v1", "kind": "Pod", "spec": {"step": step},
        "metadata": {"name": key.name, "namespace": key.namespace, "labels": {"step": step.to_string()}, "uid": "u"},
    }))
    .unwrap()
}

async fn create(store: &Store, key: &Key) -> Arc<Record> {
    let draft = draft(key, 1);
    store
        .write(Write::Create {
            key: key.clone(),
            draft,
        })
        .await
        .unwrap()
}

async fn update(store: &Store, record: &Record, step: u64) -> Arc<Record> {
    let key = Key::clone(&record.key);
    let draft = draft(&key, step);
    let expect = record.revision;
    store.write(Write::Update { key, draft, expect }).await.unwrap()
}

async fn delete(store: &Store, record: &Record) -> Arc<Record> {
    let key = Key::clone(&record.key);
    let draft = draft(&key, 0);
    let expect = record.revision;
    store.write(Write::Delete { key, draft, expect }).await.unwrap()
}

fn names(page: &Page) -> Vec<&str> {
    page.records.iter().map(|record| record.key.name.as_str()).collect()
}

#[test]
fn a_draft_gets_its_revision_at_the_sorted_place_and_loses_the_one_it_carried() {
    let object = json!({"kind": "X", "metadata": {"name": "a", "resourceVersion": "7", "uid": "u"}});
    let json = Draft::of(&object).unwrap().at(Revision(12));
    assert_eq!(
        json,
        r#"{"kind":"X","metadata":{"name":"a","resourceVersion":"12","uid":"u"}}"#
    );
    let empty = Draft::of(&json!({"metadata": {}})).unwrap().at(Revision(1));
    assert_eq!(empty, r#"{"metadata":{"resourceVersion":"1"}}"#);
    assert_eq!(Draft::of(&json!({"metadata": 1})).unwrap_err(), MalformedObject);
    assert_eq!(Draft::of(&json!([])).unwrap_err(), MalformedObject);
}

#[tokio::test]
async fn a_created_object_reads_back_with_its_revision_and_shared_parsed_form() {
    let store = store(History::default());
    let made = create(&store, &pod("a", "x")).await;
    let read = store.get(&pod("a", "x")).await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&made, &read));
    assert_eq!(read.value()["metadata"]["resourceVersion"], "1");
    assert!(Arc::ptr_eq(&read.value(), &read.value()));
    assert_eq!(read.metadata().labels["step"], "1");
    let fields = read.fields(|value: &Value| vec![("step".into(), value["spec"]["step"].to_string())]);
    assert_eq!(fields, [("step".to_string(), "1".to_string())]);
    assert_eq!(store.counts(), [("pods".to_string(), 1)]);
}

#[tokio::test]
async fn writes_are_refused_when_the_object_is_not_what_the_client_thought() {
    let store = store(History::default());
    let key = pod("a", "x");
    let first = create(&store, &key).await;
    let again = store
        .write(Write::Create {
            key: key.clone(),
            draft: draft(&key, 2),
        })
        .await;
    assert!(matches!(again, Err(StoreError::Exists { current }) if current.revision == first.revision));
    let second = update(&store, &first, 2).await;
    assert_eq!(second.created, first.revision);
    let expect = first.revision;
    let stale = store
        .write(Write::Update {
            key: key.clone(),
            draft: draft(&key, 3),
            expect,
        })
        .await;
    assert!(matches!(stale, Err(StoreError::Conflict { current }) if current.revision == second.revision));
    let gone = delete(&store, &second).await;
    assert_eq!(gone.revision, Revision(3));
    assert!(store.get(&key).await.unwrap().is_none());
    let nothing = store
        .write(Write::Delete {
            key: key.clone(),
            draft: draft(&key, 3),
            expect,
        })
        .await;
    assert!(matches!(nothing, Err(StoreError::NotFound)));
}

#[tokio::test]
async fn a_paginated_list_stays_at_its_revision_while_objects_come_and_go() {
    let store = store(History::default());
    let mut records = Vec::new();
    for name in ["a", "b", "c", "d"] {
        records.push(create(&store, &pod("n", name)).await);
    }
    create(&store, &pod("n-other", "z")).await;
    let prefix = Prefix::namespace("pods", "n");
    let window = Window {
        after: None,
        limit: Some(2),
    };
    let first = store.list(&prefix, ListAt::Latest, window).await.unwrap();
    assert_eq!(names(&first), ["a", "b"]);
    assert!(first.more);

    delete(&store, &records[2]).await;
    create(&store, &pod("n", "bb")).await;
    update(&store, &records[3], 9).await;
    let after = Some(&*first.records[1].key);
    let at = ListAt::Exact(first.revision);
    let second = store.list(&prefix, at, Window { after, limit: Some(5) }).await.unwrap();
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second.records[1].value()["spec"]["step"], 1);
    assert!(!second.more);
    assert_eq!(store.count_after(&prefix, first.revision, after).unwrap(), 2);
    let all = store
        .list(&Prefix::resource("pods"), ListAt::Latest, Window::default())
        .await
        .unwrap();
    assert_eq!(names(&all), ["z", "a", "b", "bb", "d"]);
    let future = store
        .list(&prefix, ListAt::NotOlderThan(Revision(99)), Window::default())
        .await;
    assert!(matches!(
        future,
        Err(StoreError::FutureRevision { current: Revision(8) })
    ));
}

#[tokio::test]
async fn a_watch_from_the_past_sees_every_change_of_its_prefix_in_order() {
    let store = store(History::default());
    let first = create(&store, &pod("a", "x")).await;
    create(&store, &pod("b", "x")).await;
    let mut watch = store.watch(&Prefix::namespace("pods", "a"), Some(Revision(0))).unwrap();
    let mut single = store.watch(&Prefix::object(&pod("b", "y")), None).unwrap();
    let second = update(&store, &first, 2).await;
    delete(&store, &second).await;
    let mut seen = Vec::new();
    while let Some(event) = watch.try_next().unwrap() {
        seen.push((
            event.kind,
            event.record.revision.0,
            event.previous.as_ref().map(|p| p.revision.0),
        ));
    }
    let expected = [
        (EventKind::Added, 1, None),
        (EventKind::Modified, 3, Some(1)),
        (EventKind::Deleted, 4, Some(3)),
    ];
    assert_eq!(seen, expected);
    assert_eq!(watch.progress(), Revision(4));
    create(&store, &pod("b", "z")).await;
    assert_eq!(watch.progress(), Revision(5), "changes of others move the bookmark too");
    assert!(single.try_next().unwrap().is_none());

    let waiting = tokio::spawn(async move { single.next().await });
    let made = create(&store, &pod("b", "y")).await;
    assert!(Arc::ptr_eq(&waiting.await.unwrap().unwrap().record, &made));
}

#[tokio::test]
async fn what_falls_out_of_the_history_is_compacted_and_nothing_else() {
    let store = store(History {
        changes: 3,
        ..History::default()
    });
    let lazy_prefix = Prefix::object(&pod("a", "lazy"));
    let mut lazy = store.watch(&lazy_prefix, None).unwrap();
    let mut slow = store.watch(&Prefix::resource("pods"), None).unwrap();
    let kept = create(&store, &pod("a", "kept")).await;
    let mut record = create(&store, &pod("a", "x")).await;
    for step in 2..8 {
        record = update(&store, &record, step).await;
    }
    let gone = delete(&store, &record).await;
    assert_eq!(store.floor(), Revision(gone.revision.0 - 3));
    assert!(matches!(slow.try_next(), Err(StoreError::Compacted { .. })));
    let prefix = Prefix::resource("pods");
    assert!(matches!(
        store.watch(&prefix, Some(Revision(1))),
        Err(StoreError::Compacted { .. })
    ));
    let old = store.list(&prefix, ListAt::Exact(Revision(2)), Window::default()).await;
    assert!(matches!(old, Err(StoreError::Compacted { .. })));
    let floor = store
        .list(&prefix, ListAt::Exact(store.floor()), Window::default())
        .await
        .unwrap();
    assert_eq!(names(&floor), ["kept", "x"]);
    assert!(Arc::ptr_eq(&floor.records[0], &kept));
    assert!(
        lazy.try_next().unwrap().is_none(),
        "a watcher with nothing to see has missed nothing"
    );
    create(&store, &pod("a", "lazy")).await;
    assert!(lazy.try_next().unwrap().is_some());
}

#[tokio::test]
async fn a_view_follows_the_store_without_a_task() {
    let store = store(History {
        changes: 2,
        ..History::default()
    });
    let view = View::new(Prefix::resource("pods"), |record| {
        record.value()["spec"]["step"].as_u64()
    });
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
    let third = update(&store, &second, 6).await;
    let fourth = update(&store, &third, 7).await;
    let fifth = update(&store, &fourth, 8).await;
    assert_eq!(*view.read(&store)[&pod("a", "x")], 8);
    delete(&store, &fifth).await;
    assert!(view.read(&store).is_empty());
}

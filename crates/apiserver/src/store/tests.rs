//! What the store promises, told on every engine; and what happens when the machine does its worst.

mod crash;
mod disk;
mod durable;
pub(super) mod etcd;
mod model;
mod suite;

use super::*;
use crate::environment::Environment;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::json;

/// A clock that stands still until it is moved.
struct Watchmaker {
    now: Mutex<Timestamp>,
}

impl Clock for Watchmaker {
    fn now(&self) -> Timestamp {
        *self.now.lock()
    }
}

impl Watchmaker {
    fn new() -> Arc<Watchmaker> {
        let now = Mutex::new(Timestamp::UNIX_EPOCH);
        Arc::new(Watchmaker { now })
    }

    fn pass(&self, time: SignedDuration) {
        *self.now.lock() += time;
    }
}

fn pod(namespace: &str, name: &str) -> Key {
    Key::new("pods", namespace, name)
}

fn draft(key: &Key, step: u64) -> Draft {
    Draft::of(&json!({
        "apiVersion": "v1", "kind": "Pod", "spec": {"step": step},
        "metadata": {"name": key.name, "namespace": key.namespace, "labels": {"step": step.to_string()}, "uid": "u"},
    }))
}

fn step(record: &Record) -> u64 {
    record.value()["spec"]["step"].as_u64().unwrap()
}

fn creation(key: &Key, step: u64) -> Write {
    let draft = draft(key, step);
    Write::Create {
        key: key.clone(),
        draft,
    }
}

fn update_of(record: &Record, step: u64) -> Write {
    let key = Key::clone(&record.key);
    let draft = draft(&key, step);
    let expect = record.revision;
    Write::Update { key, draft, expect }
}

fn deletion_of(record: &Record, step: u64) -> Write {
    let key = Key::clone(&record.key);
    let draft = draft(&key, step);
    let expect = record.revision;
    Write::Delete { key, draft, expect }
}

async fn create(store: &Store, key: &Key) -> Arc<Record> {
    store.write(creation(key, 1)).await.unwrap()
}

async fn update(store: &Store, record: &Record, step: u64) -> Arc<Record> {
    store.write(update_of(record, step)).await.unwrap()
}

async fn delete(store: &Store, record: &Record) -> Arc<Record> {
    store.write(deletion_of(record, 0)).await.unwrap()
}

async fn everything(store: &Store) -> Page {
    let pods = Prefix::resource("pods");
    store.list(&pods, ListAt::Latest, Window::default()).await.unwrap()
}

fn names(page: &Page) -> Vec<&str> {
    page.records.iter().map(|record| record.key.name.as_str()).collect()
}

#[test]
fn a_draft_is_the_object_with_a_gap_for_its_revision() {
    let object = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "resourceVersion": "7"}, "a": 1});
    let json = Draft::of(&object).at(Revision(12));
    assert_eq!(
        json,
        r#"{"kind":"X","apiVersion":"v1","metadata":{"resourceVersion":"12","name":"a"},"a":1}"#
    );
    for poor in [json!({}), json!({"metadata": 1}), json!([])] {
        let json = Draft::of(&poor).at(Revision(1));
        assert_eq!(json, r#"{"metadata":{"resourceVersion":"1"}}"#);
    }
}

#[tokio::test]
async fn history_ends_by_age_too() {
    let clock = Watchmaker::new();
    let store = Store::in_memory(clock.clone(), History::default());
    let first = create(&store, &pod("a", "x")).await;
    clock.pass(SignedDuration::from_mins(11));
    let second = create(&store, &pod("a", "y")).await;
    assert_eq!(store.floor(), first.revision);
    assert_eq!(store.revision(), second.revision);
}

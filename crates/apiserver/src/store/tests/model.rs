//! Random writes, lists, watches and reopenings, compared with a model that simply keeps everything.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const CHANGES: usize = 20;

#[derive(Debug, Clone)]
enum Action {
    Create(u8),
    /// The second says how far from the truth the expectation is.
    Update(u8, u64),
    Delete(u8, u64),
    /// A list at so many revisions ago.
    List(u64, Option<usize>),
    /// A watch from so many revisions ago.
    Watch(u64),
    Reopen,
}

fn action() -> impl Strategy<Value = Action> {
    let object = 0..6u8;
    let wrong = prop_oneof![6 => Just(0u64), 1 => 1..3u64];
    prop_oneof![
        4 => object.clone().prop_map(Action::Create),
        6 => (object.clone(), wrong.clone()).prop_map(|(object, wrong)| Action::Update(object, wrong)),
        3 => (object, wrong).prop_map(|(object, wrong)| Action::Delete(object, wrong)),
        2 => (0..30u64, proptest::option::of(1..4usize)).prop_map(|(ago, limit)| Action::List(ago, limit)),
        2 => (0..30u64).prop_map(Action::Watch),
        1 => Just(Action::Reopen),
    ]
}

/// Everything that ever happened: the change at each revision.
#[derive(Default)]
struct Model {
    changes: BTreeMap<u64, (EventKind, Key, u64)>,
}

impl Model {
    /// The objects at a revision, by path: the revision and step of each.
    fn at(&self, revision: u64) -> BTreeMap<String, (u64, u64)> {
        let mut objects = BTreeMap::new();
        for (revision, (kind, key, step)) in self.changes.range(..=revision) {
            match kind {
                EventKind::Deleted => objects.remove(&key.path()),
                EventKind::Added | EventKind::Modified => objects.insert(key.path(), (*revision, *step)),
            };
        }
        objects
    }
}

/// Two namespaces, one a prefix of the other's name, and a cluster-scoped place.
fn key(object: u8) -> Key {
    let namespace = ["a", "a-b", ""][usize::from(object % 3)];
    pod(namespace, &format!("x{object}"))
}

fn prefix(choice: u64) -> Prefix {
    match choice % 3 {
        0 => Prefix::resource("pods"),
        1 => Prefix::namespace("pods", "a"),
        _ => Prefix::object(&key(1)),
    }
}

struct Subject {
    directory: Option<tempfile::TempDir>,
    store: Option<Store>,
    model: Model,
    step: u64,
    /// One that follows from the beginning of the store's life to its end.
    follower: Option<Watch>,
}

impl Subject {
    fn open(directory: Option<tempfile::TempDir>) -> Subject {
        let mut subject = Subject {
            directory,
            store: None,
            model: Model::default(),
            step: 0,
            follower: None,
        };
        subject.reopen();
        subject
    }

    fn reopen(&mut self) {
        let clock = Environment::real().clock;
        let history = History {
            changes: CHANGES,
            ..History::default()
        };
        let Some(directory) = &self.directory else {
            let store = self.store.take();
            self.store = Some(store.unwrap_or_else(|| Store::in_memory(clock, history)));
            return;
        };
        self.follower = None;
        self.store = None;
        self.store = Some(Store::open(directory.path(), clock, history).unwrap());
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    async fn act(&mut self, action: Action) {
        self.step += 1;
        let revision = self.store().revision();
        let known = |object: u8| self.model.at(u64::MAX).get(&key(object).path()).copied();
        let drafted = |object: u8| draft(&key(object), self.step);
        match action {
            Action::Create(object) => {
                let (key, draft) = (key(object), drafted(object));
                let answer = self.store().write(Write::Create { key, draft }).await;
                match known(object) {
                    None => self.enter(EventKind::Added, object, revision, answer),
                    Some((at, _)) => {
                        assert!(matches!(answer, Err(StoreError::Exists { current }) if current.revision.0 == at));
                    }
                }
            }
            Action::Update(object, wrong) => {
                let expect = Revision(known(object).map_or(1, |(at, _)| at) + wrong);
                let (key, draft) = (key(object), drafted(object));
                let answer = self.store().write(Write::Update { key, draft, expect }).await;
                self.settle(EventKind::Modified, object, wrong, revision, answer);
            }
            Action::Delete(object, wrong) => {
                let expect = Revision(known(object).map_or(1, |(at, _)| at) + wrong);
                let (key, draft) = (key(object), drafted(object));
                let answer = self.store().write(Write::Delete { key, draft, expect }).await;
                self.settle(EventKind::Deleted, object, wrong, revision, answer);
            }
            Action::List(ago, limit) => self.compare_list(ago, limit).await,
            Action::Watch(ago) => self.compare_watch(ago),
            Action::Reopen => self.reopen(),
        }
        assert!(self.store().floor().0 + CHANGES as u64 >= self.store().revision().0);
    }

    fn settle(
        &mut self,
        kind: EventKind,
        object: u8,
        wrong: u64,
        before: Revision,
        answer: Result<Arc<Record>, StoreError>,
    ) {
        match self.model.at(u64::MAX).get(&key(object).path()) {
            None => assert!(matches!(answer, Err(StoreError::NotFound))),
            Some((at, _)) if wrong > 0 => {
                assert!(matches!(answer, Err(StoreError::Conflict { current }) if current.revision.0 == *at));
            }
            Some(_) => self.enter(kind, object, before, answer),
        }
    }

    fn enter(&mut self, kind: EventKind, object: u8, before: Revision, answer: Result<Arc<Record>, StoreError>) {
        let record = answer.unwrap();
        assert_eq!(record.revision.0, before.0 + 1);
        assert_eq!(step(&record), self.step);
        self.model
            .changes
            .insert(record.revision.0, (kind, key(object), self.step));
    }

    async fn compare_list(&self, ago: u64, limit: Option<usize>) {
        let at = self.store().revision().0.saturating_sub(ago);
        let mut found = BTreeMap::new();
        let mut after: Option<Key> = None;
        loop {
            let window = Window {
                after: after.as_ref(),
                limit,
            };
            let page = self
                .store()
                .list(&prefix(ago), ListAt::Exact(Revision(at)), window)
                .await;
            if at < self.store().floor().0 {
                assert!(matches!(page, Err(StoreError::Compacted { .. })));
                return;
            }
            let page = page.unwrap();
            assert!(page.records.is_sorted_by_key(|record| record.key.path()));
            for record in &page.records {
                found.insert(record.key.path(), (record.revision.0, step(record)));
            }
            match page.more {
                true => after = page.records.last().map(|record| Key::clone(&record.key)),
                false => break,
            }
        }
        let mut wanted = self.model.at(at);
        let inside: Vec<String> = (0..6)
            .map(key)
            .filter(|key| prefix(ago).contains(key))
            .map(|key| key.path())
            .collect();
        wanted.retain(|path, _| inside.contains(path));
        assert_eq!(found, wanted);
    }

    fn compare_watch(&mut self, ago: u64) {
        let from = self.store().revision().0.saturating_sub(ago);
        let prefix = prefix(ago);
        let watch = self.store().watch(&prefix, Some(Revision(from)));
        if from < self.store().floor().0 {
            assert!(matches!(watch, Err(StoreError::Compacted { .. })));
            return;
        }
        self.compare_events(&mut watch.unwrap(), &prefix, from);
        if self.follower.is_none() {
            self.follower = self.store().watch(&Prefix::resource("pods"), None).ok();
        }
    }

    fn compare_events(&self, watch: &mut Watch, prefix: &Prefix, from: u64) {
        let changes = self.model.changes.range(from + 1..);
        for (revision, (kind, key, wanted)) in changes.filter(|(_, (_, key, _))| prefix.contains(key)) {
            let event = watch.try_next().unwrap().unwrap();
            assert_eq!(
                (event.record.revision.0, event.kind, &*event.record.key),
                (*revision, *kind, key)
            );
            assert_eq!(step(&event.record), *wanted);
            let before = self.model.at(revision - 1).get(&key.path()).copied();
            let previous = event
                .previous
                .as_ref()
                .map(|previous| (previous.revision.0, step(previous)));
            assert_eq!(previous, before);
        }
        assert!(watch.try_next().unwrap().is_none());
        assert_eq!(watch.progress(), self.store().revision());
    }

    /// The follower has seen nothing yet: it gets all since it began, or learns that it is too late.
    fn compare_follower(&mut self) {
        let Some(mut follower) = self.follower.take() else {
            return;
        };
        let from = follower.progress();
        if from < self.store().floor() {
            assert!(matches!(follower.try_next(), Err(StoreError::Compacted { .. })));
            return;
        }
        self.compare_events(&mut follower, &Prefix::resource("pods"), from.0);
    }
}

fn run(actions: Vec<Action>, directory: Option<tempfile::TempDir>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut subject = Subject::open(directory);
        for action in actions {
            subject.act(action).await;
        }
        subject.compare_follower();
        subject.compare_watch(5);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_store_in_memory_does_what_the_model_does(actions in proptest::collection::vec(action(), 1..120)) {
        run(actions, None);
    }
}

proptest! {
    // Each write waits for a disk, so there are fewer.
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_durable_store_does_what_the_model_does(actions in proptest::collection::vec(action(), 1..80)) {
        run(actions, Some(tempfile::tempdir().unwrap()));
    }
}

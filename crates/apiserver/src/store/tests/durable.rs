//! The durable engine on bad days: power cuts, full disks, directories that it may not have.

use super::disk::Disk;
use super::*;
use std::path::Path;

fn open(disk: &Disk) -> Store {
    open_with(disk, || None)
}

/// A store that knows how much is left on its disk.
fn open_with(disk: &Disk, left: impl Fn() -> Option<u64> + Send + 'static) -> Store {
    let journal = journal::Redb::on(disk.clone(), Box::new(left)).unwrap();
    let clock = Environment::real().clock;
    let history = History {
        changes: 8,
        ..History::default()
    };
    Store::on_journal(journal, Path::new("disk"), clock, history).unwrap()
}

/// What a client was told about one object.
#[derive(Clone, Default)]
struct Told {
    acknowledged: Option<Arc<Record>>,
    /// Asked for, and never answered.
    in_doubt: Option<u64>,
}

/// Writes until the power goes; every fifth write of an object deletes it.
async fn work(store: &Store, told: &mut [Told]) {
    for round in 1.. {
        for (index, told) in told.iter_mut().enumerate() {
            let number = round * 100 + index as u64;
            let write = match &told.acknowledged {
                Some(record) if round % 5 == 0 => deletion_of(record, number),
                Some(record) => update_of(record, number),
                None => creation(&pod("n", &format!("x{index}")), number),
            };
            let deletes = matches!(write, Write::Delete { .. });
            match store.write(write).await {
                Ok(_) if deletes => told.acknowledged = None,
                Ok(record) => told.acknowledged = Some(record),
                Err(error) => {
                    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
                    told.in_doubt = Some(if deletes { 0 } else { number });
                    return;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_power_cut_at_any_operation_loses_no_answered_write_and_leaves_no_half() {
    for cut in 0..100 {
        let disk = Disk::default();
        let store = open(&disk);
        disk.cut_after(5 + cut * 4);
        let mut told = vec![Told::default(); 3];
        work(&store, &mut told).await;
        let revision = store.revision();
        drop(store);

        let store = open(&disk.after_power_cut(cut));
        assert!(store.revision() >= revision, "cut {cut}: revisions never go back");
        for (index, told) in told.iter().enumerate() {
            let found = store.get(&pod("n", &format!("x{index}"))).await.unwrap();
            let found = found.map_or(0, |record| step(&record));
            let acknowledged = told.acknowledged.as_ref().map_or(0, |record| step(record));
            assert!(
                found == acknowledged || Some(found) == told.in_doubt,
                "cut {cut}: found {found}, answered {acknowledged}"
            );
        }
        create(&store, &pod("n", "life goes on")).await;
    }
}

#[tokio::test]
async fn a_full_disk_is_told_to_the_client_and_nothing_answered_is_lost() {
    let disk = Disk::default();
    let store = open(&disk);
    let kept = create(&store, &pod("n", "kept")).await;
    disk.limit(Some(disk.len_now()));
    let big = Draft::of(&json!({"metadata": {"name": "big"}, "data": "x".repeat(16 << 20)}));
    let key = pod("n", "big");
    let full = store.write(Write::Create { key, draft: big }).await.unwrap_err();
    assert!(matches!(full, StoreError::Full { .. }), "{full}");
    assert!(full.to_string().contains("start the API server again"), "{full}");
    let refused = store.write(creation(&pod("n", "small"), 1)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    assert_eq!(names(&everything(&store).await), ["kept"], "reads go on");
    drop(store);

    disk.limit(None);
    let store = open(&disk);
    let page = everything(&store).await;
    assert_eq!(page.records[0].json, kept.json);
    create(&store, &pod("n", "small")).await;
}

#[tokio::test]
async fn writes_that_would_fill_the_disk_are_refused_and_taken_again_when_there_is_room() {
    let disk = Disk::default();
    let asked = disk.clone();
    let store = open_with(&disk, move || asked.left());
    create(&store, &pod("n", "kept")).await;
    disk.limit(Some(disk.len_now() + (2 << 20)));
    let big = || Write::Create {
        key: pod("n", "big"),
        draft: Draft::of(&json!({"metadata": {"name": "big"}, "data": "x".repeat(1 << 20)})),
    };
    let full = store.write(big()).await.unwrap_err();
    assert!(matches!(full, StoreError::Full { .. }), "{full}");
    assert!(
        full.to_string().contains("make room, and writes are taken again"),
        "{full}"
    );
    create(&store, &pod("n", "small")).await;
    disk.limit(Some(disk.len_now()));
    let full = store.write(creation(&pod("n", "none"), 1)).await.unwrap_err();
    assert!(matches!(full, StoreError::Full { .. }), "{full}");
    disk.limit(None);
    store.write(big()).await.unwrap();
    assert_eq!(names(&everything(&store).await), ["big", "kept", "small"]);
    drop(store);
    assert_eq!(names(&everything(&open(&disk)).await), ["big", "kept", "small"]);
}

#[tokio::test]
async fn restarts_after_every_write_do_not_let_the_history_grow() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Environment::real().clock;
    let history = History {
        changes: 3,
        ..History::default()
    };
    let open = || Store::open(directory.path(), clock.clone(), history).unwrap();
    let mut record = create(&open(), &pod("a", "x")).await;
    for step in 2..12 {
        record = update(&open(), &record, step).await;
        let store = open();
        assert!(
            store.floor().0 + 3 >= store.revision().0,
            "{} to {} is retained",
            store.floor(),
            store.revision()
        );
    }
}

#[tokio::test]
async fn a_reopened_store_has_its_objects_its_revision_and_its_history() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Environment::real().clock;
    let history = History {
        changes: 6,
        ..History::default()
    };
    let open = || Store::open(directory.path(), clock.clone(), history).unwrap();
    let store = open();
    let mut record = create(&store, &pod("a", "x")).await;
    for step in 2..12 {
        record = update(&store, &record, step).await;
    }
    // Some kinds do not bound their names.
    let long = pod("a", &"y".repeat(70_000));
    create(&store, &long).await;
    let gone = create(&store, &pod("a", "gone")).await;
    delete(&store, &gone).await;
    let (floor, revision) = (store.floor(), store.revision());
    drop(store);

    let store = open();
    assert_eq!(store.revision(), revision);
    assert_eq!(store.floor(), floor);
    let page = everything(&store).await;
    assert_eq!(names(&page), ["x", &long.name]);
    assert_eq!(page.records[0].created, record.created);
    assert_eq!(page.records[0].json, record.json);
    let mut watch = store.watch(&Prefix::resource("pods"), Some(floor)).unwrap();
    let mut seen = 0;
    while let Some(event) = watch.try_next().unwrap() {
        assert!(event.kind == EventKind::Added || event.previous.is_some());
        seen += 1;
    }
    assert_eq!(seen, 6);
    let next = create(&store, &pod("a", "next")).await;
    assert_eq!(next.revision.0, revision.0 + 1);
}

#[test]
fn a_second_user_of_a_directory_is_told_who_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Store::open(directory.path(), Environment::real().clock, History::default());
    let first = open().unwrap();
    let error = open().err().unwrap();
    let expected = format!(
        "the data directory {} is in use by process {}",
        directory.path().display(),
        std::process::id()
    );
    assert_eq!(error.to_string(), expected);
    drop(first);
    assert!(open().is_ok());
}

#[test]
fn a_directory_that_cannot_be_made_is_named_with_the_reason() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let directory = file.path().join("below-a-file");
    let error = Store::open(&directory, Environment::real().clock, History::default());
    let error = error.err().unwrap();
    assert_eq!(error.to_string(), format!("cannot use {}", directory.display()));
    assert!(matches!(error, OpenError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotADirectory));
}

#[test]
fn a_file_that_is_no_store_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    std::fs::write(&path, b"not a store").unwrap();
    let error = Store::open(directory.path(), Environment::real().clock, History::default());
    assert!(matches!(error, Err(OpenError::Damaged { .. } | OpenError::Io { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"not a store");
}

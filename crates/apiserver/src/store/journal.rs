//! The durable journal: every retained change in a redb file.
//!
//! One table maps a revision to the object as it was then. Nothing else is needed: the newest entry of a key is
//! its current state, entries above the floor are the change log, and reading the table in order rebuilds the
//! memory. Entries that the history no longer needs are removed together with the next batch.

use super::local::Journal;
use super::open::{Lock, OpenError};
use super::parsed::Parsed;
use super::state::State;
use super::{Event, EventKind, Key, Record, Revision, StoreError};
use bytes::Bytes;
use jiff::Timestamp;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// The floor of the change log, in `META`.
const FLOOR: &str = "floor";

/// The version of the layout, in `META`; another one is not ours to read.
const LAYOUT: &str = "layout";
const OUR_LAYOUT: u64 = 1;

/// The memory holds all objects already, so the file's pages need little of it.
const CACHE_BYTES: usize = 8 << 20;

/// Bytes before the names in an entry: kind, revision of the create, and three lengths.
const HEADER: usize = 1 + 8 + 3 * 4;

/// What a batch may need besides its bytes: pages on the way to them, and those that change hands.
const MARGIN: u64 = 1 << 20;
/// How many times its bytes a batch may need: an entry has pages of its own, of a power of two, and the file grows ahead.
const GENEROUSLY: u64 = 4;

pub(super) struct Redb {
    database: Database,
    /// The bytes that are left on the disk, where that can be known.
    left: Box<Left>,
    /// Whether the last look found too few.
    full: bool,
    _lock: Option<Lock>,
}

type Left = dyn Fn() -> Option<u64> + Send;

impl Redb {
    /// Opens or makes the journal of a data directory.
    pub(super) fn open(directory: &Path) -> Result<Redb, OpenError> {
        let lock = Lock::take(directory)?;
        let path = directory.join("store.redb");
        let database = builder()
            .create(&path)
            .map_err(|error| failed_to_open(&path, error.into()))?;
        // The file's name has to survive a power cut as well as its contents.
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(|source| OpenError::io(directory, source))?;
        Ok(Redb {
            database,
            left: left_on_disk(directory.to_path_buf()),
            full: false,
            _lock: Some(lock),
        })
    }

    /// A journal on a file layer of the caller's own.
    #[cfg(test)]
    pub(super) fn on(backend: impl redb::StorageBackend, left: Box<Left>) -> Result<Redb, redb::DatabaseError> {
        let database = builder().create_with_backend(backend)?;
        Ok(Redb {
            database,
            left,
            full: false,
            _lock: None,
        })
    }

    /// Reads everything that is retained back into memory.
    pub(super) fn load(&self, parsed: &Arc<Parsed>, now: Timestamp, path: &Path) -> Result<State, OpenError> {
        let fail = |error: redb::Error| failed_to_open(path, error);
        match self.read(parsed, now) {
            Ok(Ok(state)) => Ok(state),
            Ok(Err(reason)) => Err(OpenError::Damaged {
                path: path.to_path_buf(),
                reason,
            }),
            Err(error) => Err(fail(error)),
        }
    }

    fn read(&self, parsed: &Arc<Parsed>, now: Timestamp) -> Result<Result<State, String>, redb::Error> {
        let transaction = self.database.begin_read()?;
        let meta = match transaction.open_table(META) {
            Ok(meta) => meta,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Ok(State::default())),
            Err(error) => return Err(error.into()),
        };
        let number = |name| Ok::<_, redb::Error>(meta.get(name)?.map_or(0, |value| value.value()));
        let layout = number(LAYOUT)?;
        if layout != OUR_LAYOUT {
            return Ok(Err(format!("its layout is {layout}, this version reads {OUR_LAYOUT}")));
        }
        let mut state = State::restored(Revision(number(FLOOR)?));
        let log = transaction.open_table(LOG)?;
        for entry in log.iter()? {
            let (revision, bytes) = entry?;
            let revision = Revision(revision.value());
            let Some((kind, record)) = decode(revision, bytes.value(), parsed) else {
                return Ok(Err(format!("the entry of revision {revision} is malformed")));
            };
            replay(&mut state, kind, record, now);
        }
        Ok(Ok(state))
    }
}

impl Journal for Redb {
    fn has_room_for(&mut self, bytes: usize) -> Result<(), StoreError> {
        let wanted = MARGIN + GENEROUSLY * bytes as u64;
        let left = (self.left)().filter(|left| *left < wanted);
        if left.is_some() != self.full {
            self.full = left.is_some();
            match left {
                Some(left) => tracing::error!(left, wanted, "the disk of the store is full: writes are refused"),
                None => tracing::info!("the disk of the store has room again: writes are taken"),
            }
        }
        match left {
            Some(left) => Err(StoreError::Full {
                reason: format!("{left} bytes are left, {wanted} are wanted; make room, and writes are taken again")
                    .into(),
            }),
            None => Ok(()),
        }
    }

    fn append(&mut self, events: &[Arc<Event>], retired: &[Revision], floor: Revision) -> Result<(), StoreError> {
        append(&self.database, events, retired, floor).map_err(|error| refusal(&error))
    }
}

fn append(db: &Database, events: &[Arc<Event>], retired: &[Revision], floor: Revision) -> Result<(), redb::Error> {
    let transaction = db.begin_write()?;
    {
        let mut log = transaction.open_table(LOG)?;
        for event in events {
            encode(&mut log, event)?;
        }
        for revision in retired {
            log.remove(revision.0)?;
        }
        let mut meta = transaction.open_table(META)?;
        let on_disk = meta.get(FLOOR)?.map(|value| value.value());
        if on_disk != Some(floor.0) {
            meta.insert(FLOOR, floor.0)?;
            meta.insert(LAYOUT, OUR_LAYOUT)?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Tells what may still be written where a directory is; unknown where it cannot be asked, or is not told. It is asked before
/// every batch, so who asks is found out once.
fn left_on_disk(directory: PathBuf) -> Box<Left> {
    let administrator = is_administrator();
    Box::new(move || {
        let disk = rustix::fs::statvfs(&directory).ok().filter(|disk| disk.f_blocks > 0)?;
        let blocks = match administrator {
            true => disk.f_bfree,
            false => disk.f_bavail,
        };
        Some(blocks.saturating_mul(disk.f_frsize))
    })
}

/// Whether this process may use what a file system keeps for the administrator. Who is root of a user namespace only may not.
fn is_administrator() -> bool {
    let everybody = u32::MAX.to_string();
    let users = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    rustix::process::geteuid().is_root() && users.split_whitespace().eq(["0", "0", &everybody])
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Enters what was read: as state where it is older than the floor, as a change where it is newer.
fn replay(state: &mut State, kind: EventKind, record: Record, now: Timestamp) {
    if record.revision <= state.floor() {
        if kind != EventKind::Deleted {
            state.restore(Arc::new(record));
        }
        return;
    }
    let previous = state.latest(&record.key).cloned();
    let record = match &previous {
        // All versions of an object share one key.
        Some(previous) => record.with_key(previous.key.clone()),
        None => record,
    };
    let event = Event {
        kind,
        record: Arc::new(record),
        previous,
    };
    state.apply(Arc::new(event), now, &mut Vec::new());
}

/// Writes an entry straight into the page, without a buffer in between.
fn encode(log: &mut redb::Table<'_, u64, &[u8]>, event: &Event) -> Result<(), redb::Error> {
    let Record {
        key,
        revision,
        created,
        json,
        ..
    } = &*event.record;
    let names = [&key.resource, &key.namespace, &key.name];
    let length = HEADER + names.iter().map(|name| name.len()).sum::<usize>() + json.len();
    let mut entry = log.insert_reserve(revision.0, length)?;
    let mut rest = entry.as_mut();
    let mut put = |bytes: &[u8]| {
        let (place, behind) = std::mem::take(&mut rest).split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        rest = behind;
    };
    put(&[match event.kind {
        EventKind::Added => 0,
        EventKind::Modified => 1,
        EventKind::Deleted => 2,
    }]);
    put(&created.0.to_le_bytes());
    for name in names {
        // Some kinds do not bound their names, but the size of a request does, far below this.
        put(&u32::try_from(name.len()).unwrap_or(u32::MAX).to_le_bytes());
    }
    for name in names {
        put(name.as_bytes());
    }
    put(json);
    Ok(())
}

fn decode(revision: Revision, entry: &[u8], parsed: &Arc<Parsed>) -> Option<(EventKind, Record)> {
    let (header, mut rest) = entry.split_at_checked(HEADER)?;
    let kind = match header[0] {
        0 => EventKind::Added,
        1 => EventKind::Modified,
        2 => EventKind::Deleted,
        _ => return None,
    };
    let created = Revision(u64::from_le_bytes(header[1..9].try_into().ok()?));
    let mut name = |at: usize| {
        let length = u32::from_le_bytes(header[at..at + 4].try_into().ok()?);
        let (name, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        rest = behind;
        Some(std::str::from_utf8(name).ok()?.to_string())
    };
    let key = Key {
        resource: name(9)?,
        namespace: name(13)?,
        name: name(17)?,
    };
    let json = Bytes::copy_from_slice(rest);
    Some((
        kind,
        Record::new(Arc::new(key), revision, created, json, parsed.clone()),
    ))
}

fn failed_to_open(path: &Path, error: redb::Error) -> OpenError {
    match error {
        redb::Error::Io(source) => OpenError::io(path, source),
        other => OpenError::Damaged {
            path: path.to_path_buf(),
            reason: other.to_string(),
        },
    }
}

/// What a client is told when the journal could not be written.
fn refusal(error: &redb::Error) -> StoreError {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    match error {
        redb::Error::Io(error) if matches!(error.kind(), StorageFull | QuotaExceeded) => StoreError::Full {
            reason: format!("{error}; make room, and start the API server again").into(),
        },
        other => StoreError::unavailable(other),
    }
}

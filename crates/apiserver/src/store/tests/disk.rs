//! A disk for tests: it loses what was not synced when the power goes, and it can be full.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redb::StorageBackend;
use std::io::{Error, ErrorKind};
use std::sync::Arc;

/// Sectors reach the platter whole; anything larger may be torn.
const SECTOR: usize = 512;

#[derive(Debug, Clone, Default)]
pub struct Disk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    /// What a reader in this life sees.
    seen: Vec<u8>,
    /// What is certain to be there in the next life.
    synced: Vec<u8>,
    /// Since the last sync.
    unsynced: Vec<Operation>,
    /// The power goes at this operation.
    power_until: Option<u64>,
    operations: u64,
    capacity: Option<u64>,
}

#[derive(Debug)]
enum Operation {
    Write { offset: usize, data: Vec<u8> },
    SetLen(usize),
}

impl Disk {
    /// The power will go after that many more operations.
    pub fn cut_after(&self, operations: u64) {
        let mut inner = self.inner.lock();
        inner.power_until = Some(inner.operations + operations);
    }

    pub fn limit(&self, capacity: Option<u64>) {
        self.inner.lock().capacity = capacity;
    }

    pub fn len_now(&self) -> u64 {
        self.inner.lock().seen.len() as u64
    }

    /// The bytes that still fit, where there is a limit.
    pub fn left(&self) -> Option<u64> {
        let inner = self.inner.lock();
        Some(inner.capacity?.saturating_sub(inner.seen.len() as u64))
    }

    /// The disk in its next life: what was synced, and of the rest whatever chance let through, in any order
    /// and torn at sectors.
    pub fn after_power_cut(&self, seed: u64) -> Disk {
        let mut chance = StdRng::seed_from_u64(seed);
        let inner = self.inner.lock();
        let mut image = inner.synced.clone();
        let share = chance.random_range(0.0..=1.0);
        for operation in &inner.unsynced {
            match operation {
                Operation::SetLen(len) if chance.random_bool(share) => image.resize(*len, 0),
                Operation::SetLen(_) => {}
                Operation::Write { offset, data } => {
                    for (index, sector) in data.chunks(SECTOR).enumerate() {
                        if chance.random_bool(share) {
                            put(&mut image, offset + index * SECTOR, sector);
                        }
                    }
                }
            }
        }
        let inner = Inner {
            seen: image.clone(),
            synced: image,
            ..Inner::default()
        };
        let inner = Arc::new(Mutex::new(inner));
        Disk { inner }
    }
}

impl Inner {
    fn powered(&mut self) -> Result<(), Error> {
        self.operations += 1;
        match self.power_until {
            Some(until) if self.operations > until => Err(Error::other("the power is off")),
            _ => Ok(()),
        }
    }

    fn fits(&self, len: u64) -> Result<(), Error> {
        match self.capacity {
            Some(capacity) if len > capacity => Err(Error::from(ErrorKind::StorageFull)),
            _ => Ok(()),
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, Error> {
        Ok(self.inner.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        inner.powered()?;
        let start = offset as usize;
        let data = inner.seen.get(start..start + out.len());
        out.copy_from_slice(data.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        inner.powered()?;
        inner.fits(len)?;
        inner.seen.resize(len as usize, 0);
        inner.unsynced.push(Operation::SetLen(len as usize));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        inner.powered()?;
        let Inner { synced, unsynced, .. } = &mut *inner;
        for operation in unsynced.drain(..) {
            match operation {
                Operation::SetLen(len) => synced.resize(len, 0),
                Operation::Write { offset, data } => put(synced, offset, &data),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        inner.powered()?;
        let offset = offset as usize;
        inner.fits((offset + data.len()) as u64)?;
        put(&mut inner.seen, offset, data);
        let data = data.to_vec();
        inner.unsynced.push(Operation::Write { offset, data });
        Ok(())
    }
}

fn put(image: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if image.len() < end {
        image.resize(end, 0);
    }
    image[offset..end].copy_from_slice(data);
}

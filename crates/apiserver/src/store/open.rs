//! Opening a data directory: who may, and what stands in the way.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Why a data directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the data directory {} is in use by {holder}", path.display())]
    InUse { path: PathBuf, holder: Holder },
    #[error("cannot use {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot reach {address}: {reason}")]
    Unreachable { address: String, reason: String },
    #[error("the store in {} cannot be read: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
}

/// Who holds a data directory, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Process(u32),
    Unknown,
}

/// The right to be the only user of a data directory. It ends with the process, however that ends.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holder::Process(id) => write!(f, "process {id}"),
            Holder::Unknown => write!(f, "another process"),
        }
    }
}

impl OpenError {
    pub(super) fn io(path: &Path, source: std::io::Error) -> OpenError {
        OpenError::Io {
            path: path.to_path_buf(),
            source,
        }
    }
}

impl Lock {
    /// Takes the directory, making it if it is missing.
    pub(super) fn take(directory: &Path) -> Result<Lock, OpenError> {
        std::fs::create_dir_all(directory).map_err(|source| OpenError::io(directory, source))?;
        let path = directory.join("lock");
        let fail = |source| OpenError::io(&path, source);
        let mut options = File::options();
        // Not truncated: until the lock is ours, the file says who has it.
        let mut file = options
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(&path)
            .map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = directory.to_path_buf();
                let holder = holder(&mut file);
                return Err(OpenError::InUse { path, holder });
            }
            Err(TryLockError::Error(source)) => return Err(fail(source)),
        }
        file.set_len(0).map_err(fail)?;
        file.rewind().map_err(fail)?;
        writeln!(file, "{}", std::process::id()).map_err(fail)?;
        Ok(Lock { _file: file })
    }
}

/// Reads who wrote itself into the lock file.
fn holder(file: &mut File) -> Holder {
    let mut text = String::new();
    // The holder may be in the middle of writing; then it stays unknown.
    match file.take(32).read_to_string(&mut text) {
        Ok(_) => text.trim().parse().map_or(Holder::Unknown, Holder::Process),
        Err(_) => Holder::Unknown,
    }
}

//! Credentials on disk: readable by their owner only, whole or not there at all.

use super::{Credential, PkiError};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Makes a directory that only its owner can enter, and closes one that others could.
pub fn make_private(directory: &Path) -> Result<(), PkiError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .and_then(|()| fs::set_permissions(directory, fs::Permissions::from_mode(0o700)))
        .map_err(|source| failed("create", directory, source))
}

pub fn read(directory: &Path, name: &str) -> Result<Option<Credential>, PkiError> {
    let certificate = read_file(&directory.join(format!("{name}.crt")))?;
    let key = read_file(&directory.join(format!("{name}.key")))?;
    Ok(match (certificate, key) {
        (Some(certificate), Some(key)) => Some(Credential { certificate, key }),
        _ => None,
    })
}

/// Writes a credential and gives it back. The key goes first: a certificate without its key is made anew,
/// so that a crash between the two leaves nothing half usable.
pub fn write(directory: &Path, name: &str, credential: Credential) -> Result<Credential, PkiError> {
    let certificate = directory.join(format!("{name}.crt"));
    match fs::remove_file(&certificate) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(failed("replace", &certificate, source));
        }
        _ => {}
    }
    write_private(&directory.join(format!("{name}.key")), credential.key.as_bytes())?;
    write_private(&certificate, credential.certificate.as_bytes())?;
    Ok(credential)
}

pub fn read_file(path: &Path) -> Result<Option<String>, PkiError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed("read", path, source)),
    }
}

/// Writes a file with mode 0600 beside its final place and moves it there.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), PkiError> {
    let beside = path.with_extension("new");
    let written = private_file(&beside)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&beside, path));
    written.map_err(|source| failed("write", path, source))
}

fn private_file(path: &Path) -> io::Result<File> {
    // An older file may have another mode, which opening would keep.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> PkiError {
    PkiError::File {
        action,
        path: path.display().to_string(),
        source,
    }
}

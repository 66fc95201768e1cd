//! Container logs, in the format that container runtimes share: `TIME STREAM TAG TEXT`.
//!
//! The shim writes them; the agent's server reads them. A file that grows over its limit is moved aside once, so
//! that a chatty container keeps at most two files.

use jiff::Timestamp;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Bytes after which a log is rotated.
const LIMIT: u64 = 10 << 20;
/// The longest piece of a line that is written as one entry, as containerd has it.
const LONGEST_PIECE: usize = 16 << 10;

/// An open log, shared by the copiers of standard output and standard error.
pub struct Log {
    path: PathBuf,
    open: Mutex<(File, u64)>,
}

/// Where a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// Where a rotated log goes.
pub fn rotated(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

impl Log {
    pub fn open(path: &Path) -> io::Result<Log> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let size = file.metadata()?.len();
        Ok(Log {
            path: path.to_owned(),
            open: Mutex::new((file, size)),
        })
    }

    /// Copies a stream until it ends, and shows every piece of it to `tap` as it comes.
    pub fn copy(&self, stream: Stream, mut from: impl Read, now: fn() -> Timestamp, tap: impl Fn(&[u8])) {
        let mut buffer = vec![0; LONGEST_PIECE];
        let mut line: Vec<u8> = Vec::new();
        loop {
            let count = match from.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => count,
            };
            tap(&buffer[..count]);
            let mut rest = &buffer[..count];
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                line.extend_from_slice(&rest[..end]);
                self.write(stream, "F", &line, now());
                line.clear();
                rest = &rest[end + 1..];
            }
            line.extend_from_slice(rest);
            while line.len() > LONGEST_PIECE {
                let tail = line.split_off(LONGEST_PIECE);
                self.write(stream, "P", &line, now());
                line = tail;
            }
        }
        if !line.is_empty() {
            self.write(stream, "P", &line, now());
        }
    }

    fn write(&self, stream: Stream, tag: &str, text: &[u8], now: Timestamp) {
        let mut entry = format!("{now:.9} {} {tag} ", stream.name()).into_bytes();
        entry.extend_from_slice(text);
        entry.push(b'\n');
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.1 > LIMIT
            && std::fs::rename(&self.path, rotated(&self.path)).is_ok()
            && let Ok(file) = OpenOptions::new().create(true).append(true).open(&self.path)
        {
            *open = (file, 0);
        }
        // A full disk loses log lines; the container itself must not notice.
        if open.0.write_all(&entry).is_ok() {
            open.1 += entry.len() as u64;
        }
    }
}

/// One entry of a log.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub time: &'a str,
    pub stream: &'a str,
    /// True if the line ends here.
    pub full: bool,
    pub text: &'a [u8],
}

/// Reads one line of a log file.
pub fn parse(line: &[u8]) -> Option<Entry<'_>> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let time = std::str::from_utf8(parts.next()?).ok()?;
    let stream = std::str::from_utf8(parts.next()?).ok()?;
    let full = parts.next()? == b"F";
    Some(Entry {
        time,
        stream,
        full,
        text: parts.next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_written_is_the_line_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        let log = Log::open(&path).unwrap();
        log.copy(Stream::Stderr, &b"one two\nlast"[..], || Timestamp::UNIX_EPOCH, |_| {});
        let text = std::fs::read(&path).unwrap();
        let entries: Vec<Entry<'_>> = text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| parse(line).unwrap())
            .collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(
            (entries[0].stream, entries[0].full, entries[0].text),
            ("stderr", true, &b"one two"[..])
        );
        assert_eq!((entries[1].full, entries[1].text), (false, &b"last"[..]));
        assert_eq!(entries[0].time, "1970-01-01T00:00:00.000000000Z");
    }
}

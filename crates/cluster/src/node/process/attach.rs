//! Attaching to a running container, over a socket that its shim listens on.
//!
//! The shim owns the container's input and output for as long as it lives, so whoever wants to join in asks the shim.
//! Both sides send pieces: one byte says of what, four say how long.

use super::spec::Input;
use super::terminal;
use bytes::Bytes;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// The longest piece that is taken.
const LONGEST: usize = 1 << 20;
/// A client that takes nothing for so long is dropped: the container must not wait for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a piece is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    Input,
    Output,
    Errors,
    Resize,
    InputEnds,
}

impl Piece {
    fn byte(self) -> u8 {
        match self {
            Piece::Input => 0,
            Piece::Output => 1,
            Piece::Errors => 2,
            Piece::Resize => 4,
            Piece::InputEnds => 5,
        }
    }

    fn of(byte: u8) -> Option<Piece> {
        [
            Piece::Input,
            Piece::Output,
            Piece::Errors,
            Piece::Resize,
            Piece::InputEnds,
        ]
        .into_iter()
        .find(|piece| piece.byte() == byte)
    }
}

/// A piece as it is sent.
pub fn piece(kind: Piece, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(0);
    [&[kind.byte()], &length.to_be_bytes()[..], bytes].concat()
}

/// The bytes of a size.
pub fn size(columns: u16, rows: u16) -> Bytes {
    Bytes::from([columns.to_be_bytes(), rows.to_be_bytes()].concat())
}

/// Takes a header apart.
fn header(bytes: [u8; 5]) -> Option<(Piece, usize)> {
    let [kind, length @ ..] = bytes;
    let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
    Some((Piece::of(kind)?, length)).filter(|_| length <= LONGEST)
}

/// A connection to a shim.
pub struct Joined {
    pub reader: OwnedReadHalf,
    pub writer: OwnedWriteHalf,
}

/// Where a run's shim listens, beside its log.
pub fn socket(log: &Path) -> PathBuf {
    log.with_extension("sock")
}

/// A path to the socket that is short enough for the kernel, whatever its folder is called. The file keeps it valid.
fn short(socket: &Path) -> io::Result<(File, PathBuf)> {
    let folder = File::open(socket.parent().unwrap_or(Path::new("/")))?;
    let name = socket.file_name().unwrap_or_default();
    let path = Path::new("/proc/self/fd")
        .join(folder.as_raw_fd().to_string())
        .join(name);
    Ok((folder, path))
}

/// Connects to a shim.
pub async fn join(socket: &Path) -> io::Result<Joined> {
    let (_folder, path) = short(socket)?;
    let (reader, writer) = tokio::net::UnixStream::connect(path).await?.into_split();
    Ok(Joined { reader, writer })
}

/// The next piece from a shim; nothing when it is gone.
pub async fn receive(reader: &mut OwnedReadHalf) -> Option<(Piece, Bytes)> {
    let mut bytes = [0; 5];
    reader.read_exact(&mut bytes).await.ok()?;
    let (kind, length) = header(bytes)?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.ok()?;
    Some((kind, Bytes::from(body)))
}

/// What the shim writes a container's input to.
pub enum Keyboard {
    Pipe(std::process::ChildStdin),
    Terminal(OwnedFd),
}

/// The shim's side: everyone who is attached, and the container's input.
pub struct Audience {
    clients: Mutex<Vec<UnixStream>>,
    keyboard: Mutex<Option<Keyboard>>,
    input: Input,
}

impl Audience {
    /// Listens for clients from now on. Without a socket the container runs, and nobody can attach.
    pub fn gather(log: &Path, input: Input, keyboard: Option<Keyboard>) -> Arc<Audience> {
        let audience = Arc::new(Audience {
            clients: Mutex::default(),
            keyboard: Mutex::new(keyboard),
            input,
        });
        let path = socket(log);
        let _ = std::fs::remove_file(&path);
        let listening = short(&path).and_then(|(_folder, path)| UnixListener::bind(path));
        if let Ok(listener) = listening {
            let audience = audience.clone();
            std::thread::spawn(move || {
                for client in listener.incoming().flatten() {
                    let audience = audience.clone();
                    std::thread::spawn(move || audience.hear(client));
                }
            });
        }
        audience
    }

    /// Sends output to everyone who is attached.
    pub fn show(&self, kind: Piece, bytes: &[u8]) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if !clients.is_empty() {
            let message = piece(kind, bytes);
            clients.retain_mut(|client| client.write_all(&message).is_ok());
        }
    }

    fn hear(&self, mut client: UnixStream) {
        let shown = client
            .set_write_timeout(Some(PATIENCE))
            .and_then(|()| client.try_clone());
        if let Ok(shown) = shown {
            self.clients.lock().unwrap_or_else(PoisonError::into_inner).push(shown);
        }
        let mut typed = false;
        loop {
            let mut bytes = [0; 5];
            let read = client.read_exact(&mut bytes);
            let Some((kind, length)) = read.ok().and_then(|()| header(bytes)) else {
                break;
            };
            let mut body = vec![0; length];
            if client.read_exact(&mut body).is_err() {
                break;
            }
            typed |= kind == Piece::Input;
            if self.take(kind, &body).is_err() {
                break;
            }
        }
        if typed && self.input == Input::Once {
            let _ = self.take(Piece::InputEnds, &[]);
        }
    }

    fn take(&self, kind: Piece, bytes: &[u8]) -> io::Result<()> {
        let mut keyboard = self.keyboard.lock().unwrap_or_else(PoisonError::into_inner);
        match (kind, &mut *keyboard) {
            (Piece::Input, Some(Keyboard::Pipe(pipe))) => {
                pipe.write_all(bytes)?;
                pipe.flush()
            }
            (Piece::Input, Some(Keyboard::Terminal(near))) => write_all(near, bytes),
            (Piece::InputEnds, Some(Keyboard::Terminal(near))) => write_all(near, &[4]),
            // A program that reads on after one client has ended its input gets more from the next, unless it was
            // started to be attached to once.
            (Piece::InputEnds, Some(Keyboard::Pipe(_))) => {
                if self.input == Input::Once {
                    *keyboard = None;
                }
                Ok(())
            }
            (Piece::Resize, Some(Keyboard::Terminal(near))) => match bytes {
                [a, b, c, d] => terminal::resize(near, u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

fn write_all(near: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = rustix::io::write(near, bytes)?;
        bytes = bytes.get(count..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_client_sees_output_and_types_into_the_program() {
        let place = tempfile::tempdir().unwrap();
        // Longer than a socket's path may be.
        let folder = place.path().join("a".repeat(120));
        std::fs::create_dir(&folder).unwrap();
        let log = folder.join("0.log");
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let keyboard = child.stdin.take().map(Keyboard::Pipe);
        let audience = Audience::gather(&log, Input::Once, keyboard);
        let mut joined = join(&socket(&log)).await.unwrap();
        joined.writer.write_all(&piece(Piece::Input, b"echo")).await.unwrap();
        joined.writer.write_all(&piece(Piece::InputEnds, b"")).await.unwrap();
        let echoed = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap().stdout)
            .await
            .unwrap();
        assert_eq!(echoed, b"echo");
        audience.show(Piece::Errors, b"done");
        let shown = receive(&mut joined.reader).await;
        assert_eq!(shown, Some((Piece::Errors, Bytes::from_static(b"done"))));
    }

    #[test]
    fn a_piece_that_is_too_long_or_unknown_is_refused() {
        assert_eq!(header([0, 0xff, 0, 0, 0]), None);
        assert_eq!(header([9, 0, 0, 0, 1]), None);
        assert_eq!(header([1, 0, 0, 0, 1]), Some((Piece::Output, 1)));
    }
}

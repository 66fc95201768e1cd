//! Terminals: the pair of ends behind `exec -it` and containers with `tty: true`.
//!
//! The near end stays with the agent or the shim, the far end is all that a program sees. A program has a terminal of
//! its own, with Ctrl-C and job control, only if it leads a session: see [`lead`].

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Opens both ends: the near one, then the far one.
pub fn open() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let near = openpt(flags)?;
    grantpt(&near)?;
    unlockpt(&near)?;
    let far = ioctl_tiocgptpeer(&near, flags)?;
    Ok((near, far))
}

/// Sets the size that programs on the terminal see, and tells them of it.
pub fn resize(near: impl AsFd, columns: u16, rows: u16) -> io::Result<()> {
    let size = Winsize {
        ws_col: columns,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(near, size)?)
}

/// Makes this process the leader of a new session on the terminal that is its input.
pub fn lead() -> io::Result<()> {
    nix::unistd::setsid()?;
    Ok(rustix::process::ioctl_tiocsctty(io::stdin())?)
}

/// The near end, for async code.
pub struct Master(AsyncFd<OwnedFd>);

impl Master {
    /// Opens a terminal and gives both ends.
    pub fn open() -> io::Result<(Master, OwnedFd)> {
        let (near, far) = open()?;
        rustix::io::ioctl_fionbio(&near, true)?;
        // SAFETY: the descriptor belongs to the value that is registered, is closed only when that is dropped, and is
        // the same all that time.
        #[allow(unsafe_code)]
        let near = unsafe { AsyncFd::register(near)? };
        Ok((Master(near), far))
    }

    /// Reads what programs wrote; nothing, once the last of them is gone.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self
            .0
            .async_io(Interest::READABLE, |near| Ok(rustix::io::read(near, &mut *buffer)?));
        match read.await {
            // How Linux says that no program has the far end open any more.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => Ok(0),
            read => read,
        }
    }

    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let write = self
                .0
                .async_io(Interest::WRITABLE, |near| Ok(rustix::io::write(near, bytes)?));
            let count = write.await?;
            bytes = bytes.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    pub fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        resize(self.0.get_ref(), columns, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_typed_is_echoed_and_the_last_program_ends_it() {
        let (near, far) = Master::open().unwrap();
        near.resize(132, 43).unwrap();
        let size = rustix::termios::tcgetwinsize(&far).unwrap();
        assert_eq!((size.ws_col, size.ws_row), (132, 43));
        near.write_all(b"hi\n").await.unwrap();
        let mut seen = Vec::new();
        let mut buffer = [0; 64];
        while !seen.ends_with(b"\n") {
            let count = near.read(&mut buffer).await.unwrap();
            seen.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(seen, b"hi\r\n");
        drop(far);
        assert_eq!(near.read(&mut buffer).await.unwrap(), 0);
    }
}

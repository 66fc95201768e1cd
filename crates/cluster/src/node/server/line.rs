//! A connection on a line that may be cut.
//!
//! A session lives on when its request is answered, so what is cut is the stream below it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A connection that fails once its line is cut.
pub struct OnLine {
    stream: TcpStream,
    line: CancellationToken,
    /// Wakes whoever reads: sessions always do.
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl OnLine {
    pub fn new(stream: TcpStream, line: CancellationToken) -> OnLine {
        let cut = Box::pin(line.clone().cancelled_owned());
        OnLine { stream, line, cut }
    }

    fn check(&self) -> io::Result<()> {
        match self.line.is_cancelled() {
            true => Err(io::ErrorKind::ConnectionReset.into()),
            false => Ok(()),
        }
    }
}

impl AsyncRead for OnLine {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(self.check());
        }
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for OnLine {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn who_waits_on_a_line_hears_that_it_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (far, near) = tokio::join!(TcpStream::connect(address), listener.accept());
        let line = CancellationToken::new();
        let mut near = OnLine::new(near.unwrap().0, line.clone());
        let mut far = far.unwrap();
        far.write_all(b"a").await.unwrap();
        assert_eq!(near.read_u8().await.unwrap(), b'a');
        let waiting = tokio::spawn(async move {
            let read = near.read_u8().await.unwrap_err();
            (read.kind(), near.write_u8(1).await.unwrap_err().kind())
        });
        line.cancel();
        let reset = io::ErrorKind::ConnectionReset;
        assert_eq!(waiting.await.unwrap(), (reset, reset));
    }
}

//! A body that ends when the server is told to stop.
//!
//! A watch would hold the connection until its client gives up. Ended by us, the client sees a complete
//! answer and watches again elsewhere or later, instead of an error.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

pub struct Ending<B> {
    body: Pin<Box<B>>,
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl<B> Ending<B> {
    /// Ends with the body alone where `stop` is `None`.
    pub fn new(body: B, stop: Option<CancellationToken>) -> Self {
        Ending {
            body: Box::pin(body),
            stop: stop.map(|stop| Box::pin(stop.cancelled_owned())),
        }
    }
}

impl<B: Body<Data = Bytes>> Body for Ending<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        // What is ready goes out first: an event that was answered for is not held back by the end.
        if let Poll::Ready(frame) = self.body.as_mut().poll_frame(context) {
            return Poll::Ready(frame);
        }
        match &mut self.stop {
            Some(stop) => stop.as_mut().poll(context).map(|()| None),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

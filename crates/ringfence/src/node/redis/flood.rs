//! A stream that ends when the other side sends far more than we can have asked for. The parser
//! behind it keeps everything until a reply is complete, and a hostile server never completes one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What may arrive between two complete replies: far above the largest batch of ours.
const FLOOD_BYTES: usize = 64 << 20;

/// How much has arrived since the last complete reply.
#[derive(Debug, Clone, Default)]
pub(super) struct Gauge(Arc<AtomicUsize>);

impl Gauge {
    /// A reply was complete: count from zero again.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// See the module.
pub(super) struct Bounded<S> {
    stream: S,
    gauge: Gauge,
}

impl<S> Bounded<S> {
    /// `stream`, with what arrives counted by `gauge`.
    pub(super) fn new(stream: S, gauge: Gauge) -> Self {
        Self { stream, gauge }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buf);
        let arrived = buf.filled().len() - before;
        let total = self.gauge.0.fetch_add(arrived, Ordering::Relaxed) + arrived;
        if total > FLOOD_BYTES {
            let error = io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the server sends replies without end",
            );
            return Poll::Ready(Err(error));
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, repeat};

    use super::*;

    #[tokio::test]
    async fn a_flood_ends_the_stream_and_a_reply_resets_it() {
        let gauge = Gauge::default();
        let mut stream = Bounded::new(repeat(b'x'), gauge.clone());
        let mut chunk = vec![0; 1 << 20];
        for _ in 0..3 {
            for _ in 0..64 {
                stream.read_exact(&mut chunk).await.unwrap();
            }
            gauge.reset();
        }
        for _ in 0..64 {
            stream.read_exact(&mut chunk).await.unwrap();
        }
        assert!(stream.read_exact(&mut chunk).await.is_err());
    }
}

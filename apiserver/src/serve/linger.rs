//! The end of a connection whose client still sends.
//!
//! A request may be answered before its body has come, as one that is too large. Who closes then at once has the kernel answer what comes
//! later with a reset, and a reset takes the answer away from a client that had not read it yet (RFC 9112, 9.6). So the own side is closed
//! first, and what still comes is read and dropped for a while, as net/http does.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// For how long; net/http takes half a second, which a client far away does not always need less than.
const LASTS: Duration = Duration::from_secs(2);
/// How much: five times the largest body there may be.
const MOST: usize = 16 << 20;
/// How much at once.
const PIECE: usize = 16 << 10;

/// A stream whose shutdown waits for the other side's.
pub(super) struct Linger<T> {
    inner: T,
    lasts: Duration,
    closed: Option<Pin<Box<Sleep>>>,
    left: usize,
}

impl<T> Linger<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, lasts: LASTS, closed: None, left: MOST }
    }

    /// One that closes at once: on HTTP/2 a request ends without its connection.
    pub(super) fn not(inner: T) -> Self {
        Self { lasts: Duration::ZERO, ..Self::new(inner) }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Linger<T> {
    /// Reads and drops until the other side has closed, too, or has had its time or its amount.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut piece = [0; PIECE];
        loop {
            let over = self.closed.as_mut().is_none_or(|closed| closed.as_mut().poll(cx).is_ready());
            if over || self.left == 0 {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::new(&mut piece);
            match ready!(Pin::new(&mut self.inner).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => self.left = self.left.saturating_sub(buffer.filled().len()),
                Ok(()) | Err(_) => return Poll::Ready(()),
            }
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Linger<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Linger<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.closed.is_none() {
            ready!(Pin::new(&mut self.inner).poll_shutdown(cx))?;
            self.closed = Some(Box::pin(sleep(self.lasts)));
        }
        self.poll_rest(cx).map(Ok)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

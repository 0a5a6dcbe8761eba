//! Shell: the bytes of one connection: tells its seat when some come in, gives up on who leaves an answer unread, and
//! says in a problem document what hyper refuses with an empty one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::StatusCode;
use bytes::{Buf as _, Bytes};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::problem::Problem;
use super::seats::Seat;

/// A connection's bytes.
pub(super) struct Wire<T> {
    inner: T,
    seat: Arc<Seat>,
    /// What is written in place of what hyper wrote.
    instead: Bytes,
    patience: Duration,
    /// Runs out when nothing could be written for that long.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Wire<T> {
    pub(super) fn new(inner: T, seat: Arc<Seat>, patience: Duration) -> Self {
        Self { inner, seat, instead: Bytes::new(), patience, stalled: None }
    }

    /// What `write` says, unless nothing could be written for too long.
    fn in_time<W>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<W>>,
    ) -> Poll<io::Result<W>> {
        let written = write(Pin::new(&mut self.inner), context);
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client leaves its answer unread")))
    }

    fn write_instead(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.instead.is_empty() {
            let instead = self.instead.clone();
            match ready!(self.in_time(context, |inner, context| inner.poll_write(context, &instead)))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.instead.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.seat.hears();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.write_instead(context))?;
        if let Some(problem) = said_by_hyper(bytes) {
            self.instead = document(&problem);
            // What does not go at once goes with the flush that follows.
            let _ = self.write_instead(context)?;
            return Poll::Ready(Ok(bytes.len()));
        }
        self.in_time(context, |inner, context| inner.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match slices {
            [only] => self.poll_write(context, only),
            many => {
                ready!(self.write_instead(context))?;
                self.in_time(context, |inner, context| inner.poll_write_vectored(context, many))
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_instead(context))?;
        ready!(self.in_time(context, |inner, context| inner.poll_flush(context)))?;
        // Hyper flushes when it has written everything.
        self.seat.has_sent_everything();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_instead(context))?;
        self.in_time(context, |inner, context| inner.poll_shutdown(context))
    }
}

/// The problem that hyper met when it wrote this answer by itself. It has no hook for what it cannot parse: it writes
/// a head of its own, with nothing behind it, which no handler here ever does for an error.
fn said_by_hyper(bytes: &[u8]) -> Option<Problem> {
    let head = std::str::from_utf8(bytes.strip_prefix(b"HTTP/1.1 4")?).ok()?;
    let is_empty = head.contains("\r\ncontent-length: 0\r\n") && head.ends_with("\r\n\r\n");
    let problem = |status, detail| is_empty.then(|| Problem::new(status, detail));
    match head.get(..2)? {
        "00" => problem(StatusCode::BAD_REQUEST, "what came is no HTTP/1.1 request"),
        "14" => problem(StatusCode::URI_TOO_LONG, "the path and its parameters are too long"),
        "31" => problem(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too many, or too long"),
        _ => None,
    }
}

/// A problem as the bytes of a whole answer, after which the connection is closed.
pub(super) fn document(problem: &Problem) -> Bytes {
    let body = serde_json::to_string(problem).unwrap_or_default();
    let (status, title, length) = (problem.status, &problem.title, body.len());
    let retry_after = problem.retry_after_s.map(|seconds| format!("retry-after: {seconds}\r\n"));
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::now()).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\ncontent-length: {length}\r\n{}\
         connection: close\r\ndate: {date}\r\n\r\n",
        retry_after.unwrap_or_default(),
    );
    Bytes::from(head + &body)
}

//! Shell: bytes of one client: reports them to the pool, and times out writes that the client does not read. Makes hyper
//! reject requests whose end is ambiguous, and replaces its empty error answers by problem documents.

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

use super::connection_pool::Slot;
use super::problem::Problem;
use super::request_framing::{BadFraming, RequestFraming};

pub(super) struct ClientStream<T> {
    inner: T,
    slot: Arc<Slot>,
    /// On the heap: the future of a connection has several copies of the stream.
    framing: Box<RequestFraming>,
    /// Request that hyper is made to reject.
    rejected: Option<Box<BadFraming>>,
    /// Bytes of a problem document that replace hyper's answer.
    replacement: Bytes,
    write_timeout: Duration,
    /// Timer of the current write, while it makes no progress.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> ClientStream<T> {
    pub(super) fn new(inner: T, slot: Arc<Slot>, write_timeout: Duration) -> Self {
        let (framing, replacement) = (Box::default(), Bytes::new());
        Self { inner, slot, framing, rejected: None, replacement, write_timeout, stalled: None }
    }

    /// Follows received bytes. The end of a head that hyper must not accept becomes a byte that no head may have. Hyper
    /// rejects it after its answers to the requests before, and reads no further.
    fn examine(&mut self, bytes: &mut [u8]) {
        if self.rejected.is_none()
            && let Err(bad) = self.framing.on_bytes(bytes)
        {
            bytes[bad.end..].fill(0);
            self.rejected = Some(Box::new(bad));
        }
    }

    /// Returns the problem of an answer that hyper wrote by itself.
    fn problem_of(&self, bytes: &[u8]) -> Option<Problem> {
        let problem = problem_of_hyper(bytes)?;
        Some(match self.rejected.as_deref() {
            Some(&BadFraming { status, detail, .. })
                if problem.status == StatusCode::BAD_REQUEST.as_u16() =>
            {
                Problem::new(status, detail)
            }
            Some(_) | None => problem,
        })
    }

    /// Polls `write`, and fails once it has made no progress for the write time-out.
    fn poll_in_time<W>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<W>>,
    ) -> Poll<io::Result<W>> {
        let written = write(Pin::new(&mut self.inner), context);
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(self.write_timeout)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client leaves its answer unread")))
    }

    fn poll_replacement(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.replacement.is_empty() {
            let bytes = self.replacement.clone();
            match ready!(self.poll_in_time(context, |inner, context| inner.poll_write(context, &bytes)))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.replacement.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.examine(&mut buffer.filled_mut()[before..]);
            self.slot.on_bytes();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_replacement(context))?;
        if let Some(problem) = self.problem_of(bytes) {
            self.replacement = problem_response(&problem);
            // Bytes that do not fit now are written by the flush that follows.
            let _ = self.poll_replacement(context)?;
            return Poll::Ready(Ok(bytes.len()));
        }
        self.poll_in_time(context, |inner, context| inner.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match slices {
            [only] => self.poll_write(context, only),
            many => {
                ready!(self.poll_replacement(context))?;
                self.poll_in_time(context, |inner, context| inner.poll_write_vectored(context, many))
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_replacement(context))?;
        ready!(self.poll_in_time(context, |inner, context| inner.poll_flush(context)))?;
        // Hyper flushes when it has written everything.
        self.slot.on_flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_replacement(context))?;
        self.poll_in_time(context, |inner, context| inner.poll_shutdown(context))
    }
}

/// Returns the problem that hyper met when it wrote these bytes by itself. Hyper has no hook for requests that it cannot
/// parse: it writes a head with an empty body, which no handler here ever does for an error.
fn problem_of_hyper(bytes: &[u8]) -> Option<Problem> {
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

/// Encodes a problem as a whole answer, after which the connection is closed.
pub(super) fn problem_response(problem: &Problem) -> Bytes {
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

//! Shell: accepts connections within a bound, serves HTTP/1.1 on each, and closes them.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use futures::future::BoxFuture;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::{debug, error};

use super::client_stream::{ClientStream, problem_response};
use super::connection_pool::{CloseReason, ConnectionPool, Slot, SlotGuard};
use super::file_limit::connection_limit;
use super::problem::Problem;
use super::settings::HttpSettings;
use super::tls::Tls;

/// Limit on running requests, once no connection is accepted any more.
pub const STOP_WITHIN: Duration = Duration::from_millis(6_500);
/// Connections that may wait to be accepted, as far as the system allows. A client whose SYN is dropped repeats it after a
/// second, when a probe has timed out.
const BACKLOG: u32 = 4096;
/// Interval between two sweeps for slow clients.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum size of a request's head, and of hyper's buffer of a connection.
const HEAD_LIMIT_BYTES: usize = 16 * 1024;

/// Listening socket, with its TLS.
pub struct Listener {
    socket: TcpListener,
    tls: Tls,
}

impl Listener {
    /// Listens on a bound socket, with the TLS of the settings.
    ///
    /// # Errors
    /// When a certificate or key cannot be used.
    pub fn on(socket: TcpListener, settings: &HttpSettings) -> io::Result<Self> {
        let tls = Tls::of(&settings.tls).map_err(|bad| io::Error::new(io::ErrorKind::InvalidInput, bad))?;
        Ok(Self { socket, tls })
    }

    /// Bound address.
    ///
    /// # Errors
    /// When the system does not report it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// Binds the address `http.bind`.
///
/// # Errors
/// When it is no address, or in use, or a certificate or key cannot be used.
pub fn bind(settings: &HttpSettings) -> BoxFuture<'_, io::Result<Listener>> {
    Box::pin(async {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "it is no address");
        for address in lookup_host(&settings.bind).await? {
            match socket_at(address) {
                Ok(socket) => return Listener::on(socket, settings),
                Err(error) => last = error,
            }
        }
        Err(last)
    })
}

/// Binds like `TcpListener::bind`, with a larger backlog.
fn socket_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stop`, and on for `http.drain`: a load balancer learns late that this service stops. Each answer closes its
/// connection then. Finishes running requests afterwards, within [`STOP_WITHIN`].
pub async fn serve(listener: Listener, router: Router, settings: Arc<HttpSettings>, stop: CancellationToken) {
    let Listener { socket, tls } = listener;
    let pool = ConnectionPool::new(connection_limit(settings.max_connections), &settings);
    let (mut connections, drained) = (JoinSet::new(), CancellationToken::new());
    let mut drain = pin!(async {
        stop.cancelled().await;
        sleep(settings.drain).await;
    });
    let mut sweep = interval(SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let stream = tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    pause_after(&error).await;
                    continue;
                }
            },
            _ = sweep.tick() => {
                pool.close_slow(Instant::now());
                continue;
            }
            Some(_) = connections.join_next() => continue,
            () = &mut drain => break,
        };
        // Without a slot the stream is dropped, which closes it. Slots of the reserve are free within a second.
        if let Some(guard) = pool.acquire().await {
            let (stop, drained) = (stop.clone(), drained.clone());
            let server = Server { router: router.clone(), settings: settings.clone(), stop, drained };
            connections.spawn(serve_connection(stream, tls.acceptor(), guard, server));
        }
    }
    drop(socket);
    drained.cancel();
    pool.close_idle();
    let _ = timeout(STOP_WITHIN, async { while connections.join_next().await.is_some() {} }).await;
}

/// Serves in a task of its own, see [`serve`].
pub fn spawn(
    listener: Listener,
    router: Router,
    settings: HttpSettings,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(serve(listener, router, Arc::new(settings), stop))
}

/// Pauses after a failed accept, unless the client caused it. Other causes, such as too many open files, last for a while.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        error!("no connection can be accepted: {error}");
        sleep(Duration::from_secs(1)).await;
    }
}

/// Shared state of all connections.
struct Server {
    router: Router,
    settings: Arc<HttpSettings>,
    /// Cancelled when the service stops: from then on each answer closes its connection.
    stop: CancellationToken,
    /// Cancelled when no connection is accepted any more.
    drained: CancellationToken,
}

/// Serves one connection until its end.
async fn serve_connection(stream: TcpStream, tls: Option<TlsAcceptor>, guard: SlotGuard, server: Server) {
    let slot = &guard.slot;
    // A silent client costs only a socket: no buffers are allocated before the first byte.
    tokio::select! {
        readable = stream.readable() => if readable.is_err() { return },
        _ = slot.closing() => return,
    }
    match tls {
        None => serve_http(stream, slot, server).await,
        // On the heap: otherwise plain connections would take the memory of a handshake as well.
        Some(tls) => Box::pin(serve_tls(stream, tls, slot, server)).await,
    }
}

/// Serves HTTP within TLS, after the handshake.
async fn serve_tls(stream: TcpStream, tls: TlsAcceptor, slot: &Arc<Slot>, server: Server) {
    // The handshake has the time-out of a request's head.
    slot.on_bytes();
    let accepted = tokio::select! {
        accepted = tls.accept(stream) => accepted,
        _ = slot.closing() => return,
    };
    match accepted {
        Ok(stream) => {
            slot.on_idle();
            serve_http(stream, slot, server).await;
        }
        // The client speaks plain HTTP, trusts another authority, or is gone. A TLS alert has told it.
        Err(error) => debug!("TLS handshake failed: {error}"),
    }
}

/// Serves HTTP on a stream.
async fn serve_http<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: T,
    slot: &Arc<Slot>,
    Server { router, settings, stop, drained }: Server,
) {
    let stream = ClientStream::new(stream, slot.clone(), settings.write_timeout);
    let answering = slot.clone();
    let answer = service_fn(move |request| answer(router.clone(), answering.clone(), stop.clone(), request));
    // The pool has the timers: hyper's also runs between requests.
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(HEAD_LIMIT_BYTES)
        .serve_connection(TokioIo::new(stream), answer);
    let mut is_stopping = false;
    let closed_for = loop {
        tokio::select! {
            _ = poll_fn(|context| connection.poll_without_shutdown(context)) => break None,
            reason = slot.closing() => break Some(reason),
            () = drained.cancelled(), if !is_stopping => {
                is_stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    let parts = connection.into_parts();
    let (mut stream, is_within_request) = (parts.io.into_inner(), !parts.read_buf.is_empty());
    match closed_for {
        Some(reason) if is_within_request => {
            // A problem document fits into the socket's buffer.
            let response = problem_response(&problem_of(reason));
            let _ = timeout(LINGER, stream.write_all(&response)).await;
        }
        Some(_) => {}
        None => tokio::select! {
            _ = timeout(LINGER, close_lingering(stream)) => {}
            _ = slot.closing() => {}
        },
    }
}

/// Problem for a client whose request is incomplete.
fn problem_of(reason: CloseReason) -> Problem {
    match reason {
        CloseReason::TooSlow => {
            Problem::new(StatusCode::REQUEST_TIMEOUT, "the head of the request exceeded http.header_timeout")
        }
        CloseReason::Evicted => Problem::unavailable("all connections are in use, and this one is idle", 1),
        CloseReason::Stopping => Problem::unavailable("the service is stopping", 5),
    }
}

/// Time for which a client may go on sending after its answer.
const LINGER: Duration = Duration::from_millis(500);
/// Bytes that it may send: a rejected body may be on its way already.
const LINGER_BYTES: u64 = 1024 * 1024;

/// Closes a connection so that the client reads the last answer. A socket that is closed with unread bytes resets the
/// connection, and the answer is lost (RFC 9112 §9.6).
async fn close_lingering<T: AsyncRead + AsyncWrite + Unpin>(mut stream: ClientStream<T>) -> io::Result<()> {
    stream.shutdown().await?;
    tokio::io::copy(&mut stream.take(LINGER_BYTES), &mut tokio::io::sink()).await?;
    Ok(())
}

/// Routes a request. Until its answer is sent, the connection is not evicted. The answer closes it once the service stops, and
/// after a chunked request: requests behind one are not examined.
fn answer(
    router: Router,
    slot: Arc<Slot>,
    stop: CancellationToken,
    request: Request<Incoming>,
) -> BoxFuture<'static, Result<Response<Answer>, Infallible>> {
    slot.on_head();
    let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(slot.clone());
    Box::pin(async move {
        let mut response = router.oneshot(request).await?;
        if is_chunked || stop.is_cancelled() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response.map(|body| Answer { body, slot }))
    })
}

/// Body of an answer. Hyper drops it when all of it is written.
struct Answer {
    body: Body,
    slot: Arc<Slot>,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.slot.on_answer_complete();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Under overload thousands of connections are open at once.
    #[tokio::test]
    async fn plain_connection_takes_no_memory_for_tls() -> io::Result<()> {
        let settings = Arc::new(HttpSettings::default());
        let socket = socket_at(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let stream = TcpStream::connect(socket.local_addr()?).await?;
        let guard = ConnectionPool::new(1, &settings).acquire().await.expect("a slot");
        let server = Server {
            router: Router::new(),
            settings,
            stop: CancellationToken::new(),
            drained: CancellationToken::new(),
        };
        let size = size_of_val(&serve_connection(stream, None, guard, server));
        assert!(size <= 2 * 1024, "{size} bytes");
        Ok(())
    }
}

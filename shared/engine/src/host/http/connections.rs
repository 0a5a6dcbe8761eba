//! Shell: accepts connections within a bound, speaks HTTP on each, and ends them when their time is over.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response, StatusCode};
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

use super::files::connections_within_the_limit;
use super::problem::Problem;
use super::seats::{Seat, Seats, SentAway, Taken};
use super::settings::HttpSettings;
use super::tls::Tls;
use super::wire::{Wire, document};

/// A stop that takes longer than this is cut short: a service ends within 10 s, and what is left is for its last spans.
pub const STOP_WITHIN: Duration = Duration::from_secs(7);
/// How many may wait to be accepted, as far as the system allows: a client that finds no place asks again after a
/// second, and a probe has given up by then.
const BACKLOG: u32 = 4096;
/// How often it is looked for who takes too long.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Longest head of a request, and what hyper holds of a connection at most.
const HEAD_LIMIT_BYTES: usize = 16 * 1024;

/// What listens, and how those who come are spoken with.
pub struct Listener {
    socket: TcpListener,
    tls: Tls,
}

impl Listener {
    /// On a socket that is there, with the TLS that the settings say.
    ///
    /// # Errors
    /// When a file of TLS cannot be used.
    pub fn on(socket: TcpListener, settings: &HttpSettings) -> io::Result<Self> {
        let tls = Tls::of(&settings.tls).map_err(|bad| io::Error::new(io::ErrorKind::InvalidInput, bad))?;
        Ok(Self { socket, tls })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// Binds the address.
///
/// # Errors
/// When it is no address, or taken, or a file cannot be used.
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

/// As `TcpListener::bind` makes it, but more may wait to be accepted.
fn socket_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stop`, then lets running requests finish, within [`STOP_WITHIN`].
pub async fn serve(listener: Listener, router: Router, settings: Arc<HttpSettings>, stop: CancellationToken) {
    let Listener { socket, tls } = listener;
    let number = connections_within_the_limit(settings.max_connections);
    let seats = Seats::new(number, &settings);
    let mut conversations = JoinSet::new();
    let mut look = interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let stream = tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    unless_it_is_the_client(&error).await;
                    continue;
                }
            },
            _ = look.tick() => {
                seats.send_away_the_slow(Instant::now());
                continue;
            }
            Some(_) = conversations.join_next() => continue,
            () = stop.cancelled() => break,
        };
        // Dropped, and with it closed, when not even a seat for probes is left: they are free within a second.
        if let Some(taken) = seats.take().await {
            let way = Way { router: router.clone(), settings: settings.clone(), stop: stop.clone() };
            conversations.spawn(converse(stream, tls.acceptor(), taken, way));
        }
    }
    drop(socket);
    seats.send_away_all();
    let _ = timeout(STOP_WITHIN, async { while conversations.join_next().await.is_some() {} }).await;
}

/// Does so beside the rest.
pub fn spawn(
    listener: Listener,
    router: Router,
    settings: HttpSettings,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(serve(listener, router, Arc::new(settings), stop))
}

/// A client that is gone already is no trouble. Anything else is this side's, and will not be over at once.
async fn unless_it_is_the_client(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        error!("no connection can be accepted: {error}");
        sleep(Duration::from_secs(1)).await;
    }
}

/// What every connection needs to be answered.
struct Way {
    router: Router,
    settings: Arc<HttpSettings>,
    stop: CancellationToken,
}

/// What there is to say and hear on one connection.
async fn converse(stream: TcpStream, tls: Option<TlsAcceptor>, taken: Taken, way: Way) {
    let seat = &taken.seat;
    // Who says nothing costs nothing but a socket: no buffers are made before the first byte.
    tokio::select! {
        spoken = stream.readable() => if spoken.is_err() { return },
        _ = seat.sent_away() => return,
    }
    match tls {
        None => speak(stream, seat, way).await,
        // On the heap: what it takes of memory, a plain connection would take as well.
        Some(tls) => Box::pin(speak_in_secret(stream, tls, seat, way)).await,
    }
}

/// Shakes hands, and speaks HTTP within TLS.
async fn speak_in_secret(stream: TcpStream, tls: TlsAcceptor, seat: &Arc<Seat>, way: Way) {
    // The handshake counts as the head of a request: who takes too long for it is sent away.
    seat.hears();
    let shaken = tokio::select! {
        shaken = tls.accept(stream) => shaken,
        _ = seat.sent_away() => return,
    };
    match shaken {
        Ok(stream) => {
            seat.waits();
            speak(stream, seat, way).await;
        }
        // It spoke plain HTTP, trusts somebody else, or has gone: an alert has told it so.
        Err(error) => debug!("no TLS with a client: {error}"),
    }
}

/// Speaks HTTP on anything that reads and writes.
async fn speak<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: T,
    seat: &Arc<Seat>,
    Way { router, settings, stop }: Way,
) {
    let wire = Wire::new(stream, seat.clone(), settings.write_timeout);
    let answering = seat.clone();
    let answer =
        service_fn(move |request: Request<Incoming>| answer(router.clone(), answering.clone(), request));
    // No timers of hyper's: its only one also runs between requests.
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(HEAD_LIMIT_BYTES)
        .serve_connection(TokioIo::new(wire), answer);
    let mut is_stopping = false;
    let sent_away = loop {
        tokio::select! {
            _ = poll_fn(|context| connection.poll_without_shutdown(context)) => break None,
            why = seat.sent_away() => break Some(why),
            () = stop.cancelled(), if !is_stopping => {
                is_stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    let parts = connection.into_parts();
    let (mut wire, is_amid_a_request) = (parts.io.into_inner(), !parts.read_buf.is_empty());
    match sent_away {
        Some(why) if is_amid_a_request => {
            // It takes no waiting: the little that is said fits the socket.
            let _ = timeout(LINGER, wire.write_all(&document(&last_words(why)))).await;
        }
        Some(_) => {}
        None => tokio::select! {
            _ = timeout(LINGER, part(wire)) => {}
            _ = seat.sent_away() => {}
        },
    }
}

/// What is said to a client in the midst of a request.
fn last_words(why: SentAway) -> Problem {
    match why {
        SentAway::TooSlow => Problem::new(StatusCode::REQUEST_TIMEOUT, "the request's head took too long"),
        SentAway::Crowded => {
            Problem::unavailable("all connections are taken, and this one has asked for nothing yet", 1)
        }
        SentAway::Stopping => Problem::unavailable("the service stops", 5),
    }
}

/// How long a client may go on talking after its answer.
const LINGER: Duration = Duration::from_millis(500);
/// How much it may say: a body that was refused is on its way already.
const LINGER_BYTES: u64 = 1024 * 1024;

/// Closes a connection so that what was said last is read: a socket that is closed with unread bytes takes its answer
/// back (RFC 9112 §9.6).
async fn part<T: AsyncRead + AsyncWrite + Unpin>(mut wire: Wire<T>) -> io::Result<()> {
    wire.shutdown().await?;
    tokio::io::copy(&mut wire.take(LINGER_BYTES), &mut tokio::io::sink()).await?;
    Ok(())
}

/// The router's answer; until it is sent, the seat is taken by it.
fn answer(
    router: Router,
    seat: Arc<Seat>,
    request: Request<Incoming>,
) -> BoxFuture<'static, Result<Response<Answer>, Infallible>> {
    seat.has_head();
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(seat.clone());
    Box::pin(async move {
        let response = router.oneshot(request).await?;
        Ok(response.map(|body| Answer { body, seat }))
    })
}

/// The body of an answer, which is dropped when all of it is made.
struct Answer {
    body: Body,
    seat: Arc<Seat>,
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
        self.seat.is_answered();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands are there at once under overload: what each takes is what the whole service takes.
    #[tokio::test]
    async fn a_plain_connection_takes_no_room_for_tls() -> io::Result<()> {
        let settings = Arc::new(HttpSettings::default());
        let socket = socket_at(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let stream = TcpStream::connect(socket.local_addr()?).await?;
        let taken = Seats::new(1, &settings).take().await.expect("a seat");
        let way = Way { router: Router::new(), settings, stop: CancellationToken::new() };
        let size = size_of_val(&converse(stream, None, taken, way));
        assert!(size <= 2 * 1024, "{size} bytes");
        Ok(())
    }
}

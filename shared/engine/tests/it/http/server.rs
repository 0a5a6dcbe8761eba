//! Shell: test server, and raw connections to it, which can send what no client library would.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Extension, Router};
use saga_core::access::Access;
use saga_engine::host::http::{
    self, Authorization, Body, Caller, HttpSettings, Problem, Readiness, ReadinessProbe, TimeLimit,
};
use saga_engine::host::metrics::Metrics;
use saga_engine::runtime::tracer::Tracer;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;

use crate::support::wait_until;

/// Limit on every wait of a test.
const PATIENCE: Duration = Duration::from_secs(20);

/// Server with test routes. `POST /echo` takes a JSON body. `GET /pending` is answered once released, and so is `GET
/// /long`, which extends its time limit. `GET /large` answers more than a socket's buffer holds. `/internal/who`
/// answers with the caller.
pub struct Server {
    pub address: SocketAddr,
    pub stop: CancellationToken,
    pending: Pending,
    serving: JoinHandle<()>,
}

#[derive(Debug, Deserialize, garde::Validate)]
#[serde(deny_unknown_fields)]
struct Word {
    #[garde(skip)]
    word: String,
}

async fn echo(Body(Word { word }, _): Body<Word>) -> String {
    word
}

/// Requests that wait until they are released.
#[derive(Clone, Default)]
struct Pending {
    number: Arc<AtomicUsize>,
    release: Arc<Notify>,
}

async fn wait_for_release(State(pending): State<Pending>) -> &'static str {
    pending.number.fetch_add(1, Ordering::SeqCst);
    pending.release.notified().await;
    "let go"
}

async fn long(Extension(limit): Extension<TimeLimit>, pending: State<Pending>) -> &'static str {
    limit.lengthen(PATIENCE);
    wait_for_release(pending).await
}

/// Answers with the authenticated caller.
async fn who(caller: Option<Extension<Caller>>) -> String {
    caller.map_or_else(
        || "nobody knows".to_owned(),
        |Extension(Caller { name, role })| format!("{name}, {role}"),
    )
}

impl Server {
    /// Starts a server on a free port.
    pub async fn start(settings: HttpSettings) -> Self {
        Self::guarded(settings, &Access::CLOSED).await
    }

    /// Starts a server with guarded routes.
    pub async fn guarded(settings: HttpSettings, access: &'static Access) -> Self {
        let bind = if settings.bind.is_empty() { "127.0.0.1:0".to_owned() } else { settings.bind };
        let settings = HttpSettings { bind, ..settings };
        let listener = http::bind(&settings).await.expect("a free port");
        Self::on(listener, settings, access, Tracer::off())
    }

    /// Starts a server that traces.
    pub async fn traced(settings: HttpSettings, access: &'static Access, tracer: Tracer) -> Self {
        let settings = HttpSettings { bind: "127.0.0.1:0".to_owned(), ..settings };
        let listener = http::bind(&settings).await.expect("a free port");
        Self::on(listener, settings, access, tracer)
    }

    fn on(listener: http::Listener, settings: HttpSettings, access: &'static Access, tracer: Tracer) -> Self {
        let (address, stop) = (listener.local_addr().expect("an address"), CancellationToken::new());
        let pending = Pending::default();
        let routes = OpenApiRouter::new()
            .route("/echo", post(echo))
            .route("/held", get(wait_for_release))
            .route("/long", get(long))
            .route("/internal/who", get(who).post(who).delete(who))
            .route("/internal/{name}", get(who))
            .route("/large", get(|| async { "x".repeat(64 << 20) }))
            .with_state(pending.clone());
        let health: ReadinessProbe = Arc::new(|| Box::pin(async { Readiness::of(BTreeMap::new()) }));
        let authorization = Authorization::new(&settings, access).expect("tokens");
        let router =
            http::router(routes, Router::new(), &settings, authorization, health, Metrics::default(), tracer);
        let serving = http::spawn(listener, router, settings, stop.clone());
        Self { address, stop, pending, serving }
    }

    /// Starts `number` requests of `/held`, and waits until they are in flight.
    pub async fn hold(&self, number: usize) -> Vec<Connection> {
        self.hold_at("/held", number).await
    }

    /// Starts `number` requests of `path`, and waits until they are in flight.
    pub async fn hold_at(&self, path: &str, number: usize) -> Vec<Connection> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let mut pending = Vec::new();
        for in_flight in 1..=number {
            pending.push(self.send(&request).await);
            wait_until("the request is under way", async || {
                self.pending.number.load(Ordering::SeqCst) == in_flight
            })
            .await;
        }
        pending
    }

    /// Releases the waiting requests.
    pub fn release(&self) {
        self.pending.release.notify_waiters();
    }

    /// Opens a connection, and sends `bytes`.
    pub async fn send(&self, bytes: impl AsRef<[u8]>) -> Connection {
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.address.port())).await.expect("a connection");
        stream.write_all(bytes.as_ref()).await.expect("sent");
        Connection(stream)
    }

    /// Sends `bytes` on a new connection, and returns the answer.
    pub async fn request(&self, bytes: impl AsRef<[u8]>) -> Answer {
        self.send(bytes).await.answer().await
    }

    /// Waits until the server has stopped.
    pub async fn ended(self) {
        timeout(PATIENCE, self.serving).await.expect("it ends").expect("it does not panic");
    }
}

/// Raw client connection.
pub struct Connection(TcpStream);

/// Answer of the server. Status 0 for a connection that was closed without an answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Connection {
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.expect("sent");
    }

    /// Reads the first bytes of an answer.
    pub async fn read_some(&mut self) {
        let mut some = [0; 100];
        timeout(PATIENCE, self.0.read_exact(&mut some)).await.expect("in time").expect("an answer");
    }

    /// Reads the next answer to the end of its length.
    pub async fn answer(&mut self) -> Answer {
        timeout(PATIENCE, self.read()).await.expect("an answer, or the end")
    }

    /// Waits until the server closes the connection, and returns what it sent.
    pub async fn is_closed(&mut self) -> String {
        let mut rest = Vec::new();
        // A reset is an end as well.
        let _ = timeout(PATIENCE, self.0.read_to_end(&mut rest)).await.expect("it is closed");
        String::from_utf8_lossy(&rest).into_owned()
    }

    async fn read(&mut self) -> Answer {
        let mut bytes = Vec::new();
        loop {
            if let Some(answer) = Answer::parsed(&bytes) {
                return answer;
            }
            if self.0.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                assert!(bytes.is_empty(), "half an answer: {:?}", String::from_utf8_lossy(&bytes));
                return Answer { status: 0, head: String::new(), body: String::new() };
            }
        }
    }
}

impl Answer {
    fn parsed(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let head = head.to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1)?.lines().next()?.parse::<usize>().ok()?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        (body.len() >= length).then(|| Self { status, head, body: body.to_owned() })
    }

    /// Asserts a problem document of this status, and returns its detail.
    #[track_caller]
    pub fn problem(&self, status: u16) -> String {
        assert!(self.head.contains("content-type: application/problem+json"), "{self:?}");
        let problem: Problem = serde_json::from_str(&self.body).expect("a problem");
        assert_eq!((self.status, problem.status), (status, status), "{self:?}");
        problem.detail
    }
}

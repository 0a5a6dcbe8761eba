//! Shell: a receiver of notifications with configurable behaviour.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use admin::notifications::signing::{Secret, signatures};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Key of the receiver.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Behaviour of the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manner {
    /// Sends this response.
    Says(String),
    /// Sends nothing.
    Hangs,
    /// Sends an endless head, one byte every few milliseconds.
    Drips,
    /// Sends 200 and an endless body.
    Floods,
}

impl Manner {
    pub fn status(status: u16) -> Self {
        Self::Says(format!("HTTP/1.1 {status} So\r\ncontent-length: 0\r\n\r\n"))
    }
}

/// A received notification.
#[derive(Debug, Clone)]
pub struct Received {
    pub id: String,
    pub body: Value,
    pub signature: String,
    /// Expected signature.
    pub wanted: String,
}

/// Received notifications and current behaviour.
#[derive(Debug)]
struct State {
    manner: Manner,
    received: Vec<Received>,
    /// Bytes of endless bodies that were accepted.
    flooded: usize,
}

pub struct Receiver {
    pub port: u16,
    state: Arc<Mutex<State>>,
    _serving: JoinSet<()>,
}

impl Receiver {
    pub async fn new(manner: Manner) -> Self {
        Self::at(0, manner).await
    }

    /// Starts on this port.
    pub async fn at(port: u16, manner: Manner) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(Mutex::new(State { manner, received: vec![], flooded: 0 }));
        let mut serving = JoinSet::new();
        let shared = state.clone();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                connections.spawn(serve(connection, shared.clone()));
            }
        });
        Self { port, state, _serving: serving }
    }

    pub fn answers(&self, manner: Manner) {
        self.state.lock().manner = manner;
    }

    /// All received notifications.
    pub fn received(&self) -> Vec<Received> {
        self.state.lock().received.clone()
    }

    pub fn flooded(&self) -> usize {
        self.state.lock().flooded
    }

    /// Settings of admin for this receiver, with short intervals.
    pub fn settings(&self) -> Vec<String> {
        [
            format!("service.notifications.webhook.url=http://127.0.0.1:{}/notices", self.port),
            format!("service.notifications.webhook.secret={SECRET}"),
            "service.notifications.check_every=20ms".to_owned(),
            "service.notifications.min_interval=300ms".to_owned(),
            "service.notifications.grace_period=10s".to_owned(),
            "service.bank={base}".to_owned(),
            "task.retry.base=10ms".to_owned(),
            "task.retry.cap=50ms".to_owned(),
            "task.timeout=300ms".to_owned(),
            "breaker.open_for=50ms".to_owned(),
            "engine.timer_poll=50ms".to_owned(),
        ]
        .into()
    }
}

async fn serve(mut connection: TcpStream, state: Arc<Mutex<State>>) {
    let Some(received) = request(&mut connection).await else { return };
    let manner = {
        let mut state = state.lock();
        state.received.push(received);
        state.manner.clone()
    };
    match manner {
        Manner::Says(words) => {
            let _ = connection.write_all(words.as_bytes()).await;
        }
        Manner::Hangs => std::future::pending().await,
        Manner::Drips => {
            let _ = connection.write_all(b"HTTP/1.1 200 OK\r\nx-drip: ").await;
            while connection.write_all(b"x").await.is_ok() {
                sleep(Duration::from_millis(5)).await;
            }
        }
        Manner::Floods => {
            let _ = connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n").await;
            while connection.write_all(&[b'x'; 65_536]).await.is_ok() {
                state.lock().flooded += 65_536;
            }
        }
    }
}

/// Reads the request of a connection; `None` when it ends before.
async fn request(connection: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    loop {
        if connection.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let headers: BTreeMap<_, _> = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        assert!(head.starts_with("POST /notices HTTP/1.1"), "{head}");
        assert_eq!(headers["content-type"], "application/json");
        if body.len() < headers["content-length"].parse::<usize>().expect("a length") {
            continue;
        }
        let (id, signature) = (headers["webhook-id"].clone(), headers["webhook-signature"].clone());
        let second: i64 = headers["webhook-timestamp"].parse().expect("seconds");
        let secrets = Secret::all_in(SECRET).expect("a secret");
        let wanted = signatures(&secrets, &id, second, body);
        assert!(jiff::Timestamp::now().as_second().abs_diff(second) < 60, "{second} is now");
        return Some(Received { id, signature, wanted, body: serde_json::from_str(body).expect("JSON") });
    }
}

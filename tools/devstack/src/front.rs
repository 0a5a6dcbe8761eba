//! Shell: the front of a system with replicas: whoever connects to the port of a service is carried to one of its processes,
//! by turns to those that say that they are ready. One that says nothing gets nobody, and those who wait for it are let go.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use axum::Json;
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::member::Member;
use super::supervise::ShutdownSignal;
use super::system::System;
use cli::{exit, note};
use client::http::Http;

/// Replicas are asked this often how they are.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// One that is stopped says nothing for so long; one that works hard answers within it.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// On this machine a connection is there at once, or its process has no time for it.
const CONNECTS_WITHIN: Duration = Duration::from_millis(500);

/// How a replica is, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    /// It takes requests.
    Ready,
    /// It answers, and says that it does not.
    Unready,
    /// It does not answer, or has not been asked yet.
    Silent,
}

struct Replica {
    member: Member,
    port: u16,
    health: watch::Sender<Health>,
}

/// The replicas of a service.
struct Service {
    name: Member,
    replicas: Vec<Replica>,
    turn: AtomicUsize,
}

/// `sagactl front`: what `up --replicas` starts. Runs until a signal comes.
pub async fn run(system: System) -> anyhow::Result<ExitCode> {
    let Some(front) = system.layout().front() else {
        return Err(exit::refuse("this system has no replicas, and needs no front"));
    };
    let mut shutdown_signal = ShutdownSignal::listen()?;
    let http = Http::new()?;
    let mut tasks = JoinSet::new();
    let mut services = Vec::new();
    for name in Member::services() {
        let replica = |member| Replica {
            member,
            port: system.port_of(member),
            health: watch::Sender::new(Health::Silent),
        };
        let replicas = name.replicas(system.layout().replicas).map(replica).collect();
        let service = Arc::new(Service { name, replicas, turn: AtomicUsize::new(0) });
        let listener = listen(system.port_of(name), name).await?;
        tasks.spawn(serve(listener, service.clone()));
        for number in 0..service.replicas.len() {
            tasks.spawn(look(http.clone(), service.clone(), number));
        }
        services.push(service);
    }
    let listener = listen(system.port_of(front), front).await?;
    let readiness = axum::Router::new().route("/readyz", get(async move || readiness(&services)));
    tasks.spawn(async move {
        if let Err(error) = axum::serve(listener, readiness).await {
            note(&format!("nobody can ask how this is: {error}"));
        }
    });
    shutdown_signal.recv().await;
    Ok(ExitCode::SUCCESS)
}

async fn listen(port: u16, of: Member) -> anyhow::Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port))
        .await
        .with_context(|| format!("port {port} for {of} cannot be had"))
}

/// Asks one replica over and over how it is.
async fn look(http: Http, service: Arc<Service>, number: usize) {
    let Replica { member, port, health } = &service.replicas[number];
    let url = format!("http://127.0.0.1:{port}/readyz");
    loop {
        let now = match http.get_within(&url, ANSWERS_WITHIN).await {
            Ok(answer) if answer.status.is_success() => Health::Ready,
            Ok(_) => Health::Unready,
            Err(_) => Health::Silent,
        };
        let is_news = health.send_if_modified(|health| std::mem::replace(health, now) != now);
        if is_news {
            note(&format!("{} {member} {}", jiff::Timestamp::now(), said(now)));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

const fn said(health: Health) -> &'static str {
    match health {
        Health::Ready => "takes requests",
        Health::Unready => "answers, and is not ready",
        Health::Silent => "does not answer",
    }
}

/// As a service tells it of itself: ready while each service has somebody who is.
fn readiness(services: &[Arc<Service>]) -> (StatusCode, Json<Value>) {
    let check = |service: &Arc<Service>| {
        let all = service.replicas.len();
        let ready =
            service.replicas.iter().filter(|replica| *replica.health.borrow() == Health::Ready).count();
        let state = match ready {
            0 => "failing",
            some if some < all => "degraded",
            _ => "ok",
        };
        (
            state,
            service.name.to_string(),
            json!({"state": state, "text": format!("{ready} of {all} take requests")}),
        )
    };
    let checks: Vec<_> = services.iter().map(check).collect();
    let is = |wanted: &str| checks.iter().any(|(state, ..)| *state == wanted);
    let (ready, degraded) = (!is("failing"), is("degraded"));
    let checks: serde_json::Map<_, _> = checks.into_iter().map(|(_, name, check)| (name, check)).collect();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({"ready": ready, "degraded": degraded, "checks": checks})))
}

async fn serve(listener: TcpListener, service: Arc<Service>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((client, _)) => drop(connections.spawn(carry(client, service.clone()))),
            // No file is left for it: those that are there end.
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

/// Carries one connection until it ends at either side, or its replica falls silent.
async fn carry(mut client: TcpStream, service: Arc<Service>) {
    let Some((mut server, replica)) = connect(&service).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut health = replica.health.subscribe();
    // What it was before it was chosen does not count: it has taken a connection.
    health.mark_unchanged();
    let silent = async {
        while health.changed().await.is_ok() {
            if *health.borrow_and_update() == Health::Silent {
                return;
            }
        }
    };
    tokio::select! {
        () = silent => {}
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
    }
}

/// A connection to the best that takes one, by turns.
async fn connect(service: &Service) -> Option<(TcpStream, &Replica)> {
    let count = service.replicas.len();
    let turn = service.turn.fetch_add(1, Ordering::Relaxed);
    let mut order: Vec<_> = (0..count).map(|step| &service.replicas[(turn + step) % count]).collect();
    order.sort_by_key(|replica| *replica.health.borrow());
    for replica in order {
        let connected: io::Result<TcpStream> =
            timeout(CONNECTS_WITHIN, TcpStream::connect(("127.0.0.1", replica.port)))
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if let Ok(server) = connected {
            return Some((server, replica));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// A replica that writes its number to whoever connects, and then waits.
    async fn replica(number: u8) -> Replica {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        tokio::spawn(async move {
            let mut taken = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(&[number]).await;
                taken.push(stream);
            }
        });
        Replica { member: Member::ORDER, port, health: watch::Sender::new(Health::Ready) }
    }

    async fn front(replicas: Vec<Replica>) -> (u16, Arc<Service>) {
        let service = Arc::new(Service { name: Member::ORDER, replicas, turn: AtomicUsize::new(0) });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        tokio::spawn(serve(listener, service.clone()));
        (port, service)
    }

    async fn who_answers(port: u16) -> Option<(u8, TcpStream)> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let number = timeout(PATIENCE, stream.read_u8()).await.expect("an answer or an end").ok()?;
        Some((number, stream))
    }

    #[tokio::test]
    async fn requests_go_by_turns_to_those_that_are_ready() {
        let (port, service) = front(vec![replica(1).await, replica(2).await, replica(3).await]).await;
        service.replicas[1].health.send_replace(Health::Unready);
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push(who_answers(port).await.expect("somebody").0);
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [1, 3]);
        for replica in &service.replicas {
            replica.health.send_replace(Health::Unready);
        }
        assert!(who_answers(port).await.is_some(), "what all of them say is for the client to hear");
    }

    #[tokio::test]
    async fn one_that_is_gone_is_passed_over_before_anybody_knows() {
        let gone = {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            listener.local_addr().expect("its address").port()
        };
        let dead = Replica { member: Member::ORDER, port: gone, health: watch::Sender::new(Health::Ready) };
        let (port, _service) = front(vec![dead, replica(2).await]).await;
        for _ in 0..3 {
            assert_eq!(who_answers(port).await.expect("the other").0, 2);
        }
    }

    #[tokio::test]
    async fn whoever_waits_for_one_that_falls_silent_is_let_go() {
        let (port, service) = front(vec![replica(1).await]).await;
        let (_, mut stream) = who_answers(port).await.expect("somebody");
        service.replicas[0].health.send_replace(Health::Unready);
        service.replicas[0].health.send_replace(Health::Silent);
        let ended = timeout(PATIENCE, stream.read_u8()).await.expect("an end");
        assert!(ended.is_err(), "{ended:?}");
    }
}

//! Shell: the load balancer of a system with replicas. It forwards connections in turn to replicas that are ready, and
//! closes those of a replica that stops answering.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use cli::{exit, note};
use client::http::Http;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::component::Component;
use super::supervise::ShutdownSignal;
use super::system::System;

/// Interval between two health checks of a replica.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// A stopped process answers nothing; a busy one answers within this.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// On one machine a connection is accepted at once, unless the process has no time for it.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Health of a replica, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Health {
    Ready,
    NotReady,
    /// No answer, or not checked yet.
    Silent,
}

struct Replica {
    component: Component,
    port: u16,
    health: watch::Sender<Health>,
}

struct Service {
    replicas: Vec<Replica>,
    next: AtomicUsize,
}

/// `sagactl proxy`, which `up --replicas` starts. Runs until a shutdown signal.
pub async fn run(system: System) -> anyhow::Result<()> {
    if system.layout().proxy().is_none() {
        return Err(exit::rejected("this system has no replicas and needs no load balancer"));
    }
    let mut shutdown_signal = ShutdownSignal::listen()?;
    let http = Http::new()?;
    let mut tasks = JoinSet::new();
    for name in Component::services() {
        let replica = |component| Replica {
            component,
            port: system.port_of(component),
            health: watch::Sender::new(Health::Silent),
        };
        let replicas = name.replicas(system.layout().replicas).map(replica).collect();
        let service = Arc::new(Service { replicas, next: AtomicUsize::new(0) });
        let port = system.port_of(name);
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .with_context(|| format!("port {port} of {name} cannot be used"))?;
        tasks.spawn(serve(listener, service.clone()));
        for number in 0..service.replicas.len() {
            tasks.spawn(check(http.clone(), service.clone(), number));
        }
    }
    shutdown_signal.recv().await;
    Ok(())
}

/// Checks the health of a replica periodically.
async fn check(http: Http, service: Arc<Service>, number: usize) {
    let Replica { component, port, health } = &service.replicas[number];
    let url = format!("http://127.0.0.1:{port}/readyz");
    loop {
        let now = match http.get_within(&url, CHECK_TIMEOUT).await {
            Ok(answer) if answer.status.is_success() => Health::Ready,
            Ok(_) => Health::NotReady,
            Err(_) => Health::Silent,
        };
        if health.send_if_modified(|health| std::mem::replace(health, now) != now) {
            note(&format!("{} {component} {}", jiff::Timestamp::now(), label(now)));
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

const fn label(health: Health) -> &'static str {
    match health {
        Health::Ready => "is ready",
        Health::NotReady => "is not ready",
        Health::Silent => "does not answer",
    }
}

async fn serve(listener: TcpListener, service: Arc<Service>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((client, _)) => drop(connections.spawn(forward(client, service.clone()))),
            // Out of file descriptors: wait for connections to end.
            Err(_) => tokio::time::sleep(CHECK_EVERY).await,
        }
    }
}

/// Forwards a connection until either side ends it or the replica becomes silent.
async fn forward(mut client: TcpStream, service: Arc<Service>) {
    let Some((mut server, replica)) = connect(&service).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut health = replica.health.subscribe();
    // Earlier checks do not count: the replica has just accepted a connection.
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

/// Connects to the healthiest replica that accepts, in turn.
async fn connect(service: &Service) -> Option<(TcpStream, &Replica)> {
    let count = service.replicas.len();
    let next = service.next.fetch_add(1, Ordering::Relaxed);
    let mut order: Vec<_> = (0..count).map(|step| &service.replicas[(next + step) % count]).collect();
    order.sort_by_key(|replica| *replica.health.borrow());
    for replica in order {
        let connected: io::Result<TcpStream> =
            timeout(CONNECT_TIMEOUT, TcpStream::connect(("127.0.0.1", replica.port)))
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

    const TIME_LIMIT: Duration = Duration::from_secs(10);

    /// A replica that writes its number to each client and keeps the connection open.
    async fn replica(number: u8) -> Replica {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(&[number]).await;
                open.push(stream);
            }
        });
        Replica { component: Component::ORDER, port, health: watch::Sender::new(Health::Ready) }
    }

    async fn proxy(replicas: Vec<Replica>) -> (u16, Arc<Service>) {
        let service = Arc::new(Service { replicas, next: AtomicUsize::new(0) });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        tokio::spawn(serve(listener, service.clone()));
        (port, service)
    }

    async fn connected_replica(port: u16) -> Option<(u8, TcpStream)> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let number = timeout(TIME_LIMIT, stream.read_u8()).await.expect("an answer or an end").ok()?;
        Some((number, stream))
    }

    #[tokio::test]
    async fn connections_go_in_turn_to_ready_replicas() {
        let (port, service) = proxy(vec![replica(1).await, replica(2).await, replica(3).await]).await;
        service.replicas[1].health.send_replace(Health::NotReady);
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push(connected_replica(port).await.expect("a replica").0);
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [1, 3]);
        for replica in &service.replicas {
            replica.health.send_replace(Health::NotReady);
        }
        assert!(connected_replica(port).await.is_some(), "their answer is better than none");
    }

    #[tokio::test]
    async fn unreachable_replica_is_skipped_before_its_next_check() {
        let gone = {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            listener.local_addr().expect("its address").port()
        };
        let health = watch::Sender::new(Health::Ready);
        let dead = Replica { component: Component::ORDER, port: gone, health };
        let (port, _service) = proxy(vec![dead, replica(2).await]).await;
        for _ in 0..3 {
            assert_eq!(connected_replica(port).await.expect("the other").0, 2);
        }
    }

    #[tokio::test]
    async fn connections_to_a_replica_that_becomes_silent_are_closed() {
        let (port, service) = proxy(vec![replica(1).await]).await;
        let (_, mut stream) = connected_replica(port).await.expect("a replica");
        service.replicas[0].health.send_replace(Health::NotReady);
        service.replicas[0].health.send_replace(Health::Silent);
        let ended = timeout(TIME_LIMIT, stream.read_u8()).await.expect("an end");
        assert!(ended.is_err(), "{ended:?}");
    }
}

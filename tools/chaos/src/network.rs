//! Shell: connections between the processes, forwarded by this one, so that they can be cut.

use std::collections::BTreeMap;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::plan::{self, Link};
use devstack::{Component, Layout, Ports, postgres_url};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    Whole,
    /// Connections are closed, and new ones are closed at once.
    Cut,
    /// Connections stay, and data are delayed until the link is whole again.
    Silent,
}

/// Links of a system. They end when this is dropped.
pub struct Links {
    states: BTreeMap<Link, (u16, watch::Sender<LinkState>)>,
    _serving: JoinSet<()>,
}

impl Links {
    /// Opens a port for each link of a system.
    pub async fn open(ports: Ports, layout: Layout) -> io::Result<Self> {
        let (mut states, mut serving) = (BTreeMap::new(), JoinSet::new());
        for link in plan::links(layout) {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let port = listener.local_addr()?.port();
            let (sender, state) = watch::channel(LinkState::Whole);
            states.insert(link, (port, sender));
            serving.spawn(serve(listener, ports.of(link.to), state));
        }
        Ok(Self { states, _serving: serving })
    }

    /// Settings by which the processes use these links.
    pub fn settings(&self) -> impl Iterator<Item = String> {
        let mut brokers: BTreeMap<Component, Vec<String>> = BTreeMap::new();
        let mut settings = Vec::new();
        for (Link { from, to }, (port, _)) in &self.states {
            match to.kind() {
                Component::NATS => brokers.entry(*from).or_default().push(format!("nats://127.0.0.1:{port}")),
                Component::POSTGRES => {
                    settings.push(format!("{from}.store.url={}", postgres_url(*from, *port)))
                }
                _ => settings.push(format!("{from}.service.{to}=http://127.0.0.1:{port}")),
            }
        }
        settings.extend(brokers.into_iter().map(|(from, urls)| format!("{from}.bus.url={}", urls.join(","))));
        settings.into_iter()
    }

    pub fn set(&self, link: Link, state: LinkState) {
        if let Some((_, sender)) = self.states.get(&link) {
            sender.send_replace(state);
        }
    }
}

async fn serve(listener: TcpListener, to: u16, state: watch::Receiver<LinkState>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else { continue };
        // On a cut link the connection is dropped at once.
        if *state.borrow() != LinkState::Cut {
            connections.spawn(forward(stream, to, state.clone()));
        }
    }
}

/// Forwards a connection until either side ends it or the link is cut.
async fn forward(client: TcpStream, to: u16, state: watch::Receiver<LinkState>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((client_reads, client_writes), (server_reads, server_writes)) =
        (client.into_split(), server.into_split());
    let mut cut = state.clone();
    tokio::select! {
        _ = cut.wait_for(|state| *state == LinkState::Cut) => {}
        _ = pump(client_reads, server_writes, state.clone()) => {}
        _ = pump(server_reads, client_writes, state) => {}
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<LinkState>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        if state.wait_for(|state| *state != LinkState::Silent).await.is_err() {
            return Ok(());
        }
        to.write_all(&buffer[..count]).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const TIME_LIMIT: Duration = Duration::from_secs(10);
    /// Time in which nothing must arrive.
    const SILENCE: Duration = Duration::from_millis(50);

    /// A link to an echo server.
    async fn link() -> (u16, watch::Sender<LinkState>) {
        let echo = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let to = echo.local_addr().expect("its address").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = echo.accept().await {
                tokio::spawn(async move {
                    let (mut reads, mut writes) = stream.split();
                    let _ = tokio::io::copy(&mut reads, &mut writes).await;
                });
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let (sender, state) = watch::channel(LinkState::Whole);
        tokio::spawn(serve(listener, to, state));
        (port, sender)
    }

    async fn echoed(stream: &mut TcpStream) -> Option<u8> {
        stream.write_all(b"x").await.ok()?;
        let mut answer = [0];
        timeout(TIME_LIMIT, stream.read_exact(&mut answer)).await.expect("an end").ok()?;
        Some(answer[0])
    }

    #[tokio::test]
    async fn silent_link_delays_data_and_cut_link_closes_connections() {
        let (port, state) = link().await;
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
        assert_eq!(echoed(&mut stream).await, Some(b'x'));

        state.send_replace(LinkState::Silent);
        stream.write_all(b"y").await.expect("somebody reads");
        let mut answer = [0];
        assert!(timeout(SILENCE, stream.read_exact(&mut answer)).await.is_err(), "nothing comes");
        state.send_replace(LinkState::Whole);
        timeout(TIME_LIMIT, stream.read_exact(&mut answer)).await.expect("in time").expect("it comes");
        assert_eq!(&answer, b"y");

        state.send_replace(LinkState::Cut);
        assert_eq!(echoed(&mut stream).await, None);
        let mut refused = TcpStream::connect(("127.0.0.1", port)).await.expect("the port is there");
        assert_eq!(echoed(&mut refused).await, None);
        state.send_replace(LinkState::Whole);
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
        assert_eq!(echoed(&mut stream).await, Some(b'x'));
    }
}

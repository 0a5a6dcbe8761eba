//! Shell: connections between the processes, forwarded by this one, so that they can be cut.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

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
    /// Days by which the clocks of the brokers are ahead.
    days_ahead: Arc<AtomicI64>,
    _serving: JoinSet<()>,
}

impl Links {
    /// Opens a port for each link of a system.
    pub async fn open(ports: Ports, layout: Layout) -> io::Result<Self> {
        let (mut states, mut serving) = (BTreeMap::new(), JoinSet::new());
        let days_ahead = Arc::new(AtomicI64::new(0));
        for link in plan::links(layout) {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let port = listener.local_addr()?.port();
            let (sender, state) = watch::channel(LinkState::Whole);
            states.insert(link, (port, sender));
            let clock = (link.to.kind() == Component::NATS).then(|| days_ahead.clone());
            serving.spawn(serve(listener, ports.of(link.to), state, clock));
        }
        Ok(Self { states, days_ahead, _serving: serving })
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

    /// Sets the clocks of the brokers ahead, as all processes see them.
    pub fn set_days_ahead(&self, days: i64) {
        self.days_ahead.store(days, Ordering::SeqCst);
    }
}

/// Clock of a server: the days by which it is ahead. `None` if its answers name no time.
type Clock = Option<Arc<AtomicI64>>;

async fn serve(listener: TcpListener, to: u16, state: watch::Receiver<LinkState>, clock: Clock) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else { continue };
        // On a cut link the connection is dropped at once.
        if *state.borrow() != LinkState::Cut {
            connections.spawn(forward(stream, to, state.clone(), clock.clone()));
        }
    }
}

/// Forwards a connection until either side ends it or the link is cut.
async fn forward(client: TcpStream, to: u16, state: watch::Receiver<LinkState>, clock: Clock) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((client_reads, client_writes), (server_reads, server_writes)) =
        (client.into_split(), server.into_split());
    let mut cut = state.clone();
    tokio::select! {
        _ = cut.wait_for(|state| *state == LinkState::Cut) => {}
        _ = pump(client_reads, server_writes, state.clone(), None) => {}
        _ = pump(server_reads, client_writes, state, clock) => {}
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<LinkState>,
    clock: Clock,
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
        if let Some(days @ 1..) = clock.as_ref().map(|clock| clock.load(Ordering::SeqCst)) {
            shift_times(&mut buffer[..count], days);
        }
        to.write_all(&buffer[..count]).await?;
    }
}

/// Member of an answer of the broker with its time.
const TIME: &[u8] = b"\"ts\":\"";
/// Length of a date as in `2026-11-27`.
const DATE: usize = 10;

/// Sets the times in answers of the broker ahead. Nothing changes its length. A time that two reads divide stays, as one answer
/// of many.
fn shift_times(bytes: &mut [u8], days: i64) {
    let starts = bytes.windows(TIME.len()).enumerate().filter(|(_, part)| *part == TIME);
    let dates: Vec<_> = starts.map(|(at, _)| at + TIME.len()..at + TIME.len() + DATE).collect();
    for date in dates {
        let Some(date) = bytes.get_mut(date) else { continue };
        let parsed = str::from_utf8(date).ok().and_then(|date| date.parse::<jiff::civil::Date>().ok());
        if let Some(shifted) = parsed.and_then(|date| date.checked_add(jiff::Span::new().days(days)).ok()) {
            date.copy_from_slice(shifted.to_string().as_bytes());
        }
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
        tokio::spawn(serve(listener, to, state, None));
        (port, sender)
    }

    async fn echoed(stream: &mut TcpStream) -> Option<u8> {
        stream.write_all(b"x").await.ok()?;
        let mut answer = [0];
        timeout(TIME_LIMIT, stream.read_exact(&mut answer)).await.expect("an end").ok()?;
        Some(answer[0])
    }

    #[test]
    fn times_of_the_broker_are_shifted_and_nothing_else_changes() {
        let mut bytes =
            br#"{"type":"x","ts":"2026-12-31T23:59:59.1Z","created":"2026-12-31"} "ts":"2026-"#.to_vec();
        shift_times(&mut bytes, 2);
        let shown = r#"{"type":"x","ts":"2027-01-02T23:59:59.1Z","created":"2026-12-31"} "ts":"2026-"#;
        assert_eq!(String::from_utf8_lossy(&bytes), shown);
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

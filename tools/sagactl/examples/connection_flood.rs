//! Shell: opens connections to a server and keeps them open: `connection_flood ADDRESS NUMBER SECONDS [half-open]`. For
//! `scripts/connection-flood.sh`.
//!
//! A connection that the server closes is opened again. Fails if fewer connections were opened than asked for.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Start of a request that never ends.
const HALF_REQUEST: &str =
    "POST /api/orders HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-half: ";
/// Pause before a closed connection is opened again.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of opened connections.
static OPENED: AtomicUsize = AtomicUsize::new(0);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("connection_flood ADDRESS NUMBER SECONDS [half-open]");
    let (address, number, seconds): (SocketAddr, usize, u64) =
        (next()?.parse()?, next()?.parse()?, next()?.parse()?);
    let request = if next().is_ok() { HALF_REQUEST } else { "" };
    let mut connections = JoinSet::new();
    for _ in 0..number {
        connections.spawn(keep_open(address, request));
    }
    let all_closed = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(Duration::from_secs(seconds), all_closed).await;
    let opened = OPENED.load(Ordering::Relaxed);
    ensure!(opened >= number, "{opened} of {number} connections were opened to {address}");
    Ok(())
}

async fn keep_open(address: SocketAddr, request: &'static str) {
    loop {
        if let Ok(mut stream) = TcpStream::connect(address).await {
            OPENED.fetch_add(1, Ordering::Relaxed);
            let _ = stream.write_all(request.as_bytes()).await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        sleep(PAUSE).await;
    }
}

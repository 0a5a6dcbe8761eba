//! Shell: opens connections to a server and holds them: `held ADDRESS NUMBER SECONDS [half-open]`. For `scripts/connection-flood.sh`.
//!
//! Whoever is closed by the other side comes again, as somebody who means it would. It fails when fewer connections were
//! made than were wanted.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The beginning of a request that never ends.
const HALF: &str =
    "POST /api/orders HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-half: ";
/// Before whoever was closed comes again.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections so far.
static MADE: AtomicUsize = AtomicUsize::new(0);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("held ADDRESS NUMBER SECONDS [half-open]");
    let (address, number, seconds): (SocketAddr, usize, u64) =
        (next()?.parse()?, next()?.parse()?, next()?.parse()?);
    let said = if next().is_ok() { HALF } else { "" };
    let mut held = JoinSet::new();
    for _ in 0..number {
        held.spawn(hold(address, said));
    }
    let _ = timeout(Duration::from_secs(seconds), async { while held.join_next().await.is_some() {} }).await;
    let made = MADE.load(Ordering::Relaxed);
    ensure!(made >= number, "{made} of {number} connections were made with {address}");
    Ok(())
}

async fn hold(address: SocketAddr, said: &'static str) {
    loop {
        if let Ok(mut stream) = TcpStream::connect(address).await {
            MADE.fetch_add(1, Ordering::Relaxed);
            let _ = stream.write_all(said.as_bytes()).await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        sleep(PAUSE).await;
    }
}
